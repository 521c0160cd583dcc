//! Health needs a vantage that probes the volume and whose owner runs.

use super::*;

const NO_CONTROLLER: &str =
    "and driver disk.example.net has no controller sidecar that reports what it probes";

fn covered(groups: Value) -> NodeReport {
    read(json!({"agent": {"version": "0.2.0"}, "coverage": {"withinSeconds": 130, "groups": groups}}))
}

#[test]
fn a_volume_is_healthy_only_from_vantages_that_probe_it() {
    let mut world = world();
    check_unprobed(
        &world,
        "a",
        "NotProbed",
        &format!("the agent on node n1 has not stored a report yet, {NO_CONTROLLER}"),
    );
    let both = json!([{"probedFrom": ["Node", "Host"], "persistentVolumes": ["pv-a"]}]);
    world.put_report("n1", &covered(both));
    assert_eq!(dirty(&mut world), ["a"]);
    assert_eq!(views(&world, "a"), ["host/n1:", "node/n1:"]);
    world.put_report("n1", &covered(json!([{"probedFrom": ["Node"], "persistentVolumes": ["pv-a"]}])));
    assert_eq!((dirty(&mut world), views(&world, "a")), (vec!["a".to_owned()], vec!["node/n1:".to_owned()]));
    let why = "the agent cannot see the directory /srv of the node";
    let not = json!([{"reason": "HostPathNotVisible", "message": why, "persistentVolumes": ["pv-a"]}]);
    world.put_report("n1", &covered(not));
    assert_eq!(dirty(&mut world), ["a"], "that it is no longer probed is a change");
    check_unprobed(
        &world,
        "a",
        "CannotBeProbed",
        &format!("the agent on node n1 does not probe it: {why}, {NO_CONTROLLER}"),
    );
    world.put_report("n1", &covered(json!([])));
    check_unprobed(
        &world,
        "a",
        "NotProbed",
        &format!("the agent on node n1 does not probe it yet, {NO_CONTROLLER}"),
    );
}

#[test]
fn a_change_of_coverage_concerns_only_the_volumes_it_is_about() {
    let mut world = world();
    pod(&mut world, "web-b", "n1", "b", json!({}));
    let group = |names: &[&str]| covered(json!([{"probedFrom": ["Host"], "persistentVolumes": names}]));
    world.put_report("n1", &group(&["pv-a"]));
    world.take_dirty();
    world.put_report("n1", &group(&["pv-a", "pv-b"]));
    assert_eq!(dirty(&mut world), ["b"]);
    world.put_report("n1", &group(&["pv-b", "pv-a"]));
    assert_eq!(dirty(&mut world), [""; 0], "the order says nothing");
}

#[test]
fn agents_that_do_not_say_what_they_probe_are_no_evidence() {
    let mut world = world();
    world.put_report("n1", &read(json!({"agent": {"version": "0.1.0"}})));
    let why = "the agent on node n1, of version 0.1.0, does not report what it probes; update it";
    check_unprobed(&world, "a", "NotProbed", &format!("{why}, {NO_CONTROLLER}"));
    let mut old = report(&["h-a"]);
    old.coverage = None;
    world.put_report("n1", &old);
    assert_eq!(views(&world, "a"), ["host/n1: Inaccessible/IOHung"], "but what it finds wrong counts");
}

#[test]
fn volumes_that_found_no_room_in_the_coverage_count_as_not_probed() {
    let mut world = world();
    let mut full = covered(json!([{"probedFrom": ["Host"], "persistentVolumes": ["pv-x"]}]));
    full.coverage.as_mut().expect("a coverage").omitted = 7;
    world.put_report("n1", &full);
    let why =
        "node n1 has more volumes than its report can name, so it is unknown whether this one is probed";
    check_unprobed(&world, "a", "NotProbed", &format!("{why}, {NO_CONTROLLER}"));
}

#[test]
fn the_report_of_an_earlier_node_of_the_same_name_is_no_evidence() {
    let mut world = world();
    world.put_report("n1", &report(&[]));
    assert_eq!(views(&world, "a"), ["host/n1:"]);
    world.set_nodes(["n2".into()].into());
    world.set_nodes(["n1".into(), "n2".into()].into());
    // Nothing renews the Lease any more.
    let later = Now { day: now().day, clock: Instant::now() + Duration::from_mins(5) };
    world.tick(later, true);
    assert_eq!(views(&world, "a"), ["host/n1: Unknown/AgentNotResponding"]);
    world.remove_lease("n1");
    assert_eq!(views(&world, "a"), [""; 0]);
}

