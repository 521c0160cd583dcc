//! Volumes that cannot be attached or mounted.

use super::*;

fn attachment(node: &str, status: Value) -> shape::Attachment {
    read(json!({"spec": {"nodeName": node, "source": {"persistentVolumeName": "pv-a"}}, "status": status}))
}

fn waits(world: &mut World, word: &str) {
    let group =
        json!({"reason": word, "message": "the kubelet has not mounted it", "persistentVolumes": ["pv-a"]});
    world.put_report("n1", &read(json!({"coverage": {"withinSeconds": 130, "groups": [group]}})));
}

fn csi_node(world: &mut World, drivers: &[&str]) {
    let drivers: Vec<Value> = drivers.iter().map(|name| json!({ "name": name })).collect();
    world.put_backends("n1", &read(json!({"spec": {"drivers": drivers}})));
}

fn message(world: &World) -> String {
    let views = world.facts(&key("a")).views;
    let What::Wrong(condition) = &views[0].seen[0].what else { panic!("{views:?}") };
    condition.message.to_string()
}

#[test]
fn an_error_of_attaching_counts_where_the_volume_is_used() {
    let mut world = world();
    let error = json!({"time": "2026-08-21T11:00:00Z", "message": "no such disk"});
    world.put_attachment("x", &attachment("n1", json!({"attached": false, "attachError": error})));
    assert_eq!(dirty(&mut world), ["a"]);
    assert_eq!(views(&world, "a"), ["cluster: Inaccessible/AttachFailed"]);
    assert_eq!(message(&world), "the volume cannot be attached to node n1: no such disk");
    world.put_attachment("x", &attachment("n1", json!({"attached": false, "attachError": error})));
    assert_eq!(dirty(&mut world), [""; 0]);
    world.put_attachment("x", &attachment("n1", json!({"attached": true})));
    assert_eq!((dirty(&mut world), views(&world, "a").len()), (vec!["a".to_owned()], 0));
    world.put_attachment("x", &attachment("n2", json!({"attached": false, "attachError": error})));
    assert_eq!(views(&world, "a").len(), 0, "no pod on n2 uses it");
    world.put_attachment("x", &attachment("n2", json!({"attached": true, "detachError": error})));
    assert_eq!(views(&world, "a"), ["cluster: Degraded/DetachFailed"], "wherever it cannot be detached");
    world.take_dirty();
    world.remove_attachment("x");
    assert_eq!((dirty(&mut world), views(&world, "a").len()), (vec!["a".to_owned()], 0));
}

#[test]
fn a_volume_that_a_pod_waits_for_has_the_cause_that_the_cluster_knows() {
    let mut world = world();
    csi_node(&mut world, &[DRIVER]);
    waits(&mut world, "BeingMounted");
    assert_eq!(views(&world, "a"), [""; 0], "the normal seconds of starting are no finding");
    waits(&mut world, "DriverNotRegistered");
    assert_eq!(views(&world, "a"), [""; 0], "nor is a driver that starts after the pod");
    waits(&mut world, "NotMounted");
    assert_eq!(views(&world, "a"), ["host/n1: Inaccessible/NotMounted"]);
    assert_eq!(message(&world), "on node n1: the kubelet has not mounted it");
    world.put_attachment("x", &attachment("n2", json!({"attached": true})));
    assert_eq!(views(&world, "a"), ["host/n1: Inaccessible/AttachedElsewhere"]);
    assert_eq!(
        message(&world),
        "the volume is attached to node n2, and not to node n1, where a pod waits for it"
    );
    world.put_attachment("y", &attachment("n1", json!({"attached": true})));
    assert_eq!(views(&world, "a"), ["host/n1: Inaccessible/NotMounted"], "it is attached here as well");
    csi_node(&mut world, &["other.example.net"]);
    assert_eq!(views(&world, "a"), ["host/n1: Inaccessible/DriverNotRegistered"]);
    assert_eq!(
        message(&world),
        "driver disk.example.net is not registered on node n1, where a pod waits for the volume"
    );
    world.put_report("n1", &report(&[]));
    assert_eq!(views(&world, "a"), ["host/n1:"], "it is mounted and probed");
}

#[test]
fn a_claim_that_lost_its_volume_is_inaccessible() {
    let mut world = world();
    claim(&mut world, "b", json!({"phase": "Lost"}));
    assert_eq!(views(&world, "b"), ["cluster: Inaccessible/VolumeNotFound"]);
}

#[test]
fn one_failed_try_that_is_followed_by_a_good_one_is_no_finding_and_tries_that_keep_failing_are() {
    let mut world = world();
    let error = |second: u32| json!({"time": format!("2026-08-21T11:00:{second:02}Z"), "message": "busy"});
    let fails = |second| attachment("n1", json!({"attached": false, "attachError": error(second)}));
    let at = |second: u32| format!("2026-08-21T11:00:{second:02}Z").parse::<Timestamp>().expect("a time");
    let keep = crate::Keep { all: false, recovered_for: jiff::SignedDuration::from_hours(24) };
    let decide = |world: &World, second| crate::decide(at(second), &world.facts(&key("a")), None, keep);
    world.put_attachment("x", &fails(10));
    let first = decide(&world, 10);
    assert_eq!((first.action, first.due), (crate::Action::Nothing, Some(at(30))), "checked again by itself");
    let unknown = crate::merge(at(10), &world.facts(&key("a")), None);
    assert!(
        unknown.headline.message.starts_with("the agent on node n1 has not stored a report yet"),
        "{}",
        unknown.headline.message
    );
    world.put_attachment("x", &attachment("n1", json!({"attached": true})));
    assert_eq!(decide(&world, 40).action, crate::Action::Nothing);
    // It fails again and again: each try has a later time.
    for second in [41, 42, 45, 55] {
        world.put_attachment("x", &fails(second));
    }
    assert_eq!(decide(&world, 55).due, Some("2026-08-21T11:01:01Z".parse().expect("a time")));
    let later = "2026-08-21T11:01:01Z".parse().expect("a time");
    let counted = crate::merge(later, &world.facts(&key("a")), None);
    assert_eq!(counted.headline.reason.as_deref(), Some("AttachFailed"));
    assert_eq!(counted.headline.since.as_ref().map(|since| since.0), Some(at(41)), "since the first of them");
    // A hub that starts later knows only the last try, and what is stored.
    let mut next = super::world();
    next.put_attachment("x", &fails(55));
    let stands = crate::merge(at(56), &next.facts(&key("a")), Some(&counted));
    assert_eq!(stands.headline, counted.headline);
}
