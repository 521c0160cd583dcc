use serde_json::{Value, json};
use volmedic_api::{Arrived, slim};

use super::*;
use crate::look::shape;

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
    let claim: Arrived<shape::Claim> = arrived(&json!({
        "metadata": {"namespace": "shop", "name": "data", "uid": "u-1"},
        "spec": {"volumeName": "pv"}, "status": {"phase": "Bound"},
    }));
    picture.put_claim(&claim, claim.body.as_ref().expect("a claim"));
    let volume: Arrived<slim::PersistentVolume> = arrived(&json!({
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
    let pod: Arrived<shape::Pod> = arrived(&json!({
        "metadata": {"namespace": "shop", "name": "db"}, "status": status,
        "spec": {"nodeName": "n", "volumes": [{"name": "disk", "persistentVolumeClaim": {"claimName": "data"}}]},
    }));
    picture.put_pod(&pod, pod.body.as_ref().expect("a pod"));
}

fn node(picture: &mut Picture, ready: &str, since: &str) {
    let node =
        json!({"status": {"conditions": [{"type": "Ready", "status": ready, "lastTransitionTime": since}]}});
    picture.put_node("n", &serde_json::from_value(node).expect("a node"));
}

fn agent(picture: &mut Picture, renewed: &str, report: &Value) {
    lease(picture, "volmedic-agent-n", renewed, &json!({}));
    let report = json!({"spec": {"report": report}});
    picture.put_report("n", &serde_json::from_value(report).expect("a report"));
}

fn lease(picture: &mut Picture, name: &str, renewed: &str, labels: &Value) {
    let lease: Arrived<shape::Lease> = arrived(&json!({
        "metadata": {"namespace": "volmedic", "name": name, "labels": labels},
        "spec": {"holderIdentity": "x", "leaseDurationSeconds": 40, "renewTime": renewed},
    }));
    picture.put_lease(&lease, lease.body.as_ref().expect("a lease"));
}

fn stored(picture: &mut Picture, owner: &str, status: &Value) {
    let stored: Arrived<shape::Stored> = arrived(&json!({
        "metadata": {"namespace": "shop", "name": "data", "ownerReferences": [
            {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "name": "data", "uid": owner}]},
        "status": status,
    }));
    picture.put_health(&stored, stored.body.as_ref().expect("a VolumeHealth"));
}

const ALIVE: &str = "2026-08-21T11:59:50.000000Z";
const SILENT: &str = "2026-08-21T11:00:00.000000Z";

/// As in `Inaccessible/IOHung by host/n controller`.
fn check(more: impl FnOnce(&mut Picture), expected: &str) {
    let picture = picture(more);
    let mut rows = Rows::new(&picture, at(NOW)).all();
    let row = rows.pop().expect("a row");
    assert!(rows.is_empty());
    let reason = if row.reason().is_empty() { String::new() } else { format!("/{}", row.reason()) };
    let seers: Vec<String> = row.seen_by.iter().map(|sighting| sighting.vantage.name()).collect();
    let told = format!("{}{reason} by {}", row.health, seers.join(" "));
    assert_eq!(told.trim_end(), expected, "{row:?}");
    assert_eq!(row.next().is_empty(), row.health == Health::Healthy, "what is not well has a next step");
    assert_eq!(row.why.is_some(), row.health == Health::Unknown, "what is unknown has a why");
}

#[test]
fn health_needs_somebody_who_looks() {
    check(|_| {}, "Unknown/NobodyLooks by");
    check(|p| agent(p, ALIVE, &json!({})), "Healthy by host/n");
    check(|p| agent(p, SILENT, &json!({})), "Unknown/AgentSilent by host/n");
    check(|p| agent(p, ALIVE, &json!({"omitted": 7})), "Unknown/ReportOverflow by host/n");
    // A lease without a report is an agent that cannot report.
    check(|p| lease(p, "volmedic-agent-n", ALIVE, &json!({})), "Unknown/NobodyLooks by");
}

#[test]
fn a_controller_that_is_silent_about_a_volume_speaks_only_if_it_can() {
    let name = "external-health-monitor-leader-d";
    let tells = |how: &str| json!({"volmedic.dev/tells-health": how});
    check(|p| lease(p, name, ALIVE, &json!({})), "Unknown/NobodyLooks by");
    check(|p| lease(p, name, ALIVE, &tells("nothing")), "Unknown/NobodyLooks by");
    check(|p| lease(p, name, ALIVE, &tells("ListVolumes")), "Healthy by controller");
    check(|p| lease(p, name, SILENT, &tells("ListVolumes")), "Unknown/NobodyLooks by");
    check(|p| lease(p, "volmedic-controller-d", ALIVE, &tells("ListVolumes")), "Healthy by controller");
    let unused = |p: &mut Picture| p.pods.take("shop", "db");
    check(|p| (unused(p), lease(p, name, ALIVE, &json!({}))).1, "Unknown/NothingTold by");
    check(|p| (unused(p), lease(p, name, SILENT, &json!({}))).1, "Unknown/ControllerSilent by");
    check(unused, "Unknown/NobodyLooks by");
}

#[test]
fn what_is_stored_is_of_this_claim_and_not_of_one_before_it() {
    let ill = json!({"vantages": [{"name": "pushed/scan", "kind": "Pushed", "health": "HealthWarning", "since": NOW,
        "healthConditions": [{"type": "HealthWarning", "status": "True", "errorCode": "Degraded", "reason": "SlowIO",
            "lastTransitionTime": NOW}]}], "headline": {"health": "HealthWarning"}});
    check(|p| stored(p, "u-1", &ill), "Degraded/SlowIO by pushed/scan");
    check(|p| stored(p, "u-0", &ill), "Unknown/NobodyLooks by");
    let report = json!({"controllerReport": {"driver": "d", "since": NOW, "healthConditions": [
        {"type": "HealthFailure", "status": "True", "errorCode": "DataLoss", "reason": "DiskFailure", "lastTransitionTime": NOW}]}});
    check(|p| stored(p, "u-1", &report), "DataLoss/DiskFailure by controller");
}

#[test]
fn what_kubelets_nodes_and_the_cluster_say() {
    let told = json!({"volumeHealth": [{"name": "disk", "lastTransitionTime": NOW,
        "healthConditions": [{"status": "Inaccessible", "reason": "DiskFailure", "message": ""}]}]});
    check(|p| pod(p, &told), "Inaccessible/DiskFailure by kubelet/n");
    check(|p| pod(p, &json!({"volumeHealth": [{"name": "disk"}]})), "Healthy by kubelet/n");
    let backend = json!({"status": {"storageHealth": [{"name": "d", "healthConditions": [
        {"status": "StorageDegraded", "reason": "PoolDegraded"}]}]}});
    let backend =
        |p: &mut Picture| p.put_csi_node("n", &serde_json::from_value(backend.clone()).expect("a CSINode"));
    check(backend, "Degraded/PoolDegraded by kubelet/n");
    check(|p| node(p, "Unknown", "2026-08-21T11:00:00Z"), "Inaccessible/NodeDown by cluster");
    check(|p| node(p, "Unknown", "2026-08-21T11:59:50Z"), "Unknown/NobodyLooks by");
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
        let claim: Arrived<shape::Claim> = arrived(&json!({
            "metadata": {"namespace": "shop", "name": "data", "uid": "u-2"}, "spec": {"volumeName": "pv"}, "status": {"phase": phase},
        }));
        move |p: &mut Picture| p.put_claim(&claim, claim.body.as_ref().expect("a claim"))
    };
    check(phase("Pending"), "Unknown/NotBound by");
    check(phase("Lost"), "Inaccessible/VolumeNotFound by cluster");
    check(phase("Bound"), "Unknown/NoVolume by");
}
