use super::*;
use crate::place::Place;
use crate::refusal::Refusal;

const DEADLINE: SignedDuration = SignedDuration::from_mins(3);

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(second).unwrap()
}

fn heal(second: i64, outcome: HealOutcome, node: &str, attempt: u32, code: &str) -> Heal {
    Heal {
        time: time(at(second)),
        outcome,
        remedy: Remedy::NodeHealer.name().to_owned(),
        node: Some(node.to_owned()),
        message: String::new(),
        code: code.to_owned(),
        attempt,
        not_before: None,
    }
}

fn started(second: i64, node: &str, attempt: u32) -> Heal {
    heal(second, HealOutcome::Started, node, attempt, "")
}

fn skipped(second: i64, code: &str) -> Heal {
    heal(second, HealOutcome::Skipped, "n", 0, code)
}

fn memory(heals: &[Heal], unhealthy_since: Option<i64>, now: i64) -> Option<Memory> {
    remembered(heals, "n", unhealthy_since.map(at), at(now), &Policy::default(), DEADLINE)
}

#[test]
fn a_second_healer_finds_the_first_until_it_is_closed() {
    let first = begun(&[], &started(100, "n", 1), DEADLINE).unwrap();
    let why = begun(&first, &started(101, "elsewhere", 1), DEADLINE).unwrap_err();
    assert!(
        why.contains("on n at 1970-01-01T00:01:40Z, and may be at it until 1970-01-01T00:04:41Z"),
        "{why}"
    );
    let (open, until) = unfinished(&first, DEADLINE).next().unwrap();
    assert_eq!((open, until), (&first[0], at(281)), "it may have begun at any moment of second 100");
    let closed = [lost(open)];
    assert_eq!((closed[0].outcome, closed[0].code.as_str()), (HealOutcome::Failed, LOST));
    assert_eq!(
        begun(&closed, &started(281, "n", 2), DEADLINE).unwrap(),
        [&[started(281, "n", 2)], &closed[..]].concat()
    );
}

#[test]
fn an_end_takes_the_place_of_its_beginning_and_no_other() {
    let before = [started(10, "n", 2), started(9, "m", 2), heal(5, HealOutcome::Failed, "n", 1, "Aborted")];
    let after = noted(&before, &heal(12, HealOutcome::Succeeded, "n", 2, "well"));
    let reported: Vec<_> = after.iter().map(|heal| (heal.outcome, heal.node.as_deref().unwrap())).collect();
    assert_eq!(
        reported,
        [(HealOutcome::Succeeded, "n"), (HealOutcome::Started, "m"), (HealOutcome::Failed, "n")]
    );
    let once = noted(&noted(&[], &skipped(1, "observe")), &skipped(2, "observe"));
    assert_eq!(once, [skipped(2, "observe")]);
    assert_eq!(noted(&once, &skipped(3, "brake")).len(), 2);
}

#[test]
fn what_was_under_way_is_waited_for_and_counts() {
    let known = memory(&[started(1000, "n", 2)], Some(900), 1001).unwrap();
    assert_eq!((known.tries, known.last, known.not_before), (2, Last::Failed, Some(at(1181))));
    // The pause after the fifth try is longer than the deadline.
    let late = memory(&[started(1000, "n", 5)], Some(900), 1001).unwrap();
    assert_eq!(late.not_before, Some(at(1000 + 960)));
}

#[test]
fn what_is_given_up_stays_so_while_it_is_unhealthy_and_starts_over_after_long_health() {
    let heals = [skipped(2001, "gave_up"), heal(2000, HealOutcome::Failed, "n", 5, "StillUnhealthy")];
    let day = 86_400;
    let known = memory(&heals, Some(100), 2000 + day).unwrap();
    assert_eq!((known.tries, known.unhealthy), (5, true));
    assert_eq!(known.reported, BTreeSet::from(["gave_up"]));
    assert!(memory(&heals, None, 2010).is_some_and(|known| !known.unhealthy && known.tries == 5));
    assert_eq!(memory(&heals, None, 2001 + 1800), None, "well for half an hour");
    assert_eq!(memory(&heals, Some(2001 + 1800), 2001 + day), None, "was well for half an hour");
    assert!(memory(&heals, Some(2001 + 1700), 2001 + day).is_some(), "not for long enough");
}

