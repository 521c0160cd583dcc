#![allow(clippy::needless_pass_by_value, reason = "JSON is written in place")]

use std::time::{Duration, Instant};

use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use volmedic_api::resource::LeaseName;

use super::*;
use crate::facts::{Seen, View, What};

mod announced;
mod attachments;
mod evidence;
mod judged;
mod leases;
mod patients;
mod size;
mod stuck;

const DRIVER: &str = "disk.example.net";

fn read<T: DeserializeOwned>(value: Value) -> T {
    serde_json::from_value(value).unwrap()
}

/// A world with the claims `shop/a` on node `n1`, by pod `web`, and `shop/b` on no node; all sources were read.
fn world() -> World {
    let mut world = World::default();
    for name in ["a", "b"] {
        claim(&mut world, name, json!({}));
        let claim_ref = json!({"namespace": "shop", "name": name, "uid": format!("uid-{name}")});
        let spec =
            json!({"csi": {"driver": DRIVER, "volumeHandle": format!("h-{name}")}, "claimRef": claim_ref});
        world.put_volume(&format!("pv-{name}"), &read(json!({ "spec": spec })));
    }
    pod(&mut world, "web", "n1", "a", json!({}));
    world.set_nodes(["n1", "n2"].map(Into::into).into());
    for source in [
        Source::Claims,
        Source::Volumes,
        Source::Pods,
        Source::Nodes,
        Source::Stored,
        Source::Reports,
        Source::Leases,
        Source::Controllers,
    ] {
        world.heard(source);
    }
    world.heard(Source::Backends);
    world.heard(Source::NodesDown);
    world.set_verified(true);
    for node in ["n1", "n2"] {
        world.put_lease(now(), node, &lease("12:00:00"));
    }
    world.take_dirty();
    world
}

fn now() -> Now {
    Now { day: "2026-08-21T12:00:00Z".parse().unwrap(), clock: Instant::now() }
}

/// A Lease that was renewed at this time of the day.
fn lease(time: &str) -> shape::Lease {
    read(json!({"spec": {"leaseDurationSeconds": 40, "renewTime": format!("2026-08-21T{time}.000000Z")}}))
}

fn claim(world: &mut World, name: &str, status: Value) {
    let spec = json!({"volumeName": format!("pv-{name}"), "accessModes": ["ReadWriteOnce"]});
    world.put_claim("shop", name, &format!("uid-{name}"), &read(json!({"spec": spec, "status": status})));
}

fn pod(world: &mut World, name: &str, node: &str, claim: &str, status: Value) {
    let volume = json!({"name": "data", "persistentVolumeClaim": {"claimName": claim}});
    let pod = json!({"spec": {"nodeName": node, "volumes": [volume]}, "status": status});
    world.put_pod("shop", name, &read(pod));
}

/// A report of an agent that probes these volumes of claims from its host, with these handles unhealthy.
fn report(handles: &[&str]) -> NodeReport {
    let condition = json!({
        "type": "HealthFailure", "status": "True", "errorCode": "Inaccessible", "reason": "IOHung",
        "lastTransitionTime": "2026-08-21T10:00:00Z"
    });
    let entry = |handle: &&str| json!({"vantage": "Host", "driver": DRIVER, "volumeHandle": handle, "healthConditions": [condition]});
    let coverage = json!({"withinSeconds": 130, "groups": [
        {"probedFrom": ["Host"], "persistentVolumes": ["pv-b", "pv-a"]}]});
    read(json!({"volumes": handles.iter().map(entry).collect::<Vec<_>>(), "coverage": coverage}))
}

fn key(name: &str) -> ClaimKey {
    ClaimKey::new("shop", name)
}

fn dirty(world: &mut World) -> Vec<String> {
    world.take_dirty().into_iter().map(|key| key.name.to_string()).collect()
}

