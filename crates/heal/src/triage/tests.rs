//! Each guard alone, and what holds for every history.

mod answers;
mod histories;
mod ladder;
mod restored;

use jiff::SignedDuration;
use volmedic_csi::Kind;
use volmedic_health::WellKnown;

use super::*;
use crate::mode::{Mode, Ruling, Source};

const DRIVER: &str = "fuse.example.net";

/// A cluster as a test wants it.
#[derive(Debug, Clone)]
struct Stage {
    nodes: BTreeMap<String, NodeState>,
    relays: bool,
    in_use: Option<usize>,
}

impl World for Stage {
    fn node(&self, node: &str) -> NodeState {
        self.nodes.get(node).copied().unwrap_or(NodeState::Up)
    }

    fn has_relay(&self, _driver: &Arc<str>, _node: &Arc<str>) -> bool {
        self.relays
    }

    fn in_use(&self, _driver: Option<&str>) -> Option<usize> {
        self.in_use
    }
}

/// A triage with a clock that the test moves, and the story so far.
struct Desk {
    triage: Triage,
    stage: Stage,
    now: Timestamp,
    mode: Mode,
    approval: Approval,
    again: Again,
    version: &'static str,
    recreate: Option<Standing>,
}

impl Desk {
    fn new() -> Self {
        Self::with(Policy::default())
    }

    fn with(policy: Policy) -> Self {
        Self {
            triage: Triage::new(policy),
            stage: Stage { nodes: BTreeMap::new(), relays: true, in_use: Some(1000) },
            now: "2026-11-16T12:00:00Z".parse().unwrap(),
            mode: Mode::Auto,
            approval: Approval::None,
            again: Again::StillUnhealthy,
            version: "1",
            recreate: None,
        }
    }

    fn wait(&mut self, seconds: i64) {
        self.now = self.now.checked_add(SignedDuration::from_secs(seconds)).unwrap();
    }

    fn unhealthy(&mut self, place: &Place) {
        assert!(self.triage.complain(self.now, place, WellKnown::MounterDead.into(), self.now));
    }

    fn steps(&mut self) -> Vec<Step> {
        self.triage.steps(self.now, &self.stage)
    }

    fn exam(&self) -> Exam {
        Exam {
            ruling: Ruling { mode: self.mode, source: Source::Default },
            approval: self.approval,
            bound: Ok(()),
            filtered: None,
            version: self.version.into(),
            again: self.again.clone(),
            recreate: self.recreate.clone(),
        }
    }

    fn examine(&mut self, ticket: &Ticket) -> Verdict {
        let exam = self.exam();
        self.triage.examined(self.now, ticket, &exam, &self.stage)
    }

    /// The labels of what happens now: `examine`, or what is reported.
    fn story(&mut self) -> String {
        let tell = |step: &Step| match step {
            Step::Examine(_) => "examine".to_owned(),
            Step::Skip(reported) => format!("skip:{}", reported.refusal.label()),
            Step::Braked(_) => "braked".to_owned(),
            Step::Released(_) => "released".to_owned(),
        };
        self.steps().iter().map(tell).collect::<Vec<_>>().join(" ")
    }

    /// The one ticket that is handed out now.
    fn ticket(&mut self) -> Option<Ticket> {
        self.steps().into_iter().find_map(|step| match step {
            Step::Examine(ticket) => Some(ticket),
            _ => None,
        })
    }

    /// Tries once, if anything is tried now, and answers whether it was.
    fn attempt(&mut self, outcome: &Outcome) -> bool {
        let Some(ticket) = self.ticket() else { return false };
        let acts = matches!(self.examine(&ticket), Verdict::Act { .. });
        if acts {
            self.triage.done(self.now, &ticket, outcome);
        }
        acts
    }

    /// At which seconds from now on the same outcome is tried, within a day.
    fn tries(&mut self, outcome: &Outcome) -> Vec<i64> {
        let began = self.now;
        let mut at = Vec::new();
        while self.now.duration_since(began) < SignedDuration::from_hours(24) {
            if self.attempt(outcome) {
                at.push(self.now.duration_since(began).as_secs());
            }
            let due = self.triage.next_due(self.now).map_or(60, |due| due.duration_since(self.now).as_secs());
            self.wait(due.clamp(1, 60));
        }
        at
    }
}

