//! What metrics read is what a merge of everything would say.

use std::cmp::Reverse;

use super::*;
use crate::merge;
use crate::unknown::Unknown;
use crate::world::Class;
use volmedic_api::resource::{HealthWord, StatusWord};

/// Judges what may have changed. Answers which claims that were.
fn judge(world: &mut World) -> Vec<String> {
    let mut judged = Vec::new();
    while let Some(key) = world.take_unjudged() {
        world.judge(now().day, &key);
        judged.push(key.name.to_string());
    }
    judged
}

/// The claims that the counts have, by health and reason; those in use are marked.
fn counts(world: &World) -> Vec<(String, usize)> {
    let counted = world.counts().iter().filter(|(_, count)| **count > 0);
    let name = |class: &Class| {
        let reason = class.unknown.map(|unknown| format!("/{}", unknown.name())).unwrap_or_default();
        format!("{}{reason}{}", class.health.as_str(), if class.in_use { " used" } else { "" })
    };
    counted.map(|(class, count)| (name(class), *count)).collect()
}

/// Every change is followed by a comparison with a merge of all claims, also of those that nothing is stored of.
fn check_after(world: &mut World, what: &str, change: impl FnOnce(&mut World)) {
    change(world);
    judge(world);
    let mut wanted: BTreeMap<(HealthWord, Option<String>), usize> = BTreeMap::new();
    let mut unhealthy = Vec::new();
    for key in world.claim_keys() {
        let status = merge(now().day, &world.facts(&key), world.own_stored(&key));
        let unknown = status.headline.health == HealthWord::HealthUnknown;
        let reason = status.headline.reason.clone().filter(|_| unknown);
        *wanted.entry((status.headline.health, reason)).or_default() += 1;
        if status.vantages.iter().any(|entry| !entry.health_conditions.is_empty()) {
            unhealthy.push((Reverse(status.headline.status), key));
        }
    }
    let mut found: BTreeMap<(HealthWord, Option<String>), usize> = BTreeMap::new();
    for (class, count) in world.counts().iter().filter(|(_, count)| **count > 0) {
        let reason = class.unknown.map(|unknown| unknown.name().to_owned());
        *found.entry((class.health, reason)).or_default() += count;
    }
    assert_eq!(found, wanted, "after {what}");
    unhealthy.sort();
    let (shown, omitted) = world.worst(1000);
    let shown: Vec<_> = shown.into_iter().map(|claim| claim.key).collect();
    assert_eq!((shown, omitted), (unhealthy.into_iter().map(|(_, key)| key).collect(), 0), "after {what}");
}

#[test]
fn the_counts_follow_every_change_also_of_claims_without_an_object() {
    let mut world = World::default();
    check_after(&mut world, "all claims", |world| *world = super::world());
    assert_eq!(
        counts(&world),
        [("HealthUnknown/NotProbed".to_owned(), 1), ("HealthUnknown/NotProbed used".to_owned(), 1)]
    );
    check_after(&mut world, "a report", |world| world.put_report("n1", &report(&[])));
    assert_eq!(counts(&world)[0], ("Healthy used".to_owned(), 1));
    check_after(&mut world, "a controller", |world| found_controller(world, "12:00:00", all_probed()));
    assert_eq!(counts(&world), [("Healthy".to_owned(), 1), ("Healthy used".to_owned(), 1)]);
    check_after(&mut world, "a driver that cannot be reached", |world| {
        found_controller(world, "12:00:00", unreachable());
    });
    assert_eq!(counts(&world)[1], ("HealthUnknown/DriverUnreachable".to_owned(), 1));
    check_after(&mut world, "a driver that is back", |world| {
        found_controller(world, "12:00:00", all_probed());
    });
    check_after(&mut world, "a finding", |world| world.put_report("n1", &report(&["h-a"])));
    assert_eq!(counts(&world)[1], ("HealthFailure used".to_owned(), 1));
    check_after(&mut world, "a second user", |world| pod(world, "db", "n2", "a", json!({})));
    check_after(&mut world, "a node that is down", |world| {
        let down = DownNode { since: now().day, why: "its Lease expired".to_owned() };
        world.set_down([("n2".into(), down)].into());
    });
    check_after(&mut world, "a node that is gone", |world| world.set_nodes(["n2".into()].into()));
    check_after(&mut world, "a node that is back", |world| {
        world.set_nodes(["n1".into(), "n2".into()].into());
    });
    check_after(&mut world, "agents and controllers that do not respond", |world| {
        let later = Now { day: now().day, clock: Instant::now() + Duration::from_mins(10) };
        world.tick(later, true);
    });
    assert_eq!(counts(&world)[0], ("HealthUnknown/ControllerNotResponding".to_owned(), 1));
    check_after(&mut world, "a controller that is gone", |world| world.set_controllers(now(), Vec::new()));
    check_after(&mut world, "a claim that lost its volume", |world| {
        world.remove_volume("pv-b");
        claim(world, "b", json!({"phase": "Lost"}));
    });
    check_after(&mut world, "pods that are gone", |world| {
        world.remove_pod("shop", "web");
        world.remove_pod("shop", "db");
    });
    check_after(&mut world, "a claim that is re-created", |world| {
        let spec = json!({"volumeName": "pv-a"});
        world.put_claim("shop", "a", "another-uid", &read(json!({ "spec": spec })));
    });
    assert_eq!(counts(&world)[0], ("HealthUnknown/NoVolume".to_owned(), 1));
    check_after(&mut world, "claims that are gone", |world| {
        world.remove_claim("shop", "a");
        world.remove_claim("shop", "b");
    });
    assert_eq!(counts(&world), []);
}

