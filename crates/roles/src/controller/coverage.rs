//! What this controller says about its probing, on its Lease: whether it can see its driver, and which volumes not.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use tokio::sync::watch;
use tokio::time::{Instant, sleep};
use volmedic_api::resource::time;
use volmedic_api::{CONTROLLER_COVERAGE, ControllerCoverage, Outage};
use volmedic_csi::dialect::{ControllerProbe, controller};
use volmedic_health::{NotProbed, Subject, Vantage};
use volmedic_inventory::Inventory;
use volmedic_monitor::{Board, Settings};

/// Whether the driver can be seen is checked this often. What changed travels with the next renewal of the Lease.
const EVERY: Duration = Duration::from_secs(1);
/// Which single volumes are not probed is checked this often, because it means to go through all of them.
const VOLUMES_EVERY: Duration = Duration::from_secs(15);
/// The number of probes in a row that fail before a driver, or a volume, counts as not probed: the ledger's own rule.
const FAILURES: u32 = 3;
/// While a driver is unreachable nothing is known of how it reports health.
const NOTHING: &str = "";

/// What the annotations of a Lease are.
pub(super) type Annotations = BTreeMap<String, String>;

/// What the statement is made of.
pub(super) struct Source {
    pub(super) name: Arc<str>,
    pub(super) driver: volmedic_csi::Driver,
    pub(super) board: Board,
    pub(super) inventory: Arc<Inventory>,
    pub(super) settings: Settings,
    /// For one call to the driver.
    pub(super) deadline: Duration,
    /// Whether the node watcher runs.
    pub(super) reports_nodes: bool,
}

/// Keeps the annotations true. Runs until dropped.
pub(super) async fn keep(source: Source, lease: watch::Sender<Annotations>) {
    let mut statement = Statement::new(Instant::now());
    loop {
        let now = Instant::now();
        if let Some(coverage) = statement.renew(&source.facts(), || source.volumes(), now) {
            let text = coverage.to_annotation();
            lease.send_if_modified(|known| {
                let changed = known.get(CONTROLLER_COVERAGE) != Some(&text);
                if changed {
                    known.insert(CONTROLLER_COVERAGE.to_owned(), text);
                }
                changed
            });
        }
        sleep(EVERY).await;
    }
}

/// The call by which a driver is asked for the health of its volumes; empty if there is none.
fn call(probe: ControllerProbe) -> &'static str {
    match probe {
        ControllerProbe::ListHealth => "ControllerListVolumeHealth",
        ControllerProbe::GetHealth => "ControllerGetVolumeHealth",
        ControllerProbe::ListVolumes => "ListVolumes",
        ControllerProbe::GetVolume => "ControllerGetVolume",
        ControllerProbe::None => NOTHING,
    }
}

/// What is known of the driver at one moment.
#[derive(Debug, Clone)]
struct Facts {
    driver: Arc<str>,
    /// How it is asked, or why it cannot be.
    session: Result<&'static str, String>,
    /// Since when its probes fail, if the ledger holds that they do.
    blind_since: Option<Timestamp>,
    within: Duration,
    reports_nodes: bool,
    now: Timestamp,
}

impl Source {
    fn facts(&self) -> Facts {
        let session = self.driver.session();
        let session = session
            .map(|session| call(controller(session.features()).probe))
            .map_err(|error| error.to_string());
        let lists = matches!(session, Ok("ControllerListVolumeHealth" | "ListVolumes"));
        let interval = if lists { self.settings.list_every } else { self.settings.look_every };
        let backend = Subject::Backend(self.name.clone());
        let blind_since =
            self.board.lock_ledger().beliefs(&backend).iter().find_map(|(_, belief)| belief.blind_since);
        Facts {
            driver: self.name.clone(),
            session,
            blind_since,
            within: (interval + self.deadline) * FAILURES,
            reports_nodes: self.reports_nodes,
            now: Timestamp::now(),
        }
    }

    /// The handles of the volumes of which nothing is known, in order.
    fn volumes(&self) -> Vec<String> {
        let volumes = self.inventory.volumes();
        let mut all = Vec::with_capacity(volumes.len());
        volumes.for_each(|handle| all.push(handle.clone()));
        let ledger = self.board.lock_ledger();
        let quiet = ledger.quiet(&self.name, &Vantage::Controller);
        all.retain(|handle| {
            let is_probed = || {
                let beliefs = ledger.beliefs(&Subject::volume(self.name.clone(), handle.clone()));
                let mine = beliefs.into_iter().find(|(vantage, _)| **vantage == Vantage::Controller);
                mine.is_some_and(|(_, belief)| belief.seen && belief.blind_since.is_none())
            };
            !quiet.contains(handle) && !is_probed()
        });
        drop(ledger);
        all.sort_unstable();
        all.iter().map(ToString::to_string).collect()
    }
}

/// The statement as it was last made.
#[derive(Debug)]
struct Statement {
    began: Instant,
    /// Something was said since the start. Before, what an earlier run said stands.
    is_made: bool,
    probed_by: &'static str,
    outage: Option<Outage>,
    volumes: Vec<String>,
    volumes_at: Option<Instant>,
}

impl Statement {
    fn new(now: Instant) -> Self {
        Self {
            began: now,
            is_made: false,
            probed_by: NOTHING,
            outage: None,
            volumes: Vec::new(),
            volumes_at: None,
        }
    }

