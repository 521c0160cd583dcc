//! Objects with a time that the API server accepts and no date type holds: one of them hides no other.

use serde_json::json;
use volmedic_heal::Mode;
use volmedic_testkit::objects;

use crate::healing::Scene;
use crate::poison::poison;
use crate::stage::{Stage, create, eventually};

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
