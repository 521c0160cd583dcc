//! What holds whatever happens, and in whatever order.

use std::collections::{HashMap, HashSet};

use proptest::prelude::*;

use super::*;
use crate::policy::Recreate;

#[derive(Debug, Clone)]
enum Deed {
    Unhealthy(usize, WellKnown),
    Cleared(usize),
    Check(usize),
    Person(usize),
    DriverChanged(usize),
    Forget(usize),
    Node(usize, NodeState),
    Mode(Mode),
    /// How it stands with recreating pods.
    Recreate(Mode, bool),
    Relays(bool),
    Wait(i64),
    /// One of the exams under way ends so.
    Exam(usize, Again),
    /// A new probe does not confirm what one of the exams found.
    NotConfirmed(usize),
    /// One of the attempts under way ends so.
    Done(usize, Outcome),
    Abandon(usize),
}

const NODES: usize = 3;
const PLACES: usize = 9;

/// Nine places, among them one volume that is used on all three nodes.
fn nth(index: usize) -> Place {
    let handle = if index < NODES { "shared".to_owned() } else { format!("v{index}") };
    on(&format!("n{}", index % NODES), &handle)
}

fn outcomes() -> impl Strategy<Value = Outcome> {
    prop_oneof![
        3 => Just(well()),
        3 => Just(Outcome::StillUnhealthy { message: "no".into() }),
        4 => prop::sample::select(&Kind::ALL[..]).prop_map(failed),
        2 => Just(failed(Kind::Unimplemented)),
        1 => Just(Outcome::NotReached { why: "no".into() }),
        1 => Just(Outcome::Lost { why: "no".into() }),
        1 => Just(Outcome::SecretUnchanged),
    ]
}

fn deeds() -> impl Strategy<Value = Vec<Deed>> {
    let place = 0..PLACES;
    let states =
        prop::sample::select(&[NodeState::Up, NodeState::Up, NodeState::Down, NodeState::Cordoned][..]);
    let again = prop_oneof![
        5 => Just(Again::StillUnhealthy),
        1 => Just(Again::Well),
        1 => Just(Again::NotSeen("blind".into())),
        1 => Just(Again::NotAsked),
    ];
    let reason = prop::sample::select(&[WellKnown::MounterDead, WellKnown::StaleHandle][..]);
    let mode =
        || prop::sample::select(&[Mode::Auto, Mode::Auto, Mode::Observe, Mode::Approve, Mode::Off][..]);
    let deed = prop_oneof![
        2 => (mode(), any::<bool>()).prop_map(|(mode, ready)| Deed::Recreate(mode, ready)),
        1 => any::<bool>().prop_map(Deed::Relays),
        6 => (place.clone(), reason).prop_map(|(place, reason)| Deed::Unhealthy(place, reason)),
        2 => place.clone().prop_map(Deed::Cleared),
        2 => place.clone().prop_map(Deed::Check),
        1 => place.clone().prop_map(Deed::Person),
        1 => (0..NODES).prop_map(Deed::DriverChanged),
        1 => place.prop_map(Deed::Forget),
        1 => (0..NODES, states).prop_map(|(node, state)| Deed::Node(node, state)),
        1 => prop::sample::select(&Mode::ALL[..]).prop_map(Deed::Mode),
        4 => Just(Deed::Mode(Mode::Auto)),
        10 => prop_oneof![0..15_i64, 15..300_i64, 300..4000_i64].prop_map(Deed::Wait),
        14 => (0..2_usize, again).prop_map(|(index, again)| Deed::Exam(index, again)),
        14 => (0..2_usize, outcomes()).prop_map(|(index, outcome)| Deed::Done(index, outcome)),
        1 => (0..8_usize).prop_map(Deed::Abandon),
        3 => (0..2_usize).prop_map(Deed::NotConfirmed),
    ];
    prop::collection::vec(deed, 0..300)
}

/// What an onlooker knows who trusts nobody.
#[derive(Default)]
struct Onlooker {
    examining: Vec<Ticket>,
    acting: Vec<Ticket>,
    barred: HashSet<Arc<str>>,
    /// Tries that reached the driver since the volume last started over.
    tries: HashMap<Place, u32>,
    quiet_since: HashMap<Place, Timestamp>,
    unhealthy: HashSet<Place>,
    /// Why, as it was reported last.
    reasons: HashMap<Place, WellKnown>,
    /// Attempts to recreate pods, and when the last one of a volume that did something ended.
    recreating: HashSet<u64>,
    recreated: HashMap<Volume, Timestamp>,
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, cases: 150, ..ProptestConfig::default() })]

    #[test]
    fn the_guards_hold(deeds in deeds(), percent in prop_oneof![Just(100_u32), Just(40)]) {
        let policy = Policy {
            node_budget: 2, cluster_budget: 3, tries: 2, brake_percent: percent, brake_least: 4,
            recreate: Some(Recreate { budget: 1, ..Recreate::default() }), ..Policy::default()
        };
        let mut desk = Desk::with(policy.clone());
        desk.stage.in_use = Some(PLACES);
        let mut seen = Onlooker::default();
        for deed in deeds {
            play(&mut desk, &mut seen, deed)?;
            for step in desk.steps() {
                if let Step::Examine(ticket) = step {
                    seen.examining.push(ticket);
                }
            }
            look(&desk, &seen, &policy)?;
        }
        // Whatever is under way ends, and then nothing is.
        for ticket in seen.examining.drain(..).chain(seen.acting.drain(..)) {
            desk.triage.abandon(desk.now, &ticket);
        }
        prop_assert_eq!(desk.triage.in_flight(), 0);
    }
}

