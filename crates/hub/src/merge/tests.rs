use jiff::ToSpan;
use volmedic_health::{Condition, Reason, Status};

use super::*;
use crate::facts::VolumeId;

fn at(minute: i64) -> Timestamp {
    Timestamp::from_second(1_800_000_000).unwrap() + minute.minutes()
}

fn wrong(status: Status, reason: &str, since: Since) -> Seen {
    Seen::new(What::Wrong(Condition::new(status, Reason::new(reason), "as a test says")), since)
}

fn view(kind: VantageKind, node: Option<&str>, seen: Vec<Seen>) -> View {
    View { kind, node: node.map(Into::into), verified: None, seen }
}

fn facts(views: Vec<View>) -> Facts {
    let volume = VolumeId { name: "pv".into(), csi: Some(("disk.example.net".into(), "h".into())) };
    Facts { volume: Some(volume), views, ..Facts::default() }
}

const KEEP: Keep = Keep { all: false, recovered_for: SignedDuration::from_hours(24) };

fn lines(status: &VolumeHealthStatus) -> Vec<String> {
    let entry = |entry: &VantageHealth| {
        let conditions: Vec<_> = entry
            .health_conditions
            .iter()
            .map(|one| format!("{}/{}", one.severity.as_deref().unwrap_or("-"), one.reason))
            .collect();
        format!("{} {} {}", entry.name, entry.health.as_str(), conditions.join(" ")).trim_end().to_owned()
    };
    status.vantages.iter().map(entry).collect()
}

/// What is stored after a decision.
fn stored(now: Timestamp, facts: &Facts, before: Option<&VolumeHealthStatus>) -> Option<VolumeHealthStatus> {
    match decide(now, facts, before, KEEP).action {
        Action::Nothing => before.cloned(),
        Action::Write(status) => Some(*status),
        Action::Remove => None,
    }
}

#[test]
fn the_worst_of_all_vantages_is_the_headline_and_each_stays_visible() {
    let facts = facts(vec![
        view(VantageKind::Controller, None, vec![]),
        view(VantageKind::Node, Some("b"), vec![wrong(Status::Degraded, "SlowIO", Since::Exactly(at(1)))]),
        view(
            VantageKind::Host,
            Some("a"),
            vec![
                wrong(Status::Inaccessible, "IOHung", Since::Exactly(at(3))),
                wrong(Status::DataLoss, "LegsLost", Since::Exactly(at(4))),
            ],
        ),
    ]);
    let status = merge(at(5), &facts, None);
    assert_eq!(
        lines(&status),
        [
            "host/a HealthFailure DataLoss/LegsLost Inaccessible/IOHung",
            "node/b HealthWarning Degraded/SlowIO",
            "controller Healthy"
        ]
    );
    let headline = &status.headline;
    assert_eq!(headline.health, HealthWord::HealthFailure);
    assert_eq!(headline.reason.as_deref(), Some("LegsLost"));
    assert_eq!(headline.vantage.as_deref(), Some("host/a"));
    assert_eq!(headline.since, Some(time(at(4))));
    assert_eq!(status.conditions[0].status, ConditionStatus::False);
    assert_eq!(status.driver.as_deref(), Some("disk.example.net"));
}

#[test]
fn vantages_that_see_it_otherwise_are_named_in_the_headline() {
    let hung = || wrong(Status::Inaccessible, "IOHung", Since::Exactly(at(1)));
    let check = |mut views: Vec<View>, expected: &str| {
        let status = merge(at(5), &facts(views.clone()), None);
        assert_eq!(status.headline.message, expected);
        views.reverse();
        assert_eq!(merge(at(900), &facts(views), Some(&status)), status, "and nothing is written for it");
    };
    let host = |node: &str, seen| view(VantageKind::Host, Some(node), seen);
    check(vec![host("a", vec![hung()]), host("b", vec![hung()])], "as a test says");
    let slow = wrong(Status::Degraded, "SlowIO", Since::Unsaid);
    check(
        vec![
            host("a", vec![hung()]),
            view(VantageKind::Controller, None, vec![]),
            view(VantageKind::Node, Some("a"), vec![slow]),
        ],
        "as a test says; others see it differently: controller sees nothing wrong, node/a sees Degraded/SlowIO",
    );
    let many = (0..9).map(|n| host(&format!("n{n}"), vec![]));
    check(
        many.chain([host("a", vec![hung()])]).collect(),
        "as a test says; others see it differently: host/n0 sees nothing wrong, host/n1 sees nothing wrong, host/n2 sees \
         nothing wrong and 6 more",
    );
    let unknown = What::Unknown { reason: "AgentNotResponding".to_owned(), message: "x".repeat(2_000) };
    let silent = host("a", vec![Seen::new(unknown, Since::Exactly(at(1)))]);
    let status = merge(at(5), &facts(vec![silent, view(VantageKind::Controller, None, vec![])]), None);
    assert!(status.headline.message.len() <= limit::MESSAGE);
    assert!(status.headline.message.ends_with("; others see it differently: controller sees nothing wrong"));
}

