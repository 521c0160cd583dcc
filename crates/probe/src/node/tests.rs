use volmedic_csi::OldCondition;

use super::*;

fn adverse(reason: &str) -> Sight {
    Sight::adverse([Condition::new(Status::Degraded, Reason::new(reason), "")])
}

fn shown(sight: &Sight) -> String {
    match sight {
        Sight::Adverse(set) => set.iter().map(ToString::to_string).collect::<Vec<_>>().join("+"),
        Sight::NotSeen(_) => "not seen".into(),
        Sight::Missing(_) => "missing".into(),
        other => format!("{other:?}"),
    }
}

#[track_caller]
fn check(seen: Vec<Sight>, expected: &str) {
    assert_eq!(shown(&worst(seen)), expected);
}

#[test]
fn the_worst_of_all_places_counts() {
    let blind = || Sight::not_seen(WhyKind::Failed, "");
    check(vec![Sight::Healthy, Sight::Healthy], "Healthy");
    check(vec![Sight::Healthy, blind()], "not seen");
    check(vec![blind(), Sight::missing("gone"), Sight::Healthy], "missing");
    check(vec![adverse("A"), blind(), adverse("B"), adverse("A")], "Degraded/A+Degraded/B");
    check(vec![], "not seen");
}

#[test]
fn usage_that_is_not_reported_is_not_zero() {
    let reported = |unit, total, used, available| Reported { unit, total, used, available };
    let stats = |usage: Vec<Reported>| Stats { usage, condition: None };
    let full = Amount { total: 10, used: Some(7), available: Some(3) };
    assert_eq!(
        usage(&stats(vec![reported(BYTES, 10, 7, 3), reported(INODES, 0, 0, 0), reported(9, 1, 1, 1)])),
        Some(Usage { bytes: Some(full), inodes: None })
    );
    let size = Amount { total: 10, used: None, available: None };
    assert_eq!(
        usage(&stats(vec![reported(BYTES, 10, 0, 0)])),
        Some(Usage { bytes: Some(size), inodes: None })
    );
    assert_eq!(usage(&stats(vec![reported(BYTES, -1, -1, -1)])), None);
    assert_eq!(usage(&stats(vec![])), None);
}

#[test]
fn an_answer_without_a_condition_is_not_health() {
    let stats = |condition| Stats { usage: Vec::new(), condition };
    assert_eq!(shown(&of_stats(&stats(None))), "not seen");
    let condition = |abnormal| Some(OldCondition { abnormal, message: "m".into() });
    assert_eq!(shown(&of_stats(&stats(condition(false)))), "Healthy");
    assert_eq!(shown(&of_stats(&stats(condition(true)))), "Degraded/VolumeConditionAbnormal");
}

#[test]
fn backends_keep_their_own_numbers() {
    let backend = |status, reason: &str| BackendHealth {
        status,
        reason: reason.into(),
        message: "m".into(),
        capability: None,
    };
    let seen = of_backends(&[backend(2, "Gone"), backend(1, "Slow"), backend(9, "Odd")]);
    assert_eq!(shown(&seen), "Inaccessible/Gone+Degraded/Slow+Unrecognized(9)/Odd");
    assert_eq!(of_backends(&[]), Sight::Healthy);
}
