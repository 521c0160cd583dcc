//! Nodes that go down, reported on every claim that is used there and on no other.

use std::time::Duration;

use k8s_openapi::api::core::v1::{Node, Pod};
use kube::Api;
use kube::api::{DeleteParams, PostParams};
use serde_json::{Value, json};
use volmedic_testkit::{objects, sim::capability as can};

use crate::process::Controller;
use crate::stage::Stage;

/// Short, and longer than it takes to see a node once.
const GRACE: Duration = Duration::from_secs(2);
const WATCH_NODES: &[&str] = &["--enable-node-watcher", "--node-grace-period=2s"];

/// Nodes belong to the whole cluster, so their names carry the test's namespace.
impl Stage {
    fn node_name(&self, name: &str) -> String {
        format!("{}-{name}", self.namespace)
    }

    async fn nodes(&self, names: &[&str]) {
        for name in names {
            objects::node(&self.client, &self.node_name(name)).await.expect("a node");
        }
    }

    async fn set_ready(&self, node: &str, status: &str) {
        objects::set_node_ready(&self.client, &self.node_name(node), status).await.expect("a condition");
    }

    async fn delete_node(&self, node: &str) {
        let api = Api::<Node>::all(self.client.clone());
        api.delete(&self.node_name(node), &DeleteParams::default()).await.expect("the node can be deleted");
    }

    fn pods(&self) -> Api<Pod> {
        Api::namespaced(self.client.clone(), &self.namespace)
    }

    /// A pod on a node that uses claims.
    async fn pod(&self, name: &str, node: &str, claims: &[&str]) {
        let node = self.node_name(node);
        objects::pod(&self.client, &self.namespace, name, &node, claims).await.expect("a pod");
    }

    /// A pod with these volumes that is on no node yet, or on this one.
    async fn raw_pod(&self, name: &str, node: Option<&str>, volumes: Value) {
        let pod = json!({
            "metadata": {"name": name},
            "spec": {
                "nodeName": node.map(|node| self.node_name(node)),
                "containers": [{"name": "main", "image": "none"}],
                "volumes": volumes,
            },
        });
        let pod = serde_json::from_value(pod).expect("a pod");
        self.pods().create(&PostParams::default(), &pod).await.expect("the pod is created");
    }

    /// Places a pod on a node, as the scheduler does.
    async fn bind(&self, pod: &str, node: &str) {
        let binding = json!({
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": {"name": pod},
            "target": {"apiVersion": "v1", "kind": "Node", "name": self.node_name(node)},
        });
        let bound: Value = self
            .pods()
            .create_subresource("binding", pod, &PostParams::default(), &binding)
            .await
            .expect("it is bound");
        assert_eq!(bound["status"], "Success", "{bound}");
    }

    async fn delete_pod(&self, name: &str) {
        let immediately = DeleteParams::default().grace_period(0);
        self.pods().delete(name, &immediately).await.expect("the pod can be deleted");
    }
}

async fn stage() -> Stage {
    Stage::new(&[can::LIST_VOLUME_HEALTH, can::GET_VOLUME_HEALTH]).await
}

fn is_warning(event: &k8s_openapi::api::core::v1::Event) -> bool {
    event.type_.as_deref() == Some("Warning")
}

fn claim_volume(claim: &str) -> Value {
    json!([{"name": "data", "persistentVolumeClaim": {"claimName": claim}}])
}