/// Each view as `kind/node: status/reason ...`.
fn views(world: &World, name: &str) -> Vec<String> {
    let what = |seen: &Seen| match &seen.what {
        What::Wrong(condition) => condition.to_string(),
        What::Unknown { reason, .. } => format!("Unknown/{reason}"),
    };
    let show = |view: &View| {
        let seen: Vec<_> = view.seen.iter().map(what).collect();
        let name = crate::facts::vantage_name(view.kind, view.node.as_deref());
        format!("{name}: {}", seen.join(" ")).trim_end().to_owned()
    };
    world.facts(&key(name)).views.iter().map(show).collect()
}

#[test]
fn a_node_is_heard_only_about_volumes_that_its_pods_use() {
    let mut world = world();
    world.put_report("n1", &report(&["h-a", "h-b", "h-elsewhere"]));
    assert_eq!(dirty(&mut world), ["a"], "nobody looks at b, and no such volume is elsewhere");
    assert_eq!(views(&world, "a"), ["host/n1: Inaccessible/IOHung"]);
    assert_eq!(views(&world, "b"), [""; 0]);
    assert_eq!(world.unbelieved(), 2);
    world.put_report("n2", &report(&["h-a"]));
    assert_eq!(dirty(&mut world), [""; 0], "no pod on n2 uses it");
    assert_eq!(views(&world, "a"), ["host/n1: Inaccessible/IOHung"]);
    assert_eq!(world.unbelieved(), 3);
    pod(&mut world, "db", "n2", "a", json!({}));
    assert_eq!(dirty(&mut world), ["a"]);
    assert_eq!(views(&world, "a"), ["host/n1: Inaccessible/IOHung", "host/n2: Inaccessible/IOHung"]);
    world.remove_pod("shop", "web");
    assert_eq!(views(&world, "a"), ["host/n2: Inaccessible/IOHung"]);
    pod(&mut world, "db", "n2", "a", json!({"phase": "Succeeded"}));
    assert_eq!(views(&world, "a"), [""; 0], "a finished pod uses nothing");
}

#[test]
fn a_volume_of_another_driver_with_the_same_handle_is_another_volume() {
    let mut world = world();
    let mut forged = report(&["h-a"]);
    forged.volumes[0].driver = "other.example.net".to_owned();
    world.put_report("n1", &forged);
    assert_eq!(views(&world, "a"), ["host/n1:"]);
    assert_eq!(world.unbelieved(), 1);
}

#[test]
fn volumes_without_a_csi_driver_go_by_the_name_of_the_persistentvolume() {
    let mut world = world();
    let claim_ref = json!({"namespace": "shop", "name": "a", "uid": "uid-a"});
    world.put_volume("pv-a", &read(json!({"spec": {"claimRef": claim_ref, "local": {"path": "/x"}}})));
    let mut local = report(&["pv-a"]);
    world.put_report("n1", &local);
    assert_eq!(views(&world, "a"), ["host/n1:"], "the entry is of another volume");
    local.volumes[0].driver = "kubernetes.io/local-volume".to_owned();
    world.put_report("n1", &local);
    assert_eq!(views(&world, "a"), ["host/n1: Inaccessible/IOHung"]);
}

#[test]
fn a_volume_that_is_bound_to_an_earlier_claim_is_not_this_ones() {
    let mut world = world();
    world.put_report("n1", &report(&["h-a"]));
    let spec = json!({"volumeName": "pv-a"});
    world.put_claim("shop", "a", "another-uid", &read(json!({ "spec": spec })));
    let why = "the claim is bound, but there is no PersistentVolume that is bound to it";
    check_unprobed(&world, "a", "NoVolume", why);
    assert_eq!(world.facts(&key("a")).volume, None);
}

#[test]
fn a_deleted_node_takes_its_entries_with_it() {
    let mut world = world();
    world.put_report("n1", &report(&["h-a"]));
    world.take_dirty();
    world.set_nodes(["n2".into()].into());
    assert_eq!(dirty(&mut world), ["a"]);
    assert_eq!(views(&world, "a"), [""; 0]);
}

