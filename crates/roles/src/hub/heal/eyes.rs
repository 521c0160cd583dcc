//! What the healer sees of the volumes: what the hub believes right now.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use volmedic_api::ObjectRef;
use volmedic_heal::healer::Eyes;
use volmedic_heal::{Again, Place, Refusal};
use volmedic_health::{Reason, Remedy};
use volmedic_hub::{ClaimKey, World};

use super::fresh::Prober;
use super::prospects;

/// Counting all volumes in use takes a moment where there are many, and the count need not be newer than this.
const COUNT_EVERY: Duration = Duration::from_secs(3);

/// Which claim a place is about.
pub(super) type Places = Arc<Mutex<HashMap<Place, ClaimKey>>>;

/// When it was counted, and how many volumes of each driver are in use.
pub(super) type Count = (Instant, BTreeMap<Box<str>, usize>);

/// Whether something is so at this moment.
pub(in crate::hub) type Asked = Arc<dyn Fn() -> bool + Send + Sync>;

pub(super) struct Sight {
    pub(super) world: Arc<Mutex<World>>,
    pub(super) places: Places,
    /// Whether changes reach us.
    pub(super) in_touch: Asked,
    /// Whether we lead.
    pub(super) leads: Asked,
    pub(super) counted: Mutex<Option<Count>>,
    pub(super) prober: Prober,
}

impl Sight {
    fn look(&self, place: &Place) -> Again {
        let unseen = |why: &str| Again::NotSeen(why.into());
        if !(self.in_touch)() {
            return unseen("the API server's changes do not reach the hub");
        }
        let Some(key) = self.places.lock().get(place).cloned() else {
            return unseen("it is no longer reported");
        };
        let patient = self.world.lock().patient(&key);
        let patient = patient.filter(|now| *now.driver == *place.driver && *now.handle == *place.handle);
        let Some(patient) = patient else { return unseen("its claim is bound to another volume by now") };
        let Some(bed) = patient.beds.iter().find(|bed| *bed.node == *place.node) else {
            return unseen("no pod uses it there any more");
        };
        match (&bed.unseen, &bed.unhealthy) {
            (Some(why), _) => unseen(why),
            (None, Some(_)) => Again::StillUnhealthy,
            (None, None) => Again::Well,
        }
    }
}

impl Eyes for Sight {
    async fn again(&self, place: &Place) -> Again {
        self.look(place)
    }

    async fn confirm(&self, place: &Place, reason: &Reason, remedy: Remedy) -> Result<(), Refusal> {
        self.prober.confirm(place, reason, remedy).await
    }

    fn prevents_new_mount(&self, claim: &ObjectRef, place: &Place) -> Option<String> {
        if !(self.in_touch)() {
            return Some("the API server's changes do not reach the hub".to_owned());
        }
        let views = self.world.lock().facts(&ClaimKey::new(&claim.namespace, &claim.name)).views;
        prospects::prevents_new_mount(&views, &place.node)
    }

    fn cause_below_mount(&self, claim: &ObjectRef, place: &Place) -> Option<String> {
        if !(self.in_touch)() {
            return Some("the API server's changes do not reach the hub".to_owned());
        }
        let views = self.world.lock().facts(&ClaimKey::new(&claim.namespace, &claim.name)).views;
        prospects::cause_below_mount(&views, &place.node)
    }

    fn at_new_pod(&self, claim: &ObjectRef, place: &Place, settled: bool) -> Again {
        let unseen = |why: &str| Again::NotSeen(why.into());
        if !(self.in_touch)() {
            return unseen("the API server's changes do not reach the hub");
        }
        let key = ClaimKey::new(&claim.namespace, &claim.name);
        let world = self.world.lock();
        let patient = world.patient(&key);
        let Some(patient) =
            patient.filter(|now| *now.driver == *place.driver && *now.handle == *place.handle)
        else {
            return unseen("its claim is bound to another volume by now");
        };
        let Some(bed) = patient.beds.iter().find(|bed| *bed.node == *place.node) else {
            return unseen("the hub does not know yet that a pod uses it there");
        };
        if bed.unhealthy.is_some() || prospects::still_wrong(&world.facts(&key).views, &place.node).is_some()
        {
            return Again::StillUnhealthy;
        }
        if let Some(why) = &bed.unseen {
            return unseen(why);
        }
        match world.is_probed(&place.node, &patient.volume) {
            Some(true) => Again::Well,
            Some(false) => unseen("the agent there has not probed it yet"),
            None if settled => Again::Well,
            None => {
                unseen("the agent there does not say what it has probed, so its next reports are waited for")
            }
        }
    }

    fn in_use(&self, driver: Option<&str>) -> Option<usize> {
        let mut counted = self.counted.lock();
        if counted.as_ref().is_none_or(|(at, _)| at.elapsed() >= COUNT_EVERY) {
            let world = self.world.lock();
            *counted = world.is_ready().then(|| (Instant::now(), world.in_use()));
        }
        let (_, counts) = counted.as_ref()?;
        Some(driver.map_or_else(|| counts.values().sum(), |driver| counts.get(driver).copied().unwrap_or(0)))
    }

    fn may_act(&self) -> bool {
        (self.leads)()
    }
}
