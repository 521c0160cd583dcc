//! Which events and stored conditions are found, and what then counts as reported.
//!
//! Events are written `time:kind:Status/Reason`, stored status `time:Status/Reason+Status/Reason`; all of one volume
//! seen by the controller, reported on one claim.

use volmedic_api::Kind;
use volmedic_health::{Change, Conditions, Ending, Reason, Transition, Why, WhyKind};

use super::*;

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(second).unwrap()
}

fn condition(word: &str) -> Condition {
    let (status, reason) = word.split_once('/').expect("Status/Reason");
    Condition::new(status.parse().expect("status"), Reason::new(reason), "")
}

fn transition(word: &str) -> Transition {
    let mut parts = word.split(':');
    let mut next = || parts.next().unwrap_or_default();
    let (second, kind, what) = (at(next().parse().unwrap()), next(), next());
    let since = second;
    let ending = Ending::Recovered;
    let change = match kind {
        "appeared" => Change::Appeared { condition: condition(what), since },
        "reminder" => Change::Reminder { condition: condition(what), since: at(1) },
        "cleared" => Change::Cleared { condition: condition(what), since, ending },
        "changed" => {
            let (from, to) = what.split_once('>').unwrap();
            Change::Changed { from: condition(from), to: condition(to), since }
        }
        "blind" => Change::WentBlind { why: Why::new(WhyKind::Silent, ""), since, looks: 3 },
        "sees" => Change::SeesAgain { since, ending },
        "flapping" => Change::Flapping { changes: 7, since, now: Conditions::default() },
        "settled" => Change::Settled { since, ending },
        other => panic!("no such kind: {other}"),
    };
    let vantage = if what.ends_with("NodeDown") { Vantage::Cluster } else { Vantage::Controller };
    Transition { at: second, subject: Subject::volume("d", "v"), vantage, change }
}

fn claim() -> ObjectRef {
    ObjectRef::new(Kind::PersistentVolumeClaim, "shop", "orders", "uid-1")
}

fn reported(memos: &[Memo]) -> String {
    let mut words = Vec::new();
    for memo in memos {
        let mut held: Vec<String> = memo
            .reported
            .iter()
            .map(|held| format!("{}@{}", held.condition, held.since.as_second()))
            .collect();
        held.sort();
        words.extend(held);
        words.extend(memo.blind_since.map(|since| format!("blind@{}", since.as_second())));
        words.extend(memo.flapping_since.map(|since| format!("flapping@{}", since.as_second())));
    }
    words.join(" ")
}

/// Each event name keeps its latest story, as the API server does.
#[track_caller]
fn check(events: &str, stored: &str, expected: &str, expected_unsettled: &str) {
    // A server whose versions are no numbers gives the same, as long as no clock goes backwards.
    for version in [|place: usize| place.to_string(), |_| "opaque".to_owned()] {
        check_with(events, version, stored, expected, expected_unsettled);
    }
}

/// The events were written in this order, whatever their times are.
#[track_caller]
fn check_with(
    events: &str,
    version: fn(usize) -> String,
    stored: &str,
    expected: &str,
    expected_unsettled: &str,
) {
    let mut evidence = Evidence::new(Vantage::Controller);
    let mut named: HashMap<u64, (usize, Vantage, Story)> = HashMap::new();
    for (place, word) in events.split_whitespace().enumerate() {
        let transition = transition(word);
        let story = Story::of(&transition);
        let name = story.thread.fingerprint("uid-1", story.state == Open::Closed);
        let older = named.remove(&name).map(|(.., story)| story);
        named.insert(name, (place, transition.vantage, story.after(older)));
    }
    for (place, vantage, story) in named.into_values() {
        evidence.story(claim(), &version(place), vantage, story);
    }
    if let Some((second, conditions)) = stored.split_once(':') {
        let conditions = Conditions::new(conditions.split('+').filter(|w| !w.is_empty()).map(condition));
        let volume = Volume { driver: "d".into(), handle: "v".into() };
        evidence.stored(volume, Stored { claim: claim(), conditions, at: at(second.parse().unwrap()) });
    }
    let Recalled { memos, unsettled, .. } = evidence.merge();
    assert_eq!(reported(&memos), expected, "for events {events} and stored {stored}");
    let shown: Vec<&str> = unsettled.iter().map(|(claim, _)| &*claim.name).collect();
    assert_eq!(shown.join(";"), expected_unsettled, "unsettled, for events {events} and stored {stored}");
    for (_, volume) in unsettled {
        let waits = |memo: &Memo| memo.subject == Subject::Volume(volume.clone());
        assert!(memos.iter().any(waits), "its answer is waited for, for events {events} and stored {stored}");
    }
}

