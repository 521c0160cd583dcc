//! What should be mounted on a node: pods from a real API server, directories as a kubelet would make them.

use std::fs::{create_dir_all, remove_dir_all, remove_file, rename};
use std::time::Duration;

use kube::api::DeleteParams;
use prometheus_client::registry::Registry;
use serde_json::json;
use tokio::time::timeout;
use volmedic_inventory::Metrics;
use volmedic_inventory::node::{Access, Inventory, Mode};
use volmedic_testkit::feature::is_not_run_without;
use volmedic_testkit::{ControlPlane, Feature};

use crate::common::{Proxy, grant_rules, until};
use crate::stage::{Stage, changes, shown, uses};

/// When it has read everything once. What it has read of the pods may be a moment old.
pub(crate) async fn ready(inventory: &Inventory) {
    let waited = timeout(Duration::from_mins(3), inventory.ready()).await;
    assert!(waited.is_ok(), "never ready: {:?}", inventory.staleness());
}

/// Sees a pod that is done come and lose its directory. Only a reading of all directories notices the latter.
async fn forget_done(stage: &Stage, inventory: &Inventory, name: &str) {
    let pv = stage.claim(name).await;
    let uid = stage.pod_with(name, name).await;
    stage.set_up(&uid, &pv, name, "Persistent");
    stage.set_status(name, json!({"phase": "Succeeded"})).await;
    let there = || inventory.volumes().get(&stage.driver, name).is_some();
    until("done", &there).await;
    stage.tear_down(&uid);
    inventory.refresh();
    until("forgotten", || !there()).await;
}

#[tokio::test]
async fn a_pod_comes_runs_loses_its_volume_and_goes() {
    let stage = Stage::new("node-life").await;
    let pv = stage.claim("db").await;
    let inventory = stage.start();
    ready(&inventory).await;
    assert_eq!((shown(&inventory), inventory.staleness()), (vec![], None));

    let uid = stage.pod_with("web", "db").await;
    stage.set_up(&uid, &pv, "db", "Persistent");
    inventory.refresh();
    until("coming", || shown(&inventory) == ["db: web/data Coming ReadWrite"]).await;
    let volume = inventory.volumes().get(&stage.driver, "db").unwrap();
    assert_eq!((volume.pv.as_deref(), volume.mode), (Some(&*pv), Mode::Filesystem));
    assert_eq!(volume.staging, stage.kubelet.staging(&stage.driver, "db").ok());
    assert_eq!(volume.uses[0].target, stage.kubelet.publish(&uid, &pv).unwrap());
    let claim = volume.uses[0].claim.as_ref().unwrap();
    assert_eq!((&*claim.namespace, &*claim.name, claim.uid.len()), (&*stage.namespace, "db", 36));

    stage.run("web").await;
    until("in use", || shown(&inventory) == ["db: web/data InUse ReadWrite"]).await;
    changes(&inventory);

    // What it had it still should have, also when the note goes first and the directory after it. A pod that is done
    // loses its volume in the same reading, so that reading is over when it has.
    remove_file(stage.kubelet.vol_data(&uid, &pv).unwrap()).unwrap();
    forget_done(&stage, &inventory, "first").await;
    assert_eq!(shown(&inventory), ["db: web/data InUse ReadWrite"]);
    stage.tear_down(&uid);
    inventory.refresh();
    // A kubelet that cleans up after a pod is ahead of what the API server says of the pod.
    until("perhaps done", || shown(&inventory) == ["db: web/data Going ReadWrite"]).await;
    until("not done at all", || shown(&inventory) == ["db: web/data InUse ReadWrite"]).await;
    forget_done(&stage, &inventory, "second").await;
    assert_eq!(shown(&inventory), ["db: web/data InUse ReadWrite"]);
    let all = changes(&inventory);
    assert!(!all.contains(&"-db".to_owned()), "{all:?}");

    // Nobody is there to let it go, so it stays as long as it may.
    stage.pods().delete("web", &DeleteParams::default().grace_period(600)).await.unwrap();
    until("let go with its directory", || shown(&inventory).is_empty()).await;
    let all = changes(&inventory);
    assert_eq!(all.last().map(String::as_str), Some("-db"), "{all:?}");
}

