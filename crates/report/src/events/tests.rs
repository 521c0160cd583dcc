use volmedic_health::{Condition, Reason, Status, Subject, Vantage};

use super::*;

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(second).unwrap()
}

fn job(second: i64) -> EventJob {
    let transition = Transition {
        at: at(second),
        subject: Subject::volume("disk.example.net", "vol-1"),
        vantage: Vantage::Controller,
        change: Change::Appeared {
            condition: Condition::new(Status::Degraded, Reason::new("SlowIO"), ""),
            since: at(second),
        },
    };
    let claim = ObjectRef::new(Kind::PersistentVolumeClaim, "shop", "orders", "uid-1");
    EventJob::new(&claim, &Arc::new(transition), Some(&"claim shop/orders".into())).unwrap()
}

#[test]
fn several_occurrences_in_one_job_are_counted_once_each() {
    let mut all = job(1);
    for second in [5, 9] {
        let newer = job(second);
        assert!(all.is_same_story(&newer));
        all.absorb(newer);
    }
    assert_eq!(all.unknown_after(None), 3);
    assert_eq!(all.unknown_after(Some(at(0))), 3, "another occurrence, before these");
    assert_eq!(all.unknown_after(Some(at(1))), 2, "the first got through after all");
    assert_eq!(all.unknown_after(Some(at(9))), 0, "all of it got through");
    let event = all.event(&Voice::of_controller("disk.example.net", "pod-1"));
    assert_eq!(event.count, Some(3));
    let message = event.message.unwrap_or_default();
    assert!(
        message.starts_with("claim shop/orders: volume vol-1 of disk.example.net is Degraded"),
        "{message}"
    );
    assert_eq!((event.first_timestamp, event.last_timestamp), (Some(Time(at(1))), Some(Time(at(9)))));
}

#[test]
fn however_often_it_happens_a_job_stays_small() {
    let mut all = job(0);
    for second in 1..1_000 {
        all.absorb(job(second));
    }
    assert_eq!(all.moments.len(), MOMENTS);
    assert_eq!(all.unknown_after(None), 1_000);
    assert_eq!(all.unknown_after(Some(at(990))), 9);
}

#[test]
fn the_name_is_made_of_the_story_and_fits() {
    let name = job(1).name();
    assert_eq!(name, job(2).name(), "the same story");
    assert!(name.starts_with("orders.") && name.len() == "orders.".len() + 16, "{name}");
    let mut long = job(1);
    long.object.name = format!("{}-{}", "x".repeat(199), "y".repeat(50)).into();
    let name = long.name();
    assert!(name.len() <= 253 && name.starts_with(&format!("{}.", "x".repeat(199))), "{name}");
}

#[test]
fn an_object_without_a_namespace_has_its_events_where_kubectl_looks() {
    let mut on_node = job(1);
    on_node.object = ObjectRef::new(Kind::Node, "", "worker-7", "uid-7");
    let event = on_node.event(&Voice::of_controller("d", "p"));
    assert_eq!(event.metadata.namespace.as_deref(), Some("default"));
    assert_eq!(event.involved_object.namespace, None);
}
