//! What an earlier process knew still counts.

use super::*;
use crate::memory::{Last, Memory};

fn memory(desk: &Desk, tries: u32, last: Last) -> Memory {
    Memory { tries, last, at: desk.now, not_before: None, unhealthy: true, reported: BTreeSet::new() }
}

fn restore(desk: &mut Desk, memory: &Memory) {
    let unhealthy = Some((WellKnown::MounterDead.into(), desk.now));
    assert!(desk.triage.restore(desk.now, &place("v"), memory, unhealthy));
}

#[test]
fn what_may_be_under_way_is_not_doubled() {
    let mut desk = Desk::new();
    let until = desk.now.checked_add(SignedDuration::from_secs(180)).unwrap();
    let known = Memory { not_before: Some(until), ..memory(&desk, 1, Last::Failed) };
    restore(&mut desk, &known);
    assert_eq!(desk.tries(&failed(Kind::NotFound)), [180, 240, 360, 600], "the second to the fifth try");
}

#[test]
fn given_up_stays_given_up_and_is_reported_once() {
    let mut desk = Desk::new();
    let known = Memory { reported: BTreeSet::from(["gave_up"]), ..memory(&desk, 5, Last::Failed) };
    restore(&mut desk, &known);
    desk.wait(86_400);
    assert_eq!(desk.story(), "");
    let mut untold = Desk::new();
    let known = memory(&untold, 5, Last::Failed);
    restore(&mut untold, &known);
    untold.wait(60);
    assert_eq!((untold.story(), untold.story()), ("skip:gave_up".to_owned(), String::new()));
}

#[test]
fn what_was_repaired_is_checked_before_it_counts_as_unhealthy() {
    let mut desk = Desk::new();
    let known = memory(&desk, 5, Last::Healed);
    restore(&mut desk, &known);
    desk.wait(10);
    assert_eq!(desk.story(), "examine", "not given up: it may be well");
}

#[test]
fn a_person_must_still_have_read_the_log() {
    let mut desk = Desk::new();
    let known = memory(&desk, 1, Last::Unexplained { code: "Unknown".into() });
    restore(&mut desk, &known);
    desk.wait(60);
    assert_eq!(desk.story(), "skip:needs_person");
}

#[test]
fn what_recovered_is_remembered_until_it_was_well_for_long() {
    for (seconds, tries) in [(1700, 1), (1900, 5)] {
        let mut desk = Desk::new();
        let known = Memory { unhealthy: false, ..memory(&desk, 4, Last::Healed) };
        assert!(desk.triage.restore(desk.now, &place("v"), &known, None));
        desk.wait(seconds);
        desk.story();
        desk.unhealthy(&place("v"));
        assert_eq!(desk.tries(&failed(Kind::NotFound)).len(), tries, "{seconds}");
    }
}
