//! From what the hub believes to what the healer hears: trouble that it can do something about, and its end.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use parking_lot::Mutex;
use volmedic_heal::healer::{Handle, Trigger};
use volmedic_heal::memory::{self, Deadlines};
use volmedic_heal::{Place, Policy};
use volmedic_health::Reason;
use volmedic_hub::{ClaimKey, Patient, World};

use super::eyes::Places;

/// News are looked for so often; that costs nothing where there are none.
const TICK: Duration = Duration::from_millis(500);
/// Claims visited before others get a turn.
const BATCH: usize = 500;

pub(super) struct Pump {
    world: Arc<Mutex<World>>,
    places: Places,
    handle: Handle,
    /// What the healer knows to be unhealthy, and why.
    open: HashMap<ClaimKey, BTreeMap<Place, Reason>>,
    waiting: BTreeSet<ClaimKey>,
}

/// What is unhealthy of a claim's volume and can be repaired, by where.
fn unhealthy(patient: &Patient) -> BTreeMap<Place, (Reason, Option<Timestamp>)> {
    let beds = patient.beds.iter();
    beds.filter_map(|bed| Some((place(patient, &bed.node), bed.unhealthy.clone()?))).collect()
}

fn place(patient: &Patient, node: &str) -> Place {
    Place::new(&*patient.driver, &*patient.handle, node)
}

impl Pump {
    pub(super) fn new(world: Arc<Mutex<World>>, places: Places, handle: Handle) -> Self {
        Self { world, places, handle, open: HashMap::new(), waiting: BTreeSet::new() }
    }

    /// Hands over what earlier processes did, before anything else is reported.
    pub(super) fn remember(&mut self, policy: &Policy, deadlines: Deadlines) {
        let now = Timestamp::now();
        let all = self.world.lock().heals();
        for (key, heals) in all {
            let Some(patient) = self.world.lock().patient(&key) else { continue };
            let since = patient.beds.iter().filter_map(|bed| bed.unhealthy.as_ref());
            let since = since.map(|(_, since)| since.unwrap_or(now)).min();
            if let Some(memory) = memory::recreated(&heals, since, now, policy, deadlines) {
                let volume = Place::new(&*patient.driver, &*patient.handle, "").volume();
                if !self.handle.tell(Trigger::Recreated { volume, memory: Box::new(memory) }) {
                    tracing::warn!(
                        "{key}: there is too much to remember; how often its pods were recreated is lost"
                    );
                }
            }
            for bed in &patient.beds {
                let unhealthy = bed.unhealthy.clone().map(|(reason, since)| (reason, since.unwrap_or(now)));
                let since = unhealthy.as_ref().map(|(_, since)| *since);
                let Some(memory) = memory::remembered(&heals, &bed.node, since, now, policy, deadlines)
                else {
                    continue;
                };
                let place = place(&patient, &bed.node);
                if let Some((reason, _)) = &unhealthy {
                    self.keep(&key, &place, reason);
                }
                let (pv, memory) = (patient.volume.clone(), Box::new(memory));
                if !self.handle.tell(Trigger::Remembered { place, pv, memory, unhealthy }) {
                    tracing::warn!(
                        "{key}: what was tried before could not be remembered, there is too much of it"
                    );
                }
            }
        }
    }

    pub(super) async fn run(mut self) -> Infallible {
        loop {
            self.waiting.extend(self.world.lock().take_followed());
            for _ in 0..BATCH {
                let Some(key) = self.waiting.pop_first() else { break };
                if !self.take_in(&key) {
                    // No room at the healer's; it comes again with the next look.
                    self.waiting.insert(key);
                    break;
                }
            }
            if self.waiting.is_empty() {
                tokio::time::sleep(TICK).await;
            } else {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        }
    }

    /// Answers whether the healer had room for it.
    fn take_in(&mut self, key: &ClaimKey) -> bool {
        let patient = self.world.lock().patient(key);
        let now_unhealthy = patient.as_ref().map(unhealthy).unwrap_or_default();
        let before = self.open.get(key).cloned().unwrap_or_default();
        if let Some(patient) = &patient {
            for (place, (reason, since)) in &now_unhealthy {
                if before.get(place) == Some(reason) {
                    continue;
                }
                let since = since.unwrap_or_else(Timestamp::now);
                let (place, pv, reason) = (place.clone(), patient.volume.clone(), reason.clone());
                self.keep(key, &place, &reason);
                if !self.handle.tell(Trigger::Unhealthy { place: place.clone(), pv, reason, since }) {
                    self.drop_place(key, &place);
                    return false;
                }
            }
        }
        for place in before.keys().filter(|place| !now_unhealthy.contains_key(place)) {
            let used = |patient: &Patient| patient.beds.iter().any(|bed| *bed.node == *place.node);
            let trigger = if patient.as_ref().is_some_and(used) {
                Trigger::Cleared { place: place.clone() }
            } else {
                Trigger::Gone { place: place.clone() }
            };
            if !self.handle.tell(trigger) {
                return false;
            }
            self.drop_place(key, place);
        }
        true
    }

    fn keep(&mut self, key: &ClaimKey, place: &Place, reason: &Reason) {
        self.places.lock().insert(place.clone(), key.clone());
        self.open.entry(key.clone()).or_default().insert(place.clone(), reason.clone());
    }

    fn drop_place(&mut self, key: &ClaimKey, place: &Place) {
        self.places.lock().remove(place);
        if let Some(open) = self.open.get_mut(key) {
            open.remove(place);
            if open.is_empty() {
                self.open.remove(key);
            }
        }
    }
}
