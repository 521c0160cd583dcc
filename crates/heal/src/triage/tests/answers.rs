//! What follows from what the driver answers.

use super::*;

#[test]
fn the_error_table_in_time() {
    let exponential = vec![10, 40, 100, 220, 460];
    for (outcome, expected) in [
        (failed(Kind::InvalidArgument), vec![10]),
        (failed(Kind::NotFound), exponential.clone()),
        (failed(Kind::Aborted), vec![10, 70, 190, 430, 910]),
        (failed(Kind::Unimplemented), vec![10]),
        (failed(Kind::Unauthenticated), exponential.clone()),
        (failed(Kind::Unknown), vec![10]),
        (failed(Kind::Internal), exponential.clone()),
        (failed(Kind::Unavailable), exponential.clone()),
        (failed(Kind::Deadline), vec![10, 70, 190, 430, 910]),
        (Outcome::StillUnhealthy { message: "no".into() }, exponential),
    ] {
        let mut desk = Desk::new();
        desk.unhealthy(&place("v"));
        assert_eq!(desk.tries(&outcome), expected, "{outcome:?}");
    }
}

#[test]
fn who_could_not_be_reached_was_not_tried_and_is_asked_ever_more_rarely() {
    let mut desk = Desk::new();
    desk.unhealthy(&place("v"));
    let tries = desk.tries(&Outcome::NotReached { why: "no route".into() });
    assert_eq!(&tries[..5], [10, 40, 100, 220, 460]);
    assert!(tries.len() > 20, "never given up: {tries:?}");
    assert!(tries.windows(2).all(|pair| pair[1] - pair[0] <= 3600));
}

#[test]
fn unimplemented_is_never_asked_again_of_any_volume_until_the_driver_changed() {
    let mut desk = Desk::new();
    for place in [on("n1", "a"), on("n1", "b"), on("n2", "c")] {
        desk.unhealthy(&place);
    }
    desk.wait(10);
    let tickets: Vec<_> = desk
        .steps()
        .into_iter()
        .filter_map(|step| match step {
            Step::Examine(ticket) => Some(ticket),
            _ => None,
        })
        .collect();
    assert!(matches!(desk.examine(&tickets[0]), Verdict::Act { .. }));
    desk.triage.done(desk.now, &tickets[0], &failed(Kind::Unimplemented));
    let second = desk.examine(&tickets[1]);
    assert!(matches!(second, Verdict::Skip { refusal: Refusal::NotImplemented, tell: true }), "{second:?}");
    assert!(matches!(desk.examine(&tickets[2]), Verdict::Act { .. }), "another node has another driver");
    desk.triage.done(desk.now, &tickets[2], &well());
    desk.triage.cleared(desk.now, &on("n2", "c"));
    desk.triage.person(desk.now, &on("n1", "b"));
    for _ in 0..100 {
        desk.wait(1000);
        assert!(!desk.story().contains("examine"), "not even for a person");
    }
    desk.triage.driver_changed(&DRIVER.into(), &"n1".into());
    assert!(desk.story().contains("examine"));
}

#[test]
fn a_refused_request_is_sent_again_when_the_volume_changed() {
    let mut desk = Desk::new();
    desk.unhealthy(&place("v"));
    desk.wait(10);
    assert!(desk.attempt(&failed(Kind::InvalidArgument)));
    desk.wait(600);
    assert!(!desk.attempt(&well()));
    desk.version = "2";
    desk.wait(600);
    assert!(desk.attempt(&well()));
}

#[test]
fn a_person_who_read_the_log_opens_the_way_again() {
    let mut desk = Desk::new();
    desk.unhealthy(&place("v"));
    desk.wait(10);
    assert!(desk.attempt(&failed(Kind::Unknown)));
    desk.wait(100_000);
    assert_eq!(desk.story(), "skip:needs_person");
    desk.triage.person(desk.now, &place("v"));
    assert!(desk.attempt(&well()));
}

#[test]
fn the_refused_secret_and_the_need_to_verify_go_with_the_next_ticket() {
    let mut desk = Desk::new();
    desk.unhealthy(&place("v"));
    desk.wait(10);
    assert!(desk.attempt(&failed(Kind::Unauthenticated)));
    desk.wait(30);
    let ticket = desk.ticket().unwrap();
    assert_eq!((ticket.refused_secret.as_deref(), ticket.verify, ticket.nth), (Some("7"), false, 2));
    assert!(matches!(desk.examine(&ticket), Verdict::Act { .. }));
    desk.triage.done(desk.now, &ticket, &failed(Kind::NotFound));
    desk.wait(60);
    let ticket = desk.ticket().unwrap();
    assert!(ticket.verify && ticket.nth == 3);
}

/// Whether the driver's answer arrives before the agent has seen the recovery, or after it.
#[test]
fn a_mounter_that_dies_again_immediately_is_given_up_and_reported_once() {
    for answer_first in [true, false] {
        assert_eq!(dies_again_and_again(answer_first), (5, 1), "answer first: {answer_first}");
    }
}

/// How many attempts are made, and how often it is reported that it was given up.
fn dies_again_and_again(answer_first: bool) -> (usize, usize) {
    let mut desk = Desk::new();
    let (mut acted, mut reported) = (0, 0);
    for second in 0..6 * 3600 {
        // Two seconds after each repairing the agent sees it healthy, and three seconds later dead again.
        if second % 5 == 0 {
            desk.unhealthy(&place("v"));
        }
        for step in desk.steps() {
            match step {
                Step::Examine(ticket) => match desk.examine(&ticket) {
                    Verdict::Act { .. } => {
                        acted += 1;
                        if !answer_first {
                            desk.triage.cleared(desk.now, &place("v"));
                        }
                        desk.triage.done(desk.now, &ticket, &well());
                        desk.triage.cleared(desk.now, &place("v"));
                    }
                    Verdict::Skip { refusal: Refusal::GaveUp { .. }, tell } => reported += usize::from(tell),
                    Verdict::Skip { .. } | Verdict::Well => {}
                },
                Step::Skip(RefusalReport { refusal: Refusal::GaveUp { .. }, .. }) => reported += 1,
                _ => {}
            }
        }
        desk.wait(1);
    }
    (acted, reported)
}

#[test]
fn a_volume_that_stayed_well_starts_over() {
    let mut desk = Desk::new();
    desk.unhealthy(&place("v"));
    assert_eq!(desk.tries(&Outcome::StillUnhealthy { message: "no".into() }).len(), 5);
    desk.triage.cleared(desk.now, &place("v"));
    desk.wait(29 * 60);
    desk.unhealthy(&place("v"));
    assert_eq!(desk.tries(&well()).len(), 0, "half an hour is not over");
    desk.triage.cleared(desk.now, &place("v"));
    desk.wait(30 * 60);
    desk.unhealthy(&place("v"));
    assert!(!desk.tries(&Outcome::StillUnhealthy { message: "no".into() }).is_empty());
}

#[test]
fn after_repairing_it_cools_down_and_is_seen_again() {
    let mut desk = Desk::new();
    desk.unhealthy(&place("v"));
    desk.wait(10);
    assert!(desk.attempt(&well()));
    desk.wait(119);
    assert_eq!(desk.story(), "");
    desk.wait(1);
    desk.again = Again::Well;
    let ticket = desk.ticket().unwrap();
    assert_eq!(desk.examine(&ticket), Verdict::Well);
    assert_eq!(desk.triage.open(), 0);
}
