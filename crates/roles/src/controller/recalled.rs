//! What an earlier run reported: read once at the start, and settled when the driver has answered.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use kube::Client;
use volmedic_api::{Kind, ObjectRef};
use volmedic_health::{Subject, Vantage, Volume};
use volmedic_inventory::Inventory;
use volmedic_monitor::Board;
use volmedic_report::{Recall, Reporter};

use super::ports::{inline_handle, standing};

/// How often it is checked whether the driver has answered about the volumes that wait for it.
const SETTLE_EVERY: Duration = Duration::from_secs(1);

/// Which volume a claim is bound to. Needed for a moment only, but for all claims there are: so it keeps a number for
/// each claim instead of its names, and looks again before it answers.
struct Bound {
    hasher: RandomState,
    handles: HashMap<u64, Arc<str>>,
}

impl Bound {
    fn new(inventory: &Inventory) -> Self {
        let hasher = RandomState::new();
        let volumes = inventory.volumes();
        let mut all = Vec::with_capacity(volumes.len());
        volumes.for_each(|handle| all.push(handle.clone()));
        let mut handles = HashMap::with_capacity(all.len());
        for handle in all {
            for bound in volumes.claims(&handle) {
                handles.insert(hasher.hash_one(&bound.claim), handle.clone());
            }
        }
        Self { hasher, handles }
    }

    fn volume(&self, inventory: &Inventory, driver: &Arc<str>, claim: &ObjectRef) -> Option<Volume> {
        if claim.kind == Kind::Pod {
            // Its handle is made of the pod alone.
            return Some(Volume { driver: driver.clone(), handle: inline_handle(claim) });
        }
        let handle = self.handles.get(&self.hasher.hash_one(claim))?;
        let is_bound = inventory.volumes().claims(handle).iter().any(|bound| bound.claim == *claim);
        is_bound.then(|| Volume { driver: driver.clone(), handle: handle.clone() })
    }
}

/// What was reported before. Tried for as long as it takes: to begin without it would report everything again.
pub(super) async fn read(
    client: &Client,
    driver: &Arc<str>,
    inventory: &Inventory,
    report: &volmedic_report::Options,
) -> anyhow::Result<volmedic_report::Recalled> {
    let recall = Recall {
        component: report.voice.component.clone(),
        field_manager: report.field_manager.clone(),
        reports_of: report.health.as_ref().map(|health| health.driver.clone()),
        vantage: Vantage::Controller,
    };
    let mut pause = Duration::from_secs(1);
    loop {
        // All lists are read at the same time, those of the inventory too.
        let bound = async {
            inventory.ready().await;
            let bound = Bound::new(inventory);
            move |claim: &ObjectRef| bound.volume(inventory, driver, claim)
        };
        let read = recall.read(client, bound, |subject, vantage| {
            matches!(vantage, Vantage::Controller | Vantage::Cluster) && has_one_claim(inventory, subject)
        });
        match read.await {
            Ok(recalled) => return Ok(recalled),
            Err(error) => tracing::warn!("{error}; trying again in {} s", pause.as_secs()),
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(Duration::from_mins(1));
    }
}

/// An event on one of several claims of a volume could be forged by an account of that claim's namespace, and would make us
/// write a warning on the other claims. Then only what we stored ourselves counts.
fn has_one_claim(inventory: &Inventory, subject: &Subject) -> bool {
    match subject {
        Subject::Volume(volume) => inventory.volumes().claims(&volume.handle).len() <= 1,
        Subject::Backend(_) => false,
    }
}

/// Stores what stands on claims whose events and stored status disagreed at the start, each as soon as the driver has
/// answered about its volume: until then nobody knows which of the two is right.
pub(super) async fn settle(reporter: Arc<Reporter>, board: Board, mut waiting: Vec<(ObjectRef, Volume)>) {
    while !waiting.is_empty() {
        waiting.retain(|(claim, volume)| {
            let subject = Subject::Volume(volume.clone());
            let unanswered = board.lock_ledger().is_recalled(&subject, &Vantage::Controller);
            if !unanswered {
                reporter.restate(claim, &standing(&board, &subject), Timestamp::now());
            }
            unanswered
        });
        tokio::time::sleep(SETTLE_EVERY).await;
    }
}
