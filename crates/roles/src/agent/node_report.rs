//! What the agent says of its node as a whole, for the hub.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::{Instant, sleep};
use volmedic_api::resource::{Check, Coverage, NodeReport};
use volmedic_health::{Held, Memo, Subject, Tally, Vantage, Volume};
use volmedic_inventory::node::Inventory;
use volmedic_monitor::Board;
use volmedic_probe::host::{Host, Key};
use volmedic_report::{NodeReporter, Trouble, Whereabouts};

use super::coverage::Evidence;
use super::journal::Journal;
use super::ports::{in_use, users};
use super::sockets::Drivers;
use super::view::tally_of;

/// What happens within this time is one report.
const GATHER: Duration = Duration::from_secs(1);
/// What is wrong wakes us. How many volumes there are, and which checks run, is looked up this often.
const ROUND: Duration = Duration::from_secs(10);

/// What a report is made of.
#[derive(Debug)]
pub(super) struct Source {
    pub(super) board: Board,
    pub(super) inventory: Arc<Inventory>,
    pub(super) host: Arc<Host>,
    /// Ways of being informed by the kernel, beside the checks.
    pub(super) more_checks: Vec<Check>,
    pub(super) evidence: Arc<Evidence>,
    /// The drivers that are registered with the kubelet; `None` if they were given on the command line.
    pub(super) registered: Option<watch::Receiver<Drivers>>,
}

/// Hands over what changed. Runs until dropped. The first report waits for all volumes to be checked, but not longer
/// than `patience`.
pub(super) async fn keep(source: Source, reporter: NodeReporter, journal: Journal, patience: Duration) {
    let mut unsteady = Unsteady::default();
    let mut opening = Opening { latest: Instant::now() + patience, is_over: false };
    loop {
        let woken = tokio::select! {
            () = journal.news() => true,
            () = sleep(if opening.is_over { ROUND } else { GATHER }) => false,
        };
        let report = source.report(&mut unsteady);
        let now = Instant::now();
        if opening.is_over_at(now, woken, report.counts.unknown) {
            // By then the drivers were found too, and each of their volumes was probed once.
            if now >= opening.latest {
                reporter.set(report);
            } else {
                reporter.set_unsettled(report);
            }
            sleep(GATHER).await;
        }
    }
}

/// After a start no volume was checked yet, and that is no news. So a restart finds its report as it is, and writes
/// nothing.
#[derive(Debug)]
struct Opening {
    latest: Instant,
    is_over: bool,
}

impl Opening {
    /// It ends when all volumes are known, or something happened, or it took too long.
    fn is_over_at(&mut self, now: Instant, woken: bool, unknown: u32) -> bool {
        self.is_over |= woken || unknown == 0 || now >= self.latest;
        self.is_over
    }
}

impl Source {
    fn report(&self, unsteady: &mut Unsteady) -> NodeReport {
        let (mut troubles, tally) = {
            let ledger = self.board.lock_ledger();
            let drivers = self.inventory.volumes().drivers();
            let tallies = drivers.iter().map(|(driver, _)| tally_of(&ledger, &self.inventory, driver));
            (troubles(ledger.troubles(), ledger.memos()), tallies.fold(Tally::default(), plus))
        };
        unsteady.steady(&mut troubles);
        for trouble in &mut troubles {
            trouble.evidence = self.evidence(trouble);
        }
        let checks = self.host.checks().into_iter().map(|check| state(check.name, check.off));
        let checks = checks.chain(self.more_checks.iter().cloned()).collect();
        let whereabouts = |volume: &Volume| self.whereabouts(volume);
        let coverage = self.coverage();
        volmedic_report::node_report(
            env!("CARGO_PKG_VERSION"),
            &troubles,
            tally,
            checks,
            coverage,
            whereabouts,
        )
    }

    fn coverage(&self) -> Coverage {
        let drivers = self.registered.as_ref().map(|drivers| drivers.borrow().clone());
        let registered = |driver: &str| drivers.as_ref().is_none_or(|drivers| drivers.contains_key(driver));
        let all = self.inventory.volumes().all();
        let probing = self.evidence.probing(&all, registered, std::time::Instant::now());
        volmedic_report::coverage(self.evidence.within(), probing)
    }

    /// What our own checks saw; what a driver says has nothing beside it.
    fn evidence(&self, trouble: &Trouble) -> Vec<String> {
        match (&trouble.subject, &trouble.vantage) {
            (Subject::Volume(volume), Vantage::Host(_)) if !trouble.conditions.is_empty() => {
                self.host.evidence(&Key { driver: volume.driver.clone(), handle: volume.handle.clone() })
            }
            _ => Vec::new(),
        }
    }