#[tokio::test]
async fn terminating_and_completed_pods_are_on_their_way_out() {
    let stage = Stage::new("node-out").await;
    let mut uids = Vec::new();
    for name in ["killed", "done", "failed"] {
        let pv = stage.claim(name).await;
        let uid = stage.pod_with(name, name).await;
        stage.set_up(&uid, &pv, name, "Persistent");
        stage.run(name).await;
        uids.push(uid);
    }
    let inventory = stage.start();
    ready(&inventory).await;
    let all = |phase: &str| {
        ["done", "failed", "killed"].map(|name| format!("{name}: {name}/data {phase} ReadWrite"))
    };
    until("in use", || shown(&inventory) == all("InUse")).await;
    stage.pods().delete("killed", &DeleteParams::default().grace_period(600)).await.unwrap();
    stage.set_status("done", json!({"phase": "Succeeded"})).await;
    stage.set_status("failed", json!({"phase": "Failed"})).await;
    until("going", || shown(&inventory) == all("Going")).await;

    // The kubelet has cleaned up, the pod that is done stays to be inspected.
    stage.tear_down(&uids[1]);
    inventory.refresh();
    until("done", || shown(&inventory).len() == 2).await;
    stage.pods().delete("killed", &DeleteParams::default().grace_period(0)).await.unwrap();
    until("deleted", || shown(&inventory) == ["failed: failed/data Going ReadWrite"]).await;
}

#[tokio::test]
async fn all_kinds_of_volumes() {
    let stage = Stage::new("node-kinds").await;
    let (shared, scratch) = (stage.claim("shared").await, stage.claim("one-scratch").await);
    let (raw, local) = (stage.claim("raw").await, stage.claim("local").await);
    let options = json!({"spec": {"mountOptions": ["ro", "noatime"]}});
    stage.change_volume(&scratch, options).await;
    let size = json!({"requests": {"storage": "1Gi"}});
    let template =
        json!({"volumeClaimTemplate": {"spec": {"accessModes": ["ReadWriteOnce"], "resources": size}}});
    let volumes = json!([
        uses("data", "shared"),
        {"name": "scratch", "ephemeral": template},
        {"name": "inline", "csi": {"driver": stage.driver, "readOnly": true, "fsType": "xfs"}},
        uses("raw", "raw"),
        uses("disk", "local"),
        {"name": "tmp", "emptyDir": {}},
    ]);
    let one = stage.pod("one", &volumes, &json!({})).await;
    let two = stage.pod_with("two", "shared").await;
    stage.set_up(&one, &shared, "shared", "Persistent");
    stage.set_up(&two, &shared, "shared", "Persistent");
    stage.set_up(&one, &scratch, "one-scratch", "Persistent");
    stage.set_up(&one, "inline", "csi-0123", "Ephemeral");
    stage.set_up_block(&one, &raw, "raw");
    let plugin = "kubernetes.io~local-volume";
    create_dir_all(stage.kubelet.volume(&one, plugin, &local).unwrap()).unwrap();
    create_dir_all(stage.kubelet.volume(&one, "kubernetes.io~empty-dir", "tmp").unwrap()).unwrap();
    // A pod from a file on the node: the kubelet has another uid for it.
    let inline = json!([{"name": "own", "csi": {"driver": stage.driver}}]);
    let image = json!({"kubernetes.io/config.mirror": "0123abcd", "kubernetes.io/config.hash": "0123abcd"});
    stage.pod("static", &inline, &image).await;
    stage.set_up("0123abcd", "own", "csi-4567", "Ephemeral");
    // A pod that claims to be the mirror of another pod is not believed.
    let image = json!({"kubernetes.io/config.mirror": one});
    stage.pod("liar", &json!([{"name": "inline", "csi": {"driver": stage.driver}}]), &image).await;
    for pod in ["one", "two", "static", "liar"] {
        stage.run(pod).await;
    }

    let inventory = stage.start();
    ready(&inventory).await;
    let expected = [
        format!("{local}: one/disk InUse ReadWrite"),
        "csi-0123: one/inline InUse ReadOnly".to_owned(),
        "csi-4567: static/own InUse ReadWrite".to_owned(),
        "one-scratch: one/scratch InUse ReadOnly".to_owned(),
        "raw: one/raw InUse ReadWrite".to_owned(),
        "shared: one/data InUse ReadWrite, two/data InUse ReadWrite".to_owned(),
    ];
    until("all in use", || shown(&inventory) == expected).await;
    let volumes = inventory.volumes();
    let get = |handle: &str| volumes.get(&stage.driver, handle).unwrap();
    assert_eq!(get("csi-0123").fs_type.as_deref(), Some("xfs"));
    assert_eq!((&get("csi-0123").pv, &get("csi-0123").staging), (&None, &None));
    assert_eq!(get("csi-4567").uses[0].target, stage.kubelet.publish("0123abcd", "own").unwrap());
    assert_eq!(get("raw").mode, Mode::Block);
    assert_eq!(get("raw").staging, stage.kubelet.block_staging(&raw).ok());
    assert_eq!(get("raw").uses[0].target, stage.kubelet.block_publish(&raw, &one).unwrap());
    let disk = volumes.get("kubernetes.io/local-volume", &local).unwrap();
    assert_eq!(disk.uses[0].target, stage.kubelet.volume(&one, plugin, &local).unwrap());
    assert_eq!(
        volumes.drivers(),
        [("kubernetes.io/local-volume".into(), 1), ("node-kinds.example.net".into(), 5)]
    );
    assert_eq!(volumes.pods(&stage.driver, "shared").len(), 2);
}