#[test]
fn a_node_that_is_down_concerns_what_is_used_there() {
    let mut world = world();
    pod(&mut world, "web-2", "n1", "a", json!({}));
    world.take_dirty();
    let since: Timestamp = "2026-08-21T10:00:00Z".parse().unwrap();
    let down = DownNode { since, why: "nobody hears from it".to_owned() };
    world.set_down([("n1".into(), down.clone())].into());
    assert_eq!(dirty(&mut world), ["a"]);
    assert_eq!(views(&world, "a"), ["cluster: Inaccessible/NodeDown"]);
    let What::Wrong(condition) = world.facts(&key("a")).views[0].seen[0].what.clone() else { panic!() };
    assert_eq!(
        &*condition.message,
        "node n1 is down since 2026-08-21T10:00:00Z, nobody hears from it; it is used there by pods web, web-2"
    );
    world.set_down([("n1".into(), down)].into());
    assert_eq!(dirty(&mut world), [""; 0]);
    world.set_down(BTreeMap::new());
    assert_eq!((dirty(&mut world), views(&world, "a").len()), (vec!["a".to_owned()], 0));
}

#[test]
fn the_controller_is_heard_through_the_claim_and_not_about_nodes() {
    let mut world = world();
    let reported = |conditions: Value| json!({"healthStatus": {"healthConditions": conditions, "lastTransitionTime": "2026-08-21T10:00:00Z"}});
    claim(
        &mut world,
        "b",
        reported(json!([
            {"status": "Inaccessible", "reason": "VolumeNotFound", "message": "gone"},
            {"status": "Inaccessible", "reason": "NodeDown"},
            {"status": "Surprising", "reason": "New"}
        ])),
    );
    assert_eq!(dirty(&mut world), ["b"]);
    assert_eq!(views(&world, "b"), ["controller: Inaccessible/VolumeNotFound Unrecognized(0)/New"]);
    claim(&mut world, "b", reported(json!(null)));
    let nobody =
        "no pod uses it, and driver disk.example.net has no controller sidecar that reports what it probes";
    check_unprobed(&world, "b", "NotProbed", nobody);
    found_controller(&mut world, "12:00:00", all_probed());
    assert_eq!(views(&world, "b"), ["controller:"], "it runs, and says that nothing is wrong");
    claim(&mut world, "b", json!({}));
    assert_eq!(views(&world, "b"), ["controller:"], "wherever it would say it");
}

#[test]
fn the_kubelet_is_heard_about_its_pods_and_about_backends() {
    let mut world = world();
    let reported = json!([{"name": "data", "healthConditions": [{"status": "Degraded", "reason": "SlowIO"}]},
        {"name": "other", "healthConditions": [{"status": "DataLoss", "reason": "X"}]}]);
    pod(&mut world, "web", "n1", "a", json!({"phase": "Running", "volumeHealth": reported}));
    assert_eq!(dirty(&mut world), ["a"]);
    assert_eq!(views(&world, "a"), ["kubelet/n1: Degraded/SlowIO"]);
    let backend = |conditions: Value| {
        read(json!({"status": {"storageHealth": [{"name": DRIVER, "healthConditions": conditions},
            {"name": "other.example.net", "healthConditions": [{"status": "StorageUnreachable", "reason": "Y"}]}]}}))
    };
    world.put_backends(
        "n1",
        &backend(json!([
            {"status": "StorageUnreachable", "reason": "PathGroupDown", "lastTransitionTime": null},
            {"status": "StorageDegraded", "reason": "OnlyBlock", "volumeMode": "Block"},
            {"status": "StorageDegraded", "reason": "OnlyShared", "accessMode": "ReadWriteMany"},
            {"status": "StorageDegraded", "reason": "Ours", "accessMode": "ReadWriteOnce", "volumeMode": "Filesystem"}
        ])),
    );
    assert_eq!(dirty(&mut world), ["a"]);
    assert_eq!(views(&world, "a"), ["kubelet/n1: Inaccessible/PathGroupDown Degraded/Ours Degraded/SlowIO"]);
    world.remove_csi_node("n1");
    pod(&mut world, "web", "n1", "a", json!({"volumeHealth": [{"name": "data"}]}));
    assert_eq!(views(&world, "a"), ["kubelet/n1:"], "it recovered");
}