#[test]
fn while_it_is_not_known_whether_an_agent_runs_what_is_stored_stands() {
    let mut world = world();
    world.put_report("n1", &report(&[]));
    let healthy = crate::merge(now().day, &world.facts(&key("a")), None);
    assert_eq!(healthy.headline.health.as_str(), "Healthy");
    world.remove_lease("n1");
    world.put_lease(now(), "n1", &lease("08:00:00"));
    let facts = world.facts(&key("a"));
    assert_eq!(facts.views, []);
    assert_eq!(crate::merge(now().day, &facts, Some(&healthy)), healthy, "a hub that starts writes nothing");
    assert_eq!(crate::merge(now().day, &facts, None).headline.health.as_str(), "HealthUnknown");
    world.settle(now(), Duration::from_secs(30));
    assert_eq!(views(&world, "a"), ["host/n1: Unknown/AgentNotResponding"], "for a caller that reads once");
}

#[test]
fn a_controller_is_evidence_while_it_runs_reaches_its_driver_and_probes_the_volume() {
    let mut world = world();
    let check = |world: &mut World, coverage: Value, reason: &str, why: &str| {
        found_controller(world, "12:00:00", coverage);
        let message = format!("no pod uses it, and the controller sidecar of disk.example.net {why}");
        check_unprobed(world, "b", reason, &message);
    };
    check_unprobed(&world, "b", "NotProbed", &format!("no pod uses it, {NO_CONTROLLER}"));
    found_controller(&mut world, "12:00:00", all_probed());
    assert_eq!(views(&world, "b"), ["controller:"]);
    let mute = json!({"notProbed": {"since": "2026-08-21T11:30:00Z", "reason": "DriverReportsNoHealth"}});
    let says =
        "does not probe it: The CSI driver's controller plugin reports nothing about the health of volumes";
    check(&mut world, mute, "NotProbed", says);
    let advice = world.facts(&key("b")).unprobed.expect("why").advice;
    assert_eq!(advice, volmedic_health::NotProbed::DriverReportsNoHealth.advice());
    let gone = "cannot reach its driver since 2026-08-21T11:30:00Z: connection refused";
    check(&mut world, unreachable(), "DriverUnreachable", gone);
    let some = json!({"probedBy": "ControllerListVolumeHealth", "volumesNotProbed": ["h-b"]});
    check(&mut world, some, "NotProbed", "has not probed it, or its probes fail");
    found_controller(&mut world, "12:00:00", all_probed());
    assert_eq!(views(&world, "b"), ["controller:"]);
    world.tick(Now { day: now().day, clock: Instant::now() + Duration::from_mins(10) }, true);
    let silent = "is not responding since 2026-08-21T12:00:00Z";
    check(&mut world, all_probed(), "ControllerNotResponding", silent);
    world.set_controllers(now(), Vec::new());
    check_unprobed(&world, "b", "NotProbed", &format!("no pod uses it, {NO_CONTROLLER}"));
}

#[test]
fn an_object_that_says_healthy_changes_when_the_driver_can_no_longer_be_reached() {
    let mut world = world();
    controller_says(&mut world, "1", DRIVER, "uid-a", &[]);
    world.remove_pod("shop", "web");
    found_controller(&mut world, "12:00:00", all_probed());
    world.take_dirty();
    let healthy = crate::merge(now().day, &world.facts(&key("a")), None);
    assert_eq!(healthy.headline.health.as_str(), "Healthy");
    found_controller(&mut world, "12:00:00", unreachable());
    assert_eq!(dirty(&mut world), ["a"]);
    let after = crate::merge(now().day, &world.facts(&key("a")), Some(&healthy));
    assert_eq!(after.headline.reason.as_deref(), Some("DriverUnreachable"));
    assert_eq!(after.history.len(), 2);
}

#[test]
fn what_a_controller_says_in_a_claim_counts_also_where_the_volume_cannot_be_read() {
    let mut world = world();
    world.remove_volume("pv-b");
    let kept = json!({"healthStatus": {"healthConditions": [{"status": "Degraded", "reason": "SlowIO"}]}});
    claim(&mut world, "b", kept);
    assert_eq!(views(&world, "b"), ["controller: Degraded/SlowIO"]);
}
