//! A registration that lies about who it is: named, counted, and never dialled.

use kube::Api;
use serde_json::json;
use tokio::net::TcpListener;
use tokio::sync::watch;
use volmedic_api::addons::{CREATED_BY, CsiAddonsNode, RELAY, UPDATED_AT};

use crate::ground::{DRIVER, HOME};
use crate::stage::{Clinic, create, eventually, relay_pod};

#[tokio::test]
async fn a_liar_is_named_and_never_dialled() {
    let (clinic, hub) = Clinic::shared().await;
    // A node of its own without a relay, so that the liar would be the one to ask.
    let ward = clinic.ward(|fake| fake).await;
    let victim = ward.stage.make_node("victim").await;
    let pod = relay_pod(&ward.stage.client, &format!("liar-{victim}"), &ward.node).await;
    let trap = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = trap.local_addr().unwrap().port();
    let (caught, dialled) = watch::channel(false);
    tokio::spawn(async move {
        while trap.accept().await.is_ok() {
            caught.send_replace(true);
        }
    });
    let name = pod.metadata.name.clone().unwrap();
    let object = json!({
        "apiVersion": "csiaddons.openshift.io/v1alpha1", "kind": "CSIAddonsNode",
        "metadata": {"name": name, "ownerReferences": pod.metadata.owner_references,
                     "annotations": {CREATED_BY: pod.metadata.uid, UPDATED_AT: "now", RELAY: "v1"}},
        // It speaks for a node on which its pod is not.
        "spec": {"driver": {"name": DRIVER, "nodeID": victim, "endpoint": format!("pod://{name}.{HOME}:{port}")}},
    });
    create(&Api::<CsiAddonsNode>::namespaced(ward.stage.client.clone(), HOME), object).await;
    let counted = r#"volmedic_heal_distrusted_total{why="other_node"}"#;
    eventually("it is not believed", async || hub.get("/metrics").await.1.contains(counted)).await;
    assert!(hub.says("a CSIAddonsNode is not believed: its node id") >= 1, "{}", hub.log());
    assert!(!*dialled.borrow(), "it was dialled");
    ward.end().await;
}