#[test]
fn a_silent_agent_is_reported_and_one_that_was_never_there_is_not() {
    let mut world = world();
    let start = Instant::now();
    let at = |seconds| Now {
        day: "2026-08-21T12:00:00Z".parse().unwrap(),
        clock: start + Duration::from_secs(seconds),
    };
    world.put_report("n1", &report(&[]));
    world.remove_lease("n1");
    world.put_lease(at(0), "n1", &lease("11:59:00"));
    assert_eq!((world.facts(&key("a")).undetermined, views(&world, "a")), (vec!["n1".into()], vec![]));
    world.put_lease(at(10), "n1", &lease("11:59:10"));
    assert_eq!(world.facts(&key("a")).undetermined, [""; 0].map(Into::into));
    world.take_dirty();
    assert!(world.tick(at(20), true).is_some_and(|due| due <= start + Duration::from_secs(70)));
    assert_eq!((dirty(&mut world).len(), views(&world, "a")), (0, vec!["host/n1:".to_owned()]));
    world.tick(at(70), true);
    assert_eq!(dirty(&mut world), ["a"]);
    assert_eq!(views(&world, "a"), ["host/n1: Unknown/AgentNotResponding"]);
    let What::Unknown { message, .. } = world.facts(&key("a")).views[0].seen[0].what.clone() else {
        panic!()
    };
    assert_eq!(
        message,
        "the agent on node n1 is not responding since 2026-08-21T11:59:10Z; its last report is kept"
    );
    world.remove_lease("n1");
    let why = "no agent runs on node n1, where it is used; there is only an old report, and driver disk.example.net has \
               no controller sidecar that reports what it probes";
    check_unprobed(&world, "a", "NotProbed", why);
}

#[test]
fn a_report_that_had_to_leave_something_out_does_not_make_the_rest_healthy() {
    let mut world = world();
    let mut report = report(&["h-elsewhere"]);
    report.omitted = 3;
    world.put_report("n1", &report);
    assert_eq!(views(&world, "a"), ["host/n1: Unknown/ReportOverflow"]);
    report.omitted = 0;
    world.put_report("n1", &report);
    assert_eq!((dirty(&mut world), views(&world, "a")), (vec!["a".to_owned()], vec!["host/n1:".to_owned()]));
}

#[test]
fn where_the_server_does_not_check_agents_it_is_said() {
    let mut world = world();
    world.put_report("n1", &report(&["h-a"]));
    assert_eq!(world.facts(&key("a")).views[0].verified, None);
    world.set_verified(false);
    assert_eq!(world.facts(&key("a")).views[0].verified, Some(false));
}

#[test]
fn what_was_written_is_not_overtaken_by_what_the_watch_brings_late() {
    let mut world = world();
    let object = |version: &str, reason: &str| -> shape::StoredHealth {
        let metadata = json!({"uid": "u", "resourceVersion": version});
        let headline = json!({"health": "HealthWarning", "status": "Degraded", "reason": reason});
        read(json!({"metadata": metadata, "status": {"headline": headline}}))
    };
    world.put_stored("shop", "a", &object("9", "New"));
    assert_eq!(dirty(&mut world), ["a"]);
    world.put_stored("shop", "a", &object("8", "Old"));
    assert_eq!(dirty(&mut world), [""; 0]);
    let stored = world.stored();
    assert_eq!(stored[&key("a")].headline.reason.as_deref(), Some("New"));
    world.put_stored("shop", "a", &object("10", "Newer"));
    assert_eq!(dirty(&mut world), ["a"]);
}

#[test]
fn a_generic_ephemeral_volume_is_used_by_its_pod() {
    let mut world = world();
    let pod = json!({"spec": {"nodeName": "n2", "volumes": [{"name": "x", "ephemeral": {"volumeClaimTemplate": {}}}]}});
    world.put_pod("shop", "b", &read(pod));
    assert_eq!(dirty(&mut world), ["b-x"]);
}

fn lease_of(driver: &str) -> String {
    format!("volmedic-controller-{}", driver.replace('.', "-"))
}