#[test]
fn what_was_reported_in_another_episode_may_be_reported_again() {
    let heals = [skipped(100, "observe"), skipped(99, "needs_person"), skipped(98, "no such word")];
    assert_eq!(memory(&heals, Some(50), 200).unwrap().reported, BTreeSet::from(["observe", "needs_person"]));
    assert_eq!(memory(&heals, Some(101), 200).unwrap().reported, BTreeSet::from(["needs_person"]));
    assert_eq!(memory(&[skipped(100, "observe")], Some(101), 200), None);
    assert_eq!(memory(&[started(1, "elsewhere", 1)], Some(1), 2), None, "of another node");
}

#[test]
fn an_error_without_an_explanation_still_waits_for_a_person() {
    let heals = [heal(100, HealOutcome::Failed, "n", 1, "Unknown")];
    assert_eq!(memory(&heals, Some(50), 200).unwrap().last, Last::Unexplained { code: "Unknown".into() });
}

#[test]
fn only_what_was_wanted_or_wrong_is_kept() {
    let record = |attempt, news| Record {
        at: at(10),
        place: Some(Place::new("d", "v", "n")),
        pv: "pv".into(),
        about: Vec::new(),
        complaint: None,
        by_person: false,
        remedy: Some(Remedy::NodeHealer),
        rule: None,
        attempt,
        not_before: None,
        news,
    };
    let attempt = Some(crate::healer::Attempt { nth: 1, began: at(9) });
    let well = || News::Succeeded { message: "ü".repeat(2000), took: std::time::Duration::ZERO };
    assert_eq!(record(attempt, well()).entry(), None, "merely checked");
    let asked = Record { by_person: true, ..record(attempt, well()) };
    assert!(asked.entry().unwrap().message.len() <= limit::MESSAGE);
    let refused = News::Skipped(Refusal::NotImplemented);
    assert_eq!(record(None, refused).entry().unwrap().code, "not_implemented");
    let not_begun = Record { by_person: true, ..record(None, well()) };
    assert_eq!(not_begun.entry(), None, "it never began");
}

fn pods(second: i64, outcome: HealOutcome, node: &str, attempt: u32, code: &str) -> Heal {
    Heal { remedy: Remedy::RecreatePods.name().to_owned(), ..heal(second, outcome, node, attempt, code) }
}

fn of_pods(heals: &[Heal], unhealthy_since: Option<i64>, now: i64) -> Option<Recreated> {
    let deadlines = Deadlines { node_healer: DEADLINE, recreate_pods: SignedDuration::from_mins(10) };
    let recreate = crate::policy::Recreate::default();
    let policy = Policy { recreate: Some(recreate), ..Policy::default() };
    recreated(heals, unhealthy_since.map(at), at(now), &policy, deadlines)
}

#[test]
fn attempts_without_the_name_of_a_known_remedy_are_the_node_plugins() {
    for remedy in ["", "NodeHealer", "AskNodePlugin"] {
        let old = Heal { remedy: remedy.to_owned(), ..heal(100, HealOutcome::Failed, "n", 2, "Internal") };
        assert_eq!(memory(std::slice::from_ref(&old), Some(50), 200).unwrap().tries, 2, "{remedy}");
        assert_eq!(of_pods(&[old], Some(50), 200), None, "{remedy}");
    }
}

#[test]
fn recreating_pods_and_asking_the_node_plugin_are_counted_apart() {
    let heals = [
        pods(300, HealOutcome::Failed, "m", 2, "still_ill"),
        pods(200, HealOutcome::Succeeded, "n", 1, "well"),
        heal(100, HealOutcome::Failed, "n", 5, "Internal"),
    ];
    assert_eq!(memory(&heals, Some(50), 400).unwrap().tries, 5);
    let found = of_pods(&heals, Some(50), 400).unwrap();
    // The second failed at 300 s and has a pause of 20 min.
    assert_eq!((found.tries, found.not_before), (2, Some(at(1500))));
    assert_eq!(found.nodes, ["m", "n"].map(Into::into).into(), "on whatever node");
    assert_eq!(of_pods(&heals, Some(300 + 30 * 60 + 1200), 3300), None, "healthy for long in between");
}

