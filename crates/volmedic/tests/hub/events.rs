//! Events on claims for what only the hub sees: one for each start and each end, whatever happens to hubs meanwhile.

use k8s_openapi::api::core::v1::{Event, PersistentVolume};
use k8s_openapi::api::storage::v1::VolumeAttachment;
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use kube::api::{ListParams, Patch, PatchParams, PostParams};
use kube::{Api, Client};
use serde_json::{Value, json};
use tempfile::TempDir;
use volmedic_testkit::objects;
use volmedic_testkit::sim::{Sim, capability as can};

use crate::process::Controller;
use crate::rights::{Right, Rights};
use crate::stage::{DRIVER, HOME, QUICK, Stage, everything, install, start_hub, until};

/// The events on a claim, oldest first: who reports, which kind of event, and how often.
async fn events(stage: &Stage, claim: &str) -> Vec<String> {
    let api = Api::<Event>::namespaced(stage.client.clone(), &stage.namespace);
    let all = api.list(&ListParams::default()).await.expect("events").items;
    let of_claim = |event: &&Event| event.involved_object.name.as_deref() == Some(claim);
    let mut all: Vec<&Event> = all.iter().filter(of_claim).collect();
    all.sort_by_key(|event| (event.first_timestamp.as_ref().map(|time| time.0), event.reason.clone()));
    let line = |event: &&Event| {
        let component = event.source.as_ref().and_then(|source| source.component.as_deref());
        let [component, kind, reason] =
            [component, event.type_.as_deref(), event.reason.as_deref()].map(Option::unwrap_or_default);
        format!("{component} {kind} {reason} {}", event.count.unwrap_or_default())
    };
    all.iter().map(line).collect()
}

async fn wait_events(stage: &Stage, claim: &str, expected: &[&str]) {
    until(&format!("{claim} has the events {expected:?}"), || async {
        Ok::<_, String>(events(stage, claim).await == expected)
    })
    .await;
}

const FAILED: &str = "volmedic-hub Warning NodeFailed 1";
const RECOVERED: &str = "volmedic-hub Normal NodeRecovered 1";

async fn set_ready(stage: &Stage, node: &str, status: &str) {
    objects::set_node_ready(&stage.client, node, status).await.expect("the node's status");
}

/// Makes the volume of a claim a local one, which no driver serves.
async fn make_local(stage: &Stage, claim: &str) {
    let volumes = Api::<PersistentVolume>::all(stage.client.clone());
    let name = format!("pv-{}-{claim}", stage.namespace);
    let mut volume = volumes.get(&name).await.expect("the volume");
    volumes.delete(&name, &kube::api::DeleteParams::default()).await.expect("it is deleted");
    let free = Patch::Merge(json!({"metadata": {"finalizers": null}}));
    let _ = volumes.patch(&name, &PatchParams::default(), &free).await;
    until("the volume is gone", || async { volumes.get_opt(&name).await.map(|left| left.is_none()) }).await;
    let spec = volume.spec.as_mut().expect("a spec");
    spec.csi = None;
    spec.local = Some(k8s_openapi::api::core::v1::LocalVolumeSource { path: "/data".into(), fs_type: None });
    let term = json!({"matchExpressions": [{"key": "kubernetes.io/hostname", "operator": "Exists"}]});
    spec.node_affinity =
        serde_json::from_value(json!({"required": {"nodeSelectorTerms": [term]}})).expect("an affinity");
    (volume.metadata.resource_version, volume.metadata.uid) = (None, None);
    volumes.create(&PostParams::default(), &volume).await.expect("a local volume");
}