#[tokio::test]
async fn a_pod_recreated_under_the_same_name_is_another() {
    let stage = Stage::new("node-anew").await;
    let pv = stage.claim("db").await;
    let old = stage.pod_with("db-0", "db").await;
    stage.set_up(&old, &pv, "db", "Persistent");
    stage.run("db-0").await;
    let inventory = stage.start();
    ready(&inventory).await;
    stage.pods().delete("db-0", &DeleteParams::default().grace_period(0)).await.unwrap();
    let new = stage.pod_with("db-0", "db").await;
    // What the old one left behind is not the new one's.
    until("without a directory", || shown(&inventory).is_empty()).await;
    stage.set_up(&new, &pv, "db", "Persistent");
    // Nobody says that the directory is there, but one is waited for.
    until("found", || shown(&inventory) == ["db: db-0/data Coming ReadWrite"]).await;
    let volume = inventory.volumes().get(&stage.driver, "db").unwrap();
    assert_eq!(*volume.uses[0].pod.uid, *new);
    assert_eq!(volume.uses[0].target, stage.kubelet.publish(&new, &pv).unwrap());
    stage.run("db-0").await;
    until("in use", || shown(&inventory) == ["db: db-0/data InUse ReadWrite"]).await;
}

#[tokio::test]
async fn without_the_right_to_read_persistent_volumes_less_is_known() {
    let stage = Stage::new("node-rights").await;
    for name in ["a", "b", "c"] {
        stage.claim(name).await;
    }
    let pv = |name: &str| format!("pv-{}-{name}", stage.namespace);
    let one = stage.pod_with("one", "a").await;
    let two = stage.pod("two", &json!([uses("x", "b"), uses("y", "c")]), &json!({})).await;
    stage.set_up(&one, &pv("a"), "a", "Persistent");
    stage.set_up(&two, &pv("b"), "b", "Persistent");
    stage.set_up(&two, &pv("c"), "c", "Persistent");
    for pod in ["one", "two"] {
        stage.run(pod).await;
    }
    let poor = ControlPlane::shared().client_for(&stage.namespace, "poor").await.unwrap();
    let inventory = Inventory::start(&poor, &stage.options(), &Metrics::default());
    until("pods refused", || {
        inventory.staleness().is_some_and(|stale| stale.why.contains("does not let us list pods"))
    })
    .await;
    assert!(!inventory.is_ready());
    let rules = json!([{"apiGroups": [""], "resources": ["pods"], "verbs": ["list", "watch"]}]);
    grant_rules(&stage.client, &stage.namespace, "poor", rules).await;
    ready(&inventory).await;
    // A pod's only claim is known by itself; of two nobody knows which is which.
    let expected = ["a: one/data InUse Unknown", "b: two/? InUse Unknown", "c: two/? InUse Unknown"];
    until("what can be known", || shown(&inventory) == expected).await;
    let why = inventory.without_persistent_volumes().unwrap().why;
    let rule = "{apiGroups: [\"\"], resources: [persistentvolumes], verbs: [get]}";
    assert!(why.contains("does not let us get persistentvolumes") && why.contains(rule), "{why}");
    assert_eq!(inventory.staleness(), None);
}

