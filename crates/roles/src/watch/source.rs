//! What is known of the driver and its volumes, for the page and the terminal.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use parking_lot::Mutex;
use volmedic_csi::dialect::{self, ControllerProbe};
use volmedic_csi::{Address, Driver, Metrics, Session};
use volmedic_health::{Change, Health, Subject, Transition, Vantage};
use volmedic_monitor::Board;
use volmedic_view::{About, Call, History, Moment, Row, Sighting, Snapshot};

use super::eyes;
use super::roll::Roll;
use super::store::Store;

/// Reasons why volumes are not seen, kept at most.
const WHYS: usize = 10_000;

#[derive(Debug)]
pub(super) struct Source {
    pub(super) name: Arc<str>,
    pub(super) address: Address,
    pub(super) interval: Duration,
    pub(super) driver: Driver,
    pub(super) metrics: Metrics,
    pub(super) roll: Arc<Roll>,
    pub(super) board: Board,
    pub(super) history: History,
    pub(super) store: Mutex<Option<Store>>,
    /// Why volumes could not be seen, by handle.
    whys: Mutex<HashMap<Arc<str>, Arc<str>>>,
    /// The driver as it was when it could last be talked to.
    session: Mutex<Session>,
}

/// What a source is made of.
pub(super) struct Parts {
    pub(super) address: Address,
    pub(super) interval: Duration,
    pub(super) driver: Driver,
    pub(super) session: Session,
    pub(super) metrics: Metrics,
    pub(super) roll: Arc<Roll>,
    pub(super) board: Board,
    pub(super) history: History,
    pub(super) store: Option<Store>,
}

impl Source {
    pub(super) fn new(parts: Parts) -> Self {
        let Parts { address, interval, driver, session, metrics, roll, board, history, store } = parts;
        Self {
            name: session.driver().into(),
            address,
            interval,
            driver,
            metrics,
            roll,
            board,
            history,
            store: Mutex::new(store),
            whys: Mutex::default(),
            session: Mutex::new(session),
        }
    }

    /// The driver as it is, or as it was.
    pub(super) fn session(&self) -> Session {
        let mut last = self.session.lock();
        if let Ok(session) = self.driver.session() {
            *last = session;
        }
        last.clone()
    }

    /// How the driver reports health, if it does, and what it says it can do.
    pub(super) fn abilities(&self) -> Vec<String> {
        let session = self.session();
        let features = session.features();
        let choice = dialect::controller(features);
        let mut lines = Vec::new();
        if choice.probe != ControllerProbe::None {
            lines.push(choice.sentence.to_owned());
        }
        for (service, names) in [("controller", features.controller_names()), ("node", features.node_names())]
        {
            if !names.is_empty() {
                lines.push(format!("{service} capabilities: {}", names.join(", ")));
            }
        }
        lines
    }

    pub(super) fn snapshot(&self) -> Snapshot {
        Snapshot::new(Timestamp::now(), volmedic_view::Source::rows(self))
    }

    /// Keeps what changed.
    pub(super) fn tell(&self, transition: &Transition) {
        let moment = {
            let ledger = self.board.lock_ledger();
            let beliefs = ledger.beliefs(&transition.subject);
            let belief = beliefs.iter().find(|(vantage, _)| **vantage == transition.vantage);
            Moment::new(transition, belief.map(|(_, belief)| belief))
        };
        if let Subject::Volume(volume) = &transition.subject {
            match &transition.change {
                Change::WentBlind { why, .. } => self.not_seen(&volume.handle, &why.to_string()),
                Change::SeesAgain { .. } => {
                    self.whys.lock().remove(&volume.handle);
                }
                _ => {}
            }
        }
        self.history.record(moment.clone());
        if let Some(store) = &mut *self.store.lock() {
            store.append(&moment, |count| {
                self.history.latest(count).iter().rev().map(|moment| (**moment).clone()).collect()
            });
        }
    }

    /// Why nothing is known of a volume.
    pub(super) fn not_seen(&self, handle: &Arc<str>, why: &str) {
        let mut whys = self.whys.lock();
        if whys.len() < WHYS || whys.contains_key(handle) {
            whys.insert(handle.clone(), why.into());
        }
    }

