//! What a healer gets to see.

use volmedic_health::{Reason, WellKnown};

use super::*;

fn beds(world: &World, name: &str) -> Vec<(Box<str>, Option<Reason>, bool)> {
    let patient = world.patient(&key(name)).expect("it is bound");
    let bed = |bed: &Bed| (bed.node.clone(), bed.ill.clone().map(|(reason, _)| reason), bed.unseen.is_some());
    patient.beds.iter().map(bed).collect()
}

/// A node on which it hangs, as somebody there says or said.
fn hung(node: &str, unseen: bool) -> (Box<str>, Option<Reason>, bool) {
    (node.into(), Some(WellKnown::IOHung.into()), unseen)
}

#[test]
fn a_volume_is_ill_where_it_is_used_and_somebody_there_says_so() {
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
    let since = world.patient(&key("a")).and_then(|patient| patient.beds[0].ill.clone()?.1);
    assert_eq!(since, Some("2026-08-21T10:00:00Z".parse().unwrap()));
    world.set_nodes(["n2"].map(Into::into).into());
    assert_eq!(beds(&world, "a"), [hung("n2", false)], "the other node is gone");
}

#[test]
fn only_what_a_node_plugin_may_mend_counts_and_the_controller_speaks_for_all_nodes() {
    let mut world = world();
    world.put_report("n1", &report(&[]));
    let told = |reason: &str| {
        json!({"healthStatus": {"lastTransitionTime": "2026-08-21T10:00:00Z",
               "healthConditions": [{"status": "Inaccessible", "reason": reason, "message": "m"}]}})
    };
    claim(&mut world, "a", told("DiskFailure"));
    assert_eq!(beds(&world, "a"), [("n1".into(), None, false)]);
    claim(&mut world, "a", told("MounterDead"));
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
fn whoever_follows_hears_of_all_claims_first_and_then_of_changes() {
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