fn place(handle: &str) -> Place {
    Place::new(DRIVER, handle, "n1")
}

fn on(node: &str, handle: &str) -> Place {
    Place::new(DRIVER, handle, node)
}

fn failed(kind: Kind) -> Outcome {
    Outcome::Failed { kind, message: "because".into(), secret: Some("7".into()) }
}

fn well() -> Outcome {
    Outcome::Well { message: "mounter restarted".into() }
}

#[test]
fn nothing_is_done_before_it_has_lasted() {
    let mut desk = Desk::new();
    desk.unhealthy(&place("v"));
    assert_eq!(desk.story(), "");
    desk.wait(9);
    assert_eq!(desk.story(), "");
    assert_eq!(desk.triage.next_due(desk.now), Some(desk.now + SignedDuration::from_secs(1)));
    desk.wait(1);
    assert_eq!(desk.story(), "examine");
}

#[test]
fn what_passes_by_itself_is_left_alone() {
    let mut desk = Desk::new();
    desk.unhealthy(&place("v"));
    desk.wait(5);
    desk.triage.cleared(desk.now, &place("v"));
    desk.wait(60);
    assert_eq!(desk.story(), "");
    // Debounce starts over with the next complaint.
    desk.unhealthy(&place("v"));
    desk.wait(9);
    assert_eq!(desk.story(), "");
}

#[test]
fn only_what_a_node_plugin_can_repair_is_taken_on() {
    let mut desk = Desk::new();
    for &reason in WellKnown::ALL {
        let taken = desk.triage.complain(desk.now, &place(reason.name()), reason.into(), desk.now);
        assert_eq!(taken, reason.remedies()[0] == Remedy::NodeHealer, "{reason}");
    }
    assert!(!desk.triage.complain(desk.now, &place("x"), Reason::new("VendorWord"), desk.now));
}

#[test]
fn it_is_seen_again_right_before_acting() {
    for (again, expected) in [
        (Again::StillUnhealthy, "Act"),
        (Again::Well, "Well"),
        (Again::NotSeen("the agent is silent".into()), "not_seen"),
        (Again::NotAsked, "not_seen"),
    ] {
        let mut desk = Desk::new();
        desk.again = again;
        desk.unhealthy(&place("v"));
        desk.wait(10);
        let ticket = desk.ticket().unwrap();
        let seen = match desk.examine(&ticket) {
            Verdict::Skip { refusal, .. } => refusal.label().to_owned(),
            Verdict::Act { .. } => "Act".to_owned(),
            other @ Verdict::Well => format!("{other:?}"),
        };
        assert_eq!(seen, expected);
        let in_flight = usize::from(expected == "Act");
        assert_eq!(desk.triage.in_flight(), in_flight);
    }
}

#[test]
fn each_mode_does_what_it_says() {
    for (mode, by_itself, for_a_person) in [
        (Mode::Off, "off false", "off false"),
        (Mode::Observe, "observe true", "Act"),
        (Mode::Approve, "awaiting_approval true", "Act"),
        (Mode::Auto, "Act", "Act"),
    ] {
        for (person, expected) in [(false, by_itself), (true, for_a_person)] {
            let mut desk = Desk::new();
            desk.mode = mode;
            desk.unhealthy(&place("v"));
            desk.wait(10);
            if person {
                desk.triage.person(desk.now, &place("v"));
            }
            let ticket = desk.ticket().unwrap();
            let seen = match desk.examine(&ticket) {
                Verdict::Skip { refusal, tell } => format!("{} {tell}", refusal.label()),
                Verdict::Act { .. } => "Act".to_owned(),
                other @ Verdict::Well => format!("{other:?}"),
            };
            assert_eq!(seen, expected, "{mode}, a person: {person}");
        }
    }
}