    /// `None` for a volume that no pod uses now.
    fn whereabouts(&self, volume: &Volume) -> Option<Whereabouts> {
        let found = self.inventory.volumes().get(&volume.driver, &volume.handle)?;
        let claim = in_use(&found).find_map(|used| used.claim.as_ref());
        found.is_in_use().then(|| Whereabouts {
            persistent_volume: found.pv.as_deref().map(Into::into),
            claim: claim.map(|claim| (claim.namespace.clone(), claim.name.clone())),
            pods: users(&found),
        })
    }
}

/// All that is wrong, reported or not, and all that cannot be checked or comes and goes.
fn troubles(wrong: Vec<(Subject, Vantage, Vec<Held>)>, memos: Vec<Memo>) -> Vec<Trouble> {
    let mut all: BTreeMap<(Subject, Vantage), Trouble> = BTreeMap::new();
    let nothing = |subject: &Subject, vantage: &Vantage| Trouble {
        subject: subject.clone(),
        vantage: vantage.clone(),
        conditions: Vec::new(),
        blind_since: None,
        flapping_since: None,
        evidence: Vec::new(),
    };
    for (subject, vantage, conditions) in wrong {
        let trouble = Trouble { conditions, ..nothing(&subject, &vantage) };
        all.insert((subject, vantage), trouble);
    }
    for Memo { subject, vantage, blind_since, flapping_since, .. } in memos {
        if blind_since.is_some() || flapping_since.is_some() {
            let new = nothing(&subject, &vantage);
            let trouble = all.entry((subject, vantage)).or_insert(new);
            (trouble.blind_since, trouble.flapping_since) = (blind_since, flapping_since);
        }
    }
    all.into_values().collect()
}

/// What was last wrong with volumes whose trouble comes and goes. Their report says that, and does not come and go itself.
#[derive(Debug, Default)]
struct Unsteady(BTreeMap<(Subject, Vantage), Vec<Held>>);

impl Unsteady {
    fn steady(&mut self, troubles: &mut [Trouble]) {
        let mut before = std::mem::take(&mut self.0);
        for trouble in troubles.iter_mut().filter(|trouble| trouble.flapping_since.is_some()) {
            let key = (trouble.subject.clone(), trouble.vantage.clone());
            if let Some(known) = before.remove(&key).filter(|known| !known.is_empty()) {
                trouble.conditions = known;
            }
            self.0.insert(key, trouble.conditions.clone());
        }
    }
}

/// A check as it is reported.
pub(super) fn state(name: &str, off: Option<String>) -> Check {
    Check { name: name.to_owned(), running: off.is_none(), why: off.unwrap_or_default() }
}

fn plus(a: Tally, b: Tally) -> Tally {
    Tally {
        healthy: a.healthy + b.healthy,
        degraded: a.degraded + b.degraded,
        inaccessible: a.inaccessible + b.inaccessible,
        data_loss: a.data_loss + b.data_loss,
        unrecognized: a.unrecognized + b.unrecognized,
        unknown: a.unknown + b.unknown,
    }
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;
    use volmedic_health::{Condition, Ledger, Policy, Reason, Sight, Status};

    use super::*;

    #[test]
    fn what_comes_and_goes_is_in_the_report_all_the_while() {
        let mut ledger = Ledger::new(Policy::default());
        let (subject, host) = (Subject::volume("d", "a"), Vantage::Host("n".into()));
        let mut unsteady = Unsteady::default();
        let mut seen = Vec::new();
        for second in 0..40 {
            let sick = Condition::new(Status::Degraded, Reason::new("SlowIO"), "");
            let sight = if second % 2 == 0 { Sight::adverse([sick]) } else { Sight::Healthy };
            ledger.record(Timestamp::from_second(second).unwrap(), &subject, &host, sight);
            let mut all = troubles(ledger.troubles(), ledger.memos());
            unsteady.steady(&mut all);
            seen.push(
                all.first().is_some_and(|one| one.flapping_since.is_some() && one.conditions.len() == 1),
            );
        }
        assert!(seen[20..].iter().all(|there| *there), "{seen:?}");
        for second in (0..20_000).step_by(30) {
            ledger.record(Timestamp::from_second(second).unwrap(), &subject, &host, Sight::Healthy);
        }
        let mut all = troubles(ledger.troubles(), ledger.memos());
        unsteady.steady(&mut all);
        assert!(all.is_empty() && unsteady.0.is_empty(), "{all:?}");
    }

    #[test]
    fn a_start_says_nothing_before_it_knows_something() {
        let start = Instant::now();
        let new = || Opening { latest: start + GATHER, is_over: false };
        assert!(!new().is_over_at(start, false, 3), "three were not looked at yet");
        assert!(new().is_over_at(start, false, 0), "all are known");
        assert!(new().is_over_at(start, true, 3), "something happened");
        assert!(new().is_over_at(start + GATHER, false, 3), "they will not be known soon");
        let mut later = new();
        later.is_over_at(start, false, 0);
        assert!(later.is_over_at(start, false, 1), "a volume that comes later is news");
    }
}
