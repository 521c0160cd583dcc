//! What is reported as events, by what is stored.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp, ToSpan};
use proptest::collection::vec;
use proptest::prelude::*;
use tokio::sync::Notify;
use volmedic_api::resource::{VantageKind, VolumeHealthStatus};
use volmedic_health::{Change, Condition, Status, WellKnown};

use super::*;
use crate::facts::{Facts, Pushed, Seen, Since, View, VolumeId, What};
use crate::{Action, Keep, decide};

const REASONS: [WellKnown; 3] = [WellKnown::NodeDown, WellKnown::AttachFailed, WellKnown::DetachFailed];

fn at(minute: usize) -> Timestamp {
    "2026-08-21T12:00:00Z".parse::<Timestamp>().expect("a time")
        + i64::try_from(minute).expect("small").minutes()
}

/// One minute: what the cluster sees, whether a sidecar reports nodes, what is pushed, and whether the hub ends after it has
/// stored that, before it has sent anything.
#[derive(Debug, Clone)]
struct Minute {
    seen: [bool; 3],
    sidecar: bool,
    pushed: Option<bool>,
    crash: bool,
}

fn arb_minute() -> impl Strategy<Value = Minute> {
    let pushed = prop_oneof![4 => Just(None), 1 => any::<bool>().prop_map(Some)];
    (any::<[bool; 3]>(), any::<bool>(), pushed, prop::bool::weighted(0.3))
        .prop_map(|(seen, sidecar, pushed, crash)| Minute { seen, sidecar, pushed, crash })
}

fn facts(minute: &Minute, now: Timestamp) -> Facts {
    let wrong = |reason: WellKnown| {
        let condition = Condition::new(reason.usual_status(), reason.into(), "as a test says");
        Seen::new(What::Wrong(condition), Since::Unsaid)
    };
    let seen: Vec<_> = REASONS.into_iter().zip(minute.seen).filter(|(_, seen)| *seen).collect();
    let seen: Vec<_> = seen.into_iter().map(|(reason, _)| wrong(reason)).collect();
    let view = View { kind: VantageKind::Cluster, node: None, verified: None, seen };
    let disk = Condition::new(Status::Degraded, WellKnown::DiskDegrading.into(), "9 sectors");
    Facts {
        volume: Some(VolumeId { name: "pv-a".into(), csi: None }),
        views: if view.seen.is_empty() { Vec::new() } else { vec![view] },
        controller_reports_nodes: minute.sidecar,
        pushed: minute.pushed.map(|wrong| Pushed {
            source: "scan".into(),
            conditions: if wrong { vec![disk] } else { Vec::new() },
            expires: now + 3.minutes(),
        }),
        ..Facts::default()
    }
}

fn object(status: &VolumeHealthStatus, version: usize) -> shape::StoredHealth {
    let meta = json!({"name": "a", "uid": "object", "resourceVersion": version.to_string(),
        "ownerReferences": [{"apiVersion": "v1", "kind": "PersistentVolumeClaim", "name": "a", "uid": "uid-a"}]});
    read(json!({"metadata": meta, "status": status}))
}

/// What the API server has in the end: each event once, by its name. `crashes`: whether hubs end where they may.
fn reported(history: &[Minute], crashes: bool) -> (Vec<Announcement>, Option<VolumeHealthStatus>) {
    let keep = Keep { all: false, recovered_for: SignedDuration::from_hours(24) };
    let begin = |now| {
        let mut world = world();
        world.announce(now, Arc::new(Notify::new()));
        world
    };
    let mut hub = begin(at(0));
    let (mut stored, mut names, mut events) = (None::<VolumeHealthStatus>, BTreeSet::new(), Vec::new());
    for (n, minute) in history.iter().enumerate() {
        let now = at(n);
        if let Action::Write(status) = decide(now, &facts(minute, now), stored.as_ref(), keep).action {
            hub.put_stored("shop", "a", &object(&status, n + 1));
            stored = Some(*status);
        }
        if crashes && minute.crash {
            hub = begin(now);
            if let Some(status) = &stored {
                hub.put_stored("shop", "a", &object(status, n + 1));
            }
        }
        let (new, lost) = hub.take_announcements();
        assert_eq!(lost, 0);
        events.extend(new.into_iter().filter(|one| names.insert(one.which.clone())));
    }
    (events, stored)
}

fn is_start(event: &Announcement) -> bool {
    matches!(event.transition.change, Change::Appeared { .. })
}

fn reason(event: &Announcement) -> String {
    match &event.transition.change {
        Change::Appeared { condition, .. } | Change::Cleared { condition, .. } => {
            condition.reason.to_string()
        }
        other => panic!("{other:?} is never announced"),
    }
}