#[test]
fn a_source_that_is_read_later_concerns_claims_without_an_object() {
    let mut world = world();
    world.heard.remove(&Source::Controllers);
    check_after(&mut world, "the start", World::touch_all_stored);
    assert_eq!(counts(&world)[0], ("HealthUnknown/CannotRead".to_owned(), 1), "b waits for the controllers");
    check_after(&mut world, "the controllers", |world| world.heard(Source::Controllers));
    assert_eq!(counts(&world)[0], ("HealthUnknown/NotProbed".to_owned(), 1));
}

#[test]
fn only_what_a_change_concerns_is_judged_again() {
    let mut world = world();
    judge(&mut world);
    world.put_report("n1", &report(&["h-a"]));
    world.put_report("n1", &report(&["h-a"]));
    assert_eq!(judge(&mut world), ["a"]);
    pod(&mut world, "web-b", "n2", "b", json!({}));
    assert_eq!(judge(&mut world), ["b"]);
    assert_eq!(judge(&mut world), [""; 0]);
    let mut untracked = World::untracked();
    claim(&mut untracked, "a", json!({}));
    assert_eq!(judge(&mut untracked), [""; 0], "nobody reads its counts");
}

#[test]
fn a_report_that_is_pushed_and_every_other_vantage_are_conditions_of_the_claim() {
    let mut world = world();
    world.put_report("n1", &report(&["h-a"]));
    let since: Timestamp = "2026-08-21T10:00:00Z".parse().unwrap();
    world.set_down([("n1".into(), DownNode { since, why: "its Lease expired".to_owned() })].into());
    let kept = json!({"healthStatus": {"healthConditions": [{"status": "Degraded", "reason": "SlowIO"}]}});
    claim(&mut world, "a", kept);
    let pushed = crate::Pushed {
        source: "smart-scan".into(),
        conditions: vec![volmedic_health::Condition::new(
            volmedic_health::Status::DataLoss,
            volmedic_health::Reason::new("DiskFailure"),
            "two disks failed",
        )],
        expires: "2026-08-21T13:00:00Z".parse().unwrap(),
    };
    let facts = crate::Facts { pushed: Some(pushed), ..world.facts(&key("a")) };
    let status = merge(now().day, &facts, None);
    let metadata = json!({"uid": "u", "resourceVersion": "1", "ownerReferences": [{
        "apiVersion": "v1", "kind": "PersistentVolumeClaim", "name": "a", "uid": "uid-a", "controller": true}]});
    world.put_stored("shop", "a", &read(json!({"metadata": metadata, "status": status})));
    judge(&mut world);
    let (shown, omitted) = world.worst(1000);
    let lines: Vec<String> = shown[0]
        .lines
        .iter()
        .map(|line| format!("{} {:?} {} on {:?}", line.vantage, line.status, line.reason, &*line.node))
        .collect();
    assert_eq!(
        lines,
        [
            r#"pushed/smart-scan Some(DataLoss) DiskFailure on """#,
            r#"cluster Some(Inaccessible) NodeDown on """#,
            r#"host Some(Inaccessible) IOHung on "n1""#,
            r#"controller Some(Degraded) SlowIO on """#,
        ]
    );
    assert_eq!((shown.len(), &*shown[0].driver, omitted), (1, DRIVER, 0));
}

#[test]
fn the_worst_claims_are_shown_and_the_others_counted() {
    let mut world = world();
    let kept =
        |status: &str| json!({"healthStatus": {"healthConditions": [{"status": status, "reason": "X"}]}});
    for (number, status) in
        ["Degraded", "Inaccessible", "Degraded", "DataLoss", "Inaccessible"].iter().enumerate()
    {
        claim(&mut world, &format!("c{number}"), kept(status));
    }
    judge(&mut world);
    let names = |limit: usize| {
        let (shown, omitted) = world.worst(limit);
        (shown.iter().map(|claim| claim.key.name.to_string()).collect::<Vec<_>>().join(" "), omitted)
    };
    assert_eq!(names(1000), ("c3 c1 c4 c0 c2".to_owned(), 0));
    assert_eq!(names(3), ("c3 c1 c4".to_owned(), 2));
    assert_eq!(names(0), (String::new(), 5));
}

#[test]
fn a_claim_that_fails_on_many_nodes_does_not_take_the_place_of_others() {
    let mut world = world();
    let nodes: BTreeSet<Box<str>> = (0..100).map(|number| format!("m{number:03}").into()).collect();
    world.set_nodes(nodes.clone());
    for node in &nodes {
        pod(&mut world, &format!("web-{node}"), node, "a", json!({}));
        world.put_report(node, &report(&["h-a"]));
    }
    judge(&mut world);
    let (shown, _) = world.worst(1000);
    assert_eq!(shown.len(), 1);
    let lines = &shown[0].lines;
    assert_eq!((lines.len(), &*lines[0].node, &*lines[15].node), (16, "m000", "m015"));
    assert!(lines.iter().all(|line| line.status == Some(StatusWord::Inaccessible)));
    let class = Class { health: HealthWord::HealthFailure, unknown: None, in_use: true };
    assert_eq!(world.counts().get(&class), Some(&1));
    assert!(!world.counts().contains_key(&Class { unknown: Some(Unknown::NotProbed), ..class }));
}
