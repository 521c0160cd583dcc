//! What is known of the volumes, for what shows it: the terminal, the page, the story.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Instant;

use jiff::Timestamp;
use parking_lot::Mutex;
use serde_json::json;
use volmedic_csi::{Driver, Metrics, Session};
use volmedic_health::{Change, Held, Remedy, Subject, Transition};
use volmedic_monitor::Board;
use volmedic_view::{About, Call, Heal, History, Moment, Row, Sighting, Snapshot};

use super::driver::NAME;
use super::voice::{News, Topic, Voice};
use super::volumes::{NODE, Volume, Volumes};

/// Changes that are kept, for the page.
const HISTORY: usize = 2_000;
/// Heals that are kept for each volume.
const HEALS: usize = 50;

#[derive(Debug)]
pub(super) struct Source {
    pub(super) volumes: Arc<Volumes>,
    pub(super) board: Board,
    voice: Arc<Voice>,
    driver: Driver,
    metrics: Metrics,
    session: Session,
    facts: Vec<(&'static str, String)>,
    limits: Vec<String>,
    history: History,
    /// When a problem was last reported, by volume; of the driver as a whole under no name.
    warned: Mutex<HashMap<Option<Arc<str>>, Instant>>,
    heals: Mutex<HashMap<Arc<str>, Vec<Heal>>>,
    /// When a heal last succeeded.
    healed: Mutex<HashMap<Arc<str>, Instant>>,
}

/// What a source is made of.
pub(super) struct Parts {
    pub(super) volumes: Arc<Volumes>,
    pub(super) board: Board,
    pub(super) voice: Arc<Voice>,
    pub(super) driver: Driver,
    pub(super) metrics: Metrics,
    pub(super) session: Session,
    pub(super) facts: Vec<(&'static str, String)>,
    pub(super) limits: Vec<String>,
}

impl Source {
    pub(super) fn new(parts: Parts) -> Self {
        let Parts { volumes, board, voice, driver, metrics, session, facts, limits } = parts;
        Self {
            volumes,
            board,
            voice,
            driver,
            metrics,
            session,
            facts,
            limits,
            history: History::new(HISTORY),
            warned: Mutex::default(),
            heals: Mutex::default(),
            healed: Mutex::default(),
        }
    }

    /// As people on a terminal see it: by name, and with what each is made of.
    pub(super) fn snapshot(&self) -> Snapshot {
        let named = |volume: &Volume| {
            let row = self.row(volume);
            // There is but one node.
            Row {
                volume: format!("{} ({})", volume.name, volume.kind.name()).into(),
                nodes: Vec::new(),
                ..row
            }
        };
        Snapshot::new(Timestamp::now(), self.volumes.iter().map(named).collect())
    }

    fn row(&self, volume: &Volume) -> Row {
        let subject = subject(Some(&volume.name));
        let ledger = self.board.lock_ledger();
        let seen_by = ledger.beliefs(&subject).into_iter().map(Sighting::from).collect();
        let row = Row::new(NAME.into(), volume.name.clone()).with(ledger.headline(&subject), seen_by);
        drop(ledger);
        let unknown = row.health == volmedic_health::Health::Unknown;
        let why = || match self.driver.session() {
            Ok(_) => "not checked yet".into(),
            Err(error) => format!("{error}; retrying").into(),
        };
        Row { nodes: vec![NODE.into()], why: unknown.then(why), ..row }
    }

    /// Keeps what changed, and says it.
    pub(super) fn tell(&self, transition: &Transition) {
        let Transition { at, subject, vantage, change } = transition;
        let beliefs = {
            let ledger = self.board.lock_ledger();
            let found = ledger.beliefs(subject).into_iter().find(|(seen_from, _)| *seen_from == vantage);
            found.map(|(_, belief)| belief)
        };
        let moment = Moment::new(transition, beliefs.as_ref());
        let name = moment.volume.clone();
        if change.is_warning() {
            self.warned.lock().insert(name.clone(), Instant::now());
        }
        if let Some(text) = self.sentence(transition) {
            let data = serde_json::to_value(&moment).unwrap_or_default();
            self.voice.say(News { at: *at, topic: Topic::Transition, volume: name, text, data });
        }
        self.history.record(moment);
    }