#[test]
fn the_same_again_is_nothing_to_write_however_late() {
    let facts = facts(vec![
        view(VantageKind::Controller, None, vec![wrong(Status::Degraded, "X", Since::NotAfter(at(1)))]),
        view(VantageKind::Kubelet, Some("a"), vec![wrong(Status::Degraded, "Y", Since::Unsaid)]),
        view(VantageKind::Host, Some("a"), vec![wrong(Status::Degraded, "Z", Since::Exactly(at(900)))]),
    ]);
    let first = merge(at(2), &facts, None);
    assert_eq!(merge(at(500), &facts, Some(&first)), first, "even with a node whose clock is ahead");
    assert_eq!(decide(at(500), &facts, Some(&first), KEEP).action, Action::Nothing);
}

#[test]
fn the_probe_time_moves_only_when_something_else_does() {
    let with = |message: &str| {
        let condition = Condition::new(Status::Degraded, Reason::new("OutOfCapacity"), message);
        let seen = Seen::new(What::Wrong(condition), Since::Exactly(at(1)));
        facts(vec![view(VantageKind::Host, Some("a"), vec![seen])])
    };
    let one = merge(at(1), &with("90 % used"), None);
    let two = merge(at(2), &with("90 % used"), Some(&one));
    let three = merge(at(3), &with("95 % used"), Some(&two));
    let probe = |status: &VolumeHealthStatus| {
        let one = &status.vantages[0].health_conditions[0];
        (one.last_probe_time.clone(), one.last_transition_time.clone())
    };
    assert_eq!(probe(&two), (Some(time(at(1))), time(at(1))));
    assert_eq!(probe(&three), (Some(time(at(3))), time(at(1))), "it is the same trouble in other words");
    assert_eq!(three.history.len(), 1, "other words are no new headline");
}

#[test]
fn a_condition_that_a_set_reports_keeps_its_time_while_the_set_changes() {
    let one = facts(vec![view(
        VantageKind::Controller,
        None,
        vec![wrong(Status::Degraded, "X", Since::NotAfter(at(1)))],
    )]);
    let two = facts(vec![view(
        VantageKind::Controller,
        None,
        vec![
            wrong(Status::Degraded, "X", Since::NotAfter(at(8))),
            wrong(Status::Inaccessible, "Y", Since::NotAfter(at(8))),
        ],
    )]);
    let first = merge(at(1), &one, None);
    let second = merge(at(8), &two, Some(&first));
    let since: Vec<_> = second.vantages[0].health_conditions.iter().collect();
    assert_eq!((&*since[0].reason, &since[0].last_transition_time), ("Y", &time(at(8))));
    assert_eq!((&*since[1].reason, &since[1].last_transition_time), ("X", &time(at(1))));
}

#[test]
fn an_object_appears_with_trouble_and_goes_a_day_after_recovery() {
    let unhealthy =
        facts(vec![view(VantageKind::Host, Some("a"), vec![wrong(Status::Degraded, "X", Since::Unsaid)])]);
    let well = facts(vec![view(VantageKind::Host, Some("a"), vec![])]);
    assert_eq!(decide(at(0), &well, None, KEEP), Decision { action: Action::Nothing, due: None });
    let first = stored(at(1), &unhealthy, None).expect("ill claims have an object");
    let recovered = decide(at(2), &well, Some(&first), KEEP);
    assert_eq!(recovered.due, Some(at(2 + 24 * 60)));
    let Action::Write(second) = recovered.action else { panic!("a recovery is reported") };
    assert_eq!(second.headline.health, HealthWord::Healthy);
    assert_eq!(second.headline.message, "nothing wrong is seen by host/a");
    assert_eq!(second.conditions[0].status, ConditionStatus::True);
    let words: Vec<_> = second.history.iter().map(|past| past.health.as_str()).collect();
    assert_eq!(words, ["Healthy", "HealthWarning"]);
    assert_eq!(decide(at(24 * 60), &well, Some(&second), KEEP).action, Action::Nothing);
    assert_eq!(decide(at(2 + 24 * 60), &well, Some(&second), KEEP).action, Action::Remove);
    let all = Keep { all: true, ..KEEP };
    assert_eq!(decide(at(2 + 24 * 60), &well, Some(&second), all).action, Action::Nothing);
    assert!(matches!(decide(at(0), &well, None, all).action, Action::Write(_)));
}