    /// Why the driver as a whole cannot be seen, if it cannot.
    fn trouble(&self) -> Option<String> {
        if let Err(error) = self.driver.session() {
            return Some(format!("{error}; retrying, what was known before is kept"));
        }
        let ledger = self.board.lock_ledger();
        let backend = ledger.beliefs(&Subject::Backend(self.name.clone()));
        let since = backend.iter().find_map(|(_, belief)| belief.blind_since)?;
        Some(format!("the driver answers, but not about its volumes, since {since:.0}; see its log"))
    }
}

impl volmedic_view::Source for Source {
    fn rows(&self) -> Vec<Row> {
        let handles = self.roll.handles();
        let features = self.session();
        let choice = dialect::controller(features.features());
        let mute = choice.probe == ControllerProbe::None;
        let silent: Arc<str> = "the driver does not report health".into();
        let gone: Option<Arc<str>> = self.trouble().map(Into::into);
        let waiting: Arc<str> = "not checked yet".into();
        let whys = self.whys.lock();
        let ledger = self.board.lock_ledger();
        let quiet = ledger.quiet(&self.name, &Vantage::Controller);
        let well = Sighting {
            vantage: Vantage::Controller,
            health: Health::Healthy,
            conditions: Vec::new(),
            blind_since: None,
            flapping_since: None,
        };
        let row = |handle: Arc<str>| {
            // Nearly all are healthy, and need no closer look.
            if gone.is_none() && quiet.contains(&handle) {
                let (health, seen_by) = (Health::Healthy, vec![well.clone()]);
                return Row { health, seen_by, ..Row::new(self.name.clone(), handle) };
            }
            let subject = Subject::volume(self.name.clone(), handle.clone());
            let seen_by = ledger.beliefs(&subject).into_iter().map(Sighting::from).collect();
            let row = Row::new(self.name.clone(), handle.clone()).with(ledger.headline(&subject), seen_by);
            let why = || {
                let known = mute.then_some(&silent).or_else(|| whys.get(&handle)).or(gone.as_ref());
                known.unwrap_or(&waiting).clone()
            };
            Row { why: (row.health == Health::Unknown).then(why), mute, ..row }
        };
        handles.into_iter().map(row).collect()
    }

    fn about(&self) -> About {
        let session = self.session();
        let features = session.features();
        let or_none =
            |names: Vec<String>| if names.is_empty() { "none".to_owned() } else { names.join(", ") };
        let version = if session.version().is_empty() { "unknown" } else { session.version() };
        About {
            title: session.driver().to_owned(),
            place: format!("at {}", self.address),
            facts: vec![
                ("Driver", session.driver().to_owned()),
                ("Version", version.to_owned()),
                ("Socket", self.address.to_string()),
                ("How it reports health", dialect::controller(features).sentence.to_owned()),
                ("Controller capabilities", or_none(features.controller_names())),
                ("Node capabilities", or_none(features.node_names())),
                ("Checked every", format!("{:?}", self.interval)),
                ("Connections so far", session.generation().to_string()),
            ],
            limits: eyes::limits(features, self.roll.is_named()),
            trouble: self.trouble(),
            calls: calls(&self.metrics),
        }
    }

    fn history(&self) -> &History {
        &self.history
    }
}

fn calls(metrics: &Metrics) -> Vec<Call> {
    let call = |latency: volmedic_csi::Latency| {
        let volmedic_csi::Latency { method, count, failed, median, slowest } = latency;
        Call { name: method.name(), count, failed, median, slowest }
    };
    metrics.latencies().into_iter().map(call).collect()
}

/// Reports what changed to the page and the terminal.
#[derive(Debug)]
pub(super) struct Outlet(pub(super) Arc<Source>);

impl volmedic_monitor::Outlet for Outlet {
    fn tell(&mut self, transition: &Transition, _: Vec<volmedic_api::ObjectRef>) {
        self.0.tell(transition);
    }
}