    /// What there is to say; `None` while what an earlier run said stands. A start says nothing before it has seen every
    /// volume once, or the driver cannot be seen, or it takes so long that the earlier run's probes are too old.
    fn renew(
        &mut self,
        facts: &Facts,
        volumes: impl FnOnce() -> Vec<String>,
        now: Instant,
    ) -> Option<ControllerCoverage> {
        if let Ok(probed_by) = facts.session {
            self.probed_by = probed_by;
        }
        self.outage = self.outage_of(facts);
        if self.outage.is_some() {
            self.volumes = Vec::new();
            self.volumes_at = None;
        } else if self.volumes_at.is_none_or(|at| !self.is_made || now >= at + VOLUMES_EVERY) {
            self.volumes = volumes();
            self.volumes_at = Some(now);
        }
        self.is_made |= self.outage.is_some() || self.volumes.is_empty() || now >= self.began + facts.within;
        self.is_made.then(|| ControllerCoverage {
            driver: facts.driver.to_string(),
            probed_by: self.probed_by.to_owned(),
            within_seconds: u32::try_from(facts.within.as_secs().max(1)).unwrap_or(u32::MAX),
            not_probed: self.outage.clone(),
            volumes_not_probed: self.volumes.clone(),
            reports_nodes: facts.reports_nodes,
            omitted: 0,
        })
    }

    /// One that lasts keeps its words: a driver that fails in other words every second is no news.
    fn outage_of(&self, facts: &Facts) -> Option<Outage> {
        let (since, why, message) = match (&facts.session, facts.blind_since) {
            (Err(error), Some(since)) => (since, NotProbed::DriverUnreachable, error.clone()),
            (Ok(_), Some(since)) => {
                let message = "its probes fail; the log of the controller has the errors";
                (since, NotProbed::DriverUnreachable, message.to_owned())
            }
            (Ok(NOTHING), None) => {
                let why = NotProbed::DriverReportsNoHealth;
                (facts.now, why, why.meaning().to_owned())
            }
            (_, None) => return None,
        };
        match &self.outage {
            Some(known) if known.reason == why.name() => Some(known.clone()),
            _ => Some(Outage { since: time(since), reason: why.name().to_owned(), message }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIST: Result<&str, &str> = Ok("ControllerListVolumeHealth");
    const WITHIN: Duration = Duration::from_mins(1);

    fn facts(session: Result<&'static str, &str>, blind_since: Option<i64>) -> Facts {
        Facts {
            driver: "d".into(),
            session: session.map_err(ToOwned::to_owned),
            blind_since: blind_since.map(|second| Timestamp::from_second(second).unwrap()),
            within: WITHIN,
            reports_nodes: false,
            now: Timestamp::from_second(500).unwrap(),
        }
    }

    fn shown(coverage: Option<ControllerCoverage>) -> String {
        let Some(coverage) = coverage else { return "as before".to_owned() };
        let outage = coverage.not_probed.map(|outage| {
            format!(" {} since {}: {}", outage.reason, outage.since.0.as_second(), outage.message)
        });
        let volumes = coverage.volumes_not_probed.join(",");
        format!("{}{} [{volumes}]", coverage.probed_by, outage.unwrap_or_default())
    }

    fn list(handles: &[&str]) -> Vec<String> {
        handles.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn a_start_changes_nothing_before_it_knows_something() {
        let start = Instant::now();
        let renew = |statement: &mut Statement, session, blind, volumes: &[&str], at: Duration| {
            shown(statement.renew(&facts(session, blind), || list(volumes), start + at))
        };
        let new = || Statement::new(start);
        assert_eq!(renew(&mut new(), LIST, None, &["a"], Duration::ZERO), "as before");
        assert_eq!(renew(&mut new(), Err("refused"), None, &["a"], Duration::ZERO), "as before");
        assert_eq!(renew(&mut new(), LIST, None, &[], Duration::ZERO), "ControllerListVolumeHealth []");
        assert_eq!(renew(&mut new(), LIST, None, &["a"], WITHIN), "ControllerListVolumeHealth [a]");
        assert_eq!(
            renew(&mut new(), Err("refused"), Some(100), &["a"], Duration::ZERO),
            " DriverUnreachable since 100: refused []"
        );
        // What is new later is said.
        let mut later = new();
        renew(&mut later, LIST, None, &[], Duration::ZERO);
        assert_eq!(renew(&mut later, LIST, None, &["b"], VOLUMES_EVERY), "ControllerListVolumeHealth [b]");
    }

    #[test]
    fn an_outage_is_said_once_and_its_end_too() {
        let start = Instant::now();
        let mut statement = Statement::new(start);
        let mut check = |session, blind, second: u64, expected: &str| {
            let at = start + Duration::from_secs(second);
            assert_eq!(shown(statement.renew(&facts(session, blind), Vec::new, at)), expected);
        };
        check(LIST, None, 0, "ControllerListVolumeHealth []");
        // A driver that restarts is not gone before the ledger says so.
        check(Err("refused"), None, 1, "ControllerListVolumeHealth []");
        let gone = "ControllerListVolumeHealth DriverUnreachable since 100: refused []";
        check(Err("refused"), Some(100), 2, gone);
        check(Err("no such file"), Some(100), 3, gone);
        check(LIST, Some(100), 4, gone);
        check(LIST, None, 5, "ControllerListVolumeHealth []");
        let mute = " DriverReportsNoHealth since 500: The CSI driver's controller plugin reports nothing about the \
                    health of volumes. []";
        check(Ok(""), None, 6, mute);
    }

    #[test]
    fn the_volumes_are_gone_through_now_and_then_and_not_each_second() {
        let start = Instant::now();
        let mut statement = Statement::new(start);
        let mut passes = 0;
        for second in 0..=30 {
            let count = || {
                passes += 1;
                Vec::new()
            };
            statement.renew(&facts(LIST, None), count, start + Duration::from_secs(second));
        }
        assert_eq!(passes, 3);
    }
}