#[test]
fn nobody_who_looks_is_not_health() {
    let status = merge(at(0), &facts(vec![]), None);
    assert_eq!(status.headline.health, HealthWord::HealthUnknown);
    assert_eq!(status.conditions[0].status, ConditionStatus::Unknown);
    assert_eq!(status.headline.message, "no vantage probes this volume");
    assert_eq!(status.headline.reason.as_deref(), Some("NotProbed"));
}

#[test]
fn a_vantage_that_was_not_heard_yet_keeps_what_is_stored_and_one_that_was_does_not() {
    let unhealthy = facts(vec![
        view(VantageKind::Host, Some("a"), vec![wrong(Status::Degraded, "X", Since::Unsaid)]),
        view(VantageKind::Controller, None, vec![wrong(Status::Degraded, "Y", Since::Unsaid)]),
    ]);
    let first = merge(at(1), &unhealthy, None);
    let restarted = Facts { unheard: vec![VantageKind::Host], ..facts(vec![]) };
    let second = merge(at(2), &restarted, Some(&first));
    assert_eq!(lines(&second), ["host/a HealthWarning Degraded/X"]);
    assert_eq!(lines(&merge(at(3), &facts(vec![]), Some(&second))), [""; 0]);
}

#[test]
fn an_agent_that_does_not_respond_is_unknown_and_what_it_said_stands() {
    const AGENT: &str = "AgentNotResponding";
    let what = What::Unknown { reason: AGENT.to_owned(), message: "the agent is not responding".to_owned() };
    let unknown = Seen::new(what, Since::Exactly(at(3)));
    let unhealthy = wrong(Status::Degraded, "X", Since::Exactly(at(1)));
    let silent = |seen| facts(vec![view(VantageKind::Host, Some("a"), seen)]);
    let healthy_before = merge(at(4), &silent(vec![unknown.clone()]), None);
    assert_eq!(healthy_before.headline.health, HealthWord::HealthUnknown);
    assert_eq!(healthy_before.headline.reason.as_deref(), Some(AGENT));
    let unhealthy_before = merge(at(4), &silent(vec![unhealthy, unknown]), None);
    assert_eq!(lines(&unhealthy_before), ["host/a HealthWarning Degraded/X -/AgentNotResponding"]);

    // After a restart nobody knows yet whether it lives.
    let undetermined = Facts { undetermined: vec!["a".into()], ..silent(vec![]) };
    let restarted = merge(at(5), &undetermined, Some(&healthy_before));
    assert_eq!(restarted, healthy_before);
    let back = merge(at(6), &silent(vec![]), Some(&restarted));
    assert_eq!(lines(&back), ["host/a Healthy"]);
}

#[test]
fn what_is_pushed_stands_until_it_expires_or_is_reported_again() {
    let push = |conditions, expires| Pushed { source: "smart".into(), conditions, expires };
    let failing = || Condition::new(Status::Degraded, Reason::new("DiskDegrading"), "9 sectors");
    let with = |pushed| Facts { pushed: Some(pushed), ..facts(vec![]) };
    let first = merge(at(0), &with(push(vec![failing(), failing()], at(10))), None);
    assert_eq!(lines(&first), ["pushed/smart HealthWarning Degraded/DiskDegrading"]);
    assert_eq!(
        decide(at(1), &facts(vec![]), Some(&first), KEEP),
        Decision { action: Action::Nothing, due: Some(at(10)) }
    );
    let again = merge(at(5), &with(push(vec![failing()], at(15))), Some(&first));
    assert_eq!(again.vantages[0].since, time(at(0)));
    assert_eq!(lines(&merge(at(14), &facts(vec![]), Some(&again))).len(), 1);
    assert_eq!(lines(&merge(at(15), &facts(vec![]), Some(&again))), [""; 0]);
    assert_eq!(lines(&merge(at(6), &with(push(vec![], at(20))), Some(&again))), [""; 0], "all is well");
}

