//! What the watches brought in, and which claims that concerns.
//!
//! Nothing here waits or fails. Anyone who puts something in marks the claims whose facts may be others now; a mark too
//! many costs a moment, one too few would be a change that nobody notices.

mod announced;
mod attachments;
mod changes;
mod evidence;
mod facts;
mod judged;
mod names;
mod patients;
mod records;
mod shown;
mod stuck;
mod users;

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use jiff::Timestamp;
use volmedic_api::resource::{NodeReport, VantageKind, VolumeHealthStatus};
use volmedic_health::Remedy;

use crate::ClaimKey;
use crate::agents::{Agents, Now};
use crate::controllers::Controllers;
use crate::facts::VolumeId;
use crate::shape::{self, StorageHealth};
pub use announced::Announcement;
use announced::Announcements;
use attachments::Attachments;
pub use evidence::Controller;
use judged::Judgements;
pub use judged::{Class, Line, UnhealthyClaim};
pub use patients::{Bed, Patient};
pub use records::Phase;
use records::{Claim, Volume, Words};
pub(crate) use records::{Marks, Uid};
pub use shown::{ShownAgent, ShownClaim, ShownNode};
use stuck::{Deleting, Stuck};
use users::{PodRecord, Users};

/// Where facts come from. Until a source was read whole once, what is stored of its vantages stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Source {
    Claims,
    Volumes,
    Pods,
    Nodes,
    Stored,
    Reports,
    Leases,
    /// The Leases of drivers' controllers: those that describe themselves, and those that reports name.
    Controllers,
    Backends,
    Attachments,
    /// Not only which nodes there are, but which of them are down.
    NodesDown,
}

impl Source {
    /// Without these nothing can be said of any claim.
    const NEEDED: [Self; 5] = [Self::Claims, Self::Volumes, Self::Pods, Self::Nodes, Self::Stored];
}

/// A node that is down, as the cluster sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DownNode {
    pub since: Timestamp,
    /// Why, as the end of a sentence.
    pub why: String,
}

/// What is stored for a claim.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Stored {
    pub(crate) uid: Box<str>,
    pub(crate) version: Box<str>,
    /// The uid of the claim it belongs to.
    pub(crate) owner: Option<Uid>,
    pub(crate) made: Option<Timestamp>,
    /// Somebody asked for its deletion.
    pub(crate) going: bool,
    pub(crate) status: Option<VolumeHealthStatus>,
}

#[derive(Debug, Default)]
pub struct World {
    claims: HashMap<ClaimKey, Claim>,
    /// What is wrong with claims themselves.
    stuck: HashMap<ClaimKey, Box<[Stuck]>>,
    deleting: Deleting,
    /// About now: when the keeper worked last.
    now: Option<Timestamp>,
    volumes: HashMap<Arc<str>, Volume>,
    /// The local ones among them. Few clusters have many, so this is no field of each volume.
    local_volumes: HashSet<Arc<str>>,
    users: Users,
    agents: Agents,
    controllers: Controllers,
    /// The controllers that were found, by driver.
    drivers: BTreeMap<Box<str>, Controller>,
    reports: BTreeMap<Box<str>, NodeReport>,
    reports_seen: u64,
    backends: HashMap<Box<str>, Vec<StorageHealth>>,
    attachments: Attachments,
    nodes: BTreeSet<Box<str>>,
    down: BTreeMap<Box<str>, DownNode>,
    stored: HashMap<ClaimKey, Stored>,
    heard: BTreeSet<Source>,
    /// Whether the API server lets an agent speak only for its own node.
    verified: bool,
    /// The hub requests tokens for itself, and the API server does not limit which ones.
    tokens_unlimited: bool,
    dirty: BTreeSet<ClaimKey>,
    judgements: Judgements,
    /// Who shows what is stored, if anybody does.
    listener: Option<shown::Listener>,
    /// What is to be reported as events; `None` where nothing is.
    announcements: Option<Announcements>,
    /// The same, for a healer; `None` where there is none.
    followed: Option<BTreeSet<ClaimKey>>,
    /// Nobody asks which claims may have changed, so that is not kept.
    untracked: bool,
    words: Words,
    /// What the healer can do besides asking node plugins.
    remedies: BTreeSet<Remedy>,
}

/// The label and the annotation that a PersistentVolume is marked with.
pub(crate) const HEALTH_LABEL: &str = "volmedic.dev/health";
pub(crate) const MESSAGE_ANNOTATION: &str = "PVUnhealthMessage";

impl World {
    /// For a caller that reads everything and asks for all of it: which claims may have changed is not kept.
    pub fn untracked() -> Self {
        Self { untracked: true, ..Self::default() }
    }

