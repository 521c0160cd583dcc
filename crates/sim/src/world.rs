//! Runs one history: the real controller against the modelled API server and driver, on a paused clock.

mod replica;

use std::collections::BTreeMap;
use std::time::Duration;

use clap::Parser;
use serde_json::json;
use tokio::time::{sleep, sleep_until};

use crate::clock;
use crate::dice::Dice;
use crate::driver::Driver;
use crate::history::{History, Memory, Step, What};
use crate::log::Log;
use crate::oracle::{self, Evidence};
use crate::server::{Server, Setup, Unkept};
use replica::Replica;

pub(crate) const NAMESPACE: &str = "shop";
pub(crate) const DRIVER: &str = "disk.example.net";
/// After the last fault is over, everything has to be as it should within this time. The product asks again every ten
/// minutes for what a server once lacked.
const SETTLE: Duration = Duration::from_mins(14);
/// And then nothing may be written for this long.
const REST: Duration = Duration::from_mins(6);

/// What came of a history.
#[derive(Debug)]
pub struct Outcome {
    /// What should not have happened, each in a sentence.
    pub violations: Vec<String>,
    pub transcript: Vec<String>,
    pub counts: Counts,
}

/// How much was tried.
#[derive(Debug, Default, Clone, serde::Serialize, serde::Deserialize)]
pub struct Counts {
    pub requests: u64,
    /// Answers of the driver about a volume.
    pub answers: u64,
    /// By kind.
    pub faults: BTreeMap<String, u64>,
    /// Appearances and ends of conditions that the driver had.
    pub transitions: u64,
    /// Those that had to be reported.
    pub demanded: u64,
    pub kills: u64,
}

/// When something was wrong that may delay a report.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Window {
    pub(crate) from: Duration,
    pub(crate) to: Duration,
}

/// Runs it in this process, which may run no other before or after: what follows from a seed would not be the same.
pub(crate) fn run(history: &History, verbose: bool) -> anyhow::Result<Outcome> {
    clock::seed(history.seed);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build()?;
    runtime.block_on(async {
        clock::begin();
        let log = Log::new();
        let filter = if verbose { tracing::Level::DEBUG } else { tracing::Level::INFO };
        let _ = tracing_subscriber::fmt()
            .with_max_level(filter)
            .without_time()
            .with_ansi(false)
            .with_writer(log.clone())
            .try_init();
        let panicked = log.clone();
        std::panic::set_hook(Box::new(move |panic| panicked.add(format!("VIOLATION: {panic}"))));
        let outcome = World::new(history.clone(), log).run().await;
        drop(std::panic::take_hook());
        Ok(outcome)
    })
}

struct World {
    history: History,
    log: Log,
    server: Server,
    driver: Driver,
    replicas: Vec<Replica>,
}

impl World {
    fn new(history: History, log: Log) -> Self {
        let setup = Setup {
            health_of_claims: match history.memory {
                Memory::Claims => None,
                // Releases before 1.37 do not have the field.
                _ if history.seed.is_multiple_of(2) => Some(Unkept::Refused),
                _ => Some(Unkept::Dropped),
            },
            has_volume_healths: history.memory == Memory::Healths,
            event_ttl: history.event_ttl,
        };
        let mut dice = Dice::new(history.seed ^ 0x5eed);
        let server = Server::new(log.clone(), setup, Dice::new(dice.number()));
        let driver = Driver::new(history.dialect, &history.volumes, Dice::new(dice.number()));
        for (number, volume) in history.volumes.iter().enumerate() {
            for share in 0..volume.claims {
                let (claim, uid) = (format!("claim-{number}-{share}"), format!("uid-{number}-{share}"));
                let bound = json!({"namespace": NAMESPACE, "name": claim, "uid": uid});
                let csi = json!({"driver": DRIVER, "volumeHandle": volume.handle});
                let body = json!({
                    "kind": "PersistentVolume", "apiVersion": "v1", "metadata": {},
                    "spec": {"csi": csi, "claimRef": bound}, "status": {"phase": "Bound"},
                });
                server.install("persistentvolumes", "", &format!("pv-{number}-{share}"), body);
                let body = json!({
                    "kind": "PersistentVolumeClaim", "apiVersion": "v1", "metadata": {"uid": uid},
                    "spec": {"volumeName": format!("pv-{number}-{share}")}, "status": {"phase": "Bound"},
                });
                server.install("persistentvolumeclaims", NAMESPACE, &claim, body);
            }
        }
        let replicas = (0..history.replicas)
            .map(|number| Replica::start(number, &history, &server, &driver, &log, Dice::new(dice.number())))
            .collect();
        Self { history, log, server, driver, replicas }
    }