#[test]
fn an_attempt_to_recreate_pods_that_was_under_way_is_waited_for() {
    let open = [pods(100, HealOutcome::Started, "n", 1, "")];
    let found = of_pods(&open, None, 130).unwrap();
    assert_eq!((found.tries, found.not_before), (1, Some(at(701))), "its deadline is 10 min");
    let lost = [lost(&open[0])];
    let found = of_pods(&lost, Some(50), 702).unwrap();
    assert_eq!((found.tries, found.not_before), (1, Some(at(700))));
    let why = begun(&open, &started(130, "n", 1), Deadlines::from(DEADLINE)).unwrap_err();
    assert!(why.contains("another actor began"), "{why}");
    // Its end takes its place, and that of the node plugin's attempt does not.
    let other = [&open[..], &[started(90, "n", 1)]].concat();
    let after = noted(&other, &pods(150, HealOutcome::Succeeded, "n", 1, "well"));
    assert_eq!(after.iter().filter(|heal| heal.outcome == HealOutcome::Started).count(), 1);
    assert_eq!(after[1].remedy, "NodeHealer");
}

#[test]
fn evictions_that_were_refused_are_no_attempts() {
    let refused =
        Heal { not_before: Some(time(at(160))), ..pods(100, HealOutcome::Failed, "n", 1, "not_reached") };
    let later = pods(200, HealOutcome::Failed, "n", 1, "not_reached");
    let kept = noted(&[pods(199, HealOutcome::Started, "n", 1, ""), refused.clone()], &later);
    assert_eq!(kept, [later], "one is kept, however often it is refused");
    let found = of_pods(&[refused], Some(50), 130).unwrap();
    assert_eq!((found.tries, found.not_before), (0, Some(at(160))));
}

/// A volume that is used on more nodes than the usual number of entries.
#[test]
fn neither_an_open_attempt_nor_the_last_one_of_a_node_is_dropped() {
    let mut heals = Vec::new();
    for second in 0..30 {
        let node = format!("n{second}");
        heals = begun(&heals, &started(1000 * second, &node, 1), Deadlines::from(DEADLINE)).unwrap();
        heals = noted(&heals, &heal(1000 * second + 1, HealOutcome::Failed, &node, 1, "Aborted"));
    }
    heals = begun(&heals, &started(100_000, "n0", 2), Deadlines::from(DEADLINE)).unwrap();
    for second in 0..40 {
        heals = noted(&heals, &skipped(100_001 + second, &format!("code-{second}")));
    }
    assert!(
        unfinished(&heals, Deadlines::from(DEADLINE)).any(|(open, _)| open.node.as_deref() == Some("n0"))
    );
    for node in 0..30 {
        let node = format!("n{node}");
        let last = heals.iter().find(|heal| heal.node.as_deref() == Some(&node) && heal.attempt > 0);
        assert!(last.is_some(), "{node} is forgotten");
    }
    assert_eq!(heals.len(), 31 - 1, "the first attempt on n0 is replaced by its second as the last one");
}

#[test]
fn few_nodes_keep_the_last_few_entries() {
    let mut heals = Vec::new();
    for second in 0..50 {
        heals = noted(&heals, &skipped(second, &format!("code-{second}")));
    }
    assert_eq!(heals.len(), USUAL);
    assert_eq!(heals[0].code, "code-49");
}

/// What does not fit is refused before the driver is asked, and not forgotten.
#[test]
fn an_attempt_for_which_there_is_no_room_does_not_begin() {
    let mut heals = Vec::new();
    for node in 0..i64::try_from(limit::HEALS).unwrap() {
        let name = format!("n{node}");
        heals = begun(&heals, &started(1000 * node, &name, 1), Deadlines::from(DEADLINE)).unwrap();
        heals = noted(&heals, &heal(1000 * node + 1, HealOutcome::Failed, &name, 1, "Aborted"));
    }
    let why = begun(&heals, &started(1_000_000, "another", 1), Deadlines::from(DEADLINE)).unwrap_err();
    assert!(why.contains("no room"), "{why}");
    assert!(begun(&heals, &started(1_000_000, "n3", 2), Deadlines::from(DEADLINE)).is_ok());
}
