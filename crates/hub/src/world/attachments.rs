//! Volumes that cannot be attached or mounted where a pod waits for them, from the state of the cluster and never from
//! events. That a pod waits for longer than starting takes is the agent's finding: it knows what the kubelet has set up.

use std::collections::HashMap;
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use volmedic_health::{Condition, NotProbed, WellKnown};

use super::records::Words;
use super::{Source, World};
use crate::ClaimKey;
use crate::facts::{Seen, Since, VolumeId, What};
use crate::shape;

/// An error that is younger does not count yet: the attacher tries again within seconds, and that helps often, such as
/// while the driver's controller starts.
const SECOND_TRY: SignedDuration = SignedDuration::from_secs(20);

/// Compact, because a cluster has about as many attachments as volumes in use.
#[derive(Debug, Default)]
pub(super) struct Attachments {
    /// By the name of the PersistentVolume, then in the order of their own names. Nearly all volumes have one, for which
    /// an ordered map would take the room of eleven.
    of_volume: HashMap<Arc<str>, Box<[Attachment]>>,
    /// The volume of each, by its own name.
    volume_of: HashMap<Arc<str>, Arc<str>>,
    /// The drivers that are registered on each node.
    registered: HashMap<Box<str>, Box<[Arc<str>]>>,
}

/// What is kept of a VolumeAttachment.
#[derive(Debug, PartialEq)]
struct Attachment {
    name: Arc<str>,
    node: Arc<str>,
    attached: bool,
    /// Nearly all have none.
    errors: Option<Box<Errors>>,
}

#[derive(Debug, PartialEq)]
struct Errors {
    attach: Option<shape::AttachmentError>,
    detach: Option<shape::AttachmentError>,
    /// The times of the first error of each kind since one succeeded; later tries have later ones.
    attach_first: Option<Timestamp>,
    detach_first: Option<Timestamp>,
}

impl Attachment {
    /// `known` is what was known of it before.
    fn new(name: Arc<str>, body: &shape::Attachment, words: &mut Words, known: Option<&Self>) -> Self {
        let shape::Attachment { spec, status } = body;
        let shape::AttachmentSpec { node_name, source: _ } = spec;
        let shape::AttachmentStatus { attached, attach_error, detach_error } = status;
        let has_errors = attach_error.is_some() || detach_error.is_some();
        let known = known.and_then(|known| known.errors.as_deref());
        let first = |now: &Option<shape::AttachmentError>, known: Option<Timestamp>| {
            let time = now.as_ref()?.time.as_ref()?.0;
            Some(known.map_or(time, |known| known.min(time)))
        };
        let errors = || {
            Box::new(Errors {
                attach_first: first(attach_error, known.and_then(|known| known.attach_first)),
                detach_first: first(detach_error, known.and_then(|known| known.detach_first)),
                attach: attach_error.clone(),
                detach: detach_error.clone(),
            })
        };
        Self { name, node: words.get(node_name), attached: *attached, errors: has_errors.then(errors) }
    }

    /// With the time of the first of them.
    fn attach_error(&self) -> Option<(&shape::AttachmentError, Option<Timestamp>)> {
        let errors = self.errors.as_ref()?;
        Some((errors.attach.as_ref()?, errors.attach_first))
    }

    fn detach_error(&self) -> Option<(&shape::AttachmentError, Option<Timestamp>)> {
        let errors = self.errors.as_ref()?;
        Some((errors.detach.as_ref()?, errors.detach_first))
    }
}

impl Attachments {
    /// The names of all attachments.
    pub(super) fn names(&self) -> impl Iterator<Item = &str> {
        self.volume_of.keys().map(|name| &**name)
    }

    /// The nodes of which it is known which drivers are registered there.
    pub(super) fn registered(&self) -> impl Iterator<Item = &str> {
        self.registered.keys().map(|node| &**node)
    }

    fn of(&self, volume: &str) -> &[Attachment] {
        self.of_volume.get(volume).map_or(&[], |all| all)
    }