proptest! {
    #[test]
    fn hubs_that_end_at_any_time_report_what_one_hub_would(history in vec(arb_minute(), 1..40)) {
        let (one, _) = reported(&history, false);
        let (many, _) = reported(&history, true);
        let names = |events: &[Announcement]| events.iter().map(|one| one.which.clone()).collect::<BTreeSet<_>>();
        prop_assert_eq!(names(&one), names(&many));
    }

    #[test]
    fn starts_and_ends_take_turns_and_what_lasts_is_open(history in vec(arb_minute(), 1..40)) {
        let (events, stored) = reported(&history, true);
        let mut open = BTreeMap::<String, bool>::new();
        for event in &events {
            let before = open.insert(reason(event), is_start(event));
            prop_assert_ne!(before.unwrap_or(false), is_start(event), "{:?}", event);
        }
        let wrong = |reason: &str| {
            let all = stored.iter().flat_map(|status| &status.vantages).flat_map(|entry| &entry.health_conditions);
            all.clone().any(|one| one.reason == reason)
        };
        for (reason, is_open) in &open {
            if *is_open {
                prop_assert!(wrong(reason), "the end of {reason} was not reported");
            }
        }
        for reason in ["AttachFailed", "DetachFailed", "DiskDegrading"] {
            prop_assert!(!wrong(reason) || open.get(reason) == Some(&true), "{reason} was not reported");
        }
    }
}

fn minute(seen: [bool; 3], sidecar: bool) -> Minute {
    Minute { seen, sidecar, pushed: None, crash: false }
}

fn lines(history: &[Minute]) -> Vec<String> {
    reported(history, true).0.iter().map(|event| event.transition.to_string()).collect()
}

#[test]
fn who_reports_a_node_that_is_down_is_decided_when_it_goes_down() {
    let (down, fine) = ([true, false, false], [false; 3]);
    let of_hub = [minute(down, false), minute(down, true), minute(fine, true)];
    let lines_of_hub = lines(&of_hub);
    assert_eq!(lines_of_hub.len(), 2, "{lines_of_hub:#?}");
    assert!(lines_of_hub[0].starts_with("volume pv-a of kubernetes.io/in-tree is Inaccessible/NodeDown"));
    assert!(
        lines_of_hub[1].contains("recovered from Inaccessible/NodeDown after 2 min 0 s"),
        "{lines_of_hub:#?}"
    );
    let of_sidecar = [minute(down, true), minute(down, false), minute(fine, false)];
    assert_eq!(lines(&of_sidecar), [""; 0], "the sidecar reports the end as well, when it is back");
}

#[test]
fn what_lasted_before_an_update_of_the_hub_is_not_reported() {
    let (down, fine) = (minute([true, false, false], false), minute([false; 3], false));
    let keep = Keep { all: false, recovered_for: SignedDuration::ZERO };
    let Action::Write(mut old) = decide(at(0), &facts(&down, at(0)), None, keep).action else {
        panic!("it is stored")
    };
    old.reported.clear();
    assert_eq!(decide(at(1), &facts(&down, at(1)), Some(&old), keep).action, Action::Nothing);
    assert_eq!(decide(at(2), &facts(&fine, at(2)), Some(&old), keep).action, Action::Remove);
}

#[test]
fn an_end_is_stored_before_the_object_is_removed() {
    let keep = Keep { all: false, recovered_for: SignedDuration::ZERO };
    let facts = |minute: &Minute| facts(minute, at(0));
    let (down, fine) = (facts(&minute([true, false, false], false)), facts(&minute([false; 3], false)));
    let Action::Write(unhealthy) = decide(at(0), &down, None, keep).action else { panic!("it is stored") };
    let Action::Write(well) = decide(at(1), &fine, Some(&unhealthy), keep).action else {
        panic!("its end is stored")
    };
    assert!(well.reported[0].ended.is_some());
    assert_eq!(decide(at(1), &fine, Some(&well), keep).action, Action::Remove);
}

#[test]
fn a_pushed_report_that_is_not_repeated_is_no_recovery() {
    let pushes = |pushed| Minute { pushed, ..minute([false; 3], false) };
    let expires = [pushes(Some(true)), pushes(None), pushes(None), pushes(None), pushes(None)];
    let texts = lines(&expires);
    assert!(
        texts[1].starts_with("reporter scan is gone; Degraded/DiskDegrading of volume pv-a"),
        "{texts:#?}"
    );
    let texts = lines(&[pushes(Some(true)), pushes(Some(false))]);
    assert!(texts[1].contains("recovered from Degraded/DiskDegrading"), "{texts:#?}");
}
