//! The ledger and what was reported on which object, shared by all pipes and by what shows it.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::{Mutex, MutexGuard};
use volmedic_health::object::ObjectRef;
use volmedic_health::{Ledger, Subject, Volume};

/// Maximum number of objects that no longer use an unhealthy volume and still get the report that it recovered.
const FORMER: usize = 64;

/// One ledger, and on which objects the problem of each volume was reported. Several pipes may share it: one for each driver
/// and vantage.
#[derive(Debug, Clone)]
pub struct Board(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    ledger: Mutex<Ledger>,
    /// Only unhealthy volumes are here.
    audience: Mutex<HashMap<Volume, Vec<ObjectRef>>>,
}

impl Board {
    pub fn new(ledger: Ledger) -> Self {
        Self(Arc::new(Shared { ledger: Mutex::new(ledger), audience: Mutex::default() }))
    }

    /// Each change to the ledger is complete before the lock is released.
    pub fn lock_ledger(&self) -> MutexGuard<'_, Ledger> {
        self.0.ledger.lock()
    }

    /// The objects that the problem of a volume was reported on.
    pub fn reported_on(&self, volume: &Volume) -> Vec<ObjectRef> {
        self.audience().get(volume).cloned().unwrap_or_default()
    }

    /// The objects that problems were reported on that are not over, in a stable order.
    pub fn audiences(&self) -> Vec<(Volume, Vec<ObjectRef>)> {
        let mut all: Vec<_> =
            self.audience().iter().map(|(v, objects)| (v.clone(), objects.clone())).collect();
        all.sort_by(|a, b| a.0.cmp(&b.0));
        all
    }

    /// Before a restart, the problem of a volume was reported on this object.
    pub fn recall_audience(&self, volume: &Volume, object: ObjectRef) {
        if self.is_in_trouble(&Subject::Volume(volume.clone())) {
            self.add_audience(volume, [object]);
        }
    }

    /// Whether a problem is not over, or the subject could not be probed for long.
    pub(crate) fn is_in_trouble(&self, subject: &Subject) -> bool {
        let ledger = self.lock_ledger();
        ledger.beliefs(subject).iter().any(|(_, belief)| {
            !belief.conditions.is_empty() || belief.blind_since.is_some() || belief.flapping_since.is_some()
        })
    }

    /// The newest are kept where there are too many.
    pub(crate) fn add_audience(&self, volume: &Volume, objects: impl IntoIterator<Item = ObjectRef>) {
        let mut audience = self.audience();
        let known = audience.entry(volume.clone()).or_default();
        let mut now = 0;
        for object in objects {
            known.retain(|known| *known != object);
            known.push(object);
            now += 1;
        }
        let surplus = known.len().saturating_sub(now + FORMER);
        known.drain(..surplus);
    }

    pub(crate) fn forget_audience(&self, volume: &Volume) {
        self.audience().remove(volume);
    }

    pub(crate) fn audience_of(&self, driver: &str) -> Vec<Arc<str>> {
        self.audience().keys().filter(|v| *v.driver == *driver).map(|v| v.handle.clone()).collect()
    }

    fn audience(&self) -> MutexGuard<'_, HashMap<Volume, Vec<ObjectRef>>> {
        self.0.audience.lock()
    }
}

#[cfg(test)]
mod tests {
    use volmedic_health::object::Kind;

    use super::*;

    #[test]
    fn the_audience_stays_small_while_objects_come_and_go() {
        let board = Board::new(Ledger::default());
        let volume = Volume { driver: "d".into(), handle: "v".into() };
        let pod = |n: usize| ObjectRef::new(Kind::Pod, "shop", &format!("web-{n}"), &format!("uid-{n}"));
        for n in 0..1_000 {
            board.add_audience(&volume, [pod(n), pod(n + 1)]);
        }
        let objects = board.reported_on(&volume);
        assert_eq!(objects.len(), FORMER + 2);
        assert_eq!(objects[FORMER..], [pod(999), pod(1_000)], "objects that use it now are never dropped");
    }
}