#[test]
fn observing_is_reported_once_per_episode() {
    let mut desk = Desk::new();
    desk.mode = Mode::Observe;
    let mut reported = 0;
    for _ in 0..3 {
        desk.unhealthy(&place("v"));
        for _ in 0..60 {
            if let Some(ticket) = desk.ticket()
                && let Verdict::Skip { tell: true, .. } = desk.examine(&ticket)
            {
                reported += 1;
            }
            desk.wait(10);
        }
        desk.triage.cleared(desk.now, &place("v"));
    }
    assert_eq!(reported, 3);
}

#[test]
fn consent_counts_for_the_episode_it_was_given_in() {
    let mut desk = Desk::new();
    desk.mode = Mode::Approve;
    let before = desk.now - SignedDuration::from_secs(1);
    desk.unhealthy(&place("v"));
    let during = desk.now + SignedDuration::from_secs(20);
    let future = desk.now + SignedDuration::from_hours(9);
    for (given, acts) in [(before, false), (future, false), (during, true)] {
        desk.wait(60);
        desk.approval = Approval::Given(given);
        assert_eq!(desk.attempt(&well()), acts, "{given}");
    }
    // It has run out an hour later, and does not cover what comes then.
    desk.wait(3700);
    assert!(!desk.attempt(&well()));
}

#[test]
fn a_volume_has_one_at_a_time_on_whatever_node() {
    let mut desk = Desk::new();
    desk.unhealthy(&on("n1", "shared"));
    desk.unhealthy(&on("n2", "shared"));
    desk.wait(10);
    assert_eq!(desk.story(), "examine");
    assert_eq!(desk.story(), "");
    assert_eq!(desk.triage.in_flight(), 1);
}

