//! Recreating the pods of a volume on one node: evicted one by one, each only when the pod before it was replaced by one that
//! runs. It ends well when the old mount is gone and the volume was seen to be healthy under every new pod.

mod guards;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use tokio::time::{Instant, sleep, timeout_at};
use volmedic_api::ObjectRef;

use super::pods::{UserPod, to_replace};
use super::ports::{Cluster, Eviction, Eyes, Nodes};
use crate::place::Place;
use crate::policy::Recreate;
use crate::refusal::Refusal;
use crate::table::Outcome;
use crate::triage::{Again, Standing};
use guards::Next;
pub(super) use guards::{BrakesOn, Permit};

/// The pause between two requests of the same kind; it doubles up to the longest.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(15);

/// The pods on the node that have to be replaced because of a problem that began at `since`, if all pods that use the volume there
/// may be evicted and a new mount would help; else why not.
pub(super) async fn examine(
    cluster: &impl Cluster,
    eyes: &impl Eyes,
    place: &Place,
    claim: &ObjectRef,
    recreate: &Recreate,
    since: Option<Timestamp>,
) -> Result<Result<Vec<UserPod>, Refusal>, String> {
    let not_ready = |why: String| Ok(Err(Refusal::NotReady { why: why.into() }));
    if let Some(why) = eyes.prevents_new_mount(claim, place) {
        return not_ready(why);
    }
    if !cluster.has_driver(place).await? {
        return not_ready(format!("the driver is not registered on node {}", place.node));
    }
    let pods = cluster.pods_of(claim).await?;
    let here: Vec<UserPod> = pods.into_iter().filter(|pod| pod.is_on(&place.node)).collect();
    if here.is_empty() {
        return not_ready(format!("no pod on node {} uses the claim", place.node));
    }
    let refused = here.iter().find_map(|pod| pod.evictable(&recreate.owners).err());
    Ok(match refused {
        Some(why) => Err(Refusal::NotEvictable { why: why.into() }),
        None => Ok(to_replace(here, since)),
    })
}

/// With what [`examine`] found. The pods themselves are for the one who acts.
pub(super) fn standing(mut standing: Standing, found: &Result<Vec<UserPod>, Refusal>) -> Standing {
    standing.obstacle = found.as_ref().err().cloned();
    standing
}

/// What one attempt needs.
pub(super) struct Attempt<'a, C, E, N> {
    pub(super) cluster: &'a C,
    pub(super) eyes: &'a E,
    pub(super) nodes: &'a N,
    pub(super) place: &'a Place,
    pub(super) claim: &'a ObjectRef,
    pub(super) recreate: &'a Recreate,
    pub(super) permit: &'a Permit,
    /// When it must be over.
    pub(super) end: Instant,
}

/// What became of it, and the nodes on which the new pods are.
#[derive(Debug)]
pub(super) struct Recreated {
    pub(super) outcome: Outcome,
    pub(super) nodes: BTreeSet<Arc<str>>,
}

/// What became of the eviction of one pod.
enum Asked {
    /// The pod ends, or may be ending: what comes after it shows.
    Evicted,
    /// It was certainly not evicted, and why.
    Refused(String),
    /// Why no further eviction is requested, while one that was requested before may have been accepted.
    Unsure(String),
}

