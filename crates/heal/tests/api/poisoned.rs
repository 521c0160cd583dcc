//! Objects with a time that the API server accepts and no date type holds: one of them hides no other.

use serde_json::json;
use tokio::sync::mpsc;
use tokio::time::timeout;
use volmedic_heal::healer::{Metrics, Options, Registry, RelayNews};
use volmedic_heal::relay::Relay;
use volmedic_heal::{Mode, Outcome};
use volmedic_proto::relay::HealRequest;
use volmedic_testkit::objects;

use crate::healing::Scene;
use crate::poison::poison;
use crate::stage::{PATIENCE, Stage, create, eventually};

/// One of each kind that the healer lists: a registration, a claim, a volume, an attachment, a pod, a node.
async fn poison_everything(stage: &Stage) {
    let (client, namespace) = (&stage.client, stage.namespace.as_str());
    let pv = stage.volume("poisoned", "vol-poisoned").await;
    stage.attach(&pv, true).await;
    objects::pod(client, namespace, "poisoned", &stage.node, &["poisoned"]).await.unwrap();
    let node = format!("{}-poisoned", stage.node);
    objects::node(client, &node).await.unwrap();
    let registration = json!({
        "apiVersion": "csiaddons.openshift.io/v1alpha1", "kind": "CSIAddonsNode", "metadata": {"name": "poisoned"},
        "spec": {"driver": {"name": "other", "nodeID": "other", "endpoint": "pod://nobody.nowhere:1"}},
    });
    create(&stage.registrations(), registration).await;
    let namespaced = format!("/api/v1/namespaces/{namespace}");
    let addons = format!("/apis/csiaddons.openshift.io/v1alpha1/namespaces/{namespace}/csiaddonsnodes");
    for (folder, name) in [
        (format!("{namespaced}/persistentvolumeclaims"), "poisoned"),
        (format!("{namespaced}/pods"), "poisoned"),
        ("/api/v1/persistentvolumes".to_owned(), pv.as_str()),
        ("/apis/storage.k8s.io/v1/volumeattachments".to_owned(), &*format!("csi-{pv}")),
        ("/api/v1/nodes".to_owned(), node.as_str()),
        (addons, "poisoned"),
    ] {
        poison(client, &folder, name).await;
    }
}

#[tokio::test]
async fn volumes_are_found_by_attachments_beside_objects_that_are_poisoned() {
    let prepare = async |stage: &Stage| {
        poison_everything(stage).await;
        let pv = stage.volume("data", "vol-1").await;
        stage.attach(&pv, true).await;
    };
    let scene = Scene::new(Mode::Auto, prepare, |fake| fake).await;
    eventually("both are checked", async || scene.asked() == ["vol-1", "vol-poisoned"]).await;
    scene.end().await;
}

#[tokio::test]
async fn volumes_are_found_by_pods_beside_objects_that_are_poisoned() {
    let prepare = async |stage: &Stage| {
        stage.csi_driver(false).await;
        poison_everything(stage).await;
        stage.volume("data", "vol-1").await;
        objects::pod(&stage.client, &stage.namespace, "user", &stage.node, &["data"]).await.unwrap();
    };
    let scene = Scene::new(Mode::Auto, prepare, |fake| fake).await;
    eventually("both are checked", async || scene.asked() == ["vol-1", "vol-poisoned"]).await;
    scene.end().await;
}

/// Of the relay itself: its pod, which its owner may write, and the CSINode of its node.
#[tokio::test]
async fn a_relay_registers_is_trusted_and_is_called_although_its_pod_is_poisoned() {
    let stage = Stage::new().await;
    let fake = stage.fake();
    let _driver = fake.serve();
    stage.agent("agent-x").await;
    poison(&stage.client, &format!("/api/v1/namespaces/{}/pods", stage.namespace), "agent-x").await;
    poison(&stage.client, "/apis/storage.k8s.io/v1/csinodes", &stage.node).await;
    let client = stage.plane.client_for(&stage.namespace, "volmedic-relay").await.unwrap();
    let options = stage.relay_options("agent-x");
    let metrics = volmedic_heal::relay::Metrics::default();
    let relay = Relay::start(&client, fake.connect(), options, metrics).await.unwrap();
    eventually("it is registered", async || stage.registration().await.is_some()).await;
    let options = Options {
        allow_loopback: true,
        trusted_namespaces: [stage.namespace.clone()].into(),
        ..Options::default()
    };
    let registry = Registry::new(stage.client.clone(), stage.dialer(), &options, Metrics::default());
    let (news, mut heard) = mpsc::channel(8);
    tokio::spawn(registry.run(news));
    let Some(RelayNews::Came(found)) = timeout(PATIENCE, heard.recv()).await.unwrap() else {
        panic!("it went")
    };
    let pv = stage.volume("data", "vol-1").await;
    let request = HealRequest { persistent_volume: pv, ..HealRequest::default() };
    let outcome = stage.dialer().ask(&found, request, PATIENCE).await;
    assert_eq!(outcome, Outcome::Well { message: "mounter restarted".into() });
    relay.stop().await;
}
