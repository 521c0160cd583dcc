//! The healer: decides as the one in a cluster does, and asks the driver's node plugin over its addons socket.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use tokio::task::JoinSet;
use tokio::time::sleep;
use volmedic_csi::{Driver, Kind, Secrets};
use volmedic_heal::{
    Again, Approval, Exam, Mode, NodeState, Outcome, Place, Policy, Ruling, Step, Ticket, Triage, Verdict,
    World,
};
use volmedic_health::{Held, Reason, Remedy, Sight};
use volmedic_monitor::{Probe, Seen};
use volmedic_panics::caught;

use super::driver::NAME;
use super::eyes::{HostEyes, NodeEyes};
use super::source::Source;
use super::volumes::{NODE, Volume};

const LOOK: Duration = Duration::from_millis(200);
/// For the driver to heal one volume.
const HEAL: Duration = Duration::from_secs(30);

/// In a cluster the healer is far more patient; who watches a demo is not.
fn policy() -> Policy {
    Policy {
        debounce: SignedDuration::from_secs(1),
        cooldown: SignedDuration::from_secs(5),
        first_pause: SignedDuration::from_secs(3),
        longest_pause: SignedDuration::from_secs(30),
        steady: SignedDuration::from_mins(1),
        look_again: SignedDuration::from_secs(3),
        ..Policy::default()
    }
}

pub(super) struct Healer {
    pub(super) source: Arc<Source>,
    pub(super) addons: Driver,
    pub(super) node: Arc<NodeEyes>,
    pub(super) host: Arc<HostEyes>,
}

/// One machine, which is up, with one driver, which can be asked or cannot.
struct Here<'a> {
    addons: &'a Driver,
    volumes: usize,
}

impl World for Here<'_> {
    fn node(&self, _: &str) -> NodeState {
        NodeState::Up
    }

    fn has_relay(&self, _: &Arc<str>, _: &Arc<str>) -> bool {
        self.addons.session().is_ok()
    }

    fn in_use(&self, _: Option<&str>) -> Option<usize> {
        Some(self.volumes)
    }
}

enum Done {
    Examined(Ticket, Again),
    Tried(Ticket, Outcome),
}

impl Healer {
    /// Runs until dropped.
    pub(super) async fn run(self) {
        let mut triage = Triage::new(policy());
        let mut work: JoinSet<Done> = JoinSet::new();
        let mut left = BTreeMap::<Arc<str>, BTreeSet<String>>::new();
        loop {
            let now = Timestamp::now();
            let world = Here { addons: &self.addons, volumes: self.source.volumes.len() };
            for volume in self.source.volumes.iter() {
                self.hear(&mut triage, volume, &mut left, now);
            }
            for step in triage.steps(now, &world) {
                self.step(step, &mut work);
            }
            tokio::select! {
                () = sleep(LOOK) => {}
                Some(Ok(done)) = work.join_next() => self.done(&mut triage, done, &mut work),
            }
        }
    }

    /// Takes a volume's troubles on, or says why not.
    fn hear(
        &self,
        triage: &mut Triage,
        volume: &Volume,
        left: &mut BTreeMap<Arc<str>, BTreeSet<String>>,
        now: Timestamp,
    ) {
        let troubles = self.source.troubles(Some(&volume.name));
        let place = place(&volume.name);
        match troubles.iter().filter(|held| can_be_healed(held)).min_by_key(|held| held.since) {
            Some(Held { condition, since }) => {
                triage.complain(now, &place, condition.reason.clone(), *since);
            }
            None => triage.cleared(now, &place),
        }
        let others: BTreeSet<String> = troubles
            .iter()
            .filter(|held| !can_be_healed(held))
            .map(|held| held.condition.reason.as_str().to_owned())
            .collect();
        let known = left.entry(volume.name.clone()).or_default();
        // Once each time it is unhealthy, whatever else is found meanwhile.
        if let (true, Some(reason)) = (known.is_empty(), others.first()) {
            self.leave_alone(&volume.name, &Reason::new(reason));
        }
        *known = others;
    }

    fn leave_alone(&self, name: &Arc<str>, reason: &Reason) {
        let text = format!(
            "{name} is not healed automatically: a node plugin cannot safely repair {reason}. What helps: {}",
            reason.remedy()
        );
        self.source.tell_heal(name, "Skipped", None, text);
    }

    fn step(&self, step: Step, work: &mut JoinSet<Done>) {
        match step {
            Step::Examine(ticket) => {
                let (node, host) = (self.node.clone(), self.host.clone());
                work.spawn(async move {
                    let again = look_again(&node, &host, &ticket.place.handle).await;
                    Done::Examined(ticket, again)
                });
            }
            Step::Skip(skipped) => {
                let text = format!("{} is not healed: {}", skipped.place.handle, skipped.refusal);
                self.source.tell_heal(&skipped.place.handle, "Skipped", None, text);
            }
            Step::Braked(brake) => {
                self.source.say(
                    super::voice::Topic::Heal,
                    None,
                    format!("healing is paused: {brake}"),
                    data("Braked"),
                );
            }
            Step::Released(_) => {
                let text = "few enough volumes are unhealthy again; healing resumes".to_owned();
                self.source.say(super::voice::Topic::Heal, None, text, data("Released"));
            }
        }
    }

