//! Which remedy is used, and when the next one has its turn.

use super::*;
use crate::memory::Recreated;
use crate::policy::Recreate;

/// With recreating pods switched on, for everybody.
fn desk() -> Desk {
    let recreate = Recreate { debounce: SignedDuration::from_mins(1), tries: 3, ..Recreate::default() };
    let mut desk = Desk::with(Policy { recreate: Some(recreate), ..Policy::default() });
    desk.recreate = Some(standing(Mode::Auto, None));
    desk
}

fn standing(mode: Mode, obstacle: Option<Refusal>) -> Standing {
    Standing { ruling: Ruling { mode, source: Source::Default }, approval: Approval::None, obstacle }
}

fn not_ready() -> Refusal {
    Refusal::NotReady { why: "the driver is not registered".into() }
}

fn still_unhealthy() -> Outcome {
    Outcome::StillUnhealthy { message: "the new pod is not ready".into() }
}

fn sick(desk: &mut Desk, place: &Place, reason: WellKnown) {
    assert!(desk.triage.complain(desk.now, place, reason.into(), desk.now));
}

/// What is done within a time, each with the second at which it began, if everything ends as `outcome` says.
fn played(
    desk: &mut Desk,
    seconds: i64,
    outcome: impl Fn(Remedy, u32) -> Outcome,
) -> Vec<(i64, Remedy, u32)> {
    let began = desk.now;
    let mut acts = Vec::new();
    while desk.now.duration_since(began).as_secs() <= seconds {
        for step in desk.steps() {
            let Step::Examine(ticket) = step else { continue };
            if let Verdict::Act { remedy, nth } = desk.examine(&ticket) {
                acts.push((desk.now.duration_since(began).as_secs(), remedy, nth));
                desk.triage.done(desk.now, &ticket, &outcome(remedy, nth));
            }
        }
        desk.wait(1);
    }
    acts
}

/// The label of what is said when nothing is done.
fn refused(desk: &mut Desk) -> String {
    for _ in 0..600 {
        for step in desk.steps() {
            match step {
                Step::Examine(ticket) => match desk.examine(&ticket) {
                    Verdict::Skip { refusal, tell } if tell => return refusal.label().to_owned(),
                    Verdict::Skip { .. } => {}
                    other => return format!("{other:?}"),
                },
                Step::Skip(reported) => return reported.refusal.label().to_owned(),
                _ => {}
            }
        }
        desk.wait(1);
    }
    "nothing".to_owned()
}

#[test]
fn without_a_word_of_the_operator_no_pod_is_ever_touched() {
    let mut desk = Desk::new();
    desk.recreate = Some(standing(Mode::Auto, None));
    for &reason in WellKnown::ALL {
        let taken = desk.triage.complain(desk.now, &place(reason.name()), reason.into(), desk.now);
        assert_eq!(taken, reason.remedies().contains(&Remedy::NodeHealer), "{reason}");
    }
    desk.stage.relays = false;
    assert_eq!(played(&mut desk, 4 * 3600, |_, _| well()), []);
}

#[test]
fn the_node_plugin_comes_first_and_pods_only_when_it_has_failed_for_good() {
    let mut desk = desk();
    sick(&mut desk, &place("v"), WellKnown::MounterDead);
    let acts = played(&mut desk, 3 * 3600, |remedy, _| match remedy {
        Remedy::NodeHealer => failed(Kind::Internal),
        _ => still_unhealthy(),
    });
    let pods: Vec<_> = acts.iter().filter(|(_, remedy, _)| *remedy == Remedy::RecreatePods).collect();
    let asked: Vec<i64> =
        acts.iter().filter(|(_, remedy, _)| *remedy == Remedy::NodeHealer).map(|(at, ..)| *at).collect();
    assert_eq!(asked, [10, 40, 100, 220, 460], "as without a second remedy");
    // The last failure of the node plugin has its pause, too: 480 s. Then the pauses of recreating: 10 and 20 min.
    assert_eq!(
        pods.iter().map(|(at, _, nth)| (*at, *nth)).collect::<Vec<_>>(),
        [(940, 1), (1540, 2), (2740, 3)]
    );
}

#[test]
fn a_driver_that_cannot_heal_leaves_it_to_new_pods() {
    for answer in [Kind::Unimplemented, Kind::Unknown, Kind::InvalidArgument] {
        let mut desk = desk();
        sick(&mut desk, &place("v"), WellKnown::MounterDead);
        let acts = played(&mut desk, 120, |remedy, _| match remedy {
            Remedy::NodeHealer => failed(answer),
            _ => well(),
        });
        let order: Vec<_> = acts.iter().map(|(_, remedy, nth)| (*remedy, *nth)).collect();
        assert_eq!(order, [(Remedy::NodeHealer, 1), (Remedy::RecreatePods, 1)], "{answer:?}");
    }
}