    /// Whether it is new, or another than before.
    fn put(&mut self, volume: &Arc<str>, attachment: Attachment) -> bool {
        let all = self.of_volume.entry(volume.clone()).or_default();
        match all.binary_search_by(|known| known.name.cmp(&attachment.name)) {
            Ok(place) => {
                let changed = all[place] != attachment;
                all[place] = attachment;
                changed
            }
            Err(place) => {
                self.volume_of.insert(attachment.name.clone(), volume.clone());
                let mut more = std::mem::take(all).into_vec();
                more.reserve_exact(1);
                more.insert(place, attachment);
                *all = more.into_boxed_slice();
                true
            }
        }
    }

    /// Answers whose it was.
    fn remove(&mut self, name: &str) -> Option<Arc<str>> {
        let volume = self.volume_of.remove(name)?;
        if let Some(all) = self.of_volume.get_mut(&volume) {
            *all = std::mem::take(all).into_iter().filter(|known| *known.name != *name).collect();
            if all.is_empty() {
                self.of_volume.remove(&volume);
            }
        }
        Some(volume)
    }
}

impl World {
    pub fn put_attachment(&mut self, name: &str, body: &shape::Attachment) {
        let Some(volume) = body.spec.source.persistent_volume_name.as_deref() else {
            return self.remove_attachment(name);
        };
        let known = self.attachments.volume_of.get_key_value(name);
        let (name, volume): (Arc<str>, Arc<str>) = match known {
            Some((name, known)) if **known == *volume => (name.clone(), known.clone()),
            _ => {
                self.remove_attachment(name);
                let known = self.volumes.get_key_value(volume).map(|(known, _)| known.clone());
                (name.into(), known.unwrap_or_else(|| volume.into()))
            }
        };
        let known = self.attachments.of(&volume).iter().find(|known| known.name == name);
        let attachment = Attachment::new(name, body, &mut self.words, known);
        if self.attachments.put(&volume, attachment) {
            self.touch_claim_of(&volume);
        }
    }

    pub fn remove_attachment(&mut self, name: &str) {
        if let Some(volume) = self.attachments.remove(name) {
            self.touch_claim_of(&volume);
        }
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

    /// Errors of attaching a volume where it is used, and of detaching it anywhere.
    pub(super) fn attach_errors(&self, key: &ClaimKey, volume: &VolumeId) -> Vec<Seen> {
        let mut all = Vec::new();
        for attachment in self.attachments.of(&volume.name) {
            let node = &*attachment.node;
            let is_used = self.users.of(key).any(|(used, _)| used == node);
            let errors = [
                (WellKnown::AttachFailed, "attached to", attachment.attach_error(), is_used),
                (WellKnown::DetachFailed, "detached from", attachment.detach_error(), true),
            ];
            for (reason, verb, error, counts) in errors {
                let Some((error, first)) = error.filter(|_| counts) else { continue };
                if reason == WellKnown::AttachFailed && attachment.attached {
                    continue;
                }
                let text = error.message.as_deref().unwrap_or("no reason is given");
                let message = format!("the volume cannot be {verb} node {node}: {text}");
                let since = first.map_or(Since::Unsaid, Since::NotAfter);
                let counts_from = first.and_then(|first| first.checked_add(SECOND_TRY).ok());
                all.push(Seen { counts_from, ..wrong(reason, &message, since) });
            }
        }
        all
    }

    /// Why a volume is not mounted where a pod waits for it, if that is what an agent says: with the most specific cause
    /// that the state of the cluster knows.
    pub(super) fn not_mounted(&self, node: &str, volume: &VolumeId, word: &str, text: &str) -> Option<Seen> {
        // What else an agent may say of a pod that waits, such as that the driver is not registered yet, is said immediately:
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
        let attachments = self.attachments.of(&volume.name);
        let is_here = attachments.iter().any(|attachment| *attachment.node == *node);
        let mut elsewhere = attachments.iter().filter(|attachment| attachment.attached);
        if let Some(other) = elsewhere.next().filter(|_| !is_here) {
            let message = format!(
                "the volume is attached to node {}, and not to node {node}, where a pod waits for it",
                other.node
            );
            return Some(wrong(WellKnown::AttachedElsewhere, &message, Since::Unsaid));
        }
        Some(wrong(WellKnown::NotMounted, &format!("on node {node}: {text}"), Since::Unsaid))
    }
}

fn wrong(reason: WellKnown, message: &str, since: Since) -> Seen {
    Seen::new(What::Wrong(Condition::new(reason.usual_status(), reason.into(), message)), since)
}