fn play(desk: &mut Desk, seen: &mut Onlooker, deed: Deed) -> Result<(), TestCaseError> {
    match deed {
        Deed::Unhealthy(index, reason) => {
            let place = nth(index);
            seen.reasons.insert(place.clone(), reason);
            if seen.unhealthy.insert(place.clone())
                && let Some(since) = seen.quiet_since.remove(&place)
                && desk.now.duration_since(since) >= desk.triage.policy().steady
            {
                seen.tries.remove(&place);
            }
            assert!(desk.triage.complain(desk.now, &place, reason.into(), desk.now));
        }
        Deed::Cleared(index) => {
            if seen.unhealthy.remove(&nth(index)) {
                seen.quiet_since.insert(nth(index), desk.now);
            }
            desk.triage.cleared(desk.now, &nth(index));
        }
        Deed::Check(index) => {
            if !seen.unhealthy.contains(&nth(index)) {
                seen.tries.remove(&nth(index));
            }
            desk.triage.check(desk.now, &nth(index));
        }
        Deed::Person(index) => {
            seen.tries.remove(&nth(index));
            seen.recreated.remove(&nth(index).volume());
            desk.triage.person(desk.now, &nth(index));
        }
        Deed::DriverChanged(node) => {
            let node: Arc<str> = format!("n{node}").into();
            seen.barred.remove(&node);
            desk.triage.driver_changed(&DRIVER.into(), &node);
        }
        Deed::Forget(index) => {
            let place = nth(index);
            let busy = seen.examining.iter().chain(&seen.acting).any(|ticket| ticket.place == place);
            if !busy {
                seen.unhealthy.remove(&place);
                seen.tries.remove(&place);
                seen.quiet_since.remove(&place);
            } else if seen.unhealthy.remove(&place) {
                seen.quiet_since.insert(place.clone(), desk.now);
            }
            desk.triage.forget(desk.now, &place);
        }
        Deed::Node(node, state) => drop(desk.stage.nodes.insert(format!("n{node}"), state)),
        Deed::Mode(mode) => desk.mode = mode,
        Deed::Recreate(mode, ready) => {
            let obstacle = (!ready).then(|| Refusal::NotReady { why: "not yet".into() });
            let ruling = Ruling { mode, source: Source::Default };
            desk.recreate = Some(Standing { ruling, approval: Approval::None, obstacle });
        }
        Deed::Relays(there) => desk.stage.relays = there,
        Deed::Wait(seconds) => desk.wait(seconds),
        Deed::Exam(index, again) => {
            if index >= seen.examining.len() {
                return Ok(());
            }
            let ticket = seen.examining.swap_remove(index);
            desk.again = again;
            match desk.examine(&ticket) {
                Verdict::Act { remedy: Remedy::RecreatePods, nth: _ } => {
                    recreates(desk, seen, &ticket)?;
                    seen.recreating.insert(ticket.number);
                    seen.acting.push(ticket);
                }
                Verdict::Act { .. } => {
                    acts(desk, seen, &ticket)?;
                    seen.acting.push(ticket);
                }
                Verdict::Well => {
                    if seen.unhealthy.remove(&ticket.place) {
                        seen.quiet_since.insert(ticket.place, desk.now);
                    }
                }
                Verdict::Skip { .. } => {
                    if !seen.unhealthy.contains(&ticket.place) {
                        seen.quiet_since.entry(ticket.place).or_insert(desk.now);
                    }
                }
            }
        }
        Deed::Done(index, outcome) => {
            if index < seen.acting.len() {
                let ticket = seen.acting.swap_remove(index);
                let after = desk.triage.done(desk.now, &ticket, &outcome);
                if seen.recreating.remove(&ticket.number) {
                    let nothing = matches!(outcome, Outcome::NotReached { .. } | Outcome::SecretUnchanged);
                    if !nothing {
                        seen.recreated.insert(ticket.place.volume(), desk.now);
                    }
                    if outcome.is_healthy() && seen.unhealthy.remove(&ticket.place) {
                        desk.triage.cleared(desk.now, &ticket.place);
                        seen.quiet_since.insert(ticket.place, desk.now);
                    }
                    return Ok(());
                }
                // A check that failed is repeated, so nothing is quiet yet.
                let case = desk.triage.cases.get(&ticket.place);
                if !seen.unhealthy.contains(&ticket.place) && !case.is_some_and(Case::is_wanted) {
                    seen.quiet_since.entry(ticket.place.clone()).or_insert(desk.now);
                }
                ends(seen, ticket.place, &outcome, after);
            }
        }
        Deed::NotConfirmed(index) => {
            if index < seen.acting.len() {
                let ticket = seen.acting.swap_remove(index);
                seen.recreating.remove(&ticket.number);
                let refusal = Refusal::ProbedHealthy { remedy: Remedy::NodeHealer };
                let verdict = desk.triage.not_confirmed(desk.now, &ticket, refusal.clone());
                let refused = matches!(&verdict, Verdict::Skip { refusal: found, .. } if *found == refusal);
                prop_assert!(refused, "{:?}", verdict);
                let verdict = desk.triage.not_confirmed(desk.now, &ticket, refusal);
                prop_assert_eq!(verdict, Verdict::Skip { refusal: Refusal::InFlight, tell: false });
                if !seen.unhealthy.contains(&ticket.place) {
                    seen.quiet_since.entry(ticket.place).or_insert(desk.now);
                }
            }
        }
        Deed::Abandon(index) => {
            if index < seen.acting.len() {
                let ticket = seen.acting.swap_remove(index);
                seen.recreating.remove(&ticket.number);
                desk.triage.abandon(desk.now, &ticket);
            }
        }
    }
    Ok(())
}