#[tokio::test]
async fn an_outage_keeps_what_was_known() {
    let plane = ControlPlane::options().start().unwrap();
    let stage = Stage::on(&plane, "node-outage").await;
    let pv = stage.claim("db").await;
    let uid = stage.pod_with("web", "db").await;
    stage.set_up(&uid, &pv, "db", "Persistent");
    stage.run("web").await;
    let proxy = Proxy::start(&plane.url()).await;
    let way = proxy.client(plane.admin_config().await.unwrap());
    let mut registry = Registry::default();
    let metrics = Metrics::register(&mut registry);
    let inventory = Inventory::start(&way, &stage.options(), &metrics);
    ready(&inventory).await;
    until("in use", || shown(&inventory) == ["db: web/data InUse ReadWrite"]).await;

    proxy.cut();
    until("out of touch", || {
        inventory
            .staleness()
            .is_some_and(|stale| stale.resource == "pods" && stale.why.contains("cannot be reached"))
    })
    .await;
    stage.pods().delete("web", &DeleteParams::default().grace_period(600)).await.unwrap();
    assert_eq!(shown(&inventory), ["db: web/data InUse ReadWrite"]);
    let mut text = String::new();
    prometheus_client::encoding::text::encode(&mut text, &registry).unwrap();
    assert!(
        text.contains("volmedic_inventory_volumes{driver_name=\"node-outage.example.net\"} 1\n"),
        "{text}"
    );
    assert!(text.contains("volmedic_inventory_stale_seconds{resource=\"kubelet\"} 0.0\n"), "{text}");
    assert!(!text.contains("volmedic_inventory_stale_seconds{resource=\"pods\"} 0.0\n"), "{text}");

    proxy.repair();
    until("in touch", || inventory.staleness().is_none()).await;
    until("what happened meanwhile", || shown(&inventory) == ["db: web/data Going ReadWrite"]).await;
}

#[tokio::test]
async fn a_kubelet_that_is_not_there_yet_is_waited_for() {
    let stage = Stage::new("node-root").await;
    let pv = stage.claim("db").await;
    let uid = stage.pod_with("web", "db").await;
    stage.set_up(&uid, &pv, "db", "Persistent");
    stage.run("web").await;
    let (root, aside) = (stage.kubelet.root(), stage.kubelet.root().with_extension("aside"));
    rename(root, &aside).unwrap();
    let inventory = stage.start();
    until("it says so", || {
        inventory.staleness().is_some_and(|stale| {
            stale.resource == "kubelet"
                && stale.why.contains("No such file")
                && stale.why.contains("root directory")
        })
    })
    .await;
    assert!(!inventory.is_ready());
    rename(&aside, root).unwrap();
    ready(&inventory).await;
    until("in use", || shown(&inventory) == ["db: web/data InUse ReadWrite"]).await;
    // And what was known stays when it goes away.
    rename(root, &aside).unwrap();
    inventory.refresh();
    until("gone", || inventory.staleness().is_some()).await;
    assert_eq!(shown(&inventory), ["db: web/data InUse ReadWrite"]);
    remove_dir_all(&aside).unwrap();
}

#[tokio::test]
async fn what_the_kubelet_says_is_handed_out() {
    if is_not_run_without(Feature::PodHealth, "what_the_kubelet_says_is_handed_out") {
        return;
    }
    let stage = Stage::new("node-says").await;
    let pv = stage.claim("db").await;
    let uid = stage.pod_with("web", "db").await;
    stage.set_up(&uid, &pv, "db", "Persistent");
    stage.run("web").await;
    let inventory = stage.start();
    ready(&inventory).await;
    let volumes = inventory.volumes();
    assert!(!volumes.kubelet_speaks());
    changes(&inventory);
    let unhealthy = json!([{"status": "Degraded", "reason": "MirrorLegLost", "message": "1 of 2"}]);
    let entry = |conditions| json!({"volumeHealth": [{"name": "data", "lastTransitionTime": "2026-08-21T10:02:00Z", "healthConditions": conditions}]});
    stage.set_status("web", entry(unhealthy)).await;
    let said = || volumes.get(&stage.driver, "db").and_then(|volume| volume.uses[0].kubelet.clone());
    until("ill", || said().is_some_and(|said| said.conditions.len() == 1)).await;
    assert!(volumes.kubelet_speaks());
    assert_eq!(changes(&inventory), ["~db"]);
    let condition = &said().unwrap().conditions[0];
    assert_eq!(
        (&*condition.status, &*condition.reason, &*condition.message),
        ("Degraded", "MirrorLegLost", "1 of 2")
    );
    stage.set_status("web", entry(json!([]))).await;
    until("well again", || said().is_some_and(|said| said.conditions.is_empty())).await;
    assert_eq!(volumes.get(&stage.driver, "db").unwrap().uses[0].access, Access::ReadWrite);
}
