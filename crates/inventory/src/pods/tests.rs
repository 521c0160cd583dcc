use serde_json::{Value, json};

use super::*;
use crate::fake::{DRIVER, arrived};

const UID: &str = "6f1c9a54-7b3e-4d2c-8a1f-0123456789ab";

fn pod(name: &str, uid: &str, node: &str, phase: &str, volumes: &Value) -> Value {
    json!({
        "metadata": {"name": name, "namespace": "ns", "uid": uid, "resourceVersion": "1"},
        "spec": {"nodeName": node, "volumes": volumes},
        "status": {"phase": phase},
    })
}

fn claim(name: &str) -> Value {
    json!([{"name": "v", "persistentVolumeClaim": {"claimName": name}}])
}

fn put(pods: &Pods, object: &Value) {
    let object = arrived(object);
    pods.put(&object, object.body.as_ref().unwrap()).unwrap();
}

/// `name: claims`, with `!` for terminating and `+` for inline volumes.
fn on(pods: &Pods, node: &str) -> Vec<String> {
    let show = |used: PodUse| {
        let marks = [(used.terminating, "!"), (used.inline, "+")];
        let marks: String = marks.iter().filter(|(set, _)| *set).map(|(_, mark)| *mark).collect();
        format!("{}{marks}: {}", used.pod.name, used.claims.join(" "))
    };
    pods.on(node).into_iter().map(show).collect()
}

fn pods() -> Pods {
    Pods::new(DRIVER, Arc::new(Notify::new()))
}

#[test]
fn a_pod_that_is_scheduled_late_is_seen() {
    let pods = pods();
    put(&pods, &pod("a", UID, "", "Pending", &claim("data")));
    assert!(pods.is_empty());
    put(&pods, &pod("a", UID, "n1", "Pending", &claim("data")));
    assert_eq!(on(&pods, "n1"), ["a: data"]);
    assert_eq!(pods.on("n1")[0].pod, ObjectRef::new(Kind::Pod, "ns", "a", UID));
}

#[test]
fn a_finished_pod_uses_nothing() {
    for phase in ["Succeeded", "Failed"] {
        let pods = pods();
        put(&pods, &pod("a", "u", "n1", "Running", &claim("data")));
        put(&pods, &pod("a", "u", "n1", phase, &claim("data")));
        assert!(pods.is_empty(), "{phase}");
    }
}

#[test]
fn only_volumes_that_may_be_ours_count() {
    let volumes = json!([
        {"name": "data", "persistentVolumeClaim": {"claimName": "claim"}},
        {"name": "scratch", "ephemeral": {"volumeClaimTemplate": {}}},
        {"name": "secret", "secret": {}},
        {"name": "inline", "csi": {"driver": DRIVER}},
    ]);
    let pods = pods();
    put(&pods, &pod("a", "u1", "n1", "Running", &volumes));
    put(&pods, &pod("b", "u2", "n1", "Running", &json!([{"name": "x", "csi": {"driver": "other"}}])));
    put(&pods, &pod("c", "u3", "n1", "Running", &json!([{"name": "x", "emptyDir": {}}])));
    put(&pods, &pod("d", "u4", "n1", "Running", &json!([{"name": "x", "csi": {"driver": DRIVER}}])));
    put(&pods, &pod("e", "u5", "n1", "Running", &json!(null)));
    put(&pods, &pod("f", "u6", "n1", "Running", &claim("one/two")));
    assert_eq!(on(&pods, "n1"), ["a+: claim a-scratch", "d+: "]);
}

#[test]
fn a_terminating_pod_still_counts() {
    let pods = pods();
    let mut object = pod("a", "u", "n1", "Running", &claim("data"));
    object["metadata"]["deletionTimestamp"] = json!("2026-03-01T10:00:00Z");
    put(&pods, &object);
    assert_eq!(on(&pods, "n1"), ["a!: data"]);
}

#[test]
fn a_pod_that_moved_away_is_another_pod() {
    let pods = pods();
    put(&pods, &pod("a-0", "u1", "n1", "Running", &claim("data")));
    put(&pods, &pod("a-0", "u2", "n2", "Running", &claim("data")));
    assert_eq!(
        (on(&pods, "n1"), on(&pods, "n2")),
        (vec!["a-0: data".to_owned()], vec!["a-0: data".to_owned()])
    );
    pods.take(&arrived(&pod("a-0", "u1", "n1", "Running", &claim("data"))));
    assert_eq!((on(&pods, "n1").len(), pods.len()), (0, 1));
}

#[test]
fn a_list_removes_what_it_does_not_show_but_spares_what_it_could_not_read() {
    let pods = pods();
    pods.begin();
    for name in ["a", "b", "c"] {
        put(&pods, &pod(name, name, "n1", "Running", &claim("data")));
    }
    pods.sweep(&Spared::default());
    pods.begin();
    put(&pods, &pod("a", "a", "n1", "Running", &claim("data")));
    pods.sweep(&Spared::of(&[("ns", "b")]));
    assert_eq!(on(&pods, "n1"), ["a: data", "b: data"]);
    pods.take(&arrived(&json!({"metadata": {"name": "b", "namespace": "ns", "uid": "b"}, "spec": 3})));
    assert_eq!(on(&pods, "n1"), ["a: data"]);
    pods.begin();
    pods.sweep(&Spared::default());
    assert!(pods.is_empty());
}

/// Tasks that wait are woken by changes that matter, and by nothing else: pods send their status all the time.
#[test]
fn only_what_matters_wakes() {
    let pods = pods();
    let woken = || {
        let mut waiting = std::pin::pin!(pods.woken.notified());
        let mut context = std::task::Context::from_waker(std::task::Waker::noop());
        waiting.as_mut().poll(&mut context).is_ready()
    };
    put(&pods, &pod("a", "u", "n1", "Pending", &claim("data")));
    assert!(woken());
    put(&pods, &pod("a", "u", "n1", "Running", &claim("data")));
    assert!(!woken());
    pods.begin();
    put(&pods, &pod("a", "u", "n1", "Running", &claim("data")));
    pods.sweep(&Spared::default());
    assert!(!woken());
    put(&pods, &pod("a", "u", "n1", "Succeeded", &claim("data")));
    assert!(woken());
}