#[tokio::test]
async fn a_node_that_falls_silent_and_comes_back() {
    let stage = stage().await;
    stage.nodes(&["silent", "well"]).await;
    stage.claims(&["data", "elsewhere", "unused"]).await;
    stage.pod("web-0", "silent", &["data"]).await;
    stage.pod("web-1", "silent", &["data"]).await;
    stage.pod("other", "well", &["elsewhere"]).await;
    let controller = stage.watching(WATCH_NODES).await;

    stage.set_ready("silent", "Unknown").await;
    let reported = stage.event("data", "NodeFailed", &stage.node_name("silent")).await;
    assert!(is_warning(&reported), "{reported:#?}");
    let message = reported.message.unwrap_or_default();
    assert!(message.contains("web-0, web-1"), "it names the pods: {message}");
    stage.wait_stored("data", &["Inaccessible/NodeDown"]).await;

    stage.set_ready("silent", "True").await;
    let reported = stage.event("data", "NodeRecovered", "recovered from").await;
    assert!(!is_warning(&reported), "good news is no warning: {reported:#?}");
    stage.wait_stored("data", &[]).await;
    let counts: Vec<_> = stage.events("data").await.iter().map(|event| event.count).collect();
    assert_eq!(counts, [Some(1), Some(1)], "the failure once, its end once");
    for quiet in ["elsewhere", "unused"] {
        assert!(stage.events(quiet).await.is_empty(), "{quiet} is not on that node");
    }
    assert_eq!(controller.terminate(), Some(0));
}

#[tokio::test]
async fn a_node_that_is_not_ready_for_less_than_the_grace_is_not_down() {
    let stage = stage().await;
    stage.nodes(&["busy"]).await;
    stage.claims(&["data"]).await;
    stage.pod("web-0", "busy", &["data"]).await;
    let controller = stage.watching(&["--enable-node-watcher", "--node-grace-period=1h"]).await;
    stage.set_ready("busy", "False").await;
    stage.rounds("ControllerListVolumeHealth", 3).await;
    assert!(stage.events("data").await.is_empty());
    assert_eq!(controller.terminate(), Some(0));
}

#[tokio::test]
async fn a_node_that_is_deleted() {
    let stage = stage().await;
    stage.nodes(&["gone"]).await;
    stage.claims(&["data"]).await;
    stage.pod("web-0", "gone", &["data"]).await;
    let mut controller = stage.watching(WATCH_NODES).await;
    stage.delete_node("gone").await;
    stage.event("data", "NodeFailed", "it was deleted from the cluster").await;
    // Somebody takes the pod away from the node that is no more.
    stage.delete_pod("web-0").await;
    stage.event("data", "NodeRecovered", "recovered from").await;
    assert!(controller.is_running(), "{}", controller.log());
}

#[tokio::test]
async fn pods_that_are_scheduled_late_and_pods_that_move_away() {
    let stage = stage().await;
    stage.nodes(&["failing", "well"]).await;
    stage.claims(&["early", "late"]).await;
    let _controller = stage.watching(WATCH_NODES).await;
    stage.raw_pod("early", None, claim_volume("early")).await;
    stage.raw_pod("late", None, claim_volume("late")).await;
    stage.bind("early", "failing").await;
    stage.set_ready("failing", "Unknown").await;
    stage.event("early", "NodeFailed", "used there by pod early").await;
    assert!(stage.events("late").await.is_empty(), "its pod is nowhere yet");

    stage.bind("late", "failing").await;
    stage.event("late", "NodeFailed", "used there by pod late").await;

    stage.delete_pod("early").await;
    stage.raw_pod("early", Some("well"), claim_volume("early")).await;
    stage.event("early", "NodeRecovered", "recovered from").await;
    let late = stage.events("late").await;
    assert_eq!(late.len(), 1, "the other pod is still there: {late:#?}");
}

#[tokio::test]
async fn inline_and_generic_ephemeral_volumes() {
    let stage = stage().await;
    stage.nodes(&["failing"]).await;
    // What the ephemeral-volume controller makes of the pod's template.
    stage.claims(&["worker-scratch"]).await;
    let template = json!({"spec": {
        "accessModes": ["ReadWriteOnce"],
        "resources": {"requests": {"storage": "1Gi"}},
    }});
    let volumes = json!([
        {"name": "secrets", "csi": {"driver": stage.driver}},
        {"name": "scratch", "ephemeral": {"volumeClaimTemplate": template}},
    ]);
    stage.raw_pod("worker", Some("failing"), volumes).await;
    let others = json!([{"name": "secrets", "csi": {"driver": "another.example.net"}}]);
    stage.raw_pod("stranger", Some("failing"), others).await;
    let _controller = stage.watching(WATCH_NODES).await;
    stage.set_ready("failing", "False").await;
    let reported = stage.event("worker", "NodeFailed", &stage.node_name("failing")).await;
    assert_eq!(reported.involved_object.kind.as_deref(), Some("Pod"), "an inline volume has no claim");
    assert!(reported.involved_object.uid.is_some_and(|uid| !uid.is_empty()));
    stage.event("worker-scratch", "NodeFailed", "used there by pod worker").await;
    stage.set_ready("failing", "True").await;
    stage.event("worker", "NodeRecovered", "recovered from").await;
    stage.event("worker-scratch", "NodeRecovered", "recovered from").await;
    assert!(stage.events("stranger").await.is_empty(), "another driver's inline volume");
}