    async fn run(self) -> Outcome {
        self.log.add(self.history.to_string());
        for step in &self.history.steps {
            sleep_until(self.log.at(step.at)).await;
            self.log.add(format!("STEP {step}"));
            self.take(step);
        }
        sleep_until(self.log.at(self.history.length)).await;
        for replica in &self.replicas {
            replica.disarm();
        }
        // A replica that died just now needs its time to come back.
        let last = self.replicas.iter().map(Replica::up_again).max().unwrap_or_default();
        sleep_until(self.log.at(last)).await;
        self.log.add("all is healthy from here on");
        let quiet_from = self.log.now();
        sleep(SETTLE).await;
        let settled = self.log.now();
        self.log.add("and nothing should be written any more");
        sleep(REST).await;
        let kills = self.replicas.iter().map(Replica::deaths).sum();
        let absences: Vec<Window> = self.replicas.iter().flat_map(Replica::away).collect();
        let mut windows = absences.clone();
        windows.extend(self.history.steps.iter().filter_map(window));
        let evidence = Evidence {
            history: &self.history,
            written: self.server.audit(),
            server: &self.server,
            starts: self.replicas.iter().map(|replica| replica.away().len()).sum(),
            windows,
            absences,
            quiet_from,
            settled,
            end: self.log.now(),
        };
        let mut verdict = oracle::judge(&evidence);
        verdict.violations.extend(
            ["VIOLATION", "internal error (bug)", "MODEL"].iter().filter_map(|word| self.log.find(word)),
        );
        let mut faults = BTreeMap::new();
        for kind in self.history.steps.iter().filter_map(|step| step.what.kind()) {
            *faults.entry(kind.to_owned()).or_default() += 1;
        }
        let counts = Counts {
            requests: self.server.requests(),
            answers: self.driver.answers(),
            faults,
            transitions: verdict.transitions,
            demanded: verdict.demanded,
            kills,
        };
        for violation in &verdict.violations {
            self.log.add(format!("WRONG: {violation}"));
        }
        Outcome { violations: verdict.violations, transcript: self.log.lines(), counts }
    }

    fn take(&self, step: &Step) {
        match &step.what {
            What::Truth { volume, conditions } => self.driver.set(*volume, conditions),
            What::Kill { replica, when, down } => self.replicas[*replica].kill(*when, *down),
            What::Stop { replica, down } => self.replicas[*replica].stop(*down),
            What::Compacted => self.server.compact(),
            What::WatchesCut => self.server.cut_watches(),
            What::ClockSteps { by } => clock::step(*by),
            lasting => {
                self.trouble(lasting, true);
                // Ends by itself.
                let (world, what, log) = (self.parts(), lasting.clone(), self.log.clone());
                let number = step.number;
                tokio::spawn(async move {
                    sleep(what.lasts()).await;
                    log.add(format!("OVER #{number}"));
                    trouble(&world.0, &world.1, &what, false);
                });
            }
        }
    }

    fn parts(&self) -> (Server, Driver) {
        (self.server.clone(), self.driver.clone())
    }

    fn trouble(&self, what: &What, on: bool) {
        trouble(&self.server, &self.driver, what, on);
    }
}

/// Switches a trouble that lasts on or off. Of two of a kind that overlap, the end of the first ends both.
fn trouble(server: &Server, driver: &Driver, what: &What, on: bool) {
    match what {
        What::ApiDown { hangs: false, .. } => server.trouble(|trouble| trouble.refuses = on),
        What::ApiDown { hangs: true, .. } => server.trouble(|trouble| trouble.hangs = on),
        What::ApiBusy { code, retry_after, share, .. } => {
            server.trouble(|trouble| trouble.busy = on.then_some((*code, *retry_after, *share)));
        }
        What::AnswersLost { share, hangs, .. } => {
            server.trouble(|trouble| trouble.lost = on.then_some((*share, *hangs)));
        }
        What::ApiSlow { up_to, .. } => server.trouble(|trouble| trouble.slow = on.then_some(*up_to)),
        What::ApiForbids { .. } => server.trouble(|trouble| trouble.forbids = on),
        What::WatchesSilent { .. } => server.trouble(|trouble| trouble.watches_silent = on),
        What::DriverDown { .. } => driver.trouble(|trouble| trouble.down = on),
        What::DriverFails { share, .. } => {
            driver.trouble(|trouble| trouble.fails = if on { *share } else { 0 });
        }
        What::DriverHangs { volume, .. } => driver.trouble(|trouble| trouble.hangs = on.then_some(*volume)),
        What::ListsBreak { .. } => driver.trouble(|trouble| trouble.lists_break = on),
        What::Truth { .. }
        | What::Kill { .. }
        | What::Stop { .. }
        | What::Compacted
        | What::WatchesCut
        | What::ClockSteps { .. } => {}
    }
}

fn window(step: &Step) -> Option<Window> {
    match step.what {
        What::Truth { .. } | What::Kill { .. } | What::Stop { .. } | What::ClockSteps { .. } => None,
        _ => Some(Window { from: step.at, to: step.at + step.what.lasts() }),
    }
}

/// The flags of the role, as its own command line reads them.
#[derive(Debug, Parser)]
pub(crate) struct Flags {
    #[command(flatten)]
    pub(crate) controller: volmedic_roles::controller::Args,
}
