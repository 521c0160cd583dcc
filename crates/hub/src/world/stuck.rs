//! Claims that get no volume or not the size they ask for, and volumes that are not unmounted: from the state of the objects,
//! and never from events.

use std::collections::HashMap;
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use volmedic_health::{Condition, WellKnown};

use super::{Phase, World};
use crate::ClaimKey;
use crate::facts::{Seen, Since, What};
use crate::shape;

/// Making a volume takes seconds, with some storage systems a minute or two.
const PROVISIONED_WITHIN: SignedDuration = SignedDuration::from_mins(3);
/// An error of a resize may be over with the next attempt.
const RESIZE_TRIED_WITHIN: SignedDuration = SignedDuration::from_mins(1);
/// A resize that is under way without an error.
const RESIZED_WITHIN: SignedDuration = SignedDuration::from_mins(10);
/// After its time to end is over, a pod is gone as soon as its volumes are unmounted.
const UNMOUNTED_WITHIN: SignedDuration = SignedDuration::from_mins(2);
/// Pods that a message names.
const NAMED: usize = 3;

/// What is not as it should be with a claim itself. Few claims have one.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Stuck {
    reason: WellKnown,
    message: String,
    since: Timestamp,
    counts_from: Timestamp,
}

/// The pods that are being deleted, by namespace and name, and when they should be gone.
pub(super) type Deleting = HashMap<(Arc<str>, Arc<str>), Timestamp>;

impl Stuck {
    /// `known` is what was found before, and `now` is about now.
    pub(super) fn of(body: &shape::Claim, phase: Phase, known: &[Self], now: Option<Timestamp>) -> Vec<Self> {
        let shape::Claim { metadata, spec: _, status } = body;
        let mut all = Vec::new();
        let provisioner = metadata.annotations.as_ref().and_then(|all| all.provisioner.as_deref());
        if let (Phase::Pending, Some(driver)) = (phase, provisioner) {
            let reason = WellKnown::ProvisioningFailed;
            // A claim that waits for its first pod is older than the request for its volume.
            let before = known.iter().find(|one| one.reason == reason).map(|one| one.since);
            let created = metadata.creation_timestamp.as_ref().map(|time| time.0);
            if let Some(since) = before.or(now.max(created)) {
                let message = format!("{driver} was asked to make a volume, and has made none");
                all.push(Self::new(reason, message, since, PROVISIONED_WITHIN));
            }
        }
        for one in status.conditions.iter().flatten().filter(|one| one.status == "True") {
            let (what, within) = match one.kind.as_str() {
                "ControllerResizeError" => {
                    ("the storage system cannot resize the volume", RESIZE_TRIED_WITHIN)
                }
                "NodeResizeError" => ("the node cannot resize the volume", RESIZE_TRIED_WITHIN),
                "Resizing" => ("the resize has not ended", RESIZED_WITHIN),
                _ => continue,
            };
            let Some(since) = one.last_transition_time.as_ref().map(|time| time.0) else { continue };
            let text = one.message.as_deref().filter(|text| !text.is_empty());
            let message = text.map_or_else(|| what.to_owned(), |text| format!("{what}: {text}"));
            all.push(Self::new(WellKnown::ResizeFailed, message, since, within));
        }
        // One condition for each reason: the one that counts first.
        all.sort_by(|a, b| a.counts_from.cmp(&b.counts_from).then_with(|| a.message.cmp(&b.message)));
        all.dedup_by(|later, first| later.reason == first.reason);
        all
    }

    fn new(reason: WellKnown, message: String, since: Timestamp, within: SignedDuration) -> Self {
        let counts_from = since.checked_add(within).unwrap_or(Timestamp::MAX);
        Self { reason, message, since, counts_from }
    }

    fn seen(&self) -> Seen {
        let Self { reason, message, since, counts_from } = self;
        let condition = Condition::new(reason.usual_status(), (*reason).into(), message);
        Seen { counts_from: Some(*counts_from), ..Seen::new(What::Wrong(condition), Since::NotAfter(*since)) }
    }
}

impl World {
    /// Answers whether something else is wrong with the claim than before.
    pub(super) fn put_stuck(&mut self, key: &ClaimKey, body: &shape::Claim, phase: Phase) -> bool {
        let known = self.stuck.get(key).map_or(&[][..], |known| known);
        let new = Stuck::of(body, phase, known, self.now);
        if known == new {
            return false;
        }
        if new.is_empty() {
            self.stuck.remove(key);
        } else {
            self.stuck.insert(key.clone(), new.into());
        }
        true
    }

    pub(super) fn stuck(&self, key: &ClaimKey) -> impl Iterator<Item = Seen> {
        self.stuck.get(key).into_iter().flatten().map(Stuck::seen)
    }

    /// Keeps until when a pod that is being deleted should be gone. Answers whether that is news.
    pub(super) fn put_deleting(&mut self, namespace: &str, name: &str, by: Option<Timestamp>) -> bool {
        let key = (self.words.get(namespace), Arc::from(name));
        match by {
            Some(by) => self.deleting.insert(key, by) != Some(by),
            None => self.deleting.remove(&key).is_some(),
        }
    }

    /// A volume that is still mounted on a node, as its agent says, where pods that use it should be gone.
    pub(super) fn not_unmounted(&self, key: &ClaimKey, node: &str) -> Option<Seen> {
        let users = self.users.of(key).find(|(used, _)| *used == node).map_or(&[][..], |(_, users)| users);
        let by = |pod: &Arc<str>| self.deleting.get(&(key.namespace.clone(), pod.clone())).copied();
        let pods: Vec<(&str, Timestamp)> =
            users.iter().filter_map(|(_, pod)| Some((&**pod, by(pod)?))).collect();
        let since = pods.iter().map(|(_, by)| *by).min()?;
        let named: Vec<&str> = pods.iter().take(NAMED).map(|(pod, _)| *pod).collect();
        let message = format!(
            "on node {node}: the volume is not unmounted, although the pod {} should be gone since {since:.0}",
            named.join(", ")
        );
        Some(Stuck::new(WellKnown::UnmountStuck, message, since, UNMOUNTED_WITHIN).seen())
    }
}