/// Two nodes are down, one that does not respond and one that is deleted, and that is reported on two claims and on a pod with an inline volume.
async fn reported_as_down() -> (Stage, Controller) {
    let stage = stage().await;
    stage.nodes(&["silent", "deleted"]).await;
    stage.claims(&["one", "two"]).await;
    stage.pod("pod-one", "silent", &["one"]).await;
    stage.pod("pod-two", "deleted", &["two"]).await;
    let inline = json!([{"name": "secrets", "csi": {"driver": stage.driver}}]);
    stage.raw_pod("inline", Some("silent"), inline).await;
    let controller = stage.watching(WATCH_NODES).await;
    stage.set_ready("silent", "Unknown").await;
    stage.delete_node("deleted").await;
    for object in ["one", "two", "inline"] {
        stage.event(object, "NodeFailed", "").await;
    }
    for claim in ["one", "two"] {
        stage.wait_stored(claim, &["Inaccessible/NodeDown"]).await;
    }
    (stage, controller)
}

#[tokio::test]
async fn a_restart_while_nodes_are_down_neither_repeats_nor_takes_back() {
    let (stage, mut controller) = reported_as_down().await;
    controller.kill();
    let before = (stage.all_events().await, stage.requests_noted().await);

    let controller = stage.watching(WATCH_NODES).await;
    // Longer than the grace, which starts over for a process that knows nothing.
    tokio::time::sleep(GRACE * 2).await;
    stage.rounds("ControllerListVolumeHealth", 3).await;
    assert_eq!(stage.all_events().await, before.0, "{}", controller.log());
    assert_eq!(stage.writes_after(before.1), [], "nothing changed");

    stage.set_ready("silent", "True").await;
    for object in ["one", "inline"] {
        let reported = stage.event(object, "NodeRecovered", "recovered from").await;
        assert_eq!(reported.count, Some(1));
    }
    assert_eq!(stage.events("two").await.len(), 1, "its node is still gone");
    assert_eq!(stage.stored("two").await, ["Inaccessible/NodeDown"]);
}

#[tokio::test]
async fn a_node_that_came_back_during_a_restart_is_reported_once() {
    let (stage, mut controller) = reported_as_down().await;
    controller.kill();
    stage.set_ready("silent", "True").await;
    let controller = stage.watching(WATCH_NODES).await;
    for object in ["one", "inline"] {
        stage.event(object, "NodeRecovered", "recovered from").await;
    }
    assert_eq!(controller.terminate(), Some(0));
    let before = stage.all_events().await;
    let _controller = stage.watching(WATCH_NODES).await;
    tokio::time::sleep(GRACE * 2).await;
    stage.rounds("ControllerListVolumeHealth", 3).await;
    assert_eq!(stage.all_events().await, before);
}

#[tokio::test]
async fn what_was_reported_is_closed_when_nodes_are_no_longer_watched() {
    let (stage, controller) = reported_as_down().await;
    assert_eq!(controller.terminate(), Some(0));
    let _controller = stage.watching(&[]).await;
    for object in ["one", "two", "inline"] {
        let reported = stage.event(object, "VolumeConditionUnwatched", "is closed").await;
        assert!(!is_warning(&reported));
    }
    for claim in ["one", "two"] {
        stage.wait_stored(claim, &[]).await;
    }
}
