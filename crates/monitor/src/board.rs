//! What is believed and who was told of it, shared by all pipes and by whoever shows it.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::{Mutex, MutexGuard};
use volmedic_health::object::ObjectRef;
use volmedic_health::{Ledger, Subject, Volume};

/// Of those who no longer use a volume in trouble, so many are still told of its end.
const FORMER: usize = 64;

/// One ledger, and who was told of the trouble of which volume. Several pipes may share it: one for each driver and
/// place it is looked at from.
#[derive(Debug, Clone)]
pub struct Board(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    ledger: Mutex<Ledger>,
    /// Only volumes in trouble are here.
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

    /// Who was told of the trouble of a volume.
    pub fn told_on(&self, volume: &Volume) -> Vec<ObjectRef> {
        self.audience().get(volume).cloned().unwrap_or_default()
    }

    /// Everybody who was told of trouble that is not over, in a stable order.
    pub fn audiences(&self) -> Vec<(Volume, Vec<ObjectRef>)> {
        let mut all: Vec<_> = self.audience().iter().map(|(v, told)| (v.clone(), told.clone())).collect();
        all.sort_by(|a, b| a.0.cmp(&b.0));
        all
    }

    /// Before a restart, this object was told of what is wrong with a volume.
    pub fn recall_audience(&self, volume: &Volume, told: ObjectRef) {
        if self.is_in_trouble(&Subject::Volume(volume.clone())) {
            self.add_audience(volume, [told]);
        }
    }

    /// Whether something was found wrong that is not over, or nothing could be found out for long.
    pub(crate) fn is_in_trouble(&self, subject: &Subject) -> bool {
        let ledger = self.lock_ledger();
        ledger.beliefs(subject).iter().any(|(_, belief)| {
            !belief.conditions.is_empty() || belief.blind_since.is_some() || belief.flapping_since.is_some()
        })
    }

    /// The newest are kept where there are too many.
    pub(crate) fn add_audience(&self, volume: &Volume, told: impl IntoIterator<Item = ObjectRef>) {
        let mut audience = self.audience();
        let known = audience.entry(volume.clone()).or_default();
        let mut now = 0;
        for object in told {
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
    fn however_many_come_and_go_the_audience_stays_small() {
        let board = Board::new(Ledger::default());
        let volume = Volume { driver: "d".into(), handle: "v".into() };
        let pod = |n: usize| ObjectRef::new(Kind::Pod, "shop", &format!("web-{n}"), &format!("uid-{n}"));
        for n in 0..1_000 {
            board.add_audience(&volume, [pod(n), pod(n + 1)]);
        }
        let told = board.told_on(&volume);
        assert_eq!(told.len(), FORMER + 2);
        assert_eq!(told[FORMER..], [pod(999), pod(1_000)], "those who use it now are never dropped");
    }
}
