//! Against a real API server: pages, changes, outages, rights, nodes and pods.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on should say where")]

mod common;
mod lists;
mod node;
mod stage;

use std::time::Duration;

use futures_util::{StreamExt, TryStreamExt, stream};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::{Node, PersistentVolume, Pod};
use kube::Api;
use kube::api::{DeleteParams, Patch, PatchParams};
use prometheus_client::registry::Registry;
use serde_json::json;
use volmedic_inventory::{Change, DownWhy, Inventory, Judge, Metrics, Options, ReadyStatus, Verdict};
use volmedic_testkit::{ControlPlane, objects};

use common::{Proxy, create, delete_volume, grant, handles, start, until};

/// More than two pages.
const MANY: usize = 1_100;

#[tokio::test]
async fn more_volumes_than_fit_a_page_and_what_becomes_of_them() {
    let (plane, driver) = (ControlPlane::shared(), "pages.example.net");
    let client = plane.client().await.unwrap();
    let namespace = plane.namespace("pages").await.unwrap();
    let made = stream::iter(0..MANY)
        .map(|index| {
            let (client, namespace) = (client.clone(), namespace.clone());
            async move {
                let (name, handle) = (format!("c{index}"), format!("h{index}"));
                objects::bound_claim(&client, &namespace, &name, driver, &handle).await
            }
        })
        .buffer_unordered(32);
    made.try_for_each(|_| async { Ok(()) }).await.unwrap();
    objects::bound_claim(&client, &namespace, "foreign", "other.example.net", "h0").await.unwrap();

    let inventory = start(&client, driver, false);
    inventory.ready().await;
    let volumes = inventory.volumes();
    assert_eq!((volumes.len(), volumes.known()), (MANY, MANY));
    let [claim] = &volumes.claims("h7")[..] else { panic!("{:?}", volumes.claims("h7")) };
    assert_eq!(
        (&*claim.claim.name, &*claim.claim.namespace, &*claim.volume),
        ("c7", &*namespace, &*format!("pv-{namespace}-c7"))
    );
    assert_eq!(volumes.changes().len(), MANY);

    // Added while we look.
    let new = objects::bound_claim(&client, &namespace, "late", driver, "h-late").await.unwrap();
    until("a new volume", || volumes.contains("h-late")).await;
    assert_eq!(volumes.changes(), [Change::Added("h-late".into())]);
    assert_eq!(Some(&*volumes.claims("h-late")[0].claim.uid), new.claim.metadata.uid.as_deref());

    // Another volume with a handle that is there already.
    objects::bound_claim(&client, &namespace, "twin", driver, "h-late").await.unwrap();
    until("two claims", || volumes.claims("h-late").len() == 2).await;
    assert_eq!(volumes.changes(), [Change::ClaimsChanged("h-late".into())]);
    assert_eq!((volumes.len(), volumes.known()), (MANY + 1, MANY + 2));

    // Released.
    let api = Api::<PersistentVolume>::all(client.clone());
    let released = Patch::Merge(json!({"status": {"phase": "Released"}}));
    api.patch_status(&format!("pv-{namespace}-c1"), &PatchParams::default(), &released).await.unwrap();
    until("a released volume", || !volumes.contains("h1")).await;
    assert_eq!(volumes.changes(), [Change::Removed("h1".into())]);

    // Being deleted, but held back by a finalizer.
    let name = format!("pv-{namespace}-c2");
    api.delete(&name, &DeleteParams::default()).await.unwrap();
    until("a volume being deleted", || !volumes.contains("h2")).await;
    assert_eq!((volumes.len(), volumes.known()), (MANY - 1, MANY + 2));
    delete_volume(&client, &name).await;
    until("a deleted volume", || volumes.known() == MANY + 1).await;
    assert_eq!(inventory.staleness(), None);
}