/// At the moment of recreating pods.
fn recreates(desk: &Desk, seen: &Onlooker, ticket: &Ticket) -> Result<(), TestCaseError> {
    let standing = desk.recreate.as_ref().unwrap();
    prop_assert!(standing.obstacle.is_none(), "acted although a new mount would not help");
    prop_assert_ne!(standing.ruling.mode, Mode::Off);
    prop_assert!(ticket.complaint.is_some(), "nothing was known to be wrong");
    prop_assert!(seen.recreating.is_empty(), "two at a time");
    prop_assert_eq!(desk.stage.node(&ticket.place.node), NodeState::Up);
    prop_assert_eq!(desk.triage.brakes().count(), 0, "acted although the brake is on");
    if !ticket.by_person {
        prop_assert_eq!(standing.ruling.mode, Mode::Auto);
        prop_assert_eq!(&desk.again, &Again::StillUnhealthy, "acted without seeing it again");
    }
    if let Some(last) = seen.recreated.get(&ticket.place.volume()) {
        let pause = desk.now.duration_since(*last);
        prop_assert!(pause >= desk.triage.policy().cooldown, "again after {pause:#}");
    }
    let gentler = desk.stage.relays
        && desk.mode == Mode::Auto
        && !seen.barred.contains(&ticket.place.node)
        && !seen.tries.contains_key(&ticket.place)
        && seen.reasons.get(&ticket.place) == Some(&WellKnown::MounterDead);
    prop_assert!(!gentler, "the node plugin was not asked first");
    Ok(())
}

/// At the moment of acting, everything must allow it.
fn acts(desk: &Desk, seen: &Onlooker, ticket: &Ticket) -> Result<(), TestCaseError> {
    let place = &ticket.place;
    prop_assert!(!seen.barred.contains(&place.node), "asked again after UNIMPLEMENTED");
    prop_assert_eq!(desk.stage.node(&place.node), NodeState::Up);
    prop_assert_eq!(desk.triage.brakes().count(), 0, "acted although the brake is on");
    prop_assert_ne!(desk.mode, Mode::Off);
    if !ticket.by_person {
        prop_assert_eq!(desk.mode, Mode::Auto);
        if ticket.ask_again {
            prop_assert_eq!(&desk.again, &Again::StillUnhealthy, "acted without seeing it again");
        }
        // A volume that was repaired at its last try and is healthy since may be checked again when its driver restarts.
        let most = desk.triage.policy().tries + u32::from(!ticket.ask_again);
        let tries = seen.tries.get(place).copied().unwrap_or(0);
        prop_assert!(tries < most, "{tries} tries, and one more");
    }
    Ok(())
}

fn ends(seen: &mut Onlooker, place: Place, outcome: &Outcome, after: After) {
    if after == After::NeverAgain {
        seen.barred.insert(place.node.clone());
    }
    match outcome {
        Outcome::StillUnhealthy { .. } | Outcome::Failed { .. } | Outcome::Lost { .. } => {
            *seen.tries.entry(place).or_default() += 1;
        }
        Outcome::Well { .. } if seen.unhealthy.contains(&place) => *seen.tries.entry(place).or_default() += 1,
        Outcome::Well { .. } | Outcome::NotReached { .. } | Outcome::SecretUnchanged => {}
    }
}

/// At any moment.
fn look(desk: &Desk, seen: &Onlooker, policy: &Policy) -> Result<(), TestCaseError> {
    let under_way: Vec<_> = seen.examining.iter().chain(&seen.acting).collect();
    prop_assert_eq!(under_way.len(), desk.triage.in_flight());
    prop_assert!(under_way.len() <= policy.cluster_budget);
    let mut nodes: HashMap<_, usize> = HashMap::new();
    let mut volumes = HashSet::new();
    for ticket in under_way {
        let here = nodes.entry(&ticket.place.node).or_default();
        *here += 1;
        prop_assert!(*here <= policy.node_budget);
        prop_assert!(volumes.insert(ticket.place.volume()), "two at once on {}", ticket.place);
    }
    Ok(())
}
