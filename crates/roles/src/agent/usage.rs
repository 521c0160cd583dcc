//! How full volumes are, as last seen.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;
use volmedic_inventory::node::NodeVolume;
use volmedic_probe::Usage;
use volmedic_report::ClaimUsage;

/// By driver and handle.
type Figures = HashMap<(Arc<str>, Box<str>), Usage>;

/// The last figures of each volume. Only what is in use is kept.
#[derive(Debug, Default)]
pub(super) struct Usages(Mutex<Figures>);

impl Usages {
    pub(super) fn put(&self, driver: &Arc<str>, handle: &str, usage: Usage) {
        self.0.lock().insert((driver.clone(), handle.into()), usage);
    }

    pub(super) fn keep(&self, volumes: &[Arc<NodeVolume>]) {
        let there = |driver: &str, handle: &str| {
            let found = volumes.binary_search_by(|v| (&*v.driver, &*v.handle).cmp(&(driver, handle)));
            found.is_ok()
        };
        self.0.lock().retain(|(driver, handle), _| there(driver, handle));
    }

    /// Each claim once.
    pub(super) fn of_claims(&self, volumes: &[Arc<NodeVolume>]) -> Vec<ClaimUsage> {
        let usages = self.0.lock();
        let mut claims = Vec::new();
        for volume in volumes {
            let Some(usage) = usages.get(&(volume.driver.clone(), (&*volume.handle).into())) else {
                continue;
            };
            let Some(claim) = volume.uses.iter().find_map(|used| used.claim.as_ref()) else { continue };
            let Usage { bytes, inodes } = usage;
            claims.push(ClaimUsage {
                namespace: (&*claim.namespace).into(),
                claim: (&*claim.name).into(),
                capacity: bytes.map(|bytes| bytes.total),
                available: bytes.and_then(|bytes| bytes.available),
                used: bytes.and_then(|bytes| bytes.used),
                inodes: inodes.map(|inodes| inodes.total),
                inodes_free: inodes.and_then(|inodes| inodes.available),
                inodes_used: inodes.and_then(|inodes| inodes.used),
            });
        }
        claims.sort_by(|a, b| (&a.namespace, &a.claim).cmp(&(&b.namespace, &b.claim)));
        claims.dedup_by(|a, b| (&a.namespace, &a.claim) == (&b.namespace, &b.claim));
        claims
    }
}
