//! Claims without a volume, resizes and volumes that are not unmounted: each counts only after the time that it may take.

use jiff::{SignedDuration, Timestamp};

use super::*;
use crate::Keep;

fn at(time: &str) -> Timestamp {
    format!("2026-08-21T{time}Z").parse().expect("a time")
}

/// The headline's reason, and when to look again by itself.
fn judged(world: &World, claim: &str, time: &str) -> (Option<String>, Option<Timestamp>) {
    let facts = world.facts(&key(claim));
    let keep = Keep { all: true, recovered_for: SignedDuration::from_hours(1) };
    let due = crate::decide(at(time), &facts, None, keep).due;
    (crate::merge(at(time), &facts, None).headline.reason, due)
}

fn pending(provisioner: Option<&str>) -> shape::Claim {
    let annotations = provisioner.map(|name| json!({"volume.kubernetes.io/storage-provisioner": name}));
    read(json!({
        "metadata": {"creationTimestamp": "2026-08-20T00:00:00Z", "annotations": annotations},
        "status": {"phase": "Pending"},
    }))
}

#[test]
fn a_claim_whose_driver_makes_no_volume_counts_after_minutes_and_one_that_waits_for_a_pod_does_not() {
    let mut world = world();
    let unknown = |reason: &str| Some(reason.to_owned());
    let clock = Instant::now();
    world.tick(Now { day: at("11:00:00"), clock }, true);
    world.put_claim("shop", "new", "uid-new", &pending(None));
    assert_eq!(
        judged(&world, "new", "23:00:00"),
        (unknown("NotBound"), None),
        "nobody was asked for a volume"
    );
    // The pod came a day after the claim.
    world.put_claim("shop", "new", "uid-new", &pending(Some(DRIVER)));
    assert_eq!(dirty(&mut world), ["new"]);
    assert_eq!(judged(&world, "new", "11:00:01"), (unknown("NotBound"), Some(at("11:03:00"))));
    world.tick(Now { day: at("11:02:00"), clock }, true);
    world.put_claim("shop", "new", "uid-new", &pending(Some(DRIVER)));
    assert_eq!(judged(&world, "new", "11:03:00"), (unknown("ProvisioningFailed"), None));
    world.put_claim(
        "shop",
        "new",
        "uid-new",
        &read(json!({"spec": {"volumeName": "pv"}, "status": {"phase": "Bound"}})),
    );
    assert_eq!(judged(&world, "new", "11:05:00").0, unknown("NoVolume"));
}

#[test]
fn a_resize_that_fails_or_does_not_end_counts() {
    let resized = |kind: &str, status: &str| {
        json!({"conditions": [{"type": kind, "status": status, "message": "no room",
            "lastTransitionTime": "2026-08-21T11:00:00Z"}], "phase": "Bound"})
    };
    let check = |kind: &str, status: &str, counts_at: Option<&str>| {
        let mut world = world();
        let body = json!({"spec": {"volumeName": "pv-a"}, "status": resized(kind, status)});
        world.put_claim("shop", "a", "uid-a", &read(body));
        let (before, due) = judged(&world, "a", "11:00:30");
        assert_eq!((before.as_deref(), due), (Some("NotProbed"), counts_at.map(at)), "{kind}");
        if let Some(time) = counts_at {
            assert_eq!(judged(&world, "a", time).0.as_deref(), Some("ResizeFailed"), "{kind}");
        }
    };
    check("ControllerResizeError", "True", Some("11:01:00"));
    check("NodeResizeError", "True", Some("11:01:00"));
    check("Resizing", "True", Some("11:10:00"));
    check("Resizing", "False", None);
    // It waits for a pod, which is normal.
    check("FileSystemResizePending", "True", None);
}

#[test]
fn a_volume_that_stays_mounted_after_its_pod_should_be_gone_counts() {
    let mut world = world();
    let unmounting = json!([{"reason": "BeingUnmounted", "message": "", "persistentVolumes": ["pv-a"]}]);
    world.put_report("n1", &read(json!({"coverage": {"withinSeconds": 130, "groups": unmounting}})));
    assert_eq!(
        judged(&world, "a", "23:00:00"),
        (Some("NotProbed".to_owned()), None),
        "no pod is being deleted"
    );
    let pod = |by: &str| -> shape::Pod {
        let volume = json!({"name": "data", "persistentVolumeClaim": {"claimName": "a"}});
        read(json!({"metadata": {"deletionTimestamp": by}, "spec": {"nodeName": "n1", "volumes": [volume]},
            "status": {"phase": "Running"}}))
    };
    world.take_dirty();
    world.put_pod("shop", "web", &pod("2026-08-21T11:00:30Z"));
    assert_eq!(dirty(&mut world), ["a"]);
    assert_eq!(judged(&world, "a", "11:01:00"), (Some("NotProbed".to_owned()), Some(at("11:02:30"))));
    let stuck = crate::merge(at("11:02:30"), &world.facts(&key("a")), None);
    assert_eq!(stuck.headline.reason.as_deref(), Some("UnmountStuck"));
    assert_eq!(stuck.headline.vantage.as_deref(), Some("host/n1"));
    assert!(stuck.headline.message.contains("the pod web should be gone since 2026-08-21T11:00:30Z"));
    assert_eq!(stuck.reported.len(), 1, "the agent does not report it");
    world.remove_pod("shop", "web");
    assert_eq!(judged(&world, "a", "11:05:00").0.as_deref(), Some("NotProbed"));
}