#[test]
fn events_alone_are_enough() {
    check("", "", "", "");
    check(
        "1:appeared:Degraded/X 5:appeared:DataLoss/Y",
        "5:DataLoss/Y+Degraded/X",
        "DataLoss/Y@5 Degraded/X@1",
        "",
    );
    check("1:appeared:Degraded/X 31:reminder:Degraded/X", "1:Degraded/X", "Degraded/X@1", "");
    check("1:appeared:Degraded/X 9:cleared:Degraded/X", "9:", "", "");
    check(
        "1:appeared:Degraded/X 9:cleared:Degraded/X 12:appeared:Degraded/X",
        "12:Degraded/X",
        "Degraded/X@12",
        "",
    );
    check("1:blind 9:appeared:Degraded/X", "9:Degraded/X", "Degraded/X@9 blind@1", "");
    check("1:blind 5:sees", "", "", "");
    check("1:flapping 3:settled 7:flapping", "", "flapping@7", "");
}

#[test]
fn a_condition_that_turned_into_another_is_over_even_after_reminders() {
    check("1:appeared:Degraded/X 5:changed:Degraded/X>DataLoss/X", "5:DataLoss/X", "DataLoss/X@5", "");
    check(
        "2:appeared:Degraded/X 5:changed:Degraded/X>DataLoss/X 35:reminder:DataLoss/X",
        "5:DataLoss/X",
        "DataLoss/X@1",
        "",
    );
    check(
        "1:appeared:Degraded/X 5:changed:Degraded/X>DataLoss/X 9:changed:DataLoss/X>Degraded/X",
        "9:Degraded/X",
        "Degraded/X@9",
        "",
    );
}

#[test]
fn what_was_written_last_counts_even_if_the_clock_went_backwards() {
    let check = |events, stored, expected, unsettled| {
        check_with(events, |place| place.to_string(), stored, expected, unsettled);
    };
    // Two hours ahead when it began, right when it ended.
    check("7200:appeared:Degraded/X 30:cleared:Degraded/X", "30:", "", "");
    check("7200:appeared:Degraded/X 30:cleared:Degraded/X", "7200:Degraded/X", "", "orders");
    check(
        "7200:appeared:Degraded/X 30:cleared:Degraded/X 60:appeared:Degraded/X",
        "60:Degraded/X",
        "Degraded/X@60",
        "",
    );
    check("7200:appeared:Degraded/X 30:changed:Degraded/X>DataLoss/X", "30:DataLoss/X", "DataLoss/X@30", "");
    check(
        "7200:appeared:Degraded/X 30:changed:Degraded/X>DataLoss/X",
        "7200:Degraded/X",
        "DataLoss/X@30",
        "orders",
    );
    check("7200:blind 30:sees", "", "", "");
}

#[test]
fn a_status_that_outlived_its_events_was_reported() {
    check("", "100:Degraded/X+Inaccessible/NodeDown", "Degraded/X@100 Inaccessible/NodeDown@100", "");
    check("", "100:", "", "");
}

#[test]
fn what_died_between_event_and_status_waits_for_the_driver() {
    // The event was sent, the status not yet written.
    check("1:appeared:Degraded/X", "", "Degraded/X@1", "orders");
    check(
        "1:appeared:Degraded/X 7:appeared:DataLoss/Y",
        "1:Degraded/X",
        "DataLoss/Y@7 Degraded/X@1",
        "orders",
    );
    // The end was reported, the status still has it.
    check("1:appeared:Degraded/X 9:cleared:Degraded/X", "1:Degraded/X", "", "orders");
    check("1:appeared:Degraded/X 5:changed:Degraded/X>DataLoss/X", "1:Degraded/X", "DataLoss/X@5", "orders");
}

#[test]
fn a_status_number_without_a_word_in_the_api_is_remembered_by_events_only() {
    check("1:appeared:Unrecognized(9)/X", "", "Unrecognized(9)/X@1", "");
}

#[test]
fn stored_words_are_newer_than_the_events() {
    let mut evidence = Evidence::new(Vantage::Controller);
    let appeared = transition("1:appeared:Degraded/X");
    evidence.story(claim(), "1", Vantage::Controller, Story::of(&appeared));
    let reworded = Condition::new(Status::Degraded, Reason::new("X"), "98 % used");
    let volume = Volume { driver: "d".into(), handle: "v".into() };
    evidence.stored(
        volume,
        Stored { claim: claim(), conditions: Conditions::new([reworded.clone()]), at: at(1) },
    );
    assert_eq!(evidence.merge().memos[0].reported, [Held { condition: reworded, since: at(1) }]);
}