    /// The sentence for a terminal, where the time is at its beginning and there is one driver. A problem that
    /// another vantage has seen before is reported in few words, and new words for an old problem not at all.
    fn sentence(&self, transition: &Transition) -> Option<String> {
        let Transition { at: _, subject, vantage, change } = transition;
        let Subject::Volume(volume) = subject else {
            return Some(transition.to_string().replace(&subject.to_string(), "the driver"));
        };
        let name = &volume.handle;
        match change {
            Change::Reworded { .. } => None,
            Change::Appeared { condition, .. } => {
                let ledger = self.board.lock_ledger();
                let known = ledger.beliefs(subject).into_iter().any(|(other, belief)| {
                    let same = |held: &Held| held.condition.reason == condition.reason;
                    other != vantage && belief.conditions.iter().any(same)
                });
                if known {
                    return Some(format!("{name}: {} is also seen by {vantage}", condition.reason));
                }
                let words = condition.message.trim_end_matches('.');
                let advice = condition.reason.advice();
                Some(format!("{name} is {condition}, seen by {vantage}: {words}. Next: {advice}"))
            }
            _ => Some(transition.to_string().replace(&subject.to_string(), name)),
        }
    }

    /// Keeps what the healer did, and says it.
    pub(super) fn tell_heal(&self, name: &Arc<str>, outcome: &'static str, well: Option<bool>, text: String) {
        let at = Timestamp::now();
        if well == Some(true) {
            self.healed.lock().insert(name.clone(), Instant::now());
        }
        let heal = Heal {
            at,
            outcome,
            well,
            remedy: Remedy::NodeHealer.name().to_owned(),
            node: Some(NODE.to_owned()),
            message: text.clone(),
        };
        let mut heals = self.heals.lock();
        let kept = heals.entry(name.clone()).or_default();
        kept.insert(0, heal);
        kept.truncate(HEALS);
        drop(heals);
        let data = json!({ "outcome": outcome });
        self.voice.say(News { at, topic: Topic::Heal, volume: Some(name.clone()), text, data });
    }

    /// Whether a problem was reported since then; of the driver as a whole without a name.
    pub(super) fn warned_since(&self, name: Option<&Arc<str>>, then: Instant) -> bool {
        self.warned.lock().get(&name.cloned()).is_some_and(|at| *at >= then)
    }

    pub(super) fn healed_since(&self, name: &Arc<str>, then: Instant) -> bool {
        self.healed.lock().get(name).is_some_and(|at| *at >= then)
    }

    /// What is wrong now, from all places.
    pub(super) fn troubles(&self, name: Option<&Arc<str>>) -> Vec<Held> {
        let ledger = self.board.lock_ledger();
        ledger.beliefs(&subject(name)).into_iter().flat_map(|(_, belief)| belief.conditions).collect()
    }

    /// Whether every vantage sees it, and sees it healthy.
    pub(super) fn is_healthy(&self, name: Option<&Arc<str>>) -> bool {
        let ledger = self.board.lock_ledger();
        let beliefs = ledger.beliefs(&subject(name));
        let well = |belief: &volmedic_health::Belief| {
            belief.seen && belief.conditions.is_empty() && belief.blind_since.is_none()
        };
        !beliefs.is_empty() && beliefs.iter().all(|(_, belief)| well(belief))
    }

    pub(super) fn say(&self, topic: Topic, volume: Option<Arc<str>>, text: String, data: serde_json::Value) {
        self.voice.say(News { at: Timestamp::now(), topic, volume, text, data });
    }
}

pub(super) fn subject(name: Option<&Arc<str>>) -> Subject {
    match name {
        Some(name) => Subject::volume(NAME, name.clone()),
        None => Subject::backend(NAME),
    }
}

impl volmedic_view::Source for Source {
    fn rows(&self) -> Vec<Row> {
        self.volumes.iter().map(|volume| self.row(volume)).collect()
    }

    fn about(&self) -> About {
        let call = |latency: volmedic_csi::Latency| {
            let volmedic_csi::Latency { method, count, failed, median, slowest } = latency;
            Call { name: method.name(), count, failed, median, slowest }
        };
        let mut facts = vec![
            ("Driver", NAME.to_owned()),
            ("Version", self.session.version().to_owned()),
            ("Volumes", self.volumes.words()),
        ];
        facts.extend(self.facts.clone());
        About {
            title: "Volmedic demo".to_owned(),
            place: "on this machine".to_owned(),
            facts,
            limits: self.limits.clone(),
            trouble: self.driver.session().err().map(|error| format!("{error}; retrying")),
            calls: self.metrics.latencies().into_iter().map(call).collect(),
        }
    }

    fn history(&self) -> &History {
        &self.history
    }

    fn heals(&self, driver: &str, volume: &str) -> Vec<Heal> {
        if driver != NAME {
            return Vec::new();
        }
        self.heals.lock().get(volume).cloned().unwrap_or_default()
    }
}

/// Where the pipes report what changed.
#[derive(Debug)]
pub(super) struct Outlet(pub(super) Arc<Source>);

impl volmedic_monitor::Outlet for Outlet {
    fn tell(&mut self, transition: &Transition, _: Vec<volmedic_api::ObjectRef>) {
        self.0.tell(transition);
    }
}
