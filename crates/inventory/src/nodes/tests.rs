use serde_json::{Value, json};

use super::*;
use crate::fake::arrived;
use crate::trouble::Trouble;

fn node(name: &str, status: &str, taints: &Value) -> Value {
    json!({
        "metadata": {"name": name, "uid": "u", "resourceVersion": "1", "creationTimestamp": "2026-03-01T10:00:00Z"},
        "spec": {"taints": taints},
        "status": {"conditions": [
            {"type": "MemoryPressure", "status": "True"},
            {"type": "Ready", "status": status, "reason": "Because", "lastTransitionTime": "2026-03-01T11:00:00Z"},
        ]},
    })
}

fn seen(object: &Value) -> NodeSight {
    let object: Arrived<slim::Node> = arrived(object);
    NodeSight::new(&object, object.body.as_ref().unwrap())
}

#[test]
fn what_is_seen_of_a_node() {
    let expected = NodeSight {
        name: "n1".into(),
        uid: "u".into(),
        created: Some("2026-03-01T10:00:00Z".parse().unwrap()),
        ready: Some(Ready {
            status: ReadyStatus::Unknown,
            reason: "Because".into(),
            since: Some("2026-03-01T11:00:00Z".parse().unwrap()),
        }),
        unreachable: false,
        out_of_service: false,
    };
    assert_eq!(seen(&node("n1", "Unknown", &json!(null))), expected);
    assert_eq!(seen(&node("n1", "True", &json!(null))).ready.unwrap().status, ReadyStatus::True);
    assert_eq!(seen(&node("n1", "False", &json!(null))).ready.unwrap().status, ReadyStatus::False);
    assert_eq!(seen(&json!({"metadata": {"name": "n1"}})).ready, None);
}

#[test]
fn taints_count_by_key_and_effect() {
    let taints = |key: &str, effect: &str| {
        let node = seen(&node(
            "n1",
            "Unknown",
            &json!([{"key": "x", "effect": "y"}, {"key": key, "effect": effect}]),
        ));
        (node.unreachable, node.out_of_service)
    };
    assert_eq!(taints("node.kubernetes.io/unreachable", "NoExecute"), (true, false));
    // This one comes earlier and only keeps new pods away.
    assert_eq!(taints("node.kubernetes.io/unreachable", "NoSchedule"), (false, false));
    assert_eq!(taints("node.kubernetes.io/out-of-service", "NoExecute"), (false, true));
    assert_eq!(taints("node.kubernetes.io/not-ready", "NoExecute"), (false, false));
}

#[test]
fn nobody_is_gone_before_everybody_was_listed_and_nobody_is_judged_from_memory() {
    let woken = Arc::new(Notify::new());
    let link = Arc::new(Link::new("nodes", woken.clone()));
    let nodes = Nodes::new(link.clone(), woken);
    let put = |name: &str| {
        let object = arrived(&node(name, "True", &json!([])));
        nodes.put(&object, object.body.as_ref().unwrap()).unwrap();
    };
    nodes.begin();
    put("n1");
    assert_eq!(nodes.current(), None);
    put("n2");
    nodes.sweep(&Spared::default());
    link.listed();
    assert_eq!(nodes.current().unwrap().len(), 2);
    nodes.begin();
    put("n1");
    nodes.sweep(&Spared::default());
    assert_eq!(nodes.current().unwrap().len(), 1);
    link.lost(&Trouble::Cut { resource: "nodes" });
    assert_eq!(nodes.current(), None);
    assert!(nodes.get("n1").is_some());
    link.in_touch();
    nodes.take(&arrived(&node("n1", "True", &json!([]))));
    assert_eq!((nodes.current().unwrap().len(), nodes.get("n1")), (0, None));
}