#[test]
fn lists_are_bounded_and_keep_the_worst() {
    let views = (0..200).map(|n| {
        let status = if n == 150 { Status::DataLoss } else { Status::Degraded };
        view(VantageKind::Host, Some(&format!("n{n:03}")), vec![wrong(status, "X", Since::Unsaid)])
    });
    let status = merge(at(0), &facts(views.collect()), None);
    assert_eq!((status.vantages.len(), status.omitted_vantages), (limit::VANTAGES, 136));
    assert_eq!(status.vantages[0].node.as_deref(), Some("n150"));
    let mut stored = None;
    for minute in 0..100 {
        let reason = format!("R{minute}");
        let facts = facts(vec![view(
            VantageKind::Controller,
            None,
            vec![wrong(Status::Degraded, &reason, Since::Unsaid)],
        )]);
        stored = Some(merge(at(minute), &facts, stored.as_ref()));
    }
    let history = stored.unwrap().history;
    assert_eq!(history.len(), limit::HISTORY);
    assert_eq!(history[0].reason.as_deref(), Some("R99"), "newest first");
}

#[test]
fn heals_are_left_to_the_healer() {
    let mut before = merge(at(0), &facts(vec![]), None);
    before.heals.push(volmedic_api::resource::Heal {
        time: time(at(0)),
        outcome: volmedic_api::resource::HealOutcome::Succeeded,
        remedy: "remount".to_owned(),
        node: None,
        message: String::new(),
        code: String::new(),
        attempt: 1,
        not_before: None,
    });
    assert_eq!(merge(at(1), &facts(vec![]), Some(&before)), before);
}

mod properties {
    use proptest::prelude::*;

    use super::*;

    fn arb_seen() -> impl Strategy<Value = Seen> {
        let status = prop_oneof![
            Just(Status::Degraded),
            Just(Status::Inaccessible),
            Just(Status::DataLoss),
            Just(Status::Unrecognized(7)),
        ];
        let since = prop_oneof![
            (0_i64..50).prop_map(|minute| Since::Exactly(at(minute))),
            (0_i64..50).prop_map(|minute| Since::NotAfter(at(minute))),
            Just(Since::Unsaid),
        ];
        let unknown = (0_u8..3, 0_i64..50).prop_map(|(n, minute)| {
            let what = What::Unknown { reason: format!("U{n}"), message: String::new() };
            Seen::new(what, Since::Exactly(at(minute)))
        });
        let wrong =
            (status, 0_u8..4, since).prop_map(|(status, n, since)| wrong(status, &format!("R{n}"), since));
        prop_oneof![4 => wrong, 1 => unknown]
    }