fn leader() -> LeaseName {
    LeaseName { namespace: "csi".to_owned(), name: lease_of(DRIVER) }
}

/// What is found of the driver's controller: a Lease that was renewed at this time.
fn found_controller(world: &mut World, renewed: &str, coverage: Value) {
    let mut coverage = coverage;
    coverage["driver"] = DRIVER.into();
    coverage["withinSeconds"] = 195.into();
    let controller = Controller { lease: leader(), coverage: read(coverage) };
    world.set_controllers(now(), vec![(DRIVER.into(), controller, lease(renewed))]);
}

/// Of a controller that probes all volumes.
fn all_probed() -> Value {
    json!({"probedBy": "ControllerListVolumeHealth"})
}

fn unreachable() -> Value {
    let outage = json!({"since": "2026-08-21T11:30:00Z", "reason": "DriverUnreachable", "message": "connection refused"});
    json!({"probedBy": "ControllerListVolumeHealth", "notProbed": outage})
}

#[track_caller]
fn check_unprobed(world: &World, name: &str, reason: &str, message: &str) {
    let facts = world.facts(&key(name));
    assert_eq!(facts.views, [], "no view without a probe");
    let unprobed = facts.unprobed.expect("why");
    assert_eq!((unprobed.reason.name(), &*unprobed.message), (reason, message));
    let status = crate::merge(now().day, &world.facts(&key(name)), None);
    assert_eq!(status.headline.health.as_str(), "HealthUnknown");
    assert_eq!(status.conditions[0].status, volmedic_api::resource::ConditionStatus::Unknown);
    assert_eq!(status.headline.reason.as_deref(), Some(reason));
}

/// Stores what a controller says of claim `a`.
fn controller_says(world: &mut World, version: &str, driver: &str, owner: &str, reasons: &[&str]) {
    let condition = |reason: &&str| {
        json!({"type": "HealthFailure", "status": "True", "errorCode": "Inaccessible", "reason": reason,
            "lastTransitionTime": "2026-08-21T10:00:00Z"})
    };
    let conditions: Vec<Value> = reasons.iter().map(condition).collect();
    let owner = json!([{"apiVersion": "v1", "kind": "PersistentVolumeClaim", "name": "a", "uid": owner}]);
    let metadata = json!({"uid": "u", "resourceVersion": version, "ownerReferences": owner});
    let report = json!({"driver": driver, "lease": {"namespace": "csi", "name": lease_of(DRIVER)},
        "healthConditions": conditions, "since": "2026-08-21T10:00:00Z"});
    let object = json!({"metadata": metadata, "status": {"controllerReport": report}});
    world.put_stored("shop", "a", &read(object));
}

#[test]
fn a_controller_is_heard_about_volumes_of_its_driver_and_of_this_very_claim() {
    let mut world = world();
    controller_says(&mut world, "1", DRIVER, "uid-a", &["VolumeNotFound", "NodeDown"]);
    assert_eq!(dirty(&mut world), ["a"]);
    assert_eq!(views(&world, "a"), ["controller: Inaccessible/VolumeNotFound"]);
    let kept = json!({"healthStatus": {"healthConditions": [{"status": "Degraded", "reason": "Older"}]}});
    claim(&mut world, "a", kept);
    assert_eq!(views(&world, "a").len(), 1, "one vantage, whatever way it is heard");
    controller_says(&mut world, "2", DRIVER, "uid-a", &[]);
    assert_eq!(views(&world, "a"), [""; 0], "it recovered, but it is not known whether the controller runs");
    world.put_controller_lease(now(), &leader(), Some(&lease("12:00:00")));
    assert_eq!(views(&world, "a"), [""; 0], "it runs, but does not say what it probes");
    found_controller(&mut world, "12:00:00", all_probed());
    assert_eq!(views(&world, "a"), ["controller:"], "it recovered");
    world.set_controllers(now(), Vec::new());
    claim(&mut world, "a", json!({}));
    controller_says(&mut world, "3", "other.example.net", "uid-a", &["Lie"]);
    assert_eq!(views(&world, "a"), [""; 0]);
    controller_says(&mut world, "4", DRIVER, "an-earlier-claim", &["Over"]);
    assert_eq!(views(&world, "a"), [""; 0]);
}

