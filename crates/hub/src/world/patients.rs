//! What a healer asks: where a claim's volume is used, and what is wrong there that it can do something about.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use volmedic_api::resource::{Heal, VantageKind};
use volmedic_health::{Reason, Remedy};

use super::{Source, World};
use crate::ClaimKey;
use crate::facts::{LOCAL_VOLUME, Since, View, VolumeId, What};

/// A claim's volume where pods use it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Patient {
    /// Of the claim.
    pub uid: Box<str>,
    /// The name of its PersistentVolume.
    pub volume: Box<str>,
    pub driver: Box<str>,
    pub handle: Box<str>,
    pub beds: Vec<Bed>,
}

/// One node on which pods use it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Bed {
    pub node: Box<str>,
    /// What the healer can do something about there, and since when, if somebody knows.
    pub unhealthy: Option<(Reason, Option<Timestamp>)>,
    /// Why it is unknown right now how it is there.
    pub unseen: Option<String>,
}

impl World {
    /// What a healer can do besides asking node plugins. Only what it can heal counts as unhealthy for it.
    pub fn set_remedies(&mut self, remedies: BTreeSet<Remedy>) {
        self.remedies = remedies;
    }

    /// Whether the agent on a node has probed a PersistentVolume within the interval that it states. `None` if it does
    /// not say which volumes it probes.
    pub fn is_probed(&self, node: &str, volume: &str) -> Option<bool> {
        let coverage = self.reports.get(node)?.coverage.as_ref()?;
        let probed = coverage.groups.iter().filter(|group| !group.probed_from.is_empty());
        Some(probed.flat_map(|group| &group.persistent_volumes).any(|name| name == volume))
    }

    /// From now on [`take_followed`](Self::take_followed) returns which claims may have changed; all that are known have.
    pub fn follow(&mut self) {
        self.followed = Some(self.claims.keys().cloned().collect());
    }

    /// The claims that may have changed since this was last asked.
    pub fn take_followed(&mut self) -> BTreeSet<ClaimKey> {
        self.followed.as_mut().map(std::mem::take).unwrap_or_default()
    }

    /// Whether the agents' words and signs of life have been heard too.
    pub fn has_heard_nodes(&self) -> bool {
        self.is_ready() && [Source::Reports, Source::Leases].iter().all(|source| self.heard.contains(source))
    }

    /// `None` if it is bound to neither a volume of a CSI driver nor a local volume.
    pub fn patient(&self, key: &ClaimKey) -> Option<Patient> {
        let uid = self.claims.get(key)?.uid.to_string().into();
        let volume = &self.volume_of(key)?.id;
        let (driver, handle) = self.driver_and_handle(volume)?;
        let views = self.facts(key).views;
        let nodes = self.users.of(key).map(|(node, _)| node).filter(|node| self.is_there(node));
        // The kubelet mounts local volumes by itself, so there is no node plugin to ask.
        let plugin = volume.csi.is_some();
        let can = |remedy: &Remedy| match remedy {
            Remedy::NodeHealer => plugin,
            remedy => self.remedies.contains(remedy),
        };
        let heals = |reason: &Reason| reason.remedies().iter().any(can);
        let beds = nodes.map(|node| bed(node, &views, heals)).collect();
        let [volume, driver, handle] = [&volume.name, driver, handle].map(Into::into);
        Some(Patient { uid, volume, driver, handle, beds })
    }

    /// By what an agent names a volume that can be healed.
    fn driver_and_handle<'a>(&self, volume: &'a VolumeId) -> Option<(&'a str, &'a str)> {
        match &volume.csi {
            Some((driver, handle)) => Some((driver, handle)),
            None => self.local_volumes.contains(&volume.name).then_some((LOCAL_VOLUME, &*volume.name)),
        }
    }

    /// How many volumes are in use, each counted once for each node, by driver.
    pub fn in_use(&self) -> BTreeMap<Box<str>, usize> {
        let mut counts = BTreeMap::new();
        for (claim, nodes) in self.users.all() {
            let volume = self.volume_of(claim);
            if let Some((driver, _)) = volume.and_then(|volume| self.driver_and_handle(&volume.id)) {
                let known = nodes.filter(|node| self.nodes.contains(*node)).count();
                match counts.get_mut(driver) {
                    Some(count) => *count += known,
                    None => drop(counts.insert(driver.into(), known)),
                }
            }
        }
        counts
    }

    /// The attempts to heal that are stored, of all claims that have any.
    pub fn heals(&self) -> Vec<(ClaimKey, Vec<Heal>)> {
        let stored = self.stored.iter().filter_map(|(key, stored)| {
            let heals = &stored.status.as_ref()?.heals;
            (!heals.is_empty()).then(|| (key.clone(), heals.clone()))
        });
        stored.collect()
    }
}

fn bed(node: &str, views: &[View], heals: impl Fn(&Reason) -> bool) -> Bed {
    // What has no node is said of the volume wherever it is used.
    let near = |view: &&View| view.node.as_deref().is_none_or(|of| of == node);
    let mut unhealthy: Option<(Reason, Option<Timestamp>)> = None;
    let (mut seen_from, mut unseen) = (false, None);
    for view in views.iter().filter(near) {
        seen_from |= view.node.is_some();
        for seen in &view.seen {
            match &seen.what {
                What::Wrong(condition) if heals(&condition.reason) => {
                    let since = match seen.since {
                        Since::Exactly(at) | Since::NotAfter(at) => Some(at),
                        Since::Unsaid => None,
                    };
                    // The oldest trouble is the one that the others follow from.
                    let older = unhealthy.as_ref().is_none_or(|(_, known)| match (since, known) {
                        (Some(since), Some(known)) => since < *known,
                        (since, known) => since.is_some() && known.is_none(),
                    });
                    if older {
                        unhealthy = Some((condition.reason.clone(), since));
                    }
                }
                What::Unknown { message, .. } if view.kind == VantageKind::Host => {
                    unseen.get_or_insert_with(|| message.clone());
                }
                What::Wrong(_) | What::Unknown { .. } => {}
            }
        }
    }
    if !seen_from && unhealthy.is_none() {
        unseen.get_or_insert_with(|| format!("no vantage on node {node} probes it"));
    }
    Bed { node: node.into(), unhealthy, unseen }
}