#[tokio::test]
async fn a_node_that_is_down_is_one_event_on_each_claim_and_its_return_another_whichever_hub_leads() {
    let stage = Stage::own(&everything()).await;
    let node = stage.make_node("n").await;
    for claim in ["data", "local"] {
        stage.used_claim(claim, &node).await;
    }
    make_local(&stage, "local").await;
    let kubeconfig = stage.kubeconfig().await;
    let mut first = start_hub(&kubeconfig, &QUICK);
    first.wait_log("merging what is known").await;
    set_ready(&stage, &node, "Unknown").await;
    for claim in ["data", "local"] {
        wait_events(&stage, claim, &[FAILED]).await;
    }
    first.kill();

    let mut second = start_hub(&kubeconfig, &QUICK);
    second.wait_log("merging what is known").await;
    stage.used_claim("late", &node).await;
    wait_events(&stage, "late", &[FAILED]).await;
    for claim in ["data", "local"] {
        assert_eq!(events(&stage, claim).await, [FAILED], "{claim}: nothing is reported twice");
    }
    second.kill();
    // The node returns while no hub runs.
    set_ready(&stage, &node, "True").await;
    let third = start_hub(&kubeconfig, &QUICK);
    for claim in ["data", "local", "late"] {
        wait_events(&stage, claim, &[FAILED, RECOVERED]).await;
    }
    drop(third);
    // The last one repeats what is young, and the API server refuses that.
    let fourth = start_hub(&kubeconfig, &QUICK);
    fourth.wait_log("merging what is known").await;
    let again = stage.make_node("again").await;
    stage.used_claim("other", &again).await;
    set_ready(&stage, &again, "Unknown").await;
    wait_events(&stage, "other", &[FAILED]).await;
    for claim in ["data", "local", "late"] {
        assert_eq!(events(&stage, claim).await, [FAILED, RECOVERED], "{claim}");
    }
}

/// A hub that ended after it had stored what it saw, and before the API server had the event.
#[tokio::test]
async fn what_a_hub_could_not_report_any_more_is_reported_by_the_next() {
    let stage = Stage::own(&everything()).await;
    let node = stage.make_node("n").await;
    stage.used_claim("data", &node).await;
    let create = Right { resource: "events".to_owned(), verb: "create".to_owned() };
    let poor = Rights::read(&stage.plane, "rbac-hub.yaml").without(&create);
    let config = poor.grant(&stage.plane, &stage.client, &stage.namespace, "poor").await;
    let path = stage.plane.kubeconfig().with_extension("poor");
    std::fs::write(&path, config.to_string()).expect("the kubeconfig can be written");
    let mut first = start_hub(&path, &QUICK);
    set_ready(&stage, &node, "Unknown").await;
    stage.wait_stored("data", &["cluster HealthFailure Inaccessible/NodeDown"]).await;
    first.kill();
    assert!(events(&stage, "data").await.is_empty(), "it may not write events");
    let _second = start_hub(&stage.kubeconfig().await, &QUICK);
    wait_events(&stage, "data", &[FAILED]).await;
}

#[tokio::test]
async fn a_sidecar_that_reports_nodes_and_the_hub_never_both_report_one() {
    let stage = Stage::own(&everything()).await;
    install(&stage.plane, &["rbac-controller.yaml"]);
    let dir = TempDir::new().expect("a directory for the socket");
    let sim = Sim::start(&dir.path().join("csi.sock"), DRIVER, &[can::LIST_VOLUME_HEALTH]).expect("a driver");
    sim.add_volumes([stage.handle("data")]);
    let node = stage.make_node("n").await;
    for claim in ["data", "local"] {
        stage.used_claim(claim, &node).await;
    }
    make_local(&stage, "local").await;
    let kubeconfig = stage.kubeconfig_of("volmedic-controller").await;
    let nodes = ["--enable-node-watcher=true", "--node-grace-period=2s"];
    let _sidecar = Controller::start(sim.socket(), &kubeconfig, &nodes);
    let leases = Api::<k8s_openapi::api::coordination::v1::Lease>::all(stage.client.clone());
    until("the sidecar says that it reports nodes", || async {
        let all = leases.list(&ListParams::default()).await?;
        let mut texts = all.iter().flat_map(|lease| lease.metadata.annotations.iter().flatten());
        Ok::<_, kube::Error>(texts.any(|(_, text)| text.contains("reportsNodes")))
    })
    .await;
    let _hub = start_hub(&stage.kubeconfig().await, &QUICK);
    set_ready(&stage, &node, "Unknown").await;
    let of_sidecar = |rest: &str| format!("csi-pv-monitor-controller-{DRIVER} {rest} 1");
    wait_events(&stage, "local", &[FAILED]).await;
    wait_events(&stage, "data", &[&of_sidecar("Warning NodeFailed")]).await;
    set_ready(&stage, &node, "True").await;
    wait_events(&stage, "local", &[FAILED, RECOVERED]).await;
    let both = [of_sidecar("Warning NodeFailed"), of_sidecar("Normal NodeRecovered")];
    wait_events(&stage, "data", &both.each_ref().map(|line| &**line)).await;
    stage.wait_stored("data", &["controller Healthy"]).await;
    assert_eq!(events(&stage, "data").await, both);
}