impl<C: Cluster, E: Eyes, N: Nodes> Attempt<'_, C, E, N> {
    /// Evicts these pods and follows what comes after them.
    pub(super) async fn carry_out(&self, pods: &[UserPod]) -> Recreated {
        let mut nodes = BTreeSet::new();
        let known = match timeout_at(self.end, self.cluster.pods_of(self.claim)).await {
            Ok(Ok(known)) => known,
            Ok(Err(why)) => return Recreated { outcome: Outcome::NotReached { why }, nodes },
            Err(_) => {
                let why = "the API server did not answer in time".to_owned();
                return Recreated { outcome: Outcome::NotReached { why }, nodes };
            }
        };
        let before: BTreeSet<Box<str>> = known.into_iter().map(|pod| pod.uid).collect();
        let (mut evicted, mut replaced) = (Vec::new(), BTreeMap::new());
        for pod in pods {
            let outcome = match self.evict(pod, evicted.is_empty()).await {
                Asked::Evicted => {
                    evicted.push(&*pod.name);
                    self.replaced(pod, &before, &mut replaced, &mut nodes).await.err()
                }
                // Nothing was done, so this is no failed attempt.
                Asked::Refused(why) if evicted.is_empty() => {
                    return Recreated { outcome: Outcome::NotReached { why }, nodes };
                }
                Asked::Refused(why) => Some(why),
                Asked::Unsure(why) => Some(format!("whether pod {} was evicted is unknown; {why}", pod.name)),
            };
            if let Some(why) = outcome {
                let message = match &evicted[..] {
                    [] => why,
                    some => format!("evicted: {}; {why}", some.join(", ")),
                };
                return Recreated { outcome: Outcome::StillUnhealthy { message }, nodes };
            }
        }
        let outcome = match self.healthy(&before, &mut nodes).await {
            Ok(()) => {
                let new: Vec<String> =
                    replaced.into_iter().map(|(old, new)| format!("{old} by {new}")).collect();
                Outcome::Well { message: format!("replaced: {}", new.join(", ")) }
            }
            Err(why) => {
                Outcome::StillUnhealthy { message: format!("evicted: {}; {why}", evicted.join(", ")) }
            }
        };
        Recreated { outcome, nodes }
    }

    /// Evicts one pod, if every guard still allows it at the time of each request. Refusals are waited for a while; an eviction
    /// that may have been accepted counts as one.
    async fn evict(&self, pod: &UserPod, first: bool) -> Asked {
        let patience = Duration::try_from(self.recreate.patience).unwrap_or_default();
        let until = (Instant::now() + patience).min(self.end);
        let (mut pause, mut unsure) = (FIRST_PAUSE, false);
        let name = &pod.name;
        // Where nothing was evicted, the sentence is about all pods.
        let stays = |why: String| if first { why } else { format!("pod {name} was not evicted: {why}") };
        loop {
            let over = |why: String| if unsure { Asked::Unsure(why) } else { Asked::Refused(why) };
            let why = match self.still(pod, first).await {
                Next::Ended => return Asked::Evicted,
                Next::Stop(why) => return over(stays(why)),
                Next::Wait(why) => stays(why),
                Next::Evict => {
                    let why = match timeout_at(self.end, self.cluster.evict(pod)).await {
                        Ok(Eviction::Accepted | Eviction::Gone) => return Asked::Evicted,
                        Ok(Eviction::Denied(why)) => {
                            return over(format!("the eviction of pod {name} failed: {why}"));
                        }
                        Ok(Eviction::Later(why)) => why,
                        Ok(Eviction::Unknown(why)) => {
                            unsure = true;
                            why
                        }
                        Err(_) => {
                            unsure = true;
                            "the API server did not answer in time".to_owned()
                        }
                    };
                    format!("the eviction of pod {name} is refused: {why}")
                }
            };
            let left = until.saturating_duration_since(Instant::now());
            if left <= pause {
                return if unsure { Asked::Evicted } else { Asked::Refused(why) };
            }
            sleep(pause).await;
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }

    /// Waits until the pod is gone and a new one of its owner is ready in its place.
    async fn replaced(
        &self,
        pod: &UserPod,
        before: &BTreeSet<Box<str>>,
        replaced: &mut BTreeMap<Box<str>, Box<str>>,
        nodes: &mut BTreeSet<Arc<str>>,
    ) -> Result<(), String> {
        let mut taken: BTreeSet<Box<str>> = replaced.values().cloned().collect();
        self.until(|pods| {
            if pods.iter().any(|one| one.uid == pod.uid) {
                return Err(format!("pod {} is still there", pod.name));
            }
            // Not only of the same owner: a rollout that has begun meanwhile replaces the pod, too.
            let new = pods.iter().filter(|one| !before.contains(&one.uid) && !one.ends);
            let new: Vec<&UserPod> = new.filter(|one| !taken.contains(&one.name)).collect();
            nodes.extend(new.iter().filter_map(|one| one.node.as_deref()).map(Arc::from));
            if let Some(ready) = new.iter().find(|one| one.ready) {
                taken.insert(ready.name.clone());
                replaced.insert(pod.name.clone(), ready.name.clone());
                return Ok(());
            }
            Err(match new.first() {
                Some(UserPod { name, node: Some(node), .. }) => {
                    format!("the new pod {name} on {node} is not ready")
                }
                Some(UserPod { name, .. }) => format!("the new pod {name} has no node yet"),
                None => format!("no new pod has replaced {}", pod.name),
            })
        })
        .await
    }

    /// Waits until the volume is healthy wherever a pod uses it that was not there before, and until that is true for the
    /// node from which the pods were evicted, if a pod still uses it there.
    async fn healthy(
        &self,
        before: &BTreeSet<Box<str>>,
        nodes: &mut BTreeSet<Arc<str>>,
    ) -> Result<(), String> {
        let began = Instant::now();
        let settle = Duration::try_from(self.recreate.settle).unwrap_or_default();
        self.until(|pods| {
            let new = || pods.iter().filter(|pod| !before.contains(&pod.uid) && !pod.ends);
            nodes.extend(new().filter_map(|pod| pod.node.as_deref()).map(Arc::from));
            let mut at: BTreeSet<&str> = new().filter_map(|pod| pod.node.as_deref()).collect();
            if at.is_empty() {
                return Err("no new pod uses the volume".to_owned());
            }
            at.extend(
                pods.iter().filter_map(|pod| pod.node.as_deref()).filter(|node| **node == *self.place.node),
            );
            let settled = began.elapsed() >= settle;
            for node in at {
                let place = Place::new(self.place.driver.clone(), self.place.handle.clone(), node);
                match self.eyes.at_new_pod(self.claim, &place, settled) {
                    Again::Well => {}
                    Again::StillUnhealthy => {
                        return Err(format!("the volume is still unhealthy on node {node}"));
                    }
                    Again::NotSeen(why) => {
                        return Err(format!("the volume was not seen on node {node}: {why}"));
                    }
                    Again::NotAsked => return Err(format!("the volume was not probed on node {node}")),
                }
            }
            Ok(())
        })
        .await
    }

    /// Reads the pods again and again until they are as wanted, at most to the end of the attempt.
    async fn until(&self, mut wanted: impl FnMut(&[UserPod]) -> Result<(), String>) -> Result<(), String> {
        let mut pause = FIRST_PAUSE;
        let mut why = "the pods were not read".to_owned();
        loop {
            match timeout_at(self.end, self.cluster.pods_of(self.claim)).await {
                Ok(Ok(pods)) => match wanted(&pods) {
                    Ok(()) => return Ok(()),
                    Err(not_yet) => why = not_yet,
                },
                Ok(Err(failed)) => why = failed,
                Err(_) => return Err(format!("{why}, and the time for it is over")),
            }
            if self.end.saturating_duration_since(Instant::now()) <= pause {
                return Err(format!("{why}, and the time for it is over"));
            }
            sleep(pause).await;
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }
}
