//! What became of recreating pods, per volume and not per node: its next pod may run on another node, and there the volume
//! must not count as one for which nothing was tried.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use jiff::Timestamp;
use volmedic_health::{Remedy, Volume};

use super::case::Case;
use crate::memory::Recreated;
use crate::place::Place;
use crate::policy::{Policy, Recreate};
use crate::refusal::Refusal;
use crate::table::Outcome;

#[derive(Debug, Clone, Default)]
struct Attempts {
    /// Since the volume was last healthy for long: failures, and successes on nodes where it had been done before.
    tries: u32,
    /// Times in a row that no pod could be evicted.
    refused: u32,
    not_before: Option<Timestamp>,
    /// Nodes from which pods were evicted, and to which they came.
    nodes: BTreeSet<Arc<str>>,
    /// Since when nothing is known to be wrong with it.
    healthy_since: Option<Timestamp>,
}

#[derive(Debug, Default)]
pub(super) struct Recreations {
    volumes: HashMap<Volume, Attempts>,
}

impl Recreations {
    /// What the attempts so far say against the next one.
    pub(super) fn objection(&self, now: Timestamp, place: &Place, recreate: &Recreate) -> Option<Refusal> {
        let Attempts { tries, not_before, .. } = self.volumes.get(&place.volume())?;
        if *tries >= recreate.tries {
            return Some(Refusal::GaveUp { tries: *tries, remedy: Remedy::RecreatePods });
        }
        let until = not_before.filter(|until| *until > now)?;
        Some(Refusal::Pause { until, tries: *tries })
    }

    /// The number of the next attempt.
    pub(super) fn nth(&self, place: &Place) -> u32 {
        self.volumes.get(&place.volume()).map_or(1, |attempts| attempts.tries.saturating_add(1))
    }

    pub(super) fn not_before(&self, place: &Place) -> Option<Timestamp> {
        self.volumes.get(&place.volume())?.not_before
    }

    pub(super) fn done(&mut self, now: Timestamp, policy: &Policy, place: &Place, outcome: &Outcome) {
        let attempts = self.volumes.entry(place.volume()).or_default();
        let pause = match outcome {
            // Nothing was done.
            Outcome::NotReached { .. } | Outcome::SecretUnchanged => {
                attempts.refused = attempts.refused.saturating_add(1);
                policy.pause(attempts.refused)
            }
            Outcome::Well { .. } => {
                let again = !attempts.nodes.insert(place.node.clone());
                attempts.tries = attempts.tries.saturating_add(again.into());
                attempts.refused = 0;
                policy.cooldown
            }
            Outcome::StillUnhealthy { .. } | Outcome::Failed { .. } | Outcome::Lost { .. } => {
                attempts.nodes.insert(place.node.clone());
                attempts.tries = attempts.tries.saturating_add(1);
                attempts.refused = 0;
                policy.recreate_pause(attempts.tries)
            }
        };
        attempts.not_before = now.checked_add(pause).ok();
    }

    /// Its new pods run on these nodes.
    pub(super) fn moved(&mut self, place: &Place, nodes: impl IntoIterator<Item = Arc<str>>) {
        self.volumes.entry(place.volume()).or_default().nodes.extend(nodes);
    }

    /// A person asks: pauses and counts are over.
    pub(super) fn person(&mut self, place: &Place) {
        if let Some(attempts) = self.volumes.get_mut(&place.volume()) {
            *attempts = Attempts { nodes: std::mem::take(&mut attempts.nodes), ..Attempts::default() };
        }
    }

    /// As an earlier process left it.
    pub(super) fn restore(&mut self, volume: Volume, memory: &Recreated) {
        let Recreated { tries, not_before, nodes } = memory;
        let nodes = nodes.iter().cloned().collect();
        let attempts = Attempts { tries: *tries, not_before: *not_before, nodes, ..Attempts::default() };
        self.volumes.insert(volume, attempts);
    }

    /// Forgets volumes that were healthy for long.
    pub(super) fn tidy(&mut self, now: Timestamp, policy: &Policy, cases: &BTreeMap<Place, Case>) {
        if self.volumes.is_empty() {
            return;
        }
        let busy = cases.iter().filter(|(_, case)| case.unhealthy.is_some() || case.in_flight);
        let busy: HashSet<Volume> = busy.map(|(place, _)| place.volume()).collect();
        self.volumes.retain(|volume, attempts| {
            if busy.contains(volume) {
                attempts.healthy_since = None;
                return true;
            }
            let since = *attempts.healthy_since.get_or_insert(now);
            let waits = attempts.not_before.is_some_and(|until| until > now);
            waits || now.duration_since(since) < policy.steady
        });
    }

    /// When a pause ends next.
    pub(super) fn next_due(&self, now: Timestamp) -> Option<Timestamp> {
        self.volumes.values().filter_map(|attempts| attempts.not_before).filter(|until| *until > now).min()
    }
}
