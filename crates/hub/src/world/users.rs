//! Who uses which claim on which node.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use super::records::Words;
use crate::ClaimKey;
use crate::shape::{self, KubeletHealth};

/// The name of a claim that a pod uses, and what the kubelet says of it.
pub(super) type Use = (Arc<str>, Option<Box<KubeletHealth>>);

/// What a pod uses, as far as it matters. Nothing in here changes which pod it is.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct PodRecord {
    pub(super) node: Arc<str>,
    /// The claims.
    pub(super) uses: Box<[Use]>,
    /// Drivers of inline volumes.
    pub(super) inline: Box<[Arc<str>]>,
}

impl PodRecord {
    /// None for a pod that uses nothing anywhere: not scheduled, finished, or without such volumes.
    pub(super) fn new(name: &str, pod: &shape::Pod, words: &mut Words) -> Option<Self> {
        let node = pod.spec.node_name.as_deref().filter(|node| !node.is_empty())?;
        if matches!(pod.status.phase.as_str(), "Succeeded" | "Failed") {
            return None;
        }
        let volumes = pod.spec.volumes.as_deref().unwrap_or_default();
        let reported = |volume: &str| {
            let mut all = pod.status.volume_health.iter().flatten();
            all.find(|entry| entry.name == volume).map(|entry| Box::new(entry.reported.clone()))
        };
        let uses: Vec<Use> = volumes
            .iter()
            .filter_map(|volume| {
                let claim = match (&volume.persistent_volume_claim, &volume.ephemeral) {
                    (Some(claim), _) => claim.claim_name.as_str().into(),
                    (None, Some(_)) => format!("{name}-{}", volume.name).into(),
                    (None, None) => return None,
                };
                Some((claim, reported(&volume.name)))
            })
            .collect();
        let inline = volumes.iter().filter_map(|volume| Some(words.get(&volume.csi.as_ref()?.driver)));
        let inline: Box<[Arc<str>]> = inline.collect();
        if uses.is_empty() && inline.is_empty() {
            return None;
        }
        Some(Self { node: words.get(node), uses: uses.into_boxed_slice(), inline })
    }
}

/// A node and a pod on it.
type User = (Arc<str>, Arc<str>);

#[derive(Debug, Default)]
pub(super) struct Users {
    /// By namespace and name.
    pods: HashMap<(Arc<str>, Arc<str>), PodRecord>,
    /// Each node and pod that uses a claim, in order.
    by_claim: HashMap<ClaimKey, Box<[User]>>,
    by_node: HashMap<Arc<str>, BTreeSet<ClaimKey>>,
}

impl Users {
    /// Puts a pod in the place of what was known of it; `None` if it is gone. Answers the claims that concerns. `share`
    /// gives a key the text of what is known already.
    pub(super) fn put(
        &mut self,
        namespace: &Arc<str>,
        name: &str,
        pod: Option<PodRecord>,
        share: impl Fn(ClaimKey) -> ClaimKey,
    ) -> BTreeSet<ClaimKey> {
        let key: (Arc<str>, Arc<str>) = (namespace.clone(), name.into());
        if self.pods.get(&key) == pod.as_ref() {
            return BTreeSet::new();
        }
        let claim_key = |claim: &Arc<str>| ClaimKey { namespace: namespace.clone(), name: claim.clone() };
        let mut touched = BTreeSet::new();
        if let Some(old) = self.pods.remove(&key) {
            for (claim, _) in &old.uses {
                let claim = claim_key(claim);
                self.unlink(&claim, &old.node, name);
                touched.insert(claim);
            }
        }
        if let Some(mut pod) = pod {
            for (claim, _) in &mut pod.uses {
                let shared = share(claim_key(claim));
                *claim = shared.name.clone();
                self.link(shared.clone(), (pod.node.clone(), key.1.clone()));
                touched.insert(shared);
            }
            self.pods.insert(key, pod);
        }
        touched
    }

    fn link(&mut self, claim: ClaimKey, user: User) {
        let known = self.by_claim.entry(claim.clone()).or_default();
        if let Err(place) = known.binary_search(&user) {
            let mut all = std::mem::take(known).into_vec();
            all.reserve_exact(1);
            all.insert(place, user.clone());
            *known = all.into_boxed_slice();
        }
        self.by_node.entry(user.0).or_default().insert(claim);
    }

    fn unlink(&mut self, claim: &ClaimKey, node: &str, pod: &str) {
        let Some(users) = self.by_claim.get_mut(claim) else { return };
        let left: Vec<User> = std::mem::take(users).into_vec();
        *users = left.into_iter().filter(|(on, name)| **on != *node || **name != *pod).collect();
        let still = users.iter().any(|(on, _)| **on == *node);
        if users.is_empty() {
            self.by_claim.remove(claim);
        }
        if still {
            return;
        }
        if let Some(claims) = self.by_node.get_mut(node) {
            claims.remove(claim);
            if claims.is_empty() {
                self.by_node.remove(node);
            }
        }
    }

    /// The namespace and name of each pod that uses something.
    pub(super) fn pods(&self) -> impl Iterator<Item = (&str, &str)> {
        self.pods.keys().map(|(namespace, name)| (&**namespace, &**name))
    }

    /// The claims that are used on a node.
    pub(super) fn on(&self, node: &str) -> impl Iterator<Item = &ClaimKey> {
        self.by_node.get(node).into_iter().flatten()
    }

    pub(super) fn nodes(&self) -> BTreeSet<Box<str>> {
        self.by_node.keys().map(|node| (&**node).into()).collect()
    }

    /// Each node and pod that uses a claim, in order.
    pub(super) fn all_of(&self, claim: &ClaimKey) -> &[User] {
        self.by_claim.get(claim).map_or(&[], |users| users)
    }

    /// The nodes that a claim is used on, each with its pods there.
    pub(super) fn of(&self, claim: &ClaimKey) -> impl Iterator<Item = (&str, &[User])> {
        self.all_of(claim).chunk_by(|(one, _), (other, _)| one == other).map(|users| (&*users[0].0, users))
    }

    /// Every claim that is used, with the nodes.
    pub(super) fn all(&self) -> impl Iterator<Item = (&ClaimKey, impl Iterator<Item = &str>)> {
        self.by_claim.keys().map(|claim| (claim, self.of(claim).map(|(node, _)| node)))
    }

    /// What the kubelet says of a claim in one pod.
    pub(super) fn reported<'a>(
        &'a self,
        claim: &'a ClaimKey,
        pod: &str,
    ) -> impl Iterator<Item = &'a KubeletHealth> {
        let pod = self.pods.get(&(claim.namespace.clone(), pod.into()));
        pod.into_iter()
            .flat_map(|pod| &pod.uses)
            .filter(|(used, _)| *used == claim.name)
            .filter_map(|(_, reported)| reported.as_deref())
    }

    /// The drivers of inline volumes, by node.
    pub(super) fn inline(&self) -> BTreeSet<(&str, &str)> {
        let pods = self.pods.values();
        pods.flat_map(|pod| pod.inline.iter().map(|driver| (&*pod.node, &**driver))).collect()
    }
}
