//! Registrations that lie: not believed, counted, and above all never dialled.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::sync::mpsc;
use volmedic_api::addons::{CREATED_BY, RELAY, RELAY_CERTIFICATES, UPDATED_AT};
use volmedic_heal::healer::{Metrics, Options, Registry, RelayNews};

use crate::stage::{Stage, create, eventually};

type Lie = fn(&mut Value);

#[tokio::test]
async fn liars_are_named_and_never_dialled() {
    let stage = Stage::new().await;
    let pod = stage.agent("agent-x").await;
    let uid = pod.metadata.uid.clone().unwrap();
    let owner = pod.metadata.owner_references.clone().unwrap();
    let trap = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = trap.local_addr().unwrap().port();
    let caught = Arc::new(AtomicUsize::new(0));
    let count = caught.clone();
    tokio::spawn(async move {
        while trap.accept().await.is_ok() {
            count.fetch_add(1, Ordering::Relaxed);
        }
    });
    let metrics = Metrics::default();
    let options = Options {
        allow_loopback: true,
        trusted_namespaces: [stage.namespace.clone()].into(),
        ..Options::default()
    };
    let registry = Registry::new(stage.client.clone(), stage.dialer(), &options, metrics.clone());
    let (news, mut heard) = mpsc::channel(8);
    tokio::spawn(registry.run(news));

    let honest = json!({
        "apiVersion": "csiaddons.openshift.io/v1alpha1", "kind": "CSIAddonsNode",
        "metadata": {"name": "x", "annotations": {CREATED_BY: uid, UPDATED_AT: "now", RELAY: "v1"},
                     "ownerReferences": owner},
        "spec": {"driver": {"name": stage.driver, "nodeID": stage.node,
                            "endpoint": format!("pod://agent-x.{}:{port}", stage.namespace)}},
    });
    let lies: [(&'static str, Lie); 7] = [
        ("endpoint", |object| object["spec"]["driver"]["endpoint"] = json!("127.0.0.1:1")),
        ("other_namespace", |object| object["spec"]["driver"]["endpoint"] = json!("pod://agent-x.default:1")),
        ("foreign_driver", |object| object["spec"]["driver"]["name"] = json!("foreign.example")),
        ("other_node", |object| object["spec"]["driver"]["nodeID"] = json!("another-node")),
        ("other_pod", |object| object["metadata"]["annotations"][CREATED_BY] = json!("somebody")),
        ("malformed", |object| object["spec"]["driver"]["name"] = json!("x".repeat(1000))),
        ("other_owner", |object| object["metadata"]["ownerReferences"][0]["uid"] = json!("somebody")),
    ];
    for (why, lie) in lies {
        let mut object = honest.clone();
        object["metadata"]["name"] = json!(why.replace('_', "-"));
        lie(&mut object);
        create(&stage.registrations(), object).await;
        eventually(why, async || metrics.distrusted(why) >= 1).await;
    }
    let mut missing = honest.clone();
    missing["metadata"]["name"] = json!("no-pod");
    missing["spec"]["driver"]["endpoint"] = json!(format!("pod://nobody.{}:{port}", stage.namespace));
    create(&stage.registrations(), missing).await;
    eventually("no_pod", async || metrics.distrusted("no_pod") >= 1).await;
    let mut sidecar = honest.clone();
    sidecar["metadata"]["name"] = json!("sidecar-of-csi-addons");
    sidecar["metadata"]["annotations"].as_object_mut().unwrap().remove(RELAY);
    create(&stage.registrations(), sidecar).await;
    eventually("not_ours", async || metrics.distrusted("not_ours") >= 1).await;
    // Without the certificate that it will show, nothing can be proved.
    let mut bare = honest.clone();
    bare["metadata"]["name"] = json!("names-no-certificate");
    create(&stage.registrations(), bare).await;
    eventually("peer", async || metrics.distrusted("peer") >= 1).await;
    assert_eq!(caught.load(Ordering::Relaxed), 0, "somebody was dialled");

    // Everything about this one is true, except that who listens there is no relay. It gets no further than TLS.
    let mut honest = honest;
    honest["metadata"]["annotations"][RELAY_CERTIFICATES] = json!(format!("sha256:{}", "a".repeat(64)));
    create(&stage.registrations(), honest).await;
    eventually("it is dialled", async || caught.load(Ordering::Relaxed) > 0).await;
    assert!(heard.try_recv().is_err(), "nobody was trusted");
}

#[tokio::test]
async fn an_honest_relay_is_trusted_and_lost_again() {
    let stage = Stage::new().await;
    let fake = stage.fake();
    let driver = fake.serve();
    let metrics = Metrics::default();
    let options = Options {
        allow_loopback: true,
        trusted_namespaces: [stage.namespace.clone()].into(),
        ..Options::default()
    };
    let client = stage.plane.client_for(&stage.namespace, "volmedic-hub").await.unwrap();
    let registry = Registry::new(client, stage.dialer(), &options, metrics.clone());
    let (news, mut heard) = mpsc::channel(8);
    tokio::spawn(registry.run(news));
    let relay = stage.relay(&fake, &volmedic_heal::relay::Metrics::default()).await;
    let mut hear =
        async || tokio::time::timeout(crate::stage::PATIENCE, heard.recv()).await.unwrap().unwrap();
    let RelayNews::Came(first) = hear().await else { panic!("it went") };
    assert_eq!(
        (&*first.driver, &*first.node, first.address),
        (&*stage.driver, &*stage.node, relay.address())
    );
    // Somebody else writes its status: nothing has happened.
    let status = Patch::Merge(json!({"status": {"state": "Connected"}}));
    stage
        .registrations()
        .patch_status(&stage.registration_name(), &PatchParams::default(), &status)
        .await
        .unwrap();
    // The driver restarts: another generation.
    drop(driver);
    let _driver = fake.serve();
    let RelayNews::Came(second) = hear().await else { panic!("it went") };
    assert_ne!(first.generation, second.generation);
    relay.stop().await;
    let mut went = hear().await;
    while let RelayNews::Came(_) = went {
        went = hear().await;
    }
    assert!(matches!(went, RelayNews::Went(_)));
}
