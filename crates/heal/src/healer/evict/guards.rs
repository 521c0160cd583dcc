//! What must still be true right before each eviction. Minutes may pass between two of them: an eviction that is refused is
//! requested again, and the next pod waits until the one before it was replaced. Meanwhile somebody may switch the remedy off,
//! or what a new mount needs may break.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use parking_lot::Mutex;
use tokio::time::{Instant, timeout_at};

use super::Attempt;
use crate::healer::cluster::Details;
use crate::healer::pods::UserPod;
use crate::healer::ports::{Cluster, Eyes, Nodes};
use crate::healer::run::Clock;
use crate::mode::Rules;
use crate::policy::Policy;
use crate::refusal::{NodeState, Refusal};
use crate::triage::{Brake, Standing, withdrawn};

/// Deadline of reading what the API server knows before one eviction.
const READING: Duration = Duration::from_secs(30);

/// What allows an attempt, and what may take that back while it is under way.
#[derive(Debug, Clone)]
pub(in crate::healer) struct Permit {
    /// Name of the PersistentVolume.
    pub(in crate::healer) pv: Box<str>,
    pub(in crate::healer) by_person: bool,
    /// Since when the volume is unhealthy. Consent from before that time was for another problem.
    pub(in crate::healer) since: Option<Timestamp>,
    /// The rule and the consent with which the attempt began.
    pub(in crate::healer) began: Standing,
    pub(in crate::healer) rules: Rules,
    pub(in crate::healer) policy: Policy,
    pub(in crate::healer) brakes: BrakesOn,
    pub(in crate::healer) clock: Clock,
}

/// The brakes that are on, for attempts under way. Cloning shares them.
#[derive(Debug, Clone, Default)]
pub(in crate::healer) struct BrakesOn(Arc<Mutex<Vec<Brake>>>);

impl BrakesOn {
    pub(in crate::healer) fn set<'a>(&self, brakes: impl Iterator<Item = &'a Brake>) {
        let mut on = self.0.lock();
        on.clear();
        on.extend(brakes.cloned());
    }

    fn against(&self, driver: &str) -> Option<Refusal> {
        let on = self.0.lock();
        let holds = |brake: &&Brake| brake.scope.as_deref().is_none_or(|scope| scope == driver);
        on.iter().find(holds).map(Brake::refusal)
    }
}

/// What the guards say about the eviction of a pod.
pub(super) enum Next {
    Evict,
    /// The pod is gone or ending, so there is nothing to evict.
    Ended,
    /// Not now: what a new mount needs, or the API server, may come back.
    Wait(String),
    /// This attempt may evict no further pod.
    Stop(String),
}

impl<C: Cluster, E: Eyes, N: Nodes> Attempt<'_, C, E, N> {
    /// Checks every guard again for this pod. `first` says that no pod of the attempt was evicted yet.
    pub(super) async fn still(&self, pod: &UserPod, first: bool) -> Next {
        let by = (Instant::now() + READING).min(self.end);
        let read = async {
            tokio::try_join!(
                self.cluster.details(self.place, &self.permit.pv),
                self.cluster.has_driver(self.place),
                self.cluster.pods_of(self.claim),
            )
        };
        let (details, has_driver, pods) = match timeout_at(by, read).await {
            Ok(Ok(read)) => read,
            Ok(Err(why)) => return Next::Wait(why),
            Err(_) => return Next::Wait("the API server did not answer in time".to_owned()),
        };
        if pods.iter().find(|one| one.uid == pod.uid).is_none_or(|found| found.ends) {
            return Next::Ended;
        }
        // What needs no request comes after the requests, so that it is as new as possible.
        if let Some(refusal) = self.stops(&details, &pods) {
            return Next::Stop(refusal.to_string());
        }
        let obstacle = if first {
            self.eyes.prevents_new_mount(self.claim, self.place)
        } else {
            // The pods that were replaced may be healthy by now, and then nothing reports a broken mount any more.
            self.eyes.cause_below_mount(self.claim, self.place)
        };
        let missing = || format!("the driver is not registered on node {}", self.place.node);
        match obstacle.or_else(|| (!has_driver).then(missing)) {
            Some(why) => Next::Wait(Refusal::NotReady { why: why.into() }.to_string()),
            None => Next::Evict,
        }
    }

    /// What a person decided, and what does not pass within the time of one attempt.
    fn stops(&self, details: &Details, pods: &[UserPod]) -> Option<Refusal> {
        if let Err(why) = &details.bound {
            return Some(Refusal::NotBound { why: why.clone() });
        }
        if details.claim.as_ref().is_none_or(|claim| claim.uid != self.claim.uid) {
            return Some(Refusal::NotBound { why: "it is bound to another claim by now".into() });
        }
        if let Some(why) = &details.filtered {
            return Some(Refusal::Filtered { why: why.clone() });
        }
        let Permit { pv: _, by_person, since, began, rules, policy, brakes, clock } = self.permit;
        let standing = details.recreate(rules);
        if let Some(refusal) = withdrawn(policy, clock.now(), *since, began, &standing, *by_person) {
            return Some(refusal);
        }
        // Of all pods there, as before the first eviction: one that stays would keep the old mount.
        let mut here = pods.iter().filter(|one| one.is_on(&self.place.node));
        if let Some(why) = here.find_map(|one| one.evictable(&self.recreate.owners).err()) {
            return Some(Refusal::NotEvictable { why: why.into() });
        }
        match self.nodes.state(&self.place.node) {
            NodeState::Up => {}
            state => return Some(Refusal::Node(state)),
        }
        let braked = brakes.against(&self.place.driver);
        braked.or_else(|| (!self.eyes.may_act()).then_some(Refusal::NotLeading))
    }
}
