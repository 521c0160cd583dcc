//! The volumes of one driver, from its PersistentVolumes.
//!
//! Which count: served by the driver, with a handle, bound to a claim whose uid is known, and not being deleted. All
//! others of the driver are known but not checked. Several PersistentVolumes may share one handle; that is one volume
//! with several claims.
//!
//! Claims themselves are not watched. A bound PersistentVolume carries namespace, name and uid of its claim; when the
//! claim goes, its phase becomes Released. In the moment between, a report goes to a uid that no longer exists, which
//! the API server answers the reporter. That costs less than a second watch of as many objects.

mod record;
mod table;

use std::sync::Arc;

use parking_lot::{Mutex, RwLock, RwLockReadGuard, RwLockWriteGuard};
use tokio::sync::Notify;
use volmedic_api::slim::PersistentVolume;
use volmedic_api::{Arrived, Kind, ObjectRef};

use crate::changes::{Change, Changes};
use crate::follow::{Sink, Spared};
pub(crate) use record::Claim;
use record::{NoName, Packed};
use table::{Effect, Table};

/// A claim that a volume is bound to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BoundClaim {
    pub claim: ObjectRef,
    /// The name of the PersistentVolume between the two.
    pub volume: Box<str>,
}

/// Cheap to ask at any time. Nothing here waits for the network.
#[derive(Debug)]
pub struct Volumes {
    driver: Box<str>,
    table: RwLock<Table>,
    changes: Mutex<Changes<Change>>,
    woken: Arc<Notify>,
}

impl Volumes {
    pub(crate) fn new(driver: &str, woken: Arc<Notify>) -> Self {
        Self { driver: driver.into(), table: RwLock::default(), changes: Mutex::default(), woken }
    }

    pub fn driver(&self) -> &str {
        &self.driver
    }

    /// Volumes to be checked.
    pub fn len(&self) -> usize {
        self.read().checked()
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// PersistentVolumes of the driver, bound or not.
    pub fn known(&self) -> usize {
        self.read().known()
    }

    /// Whether the volume is to be checked.
    pub fn contains(&self, handle: &str) -> bool {
        self.read().is_checked(handle)
    }

    /// Visits each volume to be checked. Changes wait meanwhile, so `visit` must be quick and not ask this inventory.
    pub fn for_each(&self, visit: impl FnMut(&Arc<str>)) {
        self.read().for_each(visit);
    }

    /// The claims that are bound to the volume.
    pub fn claims(&self, handle: &str) -> Vec<BoundClaim> {
        let mut claims = Vec::new();
        self.read().for_each_claim_of(handle, |claim| claims.push(BoundClaim::from(&claim)));
        claims
    }

    /// What changed since the last call. The state may already be newer.
    pub fn changes(&self) -> Vec<Change> {
        let changes = self.changes.lock().drain();
        changes.unwrap_or_else(|| vec![Change::Resync])
    }

    pub(crate) fn for_each_claim(&self, visit: impl FnMut(&Arc<str>, Claim<'_>)) {
        self.read().for_each_claim(visit);
    }

    fn read(&self) -> RwLockReadGuard<'_, Table> {
        self.table.read()
    }

    fn write(&self) -> RwLockWriteGuard<'_, Table> {
        self.table.write()
    }

    fn tell(&self, handle: Arc<str>, effect: Effect) {
        let change = match effect {
            Effect::Added => Change::Added(handle),
            Effect::Removed => Change::Removed(handle),
            Effect::ClaimsChanged => Change::ClaimsChanged(handle),
        };
        self.changes.lock().push(change);
        self.woken.notify_one();
    }

    /// The handle, if the volume is one of ours.
    fn handle<'a>(&self, volume: &'a PersistentVolume) -> Option<&'a str> {
        let source = volume.spec.csi.as_ref()?;
        let ours = *source.driver == *self.driver && !source.volume_handle.is_empty();
        ours.then_some(&source.volume_handle)
    }
}

impl Sink<PersistentVolume> for Volumes {
    fn begin(&self) {
        self.write().begin();
    }

    fn put(&self, object: &Arrived<PersistentVolume>, volume: &PersistentVolume) -> Result<(), String> {
        let Some(handle) = self.handle(volume) else { return Ok(()) };
        let claim = volume.spec.claim_ref.as_ref();
        let claim = claim.filter(|claim| {
            let whole = !(claim.uid.is_empty() || claim.name.is_empty() || claim.namespace.is_empty());
            whole && volume.status.phase == "Bound" && !object.is_going()
        });
        let packed = match claim {
            Some(claim) => Packed::bound(object.name(), &claim.name, &claim.uid),
            None => Packed::unbound(object.name()),
        };
        let packed = packed.map_err(|error: NoName| error.to_string())?;
        let namespace = claim.map_or("", |claim| &*claim.namespace);
        let mut table = self.write();
        if let Some((handle, effect)) = table.put(handle, namespace, packed) {
            self.tell(handle, effect);
        }
        Ok(())
    }

    fn take(&self, object: &Arrived<PersistentVolume>) {
        let mut table = self.write();
        let effect = match &object.body {
            Ok(volume) => self.handle(volume).and_then(|handle| table.take(handle, object.name())),
            Err(_) => table.take_named(object.name()),
        };
        if let Some((handle, effect)) = effect {
            self.tell(handle, effect);
        }
    }

    fn sweep(&self, spared: &Spared) {
        self.write().sweep(|name| spared.contains("", name), |handle, effect| self.tell(handle, effect));
    }
}

impl From<&Claim<'_>> for BoundClaim {
    fn from(claim: &Claim<'_>) -> Self {
        Self { claim: claim.into(), volume: (*claim.volume).into() }
    }
}

impl From<&Claim<'_>> for ObjectRef {
    fn from(claim: &Claim<'_>) -> Self {
        Self::new(Kind::PersistentVolumeClaim, claim.namespace, claim.name, &claim.uid)
    }
}

#[cfg(test)]
mod tests;