#[test]
fn a_relay_that_is_away_for_a_moment_costs_no_pod() {
    let mut desk = desk();
    desk.mode = Mode::Approve;
    sick(&mut desk, &place("v"), WellKnown::MounterDead);
    desk.stage.relays = true;
    assert_eq!(
        played(&mut desk, 300, |_, _| well()),
        [],
        "a person is to decide about the node plugin first"
    );
    desk.stage.relays = false;
    assert_eq!(played(&mut desk, 50, |_, _| well()), [], "its agent restarts");
    desk.stage.relays = true;
    assert_eq!(played(&mut desk, 50, |_, _| well()), []);
    desk.stage.relays = false;
    assert_eq!(played(&mut desk, 100, |_, _| well()).len(), 1, "it does not come back");
}

#[test]
fn where_no_node_plugin_can_help_pods_are_next_after_a_longer_time() {
    for reason in [WellKnown::StaleHandle, WellKnown::WrongMount, WellKnown::ReadOnlyFilesystem] {
        let mut desk = desk();
        sick(&mut desk, &place("v"), reason);
        let acts = played(&mut desk, 600, |_, _| well());
        assert_eq!(acts[0], (60, Remedy::RecreatePods, 1), "{reason}");
    }
}

#[test]
fn what_hangs_is_never_evicted() {
    let mut desk = desk();
    desk.stage.relays = false;
    sick(&mut desk, &place("v"), WellKnown::IOHung);
    assert_eq!(played(&mut desk, 4 * 3600, |_, _| well()), []);
}

#[test]
fn each_mode_of_recreating_pods() {
    for (mode, expected) in [
        (Mode::Off, "nothing"),
        (Mode::Observe, "observe"),
        (Mode::Approve, "awaiting_approval"),
        (Mode::Auto, "Act { remedy: RecreatePods, nth: 1 }"),
    ] {
        let mut desk = desk();
        desk.recreate = Some(standing(mode, None));
        sick(&mut desk, &place("v"), WellKnown::StaleHandle);
        assert_eq!(refused(&mut desk), expected, "{mode}");
    }
}

#[test]
fn consent_to_one_remedy_is_none_to_the_other() {
    let mut desk = desk();
    desk.stage.relays = false;
    sick(&mut desk, &place("v"), WellKnown::MounterDead);
    desk.wait(60);
    desk.approval = Approval::Given(desk.now);
    desk.recreate = Some(standing(Mode::Approve, None));
    assert_eq!(refused(&mut desk), "awaiting_approval");
    desk.recreate = Some(Standing { approval: Approval::Given(desk.now), ..standing(Mode::Approve, None) });
    assert_eq!(played(&mut desk, 60, |_, _| well()).len(), 1);
}

/// As long as it is not there nothing is done, and when it is there it is: acting too early must not end in never.
#[test]
fn what_a_new_mount_needs_is_waited_for() {
    let mut desk = desk();
    desk.recreate = Some(standing(Mode::Auto, Some(not_ready())));
    sick(&mut desk, &place("v"), WellKnown::StaleHandle);
    assert_eq!(refused(&mut desk), "not_ready");
    assert_eq!(played(&mut desk, 12 * 3600, |_, _| well()), []);
    assert_eq!(desk.story(), "", "said once");
    desk.recreate = Some(standing(Mode::Auto, None));
    let acts = played(&mut desk, 60, |_, _| well());
    assert!(matches!(acts[..], [(0..=31, Remedy::RecreatePods, 1)]), "{acts:?}");
}

#[test]
fn evictions_that_are_refused_are_no_attempts_and_never_end_in_giving_up() {
    let mut desk = desk();
    sick(&mut desk, &place("v"), WellKnown::StaleHandle);
    let began = desk.now;
    let refused = |_: Remedy, _: u32| Outcome::NotReached { why: "a PodDisruptionBudget".into() };
    let acts = played(&mut desk, 6 * 3600, refused);
    assert!(acts.iter().all(|(_, remedy, nth)| (*remedy, *nth) == (Remedy::RecreatePods, 1)), "{acts:?}");
    let at: Vec<i64> = acts.iter().map(|(at, ..)| *at).collect();
    assert_eq!(at[..5], [60, 90, 150, 270, 510]);
    assert!(at.windows(2).all(|pair| pair[1] - pair[0] <= 3601), "{at:?}");
    assert!(desk.now.duration_since(began) > SignedDuration::from_hours(6));
    assert_eq!(played(&mut desk, 3700, |_, _| well())[0].2, 1, "the first that is one");
}