#[tokio::test]
async fn an_outage_keeps_what_was_known_and_what_changed_meanwhile_is_noticed() {
    let driver = "outage.example.net";
    let plane = ControlPlane::options().start().unwrap();
    let client = plane.client().await.unwrap();
    let namespace = plane.namespace("outage").await.unwrap();
    for name in ["a", "b"] {
        objects::bound_claim(&client, &namespace, name, driver, name).await.unwrap();
    }
    let proxy = Proxy::start(&plane.url()).await;
    let mut registry = Registry::default();
    let metrics = Metrics::register(&mut registry);
    let options = Options { driver: driver.into(), node_watcher: false };
    let way = proxy.client(plane.admin_config().await.unwrap());
    let inventory = Inventory::start(&way, &options, &metrics);
    inventory.ready().await;
    assert_eq!(handles(&inventory), ["a", "b"]);

    let before = Timestamp::now();
    proxy.cut();
    until("out of touch", || inventory.staleness().is_some()).await;
    let stale = inventory.staleness().unwrap();
    assert_eq!(stale.resource, "persistentvolumes");
    assert!(stale.since >= before && stale.since <= Timestamp::now(), "{stale:?}");
    until("it says why", || {
        inventory.staleness().is_some_and(|stale| stale.why.contains("cannot be reached"))
    })
    .await;

    delete_volume(&client, &format!("pv-{namespace}-a")).await;
    objects::bound_claim(&client, &namespace, "c", driver, "c").await.unwrap();
    // The server that comes back has no memory of the changes before.
    plane.stop_apiserver().unwrap();
    plane.start_apiserver().unwrap();
    assert_eq!(handles(&inventory), ["a", "b"]);
    assert!(inventory.is_ready());
    assert_eq!(inventory.staleness().unwrap().since, stale.since);

    proxy.repair();
    until("in touch", || inventory.staleness().is_none()).await;
    until("up to date", || handles(&inventory) == ["b", "c"]).await;
    let mut text = String::new();
    prometheus_client::encoding::text::encode(&mut text, &registry).unwrap();
    assert!(text.contains("volmedic_inventory_lists_total{resource=\"persistentvolumes\"} 2\n"), "{text}");
    objects::bound_claim(&client, &namespace, "d", driver, "d").await.unwrap();
    until("changes arrive", || handles(&inventory) == ["b", "c", "d"]).await;
}

#[tokio::test]
async fn rights_that_are_missing_are_named_and_waited_for() {
    let (plane, driver) = (ControlPlane::shared(), "rights.example.net");
    let admin = plane.client().await.unwrap();
    let namespace = plane.namespace("rights").await.unwrap();
    objects::bound_claim(&admin, &namespace, "a", driver, "a").await.unwrap();
    let poor = plane.client_for(&namespace, "poor").await.unwrap();
    let inventory = start(&poor, driver, false);

    let says = |words: [&str; 4]| {
        let why = inventory.staleness().map(|stale| stale.why).unwrap_or_default();
        words.iter().all(|word| why.contains(word))
    };
    let who = format!("system:serviceaccount:{namespace}:poor");
    let rule = "{apiGroups: [\"\"], resources: [persistentvolumes], verbs: [list, watch]}";
    until("list refused", || says(["does not let us list persistentvolumes", &who, "ClusterRole", rule]))
        .await;
    assert!(!inventory.is_ready());

    grant(&admin, &namespace, "poor", &["list"]).await;
    until("watch refused", || says(["does not let us watch persistentvolumes", &who, "ClusterRole", rule]))
        .await;
    assert!(inventory.is_ready());
    assert_eq!(handles(&inventory), ["a"]);

    grant(&admin, &namespace, "poor", &["list", "watch"]).await;
    until("all allowed", || inventory.staleness().is_none()).await;
    objects::bound_claim(&admin, &namespace, "b", driver, "b").await.unwrap();
    until("changes arrive", || handles(&inventory) == ["a", "b"]).await;
}

