//! The host checks as a probe.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tokio::sync::Semaphore;
use volmedic_api::resource::NodeVantage;
use volmedic_health::{Sight, Subject, Vantage};
use volmedic_inventory::node::{Inventory, Key, Mode, NodeVolume};
use volmedic_monitor::{Board, Seen, Way};
use volmedic_panics::blocking;
use volmedic_probe::host::{Expected, Host, Looked};
use volmedic_report::{ProbeResult, Probes};

use super::coverage::Evidence;
use super::ports::expected;
use super::usage::Usages;

/// How often one look may want to see something again before it is reported.
const AGAIN: usize = 20;
/// What must be so for a while is checked this often meanwhile: something that comes, goes and comes again is not it.
const STEP: Duration = Duration::from_millis(250);
/// When the kubelet takes a volume from a pod it removes the volume's directory, and may be quicker than the news that
/// the pod has ended. A volume whose directory is gone as well is not missed before this long.
const REMOVED_FOR: Duration = Duration::from_secs(15);

/// What all drivers' volumes are checked with.
#[derive(Debug)]
pub(super) struct Eyes {
    pub(super) inventory: Arc<Inventory>,
    pub(super) host: Arc<Host>,
    /// Maximum number of host checks that touch volumes at the same time, whatever their driver.
    pub(super) places: Semaphore,
    pub(super) usages: Arc<Usages>,
    pub(super) counts: Probes,
    pub(super) evidence: Arc<Evidence>,
    pub(super) board: Board,
    /// Where the host checks see from.
    pub(super) vantage: Vantage,
    pub(super) removed: Removed,
}

/// Targets whose directory is gone, and since when.
#[derive(Debug, Default)]
pub(super) struct Removed(Mutex<HashMap<PathBuf, Instant>>);

impl Eyes {
    fn is_adverse(&self, key: &Key) -> bool {
        let subject = Subject::volume(key.driver.clone(), key.handle.clone());
        self.board.lock_ledger().is_adverse(&subject, &self.vantage)
    }

    /// Leaves out the places that the kubelet seems to have taken away on purpose.
    fn without_removed(&self, volume: &NodeVolume, mut expected: Expected) -> Expected {
        if volume.mode == Mode::Block || volume.source.is_some() {
            return expected;
        }
        let stale = self.inventory.staleness().is_some();
        let now = Instant::now();
        let mut removed = self.removed.0.lock();
        expected.targets.retain(|target| {
            // The directory around the mount point is the kubelet's own, on the host's disk.
            let there = target.path.parent().is_none_or(|around| {
                !matches!(std::fs::symlink_metadata(around), Err(error) if error.kind() == std::io::ErrorKind::NotFound)
            });
            if there {
                removed.remove(&target.path);
                return true;
            }
            let since = *removed.entry(target.path.clone()).or_insert(now);
            // Out of touch with the API server, a pod that has ended cannot be distinguished from one that runs.
            !stale && now.duration_since(since) >= REMOVED_FOR
        });
        expected
    }

    /// Where a volume is to be found now. Blocks for as long as the host's own disk takes.
    pub(super) fn targets(&self, volume: &NodeVolume) -> Vec<PathBuf> {
        let expected = self.without_removed(volume, expected(volume));
        expected.targets.into_iter().map(|target| target.path).collect()
    }

    /// Forgets what is not on this node any more.
    pub(super) fn keep(&self, volumes: &[Arc<NodeVolume>]) {
        self.usages.keep(volumes);
        self.evidence.keep(volumes);
        let used = |path: &PathBuf| volumes.iter().any(|v| v.uses.iter().any(|used| used.target == *path));
        self.removed.0.lock().retain(|path, _| used(path));
    }
}

/// One driver's volumes by host checks.
#[derive(Debug)]
pub(super) struct HostEyes {
    pub(super) driver: Arc<str>,
    pub(super) eyes: Arc<Eyes>,
}

impl HostEyes {
    async fn look_once(&self, handle: &str) -> Option<Looked> {
        let volume = self.eyes.inventory.volumes().get(&self.driver, handle)?;
        let Ok(_place) = self.eyes.places.acquire().await else { return None };
        let eyes = self.eyes.clone();
        blocking(move || {
            let expected = eyes.without_removed(&volume, expected(&volume));
            (!expected.targets.is_empty()).then(|| eyes.host.look(&expected))
        })
        .await
    }
}

impl HostEyes {
    /// What the monitor gets to know, and the evidence that stays.
    fn note(&self, handle: &str, looked: Looked) -> Seen {
        let key = Key { driver: self.driver.clone(), handle: handle.into() };
        let evidence = &self.eyes.evidence;
        match (looked.sight, looked.unprobed) {
            (sight @ Sight::Adverse(_), _) | (sight, None) => {
                evidence.saw(&key, NodeVantage::Host, Instant::now());
                Seen::Volume(sight)
            }
            (sight, Some((why, detail))) => {
                tracing::debug!(driver = &*self.driver, handle, "not probed: {detail}");
                evidence.missed(&key, NodeVantage::Host, why, why.meaning());
                match sight {
                    // Its surroundings are as they should be. That ends what was found wrong there before, but it is not
                    // health.
                    Sight::Healthy if !self.eyes.is_adverse(&key) => Seen::Nothing,
                    sight => Seen::Volume(sight),
                }
            }
        }
    }
}

impl volmedic_monitor::Probe for HostEyes {
    fn way(&self) -> Way {
        Way::Look
    }

    async fn changed(&self) {
        std::future::pending::<()>().await;
    }

    async fn look(&self, handle: &str) -> Seen {
        let began = Instant::now();
        for round in 0..=AGAIN {
            // What should be there is read again each time: the pod may have ended meanwhile.
            let Some(looked) = self.look_once(handle).await else { return Seen::Nothing };
            if let (Some(again), true) = (looked.again, round < AGAIN) {
                // The first time it may be nothing but an old mount table.
                if round > 0 {
                    tokio::time::sleep(again.min(STEP)).await;
                }
                self.eyes.host.mounts_changed();
                continue;
            }
            let well = !matches!(looked.sight, Sight::NotSeen(_));
            let result = if well { ProbeResult::Success } else { ProbeResult::Error };
            self.eyes.counts.probed(&self.driver, "host", result, began.elapsed());
            if let Some(usage) = looked.usage {
                self.eyes.usages.put(&self.driver, handle, usage);
            }
            return self.note(handle, looked);
        }
        Seen::Nothing
    }
}