/// Sets what an attacher says about attaching the volume of a claim.
async fn attaches(stage: &Stage, claim: &str, node: &str, status: Value) {
    let api = Api::<VolumeAttachment>::all(stage.client.clone());
    let name = format!("{}-{claim}", stage.namespace);
    if api.get_opt(&name).await.expect("attachments").is_none() {
        let source = json!({"persistentVolumeName": format!("pv-{}-{claim}", stage.namespace)});
        let object = json!({"metadata": {"name": name},
            "spec": {"attacher": DRIVER, "nodeName": node, "source": source}});
        let object = serde_json::from_value(object).expect("an attachment");
        api.create(&PostParams::default(), &object).await.expect("an attachment");
    }
    let patch = Patch::Merge(json!({ "status": status }));
    api.patch_status(&name, &PatchParams::default(), &patch).await.expect("its status");
}

#[tokio::test]
async fn tries_to_attach_that_keep_failing_are_reported_and_one_that_is_followed_by_a_good_one_is_not() {
    let stage = Stage::own(&everything()).await;
    let node = stage.make_node("n").await;
    for claim in ["fails", "slow"] {
        stage.used_claim(claim, &node).await;
    }
    let _hub = start_hub(&stage.kubeconfig().await, &QUICK);
    let error = |age: i64| {
        let time = Timestamp::now() - SignedDuration::from_secs(age);
        json!({"attached": false, "attachError": {"time": time.strftime("%Y-%m-%dT%H:%M:%SZ").to_string(), "message": "no such disk"}})
    };
    attaches(&stage, "slow", &node, error(0)).await;
    attaches(&stage, "fails", &node, error(0)).await;
    let good = json!({"attached": true, "attachError": null});
    attaches(&stage, "slow", &node, good.clone()).await;
    // Nothing else happens; it counts when enough time has passed.
    wait_events(&stage, "fails", &["volmedic-hub Warning VolumeConditionAbnormal 1"]).await;
    attaches(&stage, "fails", &node, good).await;
    let both =
        ["volmedic-hub Warning VolumeConditionAbnormal 1", "volmedic-hub Normal VolumeConditionNormal 1"];
    wait_events(&stage, "fails", &both).await;
    assert_eq!((stage.stored("slow").await, events(&stage, "slow").await), (None, Vec::new()));
}

/// A stolen token of the hub is no token to write any event with.
#[tokio::test]
async fn the_hub_may_write_events_on_claims_and_in_its_own_name_only() {
    let stage = Stage::own(&everything()).await;
    stage.claim("data").await;
    let hub = stage.plane.client_for(HOME, "volmedic-hub").await.expect("the hub");
    let write = async |client: &Client, name: &str, kind: &str, component: &str| {
        let event = json!({
            "metadata": {"name": name}, "reason": "NodeFailed", "type": "Warning", "message": "x",
            "involvedObject": {"kind": kind, "name": "data", "namespace": stage.namespace},
            "source": {"component": component},
        });
        let event: Event = serde_json::from_value(event).expect("an event");
        let api = Api::<Event>::namespaced(client.clone(), &stage.namespace);
        api.create(&PostParams::default(), &event).await.map(drop)
    };
    let refused = |outcome: kube::Result<()>, why: &str| {
        let error = outcome.expect_err(why).to_string();
        assert!(error.contains(why), "{error}");
    };
    // Policies take effect some time after they are created.
    until("the policy is in force", || async {
        let answer =
            write(&hub, &format!("probe-{}", Timestamp::now().as_millisecond()), "Node", "volmedic-hub")
                .await;
        Ok::<_, String>(answer.is_err())
    })
    .await;
    refused(write(&hub, "a", "Node", "volmedic-hub").await, "must be on a claim or on a pod");
    refused(
        write(&hub, "a", "PersistentVolumeClaim", "kubelet").await,
        "must have volmedic-hub or volmedic-healer",
    );
    write(&hub, "a", "PersistentVolumeClaim", "volmedic-hub").await.expect("its own event");
    write(&stage.client, "b", "Node", "kubelet").await.expect("others are not limited");
}