#[tokio::test]
async fn nodes_their_pods_and_what_goes_down_with_them() {
    let (plane, driver) = (ControlPlane::shared(), "nodes.example.net");
    let client = plane.client().await.unwrap();
    let namespace = plane.namespace("nodes").await.unwrap();
    let node = format!("{namespace}-n1");
    objects::node(&client, &node).await.unwrap();
    for name in ["data", "late", "done", "web-scratch"] {
        objects::bound_claim(&client, &namespace, name, driver, name).await.unwrap();
    }
    objects::bound_claim(&client, &namespace, "foreign", "other.example.net", "x").await.unwrap();
    objects::pod(&client, &namespace, "db", &node, &["data", "foreign"]).await.unwrap();
    let pods = Api::<Pod>::namespaced(client.clone(), &namespace);
    let template = |name: &str, volumes: serde_json::Value| json!({"metadata": {"name": name}, "spec": {"volumes": volumes, "containers": [{"name": "main", "image": "none"}]}});
    let claim = |name: &str| json!([{"name": "v", "persistentVolumeClaim": {"claimName": name}}]);

    let inventory = start(&client, driver, true);
    inventory.ready().await;
    let affected = || -> Vec<String> {
        let affected = inventory.affected(&[&node]);
        affected.iter().map(|one| format!("{} {}", one.about.kind.as_str(), one.about.name)).collect()
    };
    assert_eq!(affected(), ["PersistentVolumeClaim data"]);

    // Scheduled after it was seen.
    create(&pods, template("late", claim("late"))).await;
    let binding = json!({"metadata": {"name": "late"}, "target": {"kind": "Node", "name": node}});
    let _: serde_json::Value = pods
        .create_subresource("binding", "late", &kube::api::PostParams::default(), &binding)
        .await
        .unwrap();
    until("a pod scheduled late", || affected().contains(&"PersistentVolumeClaim late".to_owned())).await;

    // Inline and generic ephemeral volumes.
    let size = json!({"requests": {"storage": "1Gi"}});
    let scratch =
        json!({"volumeClaimTemplate": {"spec": {"accessModes": ["ReadWriteOnce"], "resources": size}}});
    let volumes =
        json!([{"name": "scratch", "ephemeral": scratch}, {"name": "inline", "csi": {"driver": driver}}]);
    let mut web = template("web", volumes);
    web["spec"]["nodeName"] = json!(node);
    create(&pods, web).await;
    until("inline volumes", || affected().contains(&"Pod web".to_owned())).await;
    assert!(affected().contains(&"PersistentVolumeClaim web-scratch".to_owned()));

    // A pod that ends uses nothing any more.
    objects::pod(&client, &namespace, "done", &node, &["done"]).await.unwrap();
    until("a pod", || affected().contains(&"PersistentVolumeClaim done".to_owned())).await;
    let ended = Patch::Merge(json!({"status": {"phase": "Succeeded"}}));
    pods.patch_status("done", &PatchParams::default(), &ended).await.unwrap();
    until("no pod", || !affected().contains(&"PersistentVolumeClaim done".to_owned())).await;

    // One that is deleted neither.
    pods.delete("late", &DeleteParams::default().grace_period(0)).await.unwrap();
    until("no pod", || !affected().contains(&"PersistentVolumeClaim late".to_owned())).await;
    let mut expected = ["PersistentVolumeClaim data", "PersistentVolumeClaim web-scratch", "Pod web"]
        .map(str::to_owned)
        .to_vec();
    expected.sort();
    assert_eq!(affected(), expected);

    // Down, back, deleted.
    let nodes = inventory.nodes().unwrap();
    let mut judge = Judge::new(Judge::GRACE);
    let mut pass = |after: i64| {
        let all = nodes.current().unwrap();
        let now = Timestamp::now() + SignedDuration::from_secs(after);
        judge.pass(now, all.iter().map(|node| &**node).filter(|seen| *seen.name == *node))
    };
    let ready = || nodes.get(&node).and_then(|node| node.ready.clone()).map(|ready| ready.status);
    assert_eq!(pass(0), []);
    objects::set_node_ready(&client, &node, "Unknown").await.unwrap();
    until("not ready", || ready() == Some(ReadyStatus::Unknown)).await;
    assert_eq!(pass(0), []);
    let [Verdict::Down(down)] = &pass(41)[..] else { panic!("not down") };
    assert!(
        matches!(&down.why, DownWhy::NotReady { reason, .. } if **reason == *"NodeStatusUnknown"),
        "{down:?}"
    );
    objects::set_node_ready(&client, &node, "True").await.unwrap();
    until("ready", || ready() == Some(ReadyStatus::True)).await;
    assert_eq!(pass(42), [Verdict::Back { node: node.clone().into() }]);
    Api::<Node>::all(client.clone()).delete(&node, &DeleteParams::default()).await.unwrap();
    until("deleted", || nodes.get(&node).is_none()).await;
    let [Verdict::Down(down)] = &pass(43)[..] else { panic!("not down") };
    assert_eq!(down.why, DownWhy::Deleted);
    assert_eq!(affected(), expected);
}

/// Whatever happens wakes a caller that waits.
#[tokio::test]
async fn changes_wake() {
    let (plane, driver) = (ControlPlane::shared(), "wake.example.net");
    let client = plane.client().await.unwrap();
    let namespace = plane.namespace("wake").await.unwrap();
    let inventory = start(&client, driver, false);
    inventory.ready().await;
    let woken = || tokio::time::timeout(Duration::from_mins(3), inventory.changed());
    assert!(woken().await.is_ok(), "nobody was woken when all was read");
    objects::bound_claim(&client, &namespace, "a", driver, "a").await.unwrap();
    // It may be woken more often than something changes, but never too early for the last time.
    while !inventory.volumes().contains("a") {
        assert!(woken().await.is_ok(), "nobody was woken by a new volume");
    }
}