/// A report that names no Lease never expires, and one that names a Lease of something else is not of this controller.
#[test]
fn a_controller_is_heard_only_while_it_names_a_lease_of_its_driver() {
    for lease in [
        json!(null),
        json!({"namespace": "csi", "name": "somebody"}),
        json!({"namespace": "csi",
        "name": lease_of("other.example.net")}),
    ] {
        let mut world = world();
        let owner =
            json!([{"apiVersion": "v1", "kind": "PersistentVolumeClaim", "name": "a", "uid": "uid-a"}]);
        let mut report = json!({"driver": DRIVER, "since": "2026-08-21T10:00:00Z", "healthConditions": [{
            "type": "HealthFailure", "status": "True", "errorCode": "DataLoss", "reason": "Lie",
            "lastTransitionTime": "2026-08-21T10:00:00Z"}]});
        if !lease.is_null() {
            report["lease"] = lease.clone();
        }
        let metadata = json!({"uid": "u", "resourceVersion": "1", "ownerReferences": owner});
        let object = json!({"metadata": metadata, "status": {"controllerReport": report}});
        world.put_stored("shop", "a", &read(object));
        assert_eq!(views(&world, "a"), [""; 0], "{lease}");
    }
}

#[test]
fn a_controller_that_falls_silent_is_unknown_and_after_a_day_no_longer_believed() {
    let mut world = world();
    let start = Instant::now();
    let begun: Timestamp = "2026-08-21T12:00:00Z".parse().unwrap();
    let at = |seconds: u64| Now {
        day: begun + jiff::SignedDuration::from_secs(i64::try_from(seconds).unwrap()),
        clock: start + Duration::from_secs(seconds),
    };
    let lease = leader();
    let renewed = |seconds: u64| -> shape::Lease {
        read(json!({"spec": {"leaseDurationSeconds": 1, "renewTime": format!("{:.6}", at(seconds).day)}}))
    };
    for node in ["n1", "n2"] {
        world.remove_lease(node);
    }
    controller_says(&mut world, "1", DRIVER, "uid-a", &["VolumeNotFound"]);
    assert_eq!(world.controller_leases(), [lease.clone()].into());
    assert!(world.facts(&key("a")).undetermined_controller);
    world.put_controller_lease(at(0), &lease, Some(&renewed(0)));
    world.put_controller_lease(at(10), &lease, Some(&renewed(9)));
    assert!(!world.facts(&key("a")).undetermined_controller);
    world.take_dirty();
    world.tick(at(100), true);
    assert_eq!(dirty(&mut world), [""; 0], "a rollout takes a moment");
    world.miss_controller_lease(at(110), &lease);
    world.tick(at(200), true);
    assert_eq!(dirty(&mut world), [""; 0], "we could not hear it");
    world.put_controller_lease(at(220), &lease, None);
    world.tick(at(240), true);
    assert_eq!(dirty(&mut world), ["a"]);
    assert_eq!(
        views(&world, "a"),
        ["controller: Inaccessible/VolumeNotFound Unknown/ControllerNotResponding"]
    );
    world.tick(at(86_300), true);
    assert_eq!(dirty(&mut world), [""; 0]);
    world.tick(at(86_500), true);
    assert_eq!((dirty(&mut world), views(&world, "a").len()), (vec!["a".to_owned()], 0));
    world.put_controller_lease(at(86_600), &lease, Some(&renewed(86_600)));
    assert_eq!(dirty(&mut world), ["a"]);
    assert_eq!(views(&world, "a"), ["controller: Inaccessible/VolumeNotFound"], "it is back");

    // Another hub begins, long after the controller went: it does not believe for a moment what is over.
    let mut later = self::world();
    controller_says(&mut later, "1", DRIVER, "uid-a", &["VolumeNotFound"]);
    later.put_controller_lease(at(200_000), &lease, Some(&renewed(10)));
    assert_eq!(views(&later, "a"), [""; 0]);
}