    /// Views with no vantage twice, each with distinct things wrong.
    fn arb_views() -> impl Strategy<Value = Vec<View>> {
        let kind = prop_oneof![
            Just((VantageKind::Controller, None)),
            Just((VantageKind::Cluster, None)),
            (0_u8..3).prop_map(|n| (VantageKind::Host, Some(n))),
            (0_u8..3).prop_map(|n| (VantageKind::Node, Some(n))),
        ];
        let view = (kind, prop::collection::vec(arb_seen(), 0..4)).prop_map(|((kind, node), mut seen)| {
            let name = |seen: &Seen| match &seen.what {
                What::Wrong(condition) => condition.to_string(),
                What::Unknown { reason, .. } => reason.clone(),
            };
            seen.sort_by_key(name);
            seen.dedup_by_key(|seen| name(seen));
            view(kind, node.map(|n| format!("n{n}")).as_deref(), seen)
        });
        prop::collection::vec(view, 0..6).prop_map(|mut views| {
            views.sort_by_key(|view| vantage_name(view.kind, view.node.as_deref()));
            views.dedup_by_key(|view| vantage_name(view.kind, view.node.as_deref()));
            views
        })
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn the_order_of_arrival_does_not_matter(
            views in arb_views().prop_shuffle(), turn in any::<prop::sample::Index>(), before in arb_views()
        ) {
            let before = merge(at(60), &facts(before), None);
            let mut other = views.clone();
            if !other.is_empty() {
                let turn = turn.index(other.len());
                other.rotate_left(turn);
                for view in &mut other {
                    view.seen.reverse();
                }
            }
            let (one, two) = (facts(views), facts(other));
            prop_assert_eq!(merge(at(61), &one, Some(&before)), merge(at(61), &two, Some(&before)));
        }

        #[test]
        fn what_was_written_is_not_written_again(views in arb_views(), before in arb_views(), later in 61_i64..5_000) {
            let before = merge(at(60), &facts(before), None);
            let facts = facts(views);
            let written = merge(at(61), &facts, Some(&before));
            prop_assert_eq!(&merge(at(later), &facts, Some(&written)), &written);
            let text = serde_json::to_string(&written).unwrap();
            let read: VolumeHealthStatus = serde_json::from_str(&text).unwrap();
            prop_assert_eq!(read, written, "and survives being stored");
        }

        #[test]
        fn nothing_wrong_is_lost_and_nothing_is_invented(views in arb_views()) {
            let status = merge(at(61), &facts(views.clone()), None);
            let shown: usize = status.vantages.iter().map(|entry| entry.health_conditions.len()).sum();
            prop_assert_eq!(shown, views.iter().map(|view| view.seen.len()).sum::<usize>());
            prop_assert_eq!(status.headline.health == HealthWord::Healthy, shown == 0 && !views.is_empty());
            let worst = status.vantages.iter().map(|entry| entry.health).max();
            prop_assert_eq!(status.headline.health, worst.unwrap_or_default());
        }
    }
}

#[test]
fn who_has_seen_less_leaves_alone_what_others_wrote_from_newer_reports() {
    let unhealthy = |reason: &str, seen: u64| Facts {
        reports_seen: seen,
        ..facts(vec![view(
            VantageKind::Host,
            Some("a"),
            vec![wrong(Status::Degraded, reason, Since::Exactly(at(0)))],
        )])
    };
    let newest = stored(at(1), &unhealthy("SlowIO", 7), None).unwrap();
    let newest = stored(at(2), &unhealthy("IOHung", 9), Some(&newest)).unwrap();
    let soon = at(2) + 10.seconds();
    let behind = decide(soon, &unhealthy("SlowIO", 8), Some(&newest), KEEP);
    assert_eq!((behind.action, behind.due), (Action::Nothing, Some(at(3))));
    let nothing_yet = Facts { reports_seen: 3, ..facts(vec![]) };
    assert_eq!(decide(soon, &nothing_yet, Some(&newest), KEEP).action, Action::Nothing);
    assert_eq!(decide(soon, &unhealthy("IOHung", 12), Some(&newest), KEEP).action, Action::Nothing);
    let next = stored(soon, &unhealthy("LegsLost", 12), Some(&newest)).unwrap();
    let reasons: Vec<_> = next.history.iter().filter_map(|past| past.reason.as_deref()).collect();
    assert_eq!(reasons, ["LegsLost", "IOHung", "SlowIO"]);
    // A store that was restored counts versions from before.
    let Action::Write(restored) = decide(at(4), &unhealthy("SlowIO", 8), Some(&newest), KEEP).action else {
        panic!()
    };
    assert_eq!(restored.headline.reason.as_deref(), Some("SlowIO"));
}

#[test]
fn what_was_said_of_a_silent_controller_stands_until_we_know_better() {
    let what = What::Unknown { reason: "ControllerSilent".to_owned(), message: String::new() };
    let silent = Seen::new(what, Since::Exactly(at(0)));
    let gone = wrong(Status::Inaccessible, "VolumeNotFound", Since::NotAfter(at(0)));
    let first = facts(vec![view(VantageKind::Controller, None, vec![gone.clone(), silent])]);
    let before = stored(at(1), &first, None).unwrap();
    let unsure = Facts {
        undetermined_controller: true,
        ..facts(vec![view(VantageKind::Controller, None, vec![gone.clone()])])
    };
    assert_eq!(decide(at(2), &unsure, Some(&before), KEEP).action, Action::Nothing);
    let back = facts(vec![view(VantageKind::Controller, None, vec![gone])]);
    let after = stored(at(2), &back, Some(&before)).unwrap();
    assert_eq!(lines(&after), ["controller HealthFailure Inaccessible/VolumeNotFound"]);
}
