//! Volumes that cannot be attached or mounted where a pod waits for them, from the state of the cluster and never from
//! events. That a pod waits for longer than starting takes is the agent's finding: it knows what the kubelet has set up.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use volmedic_health::{Condition, NotProbed, WellKnown};

use super::{Source, World};
use crate::ClaimKey;
use crate::facts::{Seen, Since, VolumeId, What};
use crate::shape;

#[derive(Debug, Default)]
pub(super) struct Attachments {
    /// By the name of the PersistentVolume, then by their own.
    of_volume: HashMap<Arc<str>, BTreeMap<Box<str>, shape::Attachment>>,
    volume_of: HashMap<Box<str>, Arc<str>>,
    /// The drivers that are registered on each node.
    registered: HashMap<Box<str>, Box<[Arc<str>]>>,
}

impl World {
    pub fn put_attachment(&mut self, name: &str, body: &shape::Attachment) {
        let Some(volume) = body.spec.source.persistent_volume_name.as_deref() else {
            return self.remove_attachment(name);
        };
        if self.attachments.volume_of.get(name).is_some_and(|known| **known != *volume) {
            self.remove_attachment(name);
        }
        let volume: Arc<str> = match self.volumes.get_key_value(volume) {
            Some((known, _)) => known.clone(),
            None => volume.into(),
        };
        let all = self.attachments.of_volume.entry(volume.clone()).or_default();
        if all.insert(name.into(), body.clone()).as_ref() != Some(body) {
            self.attachments.volume_of.insert(name.into(), volume.clone());
            self.touch_claim_of(&volume);
        }
    }

    pub fn remove_attachment(&mut self, name: &str) {
        let Some(volume) = self.attachments.volume_of.remove(name) else { return };
        if let Some(all) = self.attachments.of_volume.get_mut(&volume) {
            all.remove(name);
            if all.is_empty() {
                self.attachments.of_volume.remove(&volume);
            }
        }
        self.touch_claim_of(&volume);
    }

    pub(super) fn put_registered(&mut self, node: &str, body: &shape::CsiNode) {
        let drivers = body.spec.drivers.iter().flatten();
        let drivers: Box<[Arc<str>]> = drivers.map(|driver| self.words.get(&driver.name)).collect();
        if self.attachments.registered.get(node) != Some(&drivers) {
            self.attachments.registered.insert(node.into(), drivers);
            self.touch_node(node);
        }
    }

    pub(super) fn remove_registered(&mut self, node: &str) {
        if self.attachments.registered.remove(node).is_some() {
            self.touch_node(node);
        }
    }

    fn attachments_of(&self, volume: &VolumeId) -> impl Iterator<Item = &shape::Attachment> {
        self.attachments.of_volume.get(&volume.name).into_iter().flat_map(BTreeMap::values)
    }

    /// Errors of attaching a volume where it is used, and of detaching it anywhere.
    pub(super) fn attach_errors(&self, key: &ClaimKey, volume: &VolumeId) -> Vec<Seen> {
        let mut all = Vec::new();
        for attachment in self.attachments_of(volume) {
            let node = &attachment.spec.node_name;
            let is_used = self.users.of(key).any(|(used, _)| used == node);
            let errors = [
                (WellKnown::AttachFailed, "attached to", &attachment.status.attach_error, is_used),
                (WellKnown::DetachFailed, "detached from", &attachment.status.detach_error, true),
            ];
            for (reason, verb, error, counts) in errors {
                let Some(error) = error.as_ref().filter(|_| counts) else { continue };
                if reason == WellKnown::AttachFailed && attachment.status.attached {
                    continue;
                }
                let text = error.message.as_deref().unwrap_or("no reason is given");
                let message = format!("the volume cannot be {verb} node {node}: {text}");
                let since = error.time.as_ref().map_or(Since::Unsaid, |time| Since::NotAfter(time.0));
                all.push(wrong(reason, &message, since));
            }
        }
        all
    }

    /// Why a volume is not mounted where a pod waits for it, if that is what an agent says: with the most specific cause
    /// that the state of the cluster knows.
    pub(super) fn not_mounted(&self, node: &str, volume: &VolumeId, word: &str, text: &str) -> Option<Seen> {
        // What else an agent may say of a pod that waits, such as that the driver is not registered yet, is said at once:
        // it is part of the normal seconds of starting.
        let why = word.parse::<NotProbed>().ok().filter(|why| *why == NotProbed::NotMounted)?;
        let text = if text.is_empty() { why.meaning() } else { text };
        let driver = volume.csi.as_ref().map(|(driver, _)| driver);
        let registered = self.attachments.registered.get(node);
        let missing = |driver: &&Arc<str>| match registered {
            Some(drivers) => !drivers.contains(driver),
            None => self.heard.contains(&Source::Backends),
        };
        if let Some(driver) = driver.filter(missing) {
            let message =
                format!("driver {driver} is not registered on node {node}, where a pod waits for the volume");
            return Some(wrong(WellKnown::DriverNotRegistered, &message, Since::Unsaid));
        }
        let is_here = self.attachments_of(volume).any(|attachment| attachment.spec.node_name == node);
        let mut elsewhere = self.attachments_of(volume).filter(|attachment| attachment.status.attached);
        if let Some(other) = elsewhere.next().filter(|_| !is_here) {
            let message = format!(
                "the volume is attached to node {}, and not to node {node}, where a pod waits for it",
                other.spec.node_name
            );
            return Some(wrong(WellKnown::AttachedElsewhere, &message, Since::Unsaid));
        }
        Some(wrong(WellKnown::NotMounted, &format!("on node {node}: {text}"), Since::Unsaid))
    }
}

fn wrong(reason: WellKnown, message: &str, since: Since) -> Seen {
    Seen { what: What::Wrong(Condition::new(reason.usual_status(), reason.into(), message)), since }
}
