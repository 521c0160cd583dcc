use serde_json::{Value, json};
use volmedic_api::Arrived;
use volmedic_health::Health;
use volmedic_hub::{Claim, ControllerLease, CsiNode, Pod, StoredHealth, StoredReport, Volume};

use super::*;

const NOW: &str = "2026-08-21T12:00:00Z";

fn at(text: &str) -> Timestamp {
    text.parse().expect("a time")
}

fn arrived<T: volmedic_api::Shape>(object: &Value) -> Arrived<T> {
    serde_json::from_str(&object.to_string()).expect("an object")
}

/// A claim `shop/data` that is bound to the volume `v` of driver `d` and used by the pod `db` on node `n`.
fn picture(more: impl FnOnce(&mut Picture)) -> Picture {
    let mut picture = Picture::default();
    let claim: Arrived<Claim> = arrived(&json!({
        "metadata": {"namespace": "shop", "name": "data", "uid": "u-1"},
        "spec": {"volumeName": "pv"}, "status": {"phase": "Bound"},
    }));
    picture.put_claim(&claim, claim.body.as_ref().expect("a claim"));
    let volume: Arrived<Volume> = arrived(&json!({
        "metadata": {"name": "pv"},
        "spec": {"csi": {"driver": "d", "volumeHandle": "v"}, "claimRef": {"namespace": "shop", "name": "data", "uid": "u-1"}},
    }));
    picture.put_volume(&volume, volume.body.as_ref().expect("a volume"));
    pod(&mut picture, &json!({}));
    node(&mut picture, "True", "2026-08-21T10:00:00Z");
    more(&mut picture);
    picture
}

fn pod(picture: &mut Picture, status: &Value) {
    let pod: Arrived<Pod> = arrived(&json!({
        "metadata": {"namespace": "shop", "name": "db"}, "status": status,
        "spec": {"nodeName": "n", "volumes": [{"name": "disk", "persistentVolumeClaim": {"claimName": "data"}}]},
    }));
    picture.put_pod(&pod, pod.body.as_ref().expect("a pod"));
}

fn node(picture: &mut Picture, ready: &str, since: &str) {
    let node: Arrived<volmedic_api::slim::Node> = arrived(&json!({
        "metadata": {"name": "n"},
        "status": {"conditions": [{"type": "Ready", "status": ready, "lastTransitionTime": since}]},
    }));
    picture.put_node(&node, node.body.as_ref().expect("a node"));
}

fn agent(picture: &mut Picture, renewed: &str, report: &Value) {
    lease(picture, "volmedic-agent-n", renewed, &Value::Null);
    let mut report = report.clone();
    report["coverage"] = json!({"groups": [{"probedFrom": ["Host"], "persistentVolumes": ["pv"]}]});
    let report: Arrived<StoredReport> =
        arrived(&json!({"metadata": {"name": "n"}, "spec": {"report": report}}));
    picture.put_report(&report, report.body.as_ref().expect("a report"));
}

/// With this statement of a controller.
fn lease(picture: &mut Picture, name: &str, renewed: &str, coverage: &Value) {
    let annotations =
        if coverage.is_null() { json!({}) } else { json!({"volmedic.dev/coverage": coverage.to_string()}) };
    let lease: Arrived<ControllerLease> = arrived(&json!({
        "metadata": {"namespace": "volmedic", "name": name, "annotations": annotations},
        "spec": {"holderIdentity": "x", "leaseDurationSeconds": 40, "renewTime": renewed},
    }));
    picture.put_lease(&lease, lease.body.as_ref().expect("a lease"));
}

fn stored(picture: &mut Picture, owner: &str, status: &Value) {
    let stored: Arrived<StoredHealth> = arrived(&json!({
        "metadata": {"namespace": "shop", "name": "data", "uid": "u", "ownerReferences": [
            {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "name": "data", "uid": owner}]},
        "status": status,
    }));
    picture.put_health(&stored, stored.body.as_ref().expect("a VolumeHealth"));
}

const ALIVE: &str = "2026-08-21T11:59:50.000000Z";
const SILENT: &str = "2026-08-21T11:00:00.000000Z";

/// As in `Inaccessible/IOHung by host/n controller`.
fn check(more: impl FnOnce(&mut Picture), expected: &str) {
    let mut picture = picture(more);
    picture.settle(at(NOW), true);
    let mut rows = Rows::new(&picture, at(NOW)).all();
    let row = rows.pop().expect("a row");
    assert!(rows.is_empty());
    let reason = if row.reason().is_empty() { String::new() } else { format!("/{}", row.reason()) };
    let seers: Vec<String> = row.seen_by.iter().map(|sighting| sighting.vantage.name()).collect();
    let reported = format!("{}{reason} by {}", row.health, seers.join(" "));
    assert_eq!(reported.trim_end(), expected, "{row:?}");
    assert_eq!(row.next().is_empty(), row.health == Health::Healthy, "what is not well has a next step");
    assert_eq!(row.why.is_some(), row.health == Health::Unknown, "what is unknown has a why");
}

#[test]
fn health_needs_a_vantage_that_probes() {
    check(|_| {}, "Unknown/NotProbed by");
    check(|p| agent(p, ALIVE, &json!({})), "Healthy by host/n");
    check(|p| agent(p, SILENT, &json!({})), "Unknown/AgentNotResponding by host/n");
    check(|p| agent(p, ALIVE, &json!({"omitted": 7})), "Unknown/ReportOverflow by host/n");
    // A lease without a report is an agent that cannot report.
    check(|p| lease(p, "volmedic-agent-n", ALIVE, &Value::Null), "Unknown/NotProbed by");
}

