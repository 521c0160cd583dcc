//! What the agent says of its node as a whole, for the hub.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, sleep};
use volmedic_api::resource::{Check, NodeReport};
use volmedic_health::{Tally, Volume};
use volmedic_inventory::node::Inventory;
use volmedic_monitor::{Board, read};
use volmedic_probe::host::Host;
use volmedic_report::{NodeReporter, Whereabouts};

use super::journal::Journal;
use super::ports::{in_use, users};
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
    /// Ways of being told by the kernel, beside the checks.
    pub(super) more_checks: Vec<Check>,
}

/// Hands over what changed. Runs until dropped.
///
/// After a start no volume was looked at yet, and that is no news: unless something happens, nothing is said until all
/// were, or `patience` is over. So a restart finds its report as it is, and writes nothing.
pub(super) async fn keep(source: Source, reporter: NodeReporter, journal: Journal, patience: Duration) {
    let start = Instant::now();
    let mut begun = false;
    loop {
        let woken = tokio::select! {
            () = journal.news() => true,
            () = sleep(if begun { ROUND } else { GATHER }) => false,
        };
        let report = source.report();
        begun |= woken || report.counts.unknown == 0 || start.elapsed() >= patience;
        if begun {
            reporter.set(report);
            sleep(GATHER).await;
        }
    }
}

impl Source {
    fn report(&self) -> NodeReport {
        let (memos, tally) = {
            let ledger = read(&self.board);
            let drivers = self.inventory.volumes().drivers();
            let tallies = drivers.iter().map(|(driver, _)| tally_of(&ledger, &self.inventory, driver));
            (ledger.memos(), tallies.fold(Tally::default(), plus))
        };
        let checks = self.host.checks().into_iter().map(|check| state(check.name, check.off));
        let checks = checks.chain(self.more_checks.iter().cloned()).collect();
        let whereabouts = |volume: &Volume| self.whereabouts(volume);
        volmedic_report::node_report(env!("CARGO_PKG_VERSION"), &memos, tally, checks, whereabouts)
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