    /// A key that shares its text with what is known of that claim.
    fn key(&mut self, namespace: &str, name: &str) -> ClaimKey {
        let key = ClaimKey { namespace: self.words.get(namespace), name: name.into() };
        match self.claims.get_key_value(&key) {
            Some((known, _)) => known.clone(),
            None => key,
        }
    }

    /// A source was read whole. The first time, all that is stored of it is judged again.
    pub fn heard(&mut self, source: Source) {
        if self.heard.insert(source) {
            self.touch_all_stored();
        }
    }

    pub fn has_heard(&self, source: Source) -> bool {
        self.heard.contains(&source)
    }

    /// Whether enough was read to judge at all.
    pub fn is_ready(&self) -> bool {
        Source::NEEDED.iter().all(|source| self.heard.contains(source))
    }

    pub fn put_claim(&mut self, namespace: &str, name: &str, uid: &str, body: &shape::Claim) {
        let volumes = &self.volumes;
        let share = |name: &str| volumes.get_key_value(name).map(|(known, _)| known.clone());
        let mut claim = Claim::new(uid, body, &mut self.words, share);
        let key = self.key(namespace, name);
        claim.judged = self.claims.get(&key).and_then(|known| known.judged);
        let is_stuck_otherwise = self.put_stuck(&key, body, claim.phase);
        if self.claims.get(&key) != Some(&claim) {
            self.claims.insert(key.clone(), claim);
            self.touch(key);
        } else if is_stuck_otherwise {
            self.touch(key);
        }
    }

    pub fn remove_claim(&mut self, namespace: &str, name: &str) {
        let key = ClaimKey::new(namespace, name);
        self.stuck.remove(&key);
        if let Some(claim) = self.claims.remove(&key) {
            self.judgements.forget(&key, claim.judged);
            self.touch(key);
        }
    }

    pub fn put_volume(&mut self, name: &str, body: &shape::Volume) {
        let shape::VolumeSpec { csi, local, claim_ref } = &body.spec;
        let of = |map: &Option<BTreeMap<String, String>>, key: &str| {
            map.as_ref().and_then(|map| map.get(key)).map(|text| text.as_str().into())
        };
        let csi = csi.as_ref().map(|csi| (self.words.get(&csi.driver), csi.volume_handle.as_str().into()));
        let claim = claim_ref.as_ref().filter(|claim| !claim.uid.is_empty());
        let claim = claim.map(|claim| (self.key(&claim.namespace, &claim.name), claim.uid.as_str().into()));
        // The claim names the same volume, and names take most of the room.
        let of_claim = claim.as_ref().and_then(|(key, _)| self.claims.get(key)).map(|claim| &claim.volume);
        let name: Arc<str> = match (self.volumes.get_key_value(name), of_claim) {
            (Some((known, _)), _) => known.clone(),
            (None, Some(known)) if **known == *name => known.clone(),
            (None, _) => name.into(),
        };
        let marks = Marks {
            label: of(&body.metadata.labels, HEALTH_LABEL),
            message: of(&body.metadata.annotations, MESSAGE_ANNOTATION),
        };
        if local.is_some() {
            self.local_volumes.insert(name.clone());
        } else {
            self.local_volumes.remove(&name);
        }
        let volume = Volume::new(VolumeId { name: name.clone(), csi }, claim, marks);
        if self.volumes.get(&name) == Some(&volume) {
            return;
        }
        self.touch_claim_of(&name);
        self.volumes.insert(name.clone(), volume);
        self.touch_claim_of(&name);
    }

    pub fn remove_volume(&mut self, name: &str) {
        self.touch_claim_of(name);
        self.volumes.remove(name);
        self.local_volumes.remove(name);
    }

    pub fn put_pod(&mut self, namespace: &str, name: &str, pod: &shape::Pod) {
        let by = pod.metadata.deletion_timestamp.as_ref().map(|time| time.0);
        let pod = PodRecord::new(name, pod, &mut self.words);
        if self.put_deleting(namespace, name, by.filter(|_| pod.is_some())) {
            let claims =
                pod.iter().flat_map(|pod| &pod.uses).map(|(claim, _)| ClaimKey::new(namespace, claim));
            self.touch_all(claims.collect::<Vec<_>>());
        }
        let claims = &self.claims;
        let share = |key: ClaimKey| claims.get_key_value(&key).map_or(key, |(known, _)| known.clone());
        let touched = self.users.put(&self.words.get(namespace), name, pod, share);
        self.touch_all(touched);
    }