#[test]
fn a_controller_that_says_nothing_of_a_volume_counts_only_if_it_probes_it() {
    let name = "external-health-monitor-leader-d";
    let probes = json!({"driver": "d", "withinSeconds": 195, "probedBy": "ListVolumes"});
    let mut lost = probes.clone();
    lost["notProbed"] = json!({"since": NOW, "reason": "DriverUnreachable", "message": "refused"});
    check(|p| lease(p, name, ALIVE, &Value::Null), "Unknown/NotProbed by");
    check(|p| lease(p, name, ALIVE, &json!({"driver": "d", "withinSeconds": 195})), "Unknown/NotProbed by");
    check(|p| lease(p, name, ALIVE, &probes), "Healthy by controller");
    check(|p| lease(p, name, ALIVE, &lost), "Unknown/DriverUnreachable by");
    check(|p| lease(p, name, SILENT, &probes), "Unknown/ControllerNotResponding by");
    check(|p| lease(p, "volmedic-controller-d", ALIVE, &probes), "Healthy by controller");
    let unused = |p: &mut Picture| p.world.remove_pod("shop", "db");
    check(|p| (unused(p), lease(p, name, ALIVE, &lost)).1, "Unknown/DriverUnreachable by");
    check(unused, "Unknown/NotProbed by");
}

#[test]
fn what_is_stored_is_of_this_claim_and_not_of_one_before_it() {
    let unhealthy = json!({"vantages": [{"name": "pushed/scan", "kind": "Pushed", "source": "scan", "health": "HealthWarning", "since": NOW,
        "expires": "2036-08-21T10:00:00Z",
        "healthConditions": [{"type": "HealthWarning", "status": "True", "errorCode": "Degraded", "reason": "SlowIO",
            "lastTransitionTime": NOW}]}], "headline": {"health": "HealthWarning"}});
    check(|p| stored(p, "u-1", &unhealthy), "Degraded/SlowIO by pushed/scan");
    check(|p| stored(p, "u-0", &unhealthy), "Unknown/NotProbed by");
    let report = json!({"controllerReport": {"driver": "d", "since": NOW,
        "lease": {"namespace": "csi", "name": "volmedic-controller-d"}, "healthConditions": [
        {"type": "HealthFailure", "status": "True", "errorCode": "DataLoss", "reason": "DiskFailure", "lastTransitionTime": NOW}]}});
    check(|p| stored(p, "u-1", &report), "DataLoss/DiskFailure by controller");
}

#[test]
fn what_kubelets_nodes_and_the_cluster_say() {
    let reported = json!({"volumeHealth": [{"name": "disk", "lastTransitionTime": NOW,
        "healthConditions": [{"status": "Inaccessible", "reason": "DiskFailure", "message": ""}]}]});
    check(|p| pod(p, &reported), "Inaccessible/DiskFailure by kubelet/n");
    check(|p| pod(p, &json!({"volumeHealth": [{"name": "disk"}]})), "Healthy by kubelet/n");
    let backend = json!({"metadata": {"name": "n"}, "status": {"storageHealth": [{"name": "d", "healthConditions": [
        {"status": "StorageDegraded", "reason": "PoolDegraded"}]}]}});
    let backend = |p: &mut Picture| {
        let node: Arrived<CsiNode> = arrived(&backend);
        p.put_csi_node(&node, node.body.as_ref().expect("a CSINode"));
    };
    check(backend, "Degraded/PoolDegraded by kubelet/n");
    check(|p| node(p, "Unknown", "2026-08-21T11:00:00Z"), "Inaccessible/NodeDown by cluster");
    check(|p| node(p, "Unknown", "2026-08-21T11:59:50Z"), "Unknown/NotProbed by");
    check(|p| drop(p.nodes.remove("n")), "Inaccessible/NodeDown by cluster");
}

#[test]
fn what_the_agent_reports_of_this_very_volume() {
    let entry = |handle: &str, vantage: &str| {
        json!({"volumes": [{"vantage": vantage, "driver": "d", "volumeHandle": handle, "healthConditions": [
            {"type": "HealthFailure", "status": "True", "errorCode": "Inaccessible", "reason": "IOHung", "lastTransitionTime": NOW}]}]})
    };
    check(|p| agent(p, ALIVE, &entry("v", "Host")), "Inaccessible/IOHung by host/n");
    check(|p| agent(p, ALIVE, &entry("v", "Node")), "Inaccessible/IOHung by node/n host/n");
    check(|p| agent(p, ALIVE, &entry("other", "Host")), "Healthy by host/n");
    check(|p| agent(p, SILENT, &entry("v", "Host")), "Inaccessible/IOHung by host/n");
}

#[test]
fn claims_without_a_volume() {
    let phase = |phase: &str| {
        let claim: Arrived<Claim> = arrived(&json!({
            "metadata": {"namespace": "shop", "name": "data", "uid": "u-2"}, "spec": {"volumeName": "pv"}, "status": {"phase": phase},
        }));
        move |p: &mut Picture| p.put_claim(&claim, claim.body.as_ref().expect("a claim"))
    };
    check(phase("Pending"), "Unknown/NotBound by");
    check(phase("Lost"), "Inaccessible/VolumeNotFound by cluster");
    check(phase("Bound"), "Unknown/NoVolume by");
}
