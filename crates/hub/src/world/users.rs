//! Who uses which claim on which node.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use crate::ClaimKey;
use crate::shape::{self, Told};

/// What a pod uses, as far as it matters. Nothing in here changes which pod it is.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct PodRecord {
    pub(super) node: Box<str>,
    /// The volume's name in the pod, and the claim's.
    pub(super) uses: Vec<(Box<str>, Box<str>)>,
    /// Drivers of inline volumes.
    pub(super) inline: Vec<Box<str>>,
    /// What the kubelet says, by the volume's name in the pod.
    pub(super) told: Vec<(Box<str>, Told)>,
}

impl PodRecord {
    /// None for a pod that uses nothing anywhere: not scheduled, finished, or without such volumes.
    pub(super) fn new(name: &str, pod: &shape::Pod) -> Option<Self> {
        let node = pod.spec.node_name.as_deref().filter(|node| !node.is_empty())?;
        if matches!(pod.status.phase.as_str(), "Succeeded" | "Failed") {
            return None;
        }
        let volumes = pod.spec.volumes.as_deref().unwrap_or_default();
        let uses: Vec<(Box<str>, Box<str>)> = volumes
            .iter()
            .filter_map(|volume| {
                let claim = match (&volume.persistent_volume_claim, &volume.ephemeral) {
                    (Some(claim), _) => claim.claim_name.as_str().into(),
                    (None, Some(_)) => format!("{name}-{}", volume.name).into(),
                    (None, None) => return None,
                };
                Some((volume.name.as_str().into(), claim))
            })
            .collect();
        let inline: Vec<Box<str>> =
            volumes.iter().filter_map(|volume| Some(volume.csi.as_ref()?.driver.as_str().into())).collect();
        if uses.is_empty() && inline.is_empty() {
            return None;
        }
        let told = pod.status.volume_health.iter().flatten();
        let told = told.map(|entry| (entry.name.as_str().into(), entry.told.clone())).collect();
        Some(Self { node: node.into(), uses, inline, told })
    }
}

#[derive(Debug, Default)]
pub(super) struct Users {
    pods: HashMap<(Box<str>, Box<str>), PodRecord>,
    /// The names of the pods that use a claim, by claim and node.
    by_claim: HashMap<ClaimKey, BTreeMap<Box<str>, BTreeSet<Box<str>>>>,
    by_node: HashMap<Box<str>, BTreeSet<ClaimKey>>,
}

impl Users {
    /// Puts a pod in the place of what was known of it; `None` if it is gone. Answers the claims that concerns.
    pub(super) fn put(&mut self, namespace: &str, name: &str, pod: Option<PodRecord>) -> BTreeSet<ClaimKey> {
        let key = (namespace.into(), name.into());
        if self.pods.get(&key) == pod.as_ref() {
            return BTreeSet::new();
        }
        let mut touched = BTreeSet::new();
        if let Some(old) = self.pods.remove(&key) {
            for (_, claim) in &old.uses {
                let claim = ClaimKey::new(namespace, claim);
                self.unlink(&claim, &old.node, name);
                touched.insert(claim);
            }
        }
        if let Some(pod) = pod {
            for (_, claim) in &pod.uses {
                let claim = ClaimKey::new(namespace, claim);
                let nodes = self.by_claim.entry(claim.clone()).or_default();
                nodes.entry(pod.node.clone()).or_default().insert(name.into());
                self.by_node.entry(pod.node.clone()).or_default().insert(claim.clone());
                touched.insert(claim);
            }
            self.pods.insert(key, pod);
        }
        touched
    }

    fn unlink(&mut self, claim: &ClaimKey, node: &str, pod: &str) {
        let Some(nodes) = self.by_claim.get_mut(claim) else { return };
        let Some(pods) = nodes.get_mut(node) else { return };
        pods.remove(pod);
        if !pods.is_empty() {
            return;
        }
        nodes.remove(node);
        if nodes.is_empty() {
            self.by_claim.remove(claim);
        }
        if let Some(claims) = self.by_node.get_mut(node) {
            claims.remove(claim);
            if claims.is_empty() {
                self.by_node.remove(node);
            }
        }
    }

    /// The claims that are used on a node.
    pub(super) fn on(&self, node: &str) -> impl Iterator<Item = &ClaimKey> {
        self.by_node.get(node).into_iter().flatten()
    }

    pub(super) fn nodes(&self) -> BTreeSet<Box<str>> {
        self.by_node.keys().cloned().collect()
    }

    /// The nodes that a claim is used on, with the names of the pods.
    pub(super) fn of(&self, claim: &ClaimKey) -> impl Iterator<Item = (&str, &BTreeSet<Box<str>>)> {
        self.by_claim.get(claim).into_iter().flatten().map(|(node, pods)| (&**node, pods))
    }

    /// Every claim that is used, with the nodes.
    pub(super) fn all(&self) -> impl Iterator<Item = (&ClaimKey, impl Iterator<Item = &str>)> {
        self.by_claim.iter().map(|(claim, nodes)| (claim, nodes.keys().map(AsRef::as_ref)))
    }

    /// What the kubelet says of a claim in one pod.
    pub(super) fn told<'a>(&'a self, claim: &'a ClaimKey, pod: &str) -> impl Iterator<Item = &'a Told> {
        let pod = self.pods.get(&(claim.namespace.clone(), pod.into()));
        pod.into_iter()
            .flat_map(move |pod| {
                let volumes = pod.uses.iter().filter(move |(_, used)| *used == claim.name);
                volumes.flat_map(|(volume, _)| pod.told.iter().filter(move |(name, _)| name == volume))
            })
            .map(|(_, told)| told)
    }

    /// The drivers of inline volumes, by node.
    pub(super) fn inline(&self) -> BTreeSet<(&str, &str)> {
        let pods = self.pods.values();
        pods.flat_map(|pod| pod.inline.iter().map(|driver| (&*pod.node, &**driver))).collect()
    }
}