    pub fn remove_pod(&mut self, namespace: &str, name: &str) {
        self.put_deleting(namespace, name, None);
        let touched = self.users.put(&self.words.get(namespace), name, None, |key| key);
        self.touch_all(touched);
    }

    /// All nodes there are.
    pub fn set_nodes(&mut self, nodes: BTreeSet<Box<str>>) {
        let before = std::mem::replace(&mut self.nodes, nodes);
        let changed: Vec<_> = before.symmetric_difference(&self.nodes).cloned().collect();
        for node in changed {
            self.touch_node(&node);
        }
    }

    /// All nodes that are down.
    pub fn set_down(&mut self, down: BTreeMap<Box<str>, DownNode>) {
        let before = std::mem::replace(&mut self.down, down);
        let names: BTreeSet<_> = before.keys().chain(self.down.keys()).cloned().collect();
        for node in
            names.into_iter().filter(|node| before.get(node) != self.down.get(node)).collect::<Vec<_>>()
        {
            self.touch_node(&node);
        }
    }

    pub fn put_report(&mut self, node: &str, report: &NodeReport) {
        let kept = evidence::in_order(report);
        let Some(before) = self.reports.insert(node.into(), kept) else {
            return self.touch_node(node);
        };
        let Some(report) = self.reports.get(node).filter(|report| **report != before) else { return };
        // Only volumes that one of the two has and the other has not, or has otherwise.
        let differs = |volume: &VolumeId| {
            let of = |report: &NodeReport| -> Vec<_> {
                let entries = report.volumes.iter();
                entries.filter(|entry| volume.is(&entry.driver, &entry.volume_handle)).cloned().collect()
            };
            of(&before) != of(report)
                || (before.omitted == 0) != (report.omitted == 0)
                || !evidence::is_covered_alike(&before, report, &volume.name)
        };
        let touched: Vec<_> = self
            .users
            .on(node)
            .filter(|claim| self.volume_of(claim).is_none_or(|volume| differs(&volume.id)))
            .cloned()
            .collect();
        self.touch_all(touched);
    }

    /// A report of this version was seen, whichever node's.
    pub fn saw_report(&mut self, version: &str) {
        self.reports_seen =
            version.parse().map_or(self.reports_seen, |seen: u64| seen.max(self.reports_seen));
    }

    pub fn remove_report(&mut self, node: &str) {
        if self.reports.remove(node).is_some() {
            self.touch_node(node);
        }
    }

    pub fn put_lease(&mut self, now: Now, node: &str, lease: &shape::Lease) {
        if self.agents.put(now, node, lease) {
            self.touch_node(node);
        }
    }

    pub fn remove_lease(&mut self, node: &str) {
        if self.agents.remove(node) {
            self.touch_node(node);
        }
    }

    /// For a caller that reads everything once and does not watch: who runs is decided by the times in the Leases.
    pub fn settle(&mut self, now: Now, skew: std::time::Duration) {
        self.agents.settle(now, skew);
        self.controllers.settle(now, skew);
    }

    /// Finds the agents that stopped responding; `in_touch` while Leases are being watched. Answers when to ask again.
    pub fn tick(&mut self, now: Now, in_touch: bool) -> Option<std::time::Instant> {
        self.now = Some(now.day);
        for node in self.agents.tick(now, in_touch) {
            tracing::warn!(node = &*node, "the agent gives no sign of life");
            self.touch_node(&node);
        }
        if self.controllers.tick(now) {
            self.touch_controlled(None);
        }
        [self.agents.next_due(), self.controllers.next_due()].into_iter().flatten().min()
    }

    pub fn put_backends(&mut self, node: &str, body: &shape::CsiNode) {
        self.put_registered(node, body);
        let reported = body.status.storage_health.clone().unwrap_or_default();
        if reported.is_empty() {
            return self.remove_backends(node);
        }
        if self.backends.get(node) != Some(&reported) {
            self.backends.insert(node.into(), reported);
            self.touch_node(node);
        }
    }

    pub fn remove_csi_node(&mut self, node: &str) {
        self.remove_registered(node);
        self.remove_backends(node);
    }

    fn remove_backends(&mut self, node: &str) {
        if self.backends.remove(node).is_some() {
            self.touch_node(node);
        }
    }