#[test]
fn after_a_failure_nothing_is_evicted_before_the_pause_not_even_on_another_node() {
    let mut desk = desk();
    sick(&mut desk, &place("v"), WellKnown::StaleHandle);
    assert_eq!(played(&mut desk, 60, |_, _| still_unhealthy()).len(), 1);
    // The pod came up on another node, where the volume is no better.
    desk.triage.moved(&place("v"), ["n2".into()]);
    desk.triage.forget(desk.now, &place("v"));
    sick(&mut desk, &on("n2", "v"), WellKnown::StaleHandle);
    assert_eq!(played(&mut desk, 590, |_, _| still_unhealthy()), []);
    assert_eq!(played(&mut desk, 30, |_, _| still_unhealthy()), [(8, Remedy::RecreatePods, 2)]);
    assert_eq!(played(&mut desk, 20 * 60, |_, _| still_unhealthy()).len(), 1);
    assert_eq!(played(&mut desk, 24 * 3600, |_, _| still_unhealthy()), []);
}

#[test]
fn a_volume_that_breaks_again_wherever_its_pods_go_is_given_up() {
    let mut desk = desk();
    let (mut at, mut evicted) = ("n1", 0);
    for _ in 0..200 {
        sick(&mut desk, &on(at, "v"), WellKnown::StaleHandle);
        let acts = played(&mut desk, 240, |_, _| well());
        evicted += acts.len();
        desk.triage.forget(desk.now, &on(at, "v"));
        if !acts.is_empty() {
            let next = if at == "n1" { "n2" } else { "n1" };
            desk.triage.moved(&on(at, "v"), [next.into()]);
            at = next;
        }
    }
    assert_eq!(evicted, 4, "once for the first node, and three times more");
    // Healthy for long, it begins again.
    desk.wait(31 * 60);
    desk.steps();
    desk.wait(31 * 60);
    desk.steps();
    sick(&mut desk, &on(at, "v"), WellKnown::StaleHandle);
    assert_eq!(played(&mut desk, 70, |_, _| well()).len(), 1);
}

#[test]
fn only_a_limited_number_of_volumes_at_a_time() {
    let mut desk = desk();
    for volume in ["a", "b", "c"] {
        sick(&mut desk, &on(volume, volume), WellKnown::StaleHandle);
    }
    desk.wait(60);
    let acting: Vec<Ticket> = desk
        .steps()
        .into_iter()
        .filter_map(|step| match step {
            Step::Examine(ticket) => Some(ticket),
            _ => None,
        })
        .filter(|ticket| matches!(desk.examine(ticket), Verdict::Act { .. }))
        .collect();
    assert_eq!(acting.len(), 2);
    desk.triage.done(desk.now, &acting[0], &well());
    assert_eq!(played(&mut desk, 60, |_, _| well()).len(), 1);
}

#[test]
fn a_person_overrules_pauses_but_nothing_that_protects_pods() {
    let mut desk = desk();
    desk.stage.relays = false;
    sick(&mut desk, &place("v"), WellKnown::StaleHandle);
    assert_eq!(played(&mut desk, 60, |_, _| still_unhealthy()).len(), 1);
    desk.recreate = Some(standing(Mode::Observe, Some(not_ready())));
    let preview = |desk: &Desk| desk.triage.preview(desk.now, &place("v"), &desk.exam(), &desk.stage);
    assert_eq!(preview(&desk), Err(vec![Refusal::NoRelay, not_ready()]));
    assert!(desk.triage.person(desk.now, &place("v")));
    assert_eq!(played(&mut desk, 60, |_, _| well()), []);
    desk.recreate = Some(standing(Mode::Observe, None));
    assert_eq!(preview(&desk), Ok(Remedy::RecreatePods));
    assert!(desk.triage.person(desk.now, &place("v")));
    assert_eq!(played(&mut desk, 60, |_, _| well()).len(), 1);
    // With a volume of which nothing is known nobody evicts anything.
    assert_eq!(
        desk.triage.preview(desk.now, &place("w"), &desk.exam(), &desk.stage),
        Err(vec![Refusal::NoRelay])
    );
}

#[test]
fn what_an_earlier_process_did_counts_on_every_node() {
    let mut desk = desk();
    let until = desk.now.checked_add(SignedDuration::from_secs(600)).unwrap();
    let memory = Recreated { tries: 2, not_before: Some(until), nodes: ["n1".into()].into() };
    desk.triage.restore_recreated(place("v").volume(), &memory);
    sick(&mut desk, &on("n2", "v"), WellKnown::StaleHandle);
    let acts = played(&mut desk, 4 * 3600, |_, _| still_unhealthy());
    assert_eq!(acts, [(600, Remedy::RecreatePods, 3)]);
}