    fn done(&self, triage: &mut Triage, done: Done, work: &mut JoinSet<Done>) {
        let now = Timestamp::now();
        let world = Here { addons: &self.addons, volumes: self.source.volumes.len() };
        match done {
            Done::Examined(ticket, again) => {
                let exam = Exam {
                    ruling: Ruling { mode: Mode::Auto, source: volmedic_heal::Source::Default },
                    approval: Approval::None,
                    bound: Ok(()),
                    filtered: None,
                    version: Box::default(),
                    again,
                    recreate: None,
                };
                let name = ticket.place.handle.clone();
                match triage.examined(now, &ticket, &exam, &world) {
                    Verdict::Act { .. } => self.act(ticket, now, work),
                    Verdict::Well => {}
                    Verdict::Skip { refusal, tell } => {
                        if tell {
                            self.source.tell_heal(
                                &name,
                                "Skipped",
                                None,
                                format!("{name} is not healed: {refusal}"),
                            );
                        }
                    }
                }
            }
            Done::Tried(ticket, outcome) => {
                let after = triage.done(now, &ticket, &outcome);
                let name = &ticket.place.handle;
                match &outcome {
                    Outcome::Well { message } => {
                        self.source.tell_heal(
                            name,
                            "Succeeded",
                            Some(true),
                            format!("{name} is healed: {message}"),
                        );
                    }
                    Outcome::StillUnhealthy { message } => {
                        let text = format!("{name} is not healed: {message}; {after}");
                        self.source.tell_heal(name, "Failed", Some(false), text);
                    }
                    Outcome::Failed { message, .. } => {
                        let text = format!("{name} is not healed, the driver reports: {message}; {after}");
                        self.source.tell_heal(name, "Failed", Some(false), text);
                    }
                    Outcome::NotReached { why } | Outcome::Lost { why } => {
                        let text =
                            format!("{name} is not healed, the driver was not reached: {why}; {after}");
                        self.source.tell_heal(name, "Failed", Some(false), text);
                    }
                    Outcome::SecretUnchanged => {}
                }
            }
        }
    }

    fn act(&self, ticket: Ticket, now: Timestamp, work: &mut JoinSet<Done>) {
        let name = ticket.place.handle.clone();
        let why = match &ticket.complaint {
            Some((reason, since)) => {
                let lasted = now.duration_since(*since).as_secs().max(0);
                format!("{reason} has lasted {lasted} s, was confirmed just now, and can be repaired safely")
            }
            None => "it is to be checked".to_owned(),
        };
        let text = format!("asking the node plugin to heal {name}: {why}");
        self.source.tell_heal(&name, "Started", None, text);
        let heal = self.source.volumes.get(&name).map(request);
        let addons = self.addons.clone();
        work.spawn(async move {
            let outcome = match (addons.session(), heal) {
                (Ok(session), Some(heal)) => match caught(session.heal(heal, HEAL)).await {
                    Ok(Ok(healed)) if healed.abnormal => Outcome::StillUnhealthy { message: healed.message },
                    Ok(Ok(healed)) => Outcome::Well { message: healed.message },
                    Ok(Err(error)) => failed(&error),
                    Err(panic) => Outcome::Lost { why: format!("internal error (bug): {panic}") },
                },
                (Err(error), _) => Outcome::NotReached { why: error.to_string() },
                (_, None) => Outcome::NotReached { why: "there is no such volume".to_owned() },
            };
            Done::Tried(ticket, outcome)
        });
    }
}

fn failed(error: &volmedic_csi::CallError) -> Outcome {
    match error.kind() {
        Kind::Unreachable | Kind::NotReady | Kind::Crowded => Outcome::NotReached { why: error.to_string() },
        Kind::Lost => Outcome::Lost { why: error.to_string() },
        kind => Outcome::Failed { kind, message: error.to_string(), secret: None },
    }
}

fn request(volume: &Volume) -> volmedic_csi::Heal {
    let path =
        |path: Option<&std::path::PathBuf>| path.map(|path| path.display().to_string()).unwrap_or_default();
    let paths = volume.paths.as_ref();
    volmedic_csi::Heal {
        volume_id: volume.id.to_string(),
        volume_path: path(paths.map(|paths| &paths.target)),
        staging_target_path: path(paths.map(|paths| &paths.staging)),
        capability: Some(volume.capability()),
        secrets: Secrets::default(),
        volume_context: volume.context.clone(),
    }
}

fn data(outcome: &str) -> serde_json::Value {
    serde_json::json!({ "outcome": outcome })
}

fn place(name: &Arc<str>) -> Place {
    Place::new(NAME, name.clone(), NODE)
}

fn can_be_healed(held: &Held) -> bool {
    held.condition.reason.remedy() == Remedy::NodeHealer
}

/// Checks again right before anything is done, by the driver and by host checks.
async fn look_again(node: &NodeEyes, host: &HostEyes, name: &str) -> Again {
    let (by_driver, by_host) = tokio::join!(node.look(name), host.look(name));
    let mut unseen = None;
    let mut well = false;
    for seen in [by_driver, by_host] {
        match seen {
            Seen::Volume(Sight::Adverse(conditions)) => {
                if conditions.iter().any(|condition| condition.reason.remedy() == Remedy::NodeHealer) {
                    return Again::StillUnhealthy;
                }
                well = true;
            }
            Seen::Volume(Sight::Healthy | Sight::Unlisted) => well = true,
            Seen::Volume(Sight::NotSeen(why)) | Seen::Overloaded(why) | Seen::DriverGone(why) => {
                unseen = Some(why.to_string().into());
            }
            Seen::Volume(Sight::Missing(_)) | Seen::Nothing => {}
        }
    }
    match unseen {
        Some(why) if !well => Again::NotSeen(why),
        _ => Again::Well,
    }
}
