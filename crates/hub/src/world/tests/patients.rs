//! What a healer gets to see.

use volmedic_health::{Reason, WellKnown};

use super::*;

fn beds(world: &World, name: &str) -> Vec<(Box<str>, Option<Reason>, bool)> {
    let patient = world.patient(&key(name)).expect("it is bound");
    let bed =
        |bed: &Bed| (bed.node.clone(), bed.unhealthy.clone().map(|(reason, _)| reason), bed.unseen.is_some());
    patient.beds.iter().map(bed).collect()
}

/// A node on which it hangs, as somebody there says or said.
fn hung(node: &str, unseen: bool) -> (Box<str>, Option<Reason>, bool) {
    (node.into(), Some(WellKnown::IOHung.into()), unseen)
}

#[test]
fn a_volume_is_unhealthy_where_it_is_used_and_somebody_there_says_so() {
    let mut world = world();
    assert_eq!(beds(&world, "b"), [], "used nowhere");
    assert_eq!(beds(&world, "a"), [("n1".into(), None, true)], "nobody looks from there yet");
    world.put_report("n1", &report(&[]));
    assert_eq!(beds(&world, "a"), [("n1".into(), None, false)], "well");
    world.put_report("n1", &report(&["h-a", "h-b"]));
    world.put_report("n2", &report(&["h-a"]));
    assert_eq!(beds(&world, "a"), [hung("n1", false)], "who does not use it is not heard");
    pod(&mut world, "web-2", "n2", "a", json!({}));
    assert_eq!(beds(&world, "a"), [hung("n1", false), hung("n2", false)]);
    let since = world.patient(&key("a")).and_then(|patient| patient.beds[0].unhealthy.clone()?.1);
    assert_eq!(since, Some("2026-08-21T10:00:00Z".parse().unwrap()));
    world.set_nodes(["n2"].map(Into::into).into());
    assert_eq!(beds(&world, "a"), [hung("n2", false)], "the other node is gone");
}

#[test]
fn only_what_a_node_plugin_may_repair_counts_and_the_controller_speaks_for_all_nodes() {
    let mut world = world();
    world.put_report("n1", &report(&[]));
    let reported = |reason: &str| {
        json!({"healthStatus": {"lastTransitionTime": "2026-08-21T10:00:00Z",
               "healthConditions": [{"status": "Inaccessible", "reason": reason, "message": "m"}]}})
    };
    claim(&mut world, "a", reported("DiskFailure"));
    assert_eq!(beds(&world, "a"), [("n1".into(), None, false)]);
    claim(&mut world, "a", reported("MounterDead"));
    assert_eq!(beds(&world, "a"), [("n1".into(), Some(WellKnown::MounterDead.into()), false)]);
}

#[test]
fn a_silent_agents_word_stands_but_is_not_seen() {
    let mut world = world();
    let start = Instant::now();
    let at = |second: u64| Now { day: Timestamp::UNIX_EPOCH, clock: start + Duration::from_secs(second) };
    world.put_report("n1", &report(&["h-a"]));
    let lease =
        read(json!({"spec": {"leaseDurationSeconds": 1, "renewTime": "2026-08-21T10:00:00.000000Z"}}));
    world.put_lease(at(0), "n1", &lease);
    world.tick(at(60), true);
    assert_eq!(beds(&world, "a"), [hung("n1", true)]);
}

#[test]
fn volumes_in_use_are_counted_once_for_each_node() {
    let mut world = world();
    pod(&mut world, "web-2", "n2", "a", json!({}));
    pod(&mut world, "web-3", "n2", "a", json!({}));
    pod(&mut world, "lost", "gone", "b", json!({}));
    assert_eq!(world.in_use(), BTreeMap::from([(DRIVER.into(), 2)]));
}

#[test]
fn a_follower_gets_all_claims_first_and_then_changes() {
    let mut world = world();
    assert!(world.take_followed().is_empty(), "nobody follows");
    world.follow();
    assert_eq!(world.take_followed(), BTreeSet::from([key("a"), key("b")]));
    world.put_report("n1", &report(&["h-a"]));
    assert!(world.take_followed().is_empty(), "not before the keeper has taken it up");
    assert_eq!(world.take_dirty(), BTreeSet::from([key("a")]));
    assert_eq!(world.take_followed(), BTreeSet::from([key("a")]));
    assert!(world.take_followed().is_empty());
}

/// Its pods can be recreated; nobody can be asked to heal it. A hostPath volume is not mounted at all.
#[test]
fn a_local_volume_can_be_healed_by_new_pods_only() {
    let local = |source: Value| {
        let mut world = world();
        let claim_ref = json!({"namespace": "shop", "name": "a", "uid": "uid-a"});
        let mut spec = json!({"claimRef": claim_ref});
        spec.as_object_mut().expect("an object").extend(source.as_object().expect("an object").clone());
        world.put_volume("pv-a", &read(json!({ "spec": spec })));
        let mut unmounted = report(&["pv-a"]);
        unmounted.volumes[0].driver = crate::LOCAL_VOLUME.to_owned();
        unmounted.volumes[0].health_conditions[0].reason = "VolumeUnmounted".to_owned();
        world.put_report("n1", &unmounted);
        world
    };
    let mut world = local(json!({"local": {"path": "/mnt/disk-7"}}));
    let patient = world.patient(&key("a")).expect("it is bound");
    assert_eq!((&*patient.driver, &*patient.handle), (crate::LOCAL_VOLUME, "pv-a"));
    assert_eq!(beds(&world, "a"), [("n1".into(), None, false)], "no remedy is switched on");
    world.set_remedies([Remedy::RecreatePods].into());
    assert_eq!(beds(&world, "a"), [("n1".into(), Some(WellKnown::VolumeUnmounted.into()), false)]);
    assert_eq!(world.in_use().get(crate::LOCAL_VOLUME), Some(&1));
    world.remove_volume("pv-a");
    assert_eq!(world.patient(&key("a")), None);
    let mut world = local(json!({"hostPath": {"path": "/mnt/disk-7"}}));
    world.set_remedies([Remedy::RecreatePods].into());
    assert_eq!(world.patient(&key("a")), None);
}