    pub fn put_stored(&mut self, namespace: &str, name: &str, object: &shape::StoredHealth) {
        let key = self.key(namespace, name);
        let stored = Stored {
            uid: object.metadata.uid.as_str().into(),
            version: object.metadata.resource_version.as_str().into(),
            owner: object.metadata.owner().map(Into::into),
            made: object.metadata.creation_timestamp.as_ref().map(|time| time.0),
            going: object.metadata.deletion_timestamp.is_some(),
            status: object.status.clone(),
        };
        // What we wrote is known before the watch brings it; what the watch brings late is old.
        if self.stored.get(&key).is_some_and(|known| known.uid == stored.uid && is_older(&stored, known)) {
            return;
        }
        let changed = self.stored.get(&key) != Some(&stored);
        let before = self.stored.insert(key.clone(), stored);
        if changed {
            let before = before.as_ref().and_then(|before| before.status.as_ref());
            self.tell(&key, before, self.stored_of(&key));
            self.note_reported(&key, before);
            self.touch(key);
        }
    }

    pub fn remove_stored(&mut self, namespace: &str, name: &str) {
        let key = ClaimKey::new(namespace, name);
        if self.stored.remove(&key).is_some() {
            self.touch(key);
        }
    }

    /// Whether the API server lets an agent speak only for its own node.
    pub fn set_verified(&mut self, verified: bool) {
        if self.verified != verified {
            self.verified = verified;
            self.touch_all_stored();
        }
    }

    pub fn is_verified(&self) -> bool {
        self.verified
    }

    /// Whether the hub requests tokens for itself without a policy that limits which ones.
    pub fn set_tokens_unlimited(&mut self, unlimited: bool) {
        self.tokens_unlimited = unlimited;
    }

    pub fn are_tokens_unlimited(&self) -> bool {
        self.tokens_unlimited
    }

    /// Whether every admission policy is in force that this hub relies on. While one is not, nothing is healed.
    pub fn is_guarded(&self) -> bool {
        self.verified && !self.tokens_unlimited
    }

    /// What all objects say together: how many claims have which health.
    pub fn tally(&self) -> BTreeMap<&'static str, usize> {
        let mut tally = BTreeMap::new();
        for stored in self.stored.values() {
            if let Some(status) = &stored.status {
                *tally.entry(status.headline.health.as_str()).or_default() += 1;
            }
        }
        tally
    }

    /// What is stored of each claim, in order.
    pub fn stored(&self) -> BTreeMap<ClaimKey, VolumeHealthStatus> {
        let all = self.stored.iter();
        all.filter_map(|(key, stored)| Some((key.clone(), stored.status.clone()?))).collect()
    }

    /// The nodes that somebody uses claims on, whether or not they are there.
    pub fn used_nodes(&self) -> BTreeSet<Box<str>> {
        self.users.nodes()
    }

    /// Nodes of which agents reported, or gave signs of life, and which are not there any more.
    pub fn strays(&self) -> BTreeSet<Box<str>> {
        let spoke = self.reports.keys().chain(self.agents.nodes());
        spoke.filter(|node| !self.nodes.contains(*node)).cloned().collect()
    }

    pub fn has_claim(&self, key: &ClaimKey) -> bool {
        self.claims.contains_key(key)
    }

    /// The claims that are bound to a volume, in order.
    pub fn claims_of(&self, driver: &str, handle: &str) -> Vec<ClaimKey> {
        let volumes = self.volumes.values().filter(|volume| volume.id.is(driver, handle));
        let claims = volumes.filter_map(|volume| Some(volume.claim.as_deref()?.0.clone()));
        let mut claims: Vec<_> = claims.filter(|key| self.volume_of(key).is_some()).collect();
        claims.sort_unstable();
        claims
    }

    pub fn claims(&self) -> usize {
        self.claims.len()
    }

    /// The volume that a claim is bound to, if both say so.
    fn volume_of(&self, key: &ClaimKey) -> Option<&Volume> {
        let claim = self.claims.get(key)?;
        let volume = self.volumes.get(&claim.volume)?;
        volume.claim.as_deref().filter(|(owner, uid)| owner == key && *uid == claim.uid)?;
        Some(volume)
    }

    fn unheard(&self) -> Vec<VantageKind> {
        let needs = |kind: &VantageKind| match kind {
            VantageKind::Node | VantageKind::Host => Source::Reports,
            VantageKind::Kubelet => Source::Backends,
            VantageKind::Controller | VantageKind::Pushed => Source::Claims,
            VantageKind::Cluster => Source::NodesDown,
        };
        let all = [VantageKind::Node, VantageKind::Host, VantageKind::Kubelet, VantageKind::Cluster];
        all.into_iter().filter(|kind| !self.heard.contains(&needs(kind))).collect()
    }
}

/// Versions of one object are numbers that grow. Should they be none, the newest to arrive counts.
fn is_older(new: &Stored, known: &Stored) -> bool {
    match (new.version.parse::<u64>(), known.version.parse::<u64>()) {
        (Ok(new), Ok(known)) => new < known,
        _ => false,
    }
}

#[cfg(test)]
mod tests;