#[test]
fn budgets_hold_per_node_and_for_the_cluster() {
    let mut desk = Desk::with(Policy { node_budget: 2, cluster_budget: 3, ..Policy::default() });
    for node in ["n1", "n2"] {
        for volume in 0..5 {
            desk.unhealthy(&on(node, &format!("{node}-{volume}")));
        }
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
    let nodes: Vec<_> = tickets.iter().map(|ticket| &*ticket.place.node).collect();
    assert_eq!(nodes, ["n1", "n1", "n2"]);
    assert_eq!(desk.story(), "");
    desk.triage.done(desk.now, &tickets[0], &well());
    assert_eq!(desk.story(), "examine", "what landed makes room");
}

#[test]
fn nothing_is_done_on_nodes_that_are_down_cordoned_or_unknown() {
    for (state, label) in [
        (NodeState::Down, "skip:node_down"),
        (NodeState::Cordoned, "skip:node_cordoned"),
        (NodeState::Unknown, ""),
    ] {
        let mut desk = Desk::new();
        desk.stage.nodes.insert("n1".into(), state);
        desk.unhealthy(&place("v"));
        desk.triage.person(desk.now, &place("v"));
        desk.wait(10);
        assert_eq!(desk.story(), label);
        desk.wait(100);
        assert_eq!(desk.story(), "", "told once");
        desk.stage.nodes.clear();
        assert_eq!(desk.story(), "examine");
    }
}

#[test]
fn a_node_that_goes_during_the_exam_stops_it() {
    let mut desk = Desk::new();
    desk.unhealthy(&place("v"));
    desk.wait(10);
    let ticket = desk.ticket().unwrap();
    desk.stage.nodes.insert("n1".into(), NodeState::Cordoned);
    assert!(matches!(
        desk.examine(&ticket),
        Verdict::Skip { refusal: Refusal::Node(NodeState::Cordoned), tell: true }
    ));
    assert_eq!(desk.triage.in_flight(), 0);
}

#[test]
fn without_a_relay_nothing_is_done_and_nobody_bothered() {
    let mut desk = Desk::new();
    desk.stage.relays = false;
    desk.unhealthy(&place("v"));
    desk.wait(10);
    assert_eq!(desk.story(), "");
}

#[test]
fn the_brake_holds_when_many_fail_together() {
    let mut desk = Desk::new();
    desk.stage.in_use = Some(50);
    for volume in 0..50 {
        desk.unhealthy(&on(&format!("n{}", volume % 7), &format!("v{volume}")));
    }
    desk.wait(10);
    let story = desk.story();
    let (braked, skipped) = (story.matches("braked").count(), story.matches("skip:brake").count());
    assert_eq!((braked, skipped), (2, 50), "for the driver and for the cluster: {story}");
    assert!(!story.contains("examine"));
    desk.triage.person(desk.now, &on("n0", "v0"));
    let reported = desk.story();
    assert!(!reported.contains("examine"), "not even for a person: {reported}");
    desk.wait(3600);
    assert_eq!(desk.story(), "", "told once");
    for volume in 0..47 {
        desk.triage.cleared(desk.now, &on(&format!("n{}", volume % 7), &format!("v{volume}")));
    }
    let story = desk.story();
    assert!(story.starts_with("released released") && story.contains("examine"), "{story}");
}

#[test]
fn the_brake_lets_single_trouble_pass_and_does_not_chatter() {
    let mut desk = Desk::new();
    desk.stage.in_use = Some(100);
    for volume in 0..20 {
        desk.unhealthy(&place(&format!("v{volume}")));
    }
    assert_eq!(desk.story(), "", "20 of 100 are not more than 20 percent");
    desk.unhealthy(&place("v20"));
    assert!(desk.story().contains("braked"));
    for volume in 0..10 {
        desk.triage.cleared(desk.now, &place(&format!("v{volume}")));
        assert!(!desk.story().contains("released"), "{volume}");
    }
    desk.triage.cleared(desk.now, &place("v10"));
    assert!(desk.story().contains("released"));
}

#[test]
fn the_brake_can_come_during_the_exam() {
    let mut desk = Desk::new();
    desk.stage.in_use = None;
    desk.unhealthy(&place("v"));
    desk.wait(10);
    let ticket = desk.ticket().unwrap();
    for volume in 0..9 {
        desk.unhealthy(&place(&format!("v{volume}")));
    }
    assert!(matches!(desk.examine(&ticket), Verdict::Skip { refusal: Refusal::Brake { .. }, tell: true }));
    assert!(desk.story().contains("braked"), "and is told");
}

/// Seconds after the complaint at which each row of the error table is tried again, all else unchanged.
#[test]
fn a_check_after_a_restart_happens_once_and_bothers_nobody() {
    let mut desk = Desk::new();
    desk.again = Again::NotAsked;
    desk.triage.check(desk.now, &place("v"));
    assert!(desk.attempt(&well()));
    desk.wait(100_000);
    assert_eq!(desk.story(), "");
    desk.mode = Mode::Observe;
    desk.triage.check(desk.now, &place("v"));
    let ticket = desk.ticket().unwrap();
    assert!(matches!(desk.examine(&ticket), Verdict::Skip { tell: false, .. }));
    desk.wait(100_000);
    assert_eq!(desk.story(), "");
}

#[test]
fn a_dry_run_says_what_a_person_would_get_and_changes_nothing() {
    let mut desk = Desk::new();
    desk.mode = Mode::Observe;
    let preview = |desk: &Desk| desk.triage.preview(desk.now, &place("v"), &desk.exam(), &desk.stage);
    assert_eq!(preview(&desk), Ok(Remedy::NodeHealer));
    desk.stage.nodes.insert("n1".into(), NodeState::Cordoned);
    assert_eq!(preview(&desk), Err(vec![Refusal::Node(NodeState::Cordoned)]));
    desk.mode = Mode::Off;
    desk.stage.relays = false;
    let off = Refusal::Off { by: Source::Default, remedy: Remedy::NodeHealer };
    let all = vec![off, Refusal::NoRelay, Refusal::Node(NodeState::Cordoned)];
    assert_eq!(preview(&desk), Err(all), "each guard that stands in the way");
    assert_eq!((desk.triage.open(), desk.triage.in_flight()), (0, 0));
}

#[test]
fn memory_is_bounded() {
    let mut desk = Desk::with(Policy { most_cases: 10, ..Policy::default() });
    for volume in 0..10 {
        desk.unhealthy(&place(&format!("v{volume}")));
    }
    assert!(!desk.triage.check(desk.now, &place("one more")));
    desk.triage.cleared(desk.now, &place("v3"));
    assert!(desk.triage.check(desk.now, &place("one more")));
    assert!(desk.triage.cases.len() <= 10);
}
