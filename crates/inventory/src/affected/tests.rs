use serde_json::{Value, json};
use tokio::sync::Notify;

use super::*;
use crate::fake::{DRIVER, arrived, volume};
use crate::follow::Sink;

struct Scene {
    pods: Pods,
    volumes: Volumes,
}

impl Scene {
    fn new() -> Self {
        let woken = Arc::new(Notify::new());
        Self { pods: Pods::new(DRIVER, woken.clone()), volumes: Volumes::new(DRIVER, woken) }
    }

    fn volume(&self, name: &str, handle: &str, claim: &str) {
        let object = arrived(&volume(name, handle, claim));
        self.volumes.put(&object, object.body.as_ref().unwrap()).unwrap();
    }

    fn pod(&self, namespace: &str, name: &str, node: &str, volumes: &Value) {
        let object = arrived(&json!({
            "metadata": {"name": name, "namespace": namespace, "uid": format!("{namespace}-{name}")},
            "spec": {"nodeName": node, "volumes": volumes},
        }));
        self.pods.put(&object, object.body.as_ref().unwrap()).unwrap();
    }

    /// `node: about handle <- pods`.
    fn affected(&self, nodes: &[&str]) -> Vec<String> {
        let show = |affected: Affected| {
            let pods: Vec<_> = affected.pods.iter().map(|pod| &*pod.name).collect();
            let handle = affected.handle.as_deref().unwrap_or("inline");
            format!("{}: {} {handle} <- {}", affected.node, affected.about, pods.join(" "))
        };
        affected(nodes, &self.pods, &self.volumes).into_iter().map(show).collect()
    }
}

fn claims(names: &[&str]) -> Value {
    names.iter().map(|name| json!({"name": name, "persistentVolumeClaim": {"claimName": name}})).collect()
}

#[test]
fn claims_and_inline_volumes_of_a_node() {
    let scene = Scene::new();
    scene.volume("pv1", "h1", "ns/data/u1");
    scene.volume("pv2", "h2", "ns/logs/u2");
    scene.volume("pv3", "h3", "ns/web-scratch/u3");
    scene.volume("pv4", "h4", "other/data/u4");
    scene.volume("pv5", "h5", "");
    scene.pod("ns", "db", "n1", &claims(&["data", "logs", "not-ours"]));
    scene.pod("ns", "reader", "n1", &claims(&["data", "data"]));
    scene.pod("ns", "elsewhere", "n2", &claims(&["logs"]));
    let inline = json!([{"name": "scratch", "ephemeral": {}}, {"name": "i", "csi": {"driver": DRIVER}}]);
    scene.pod("ns", "web", "n1", &inline);
    assert_eq!(
        scene.affected(&["n1"]),
        [
            "n1: claim ns/data h1 <- db reader",
            "n1: claim ns/logs h2 <- db",
            "n1: claim ns/web-scratch h3 <- web",
            "n1: pod ns/web inline <- web",
        ]
    );
    assert_eq!(scene.affected(&["n2"]), ["n2: claim ns/logs h2 <- elsewhere"]);
    assert_eq!(scene.affected(&["n1", "n2"]).len(), 5);
    assert_eq!(scene.affected(&["n3"]), [""; 0]);
}

#[test]
fn a_volume_may_come_later_than_its_pod() {
    let scene = Scene::new();
    scene.pod("ns", "db", "n1", &claims(&["data"]));
    assert_eq!(scene.affected(&["n1"]), [""; 0]);
    scene.volume("pv1", "h1", "ns/data/u1");
    assert_eq!(scene.affected(&["n1"]), ["n1: claim ns/data h1 <- db"]);
}
