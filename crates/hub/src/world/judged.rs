//! How each claim was judged last: the number of claims by health, and the conditions of the unhealthy ones.
//!
//! Metrics show this at every scrape. A merge of 100,000 claims takes 1.4 s in a debug build (`tests/size.rs`), which is too
//! long for a scrape, with the world locked. What is stored would be no substitute: a claim that no vantage probes has no
//! object, and objects are written no faster than the API server is to be asked, so that after an outage of a storage server
//! the last ones are minutes late. Therefore each claim is judged when its facts may have changed, the result is kept, and a
//! scrape only reads it.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::Timestamp;
use volmedic_api::resource::{ConditionStatus, HealthWord, StatusWord, VantageKind, VolumeHealthStatus};
use volmedic_health::Status;

use super::World;
use super::records::Words;
use crate::facts::NO_DRIVER;
use crate::unknown::Unknown;
use crate::{ClaimKey, merge};

/// Conditions that are kept of one claim. A claim that many nodes use has one of each, and they say the same.
const LINES: usize = 16;

/// What claims are counted by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Class {
    pub health: HealthWord,
    /// Why the health is unknown; `None` also where a driver or an agent gave a reason of its own.
    pub unknown: Option<Unknown>,
    /// Whether a pod uses the claim on a node that exists.
    pub in_use: bool,
}

/// One thing that one vantage reports about the volume of a claim.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Line {
    /// The kind of the vantage; of pushed reports also who sent them.
    pub vantage: Arc<str>,
    /// Empty for a vantage that is on no node.
    pub node: Arc<str>,
    /// `None` where a vantage cannot probe the volume any more.
    pub status: Option<StatusWord>,
    pub reason: Arc<str>,
}

/// All that is wrong with one claim, worst first.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnhealthyClaim {
    pub key: ClaimKey,
    pub driver: Arc<str>,
    pub lines: Arc<[Line]>,
}

/// What a claim's record keeps, to take it out of the counts again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Judged {
    class: Class,
    worst: Option<StatusWord>,
}

/// Worst first, then by name, so that the same claims are shown at each scrape.
type Place = (Reverse<Option<StatusWord>>, ClaimKey);

#[derive(Debug, Default)]
pub(super) struct Judgements {
    /// Claims whose facts may have changed since they were judged. At most one entry for each claim.
    pub(super) waiting: BTreeSet<ClaimKey>,
    counts: BTreeMap<Class, usize>,
    unhealthy: BTreeMap<Place, (Arc<str>, Arc<[Line]>)>,
}

impl Judgements {
    pub(super) fn forget(&mut self, key: &ClaimKey, judged: Option<Judged>) {
        let Some(Judged { class, worst }) = judged else { return };
        if let Some(count) = self.counts.get_mut(&class) {
            *count -= 1;
        }
        self.unhealthy.remove(&(Reverse(worst), key.clone()));
    }
}

impl World {
    /// The next claim whose facts may have changed since it was judged.
    pub(crate) fn take_unjudged(&mut self) -> Option<ClaimKey> {
        self.judgements.waiting.pop_first()
    }

    /// Judges one claim as it should be stored by now.
    pub(crate) fn judge(&mut self, now: Timestamp, key: &ClaimKey) {
        let Some(claim) = self.claims.get(key) else { return };
        let before = claim.judged;
        let facts = self.facts(key);
        let status = merge(now, &facts, self.own_stored(key));
        let csi = facts.volume.as_ref().map(|volume| volume.csi.as_ref().map(|(driver, _)| driver.clone()));
        let driver = match csi {
            Some(Some(driver)) => driver,
            Some(None) => self.words.get(NO_DRIVER),
            None => claim.provisioner.clone().unwrap_or_default(),
        };
        let lines = lines(&status, &mut self.words);
        let class = Class {
            health: status.headline.health,
            unknown: match status.headline.health {
                HealthWord::HealthUnknown => status.headline.reason.as_deref().and_then(Unknown::of_name),
                HealthWord::Healthy | HealthWord::HealthWarning | HealthWord::HealthFailure => None,
            },
            in_use: self.users.of(key).any(|(node, _)| self.is_there(node)),
        };
        let judged = Judged { class, worst: lines.first().and_then(|line| line.status) };
        self.judgements.forget(key, before);
        *self.judgements.counts.entry(class).or_default() += 1;
        if !lines.is_empty() {
            self.judgements.unhealthy.insert((Reverse(judged.worst), key.clone()), (driver, lines.into()));
        }
        if let Some(claim) = self.claims.get_mut(key) {
            claim.judged = Some(judged);
        }
    }

    /// How many claims there are of each class, as judged last.
    pub fn counts(&self) -> &BTreeMap<Class, usize> {
        &self.judgements.counts
    }

    /// The worst claims with no more than `limit` conditions in all, and how many unhealthy claims there are beside them.
    pub fn worst(&self, limit: usize) -> (Vec<UnhealthyClaim>, usize) {
        let mut room = limit;
        let mut shown = Vec::new();
        for ((_, key), (driver, lines)) in &self.judgements.unhealthy {
            // Whole claims only, and none before a worse one.
            let Some(left) = room.checked_sub(lines.len()) else { break };
            room = left;
            shown.push(UnhealthyClaim { key: key.clone(), driver: driver.clone(), lines: lines.clone() });
        }
        let omitted = self.judgements.unhealthy.len() - shown.len();
        (shown, omitted)
    }
}

/// What is wrong, worst first; no two that say the same.
fn lines(status: &VolumeHealthStatus, words: &mut Words) -> Vec<Line> {
    let mut lines = Vec::new();
    for entry in &status.vantages {
        let vantage = match entry.kind {
            VantageKind::Controller => "controller",
            VantageKind::Node => "node",
            VantageKind::Host => "host",
            VantageKind::Kubelet => "kubelet",
            VantageKind::Cluster => "cluster",
            // `pushed/` and the source, which is all that distinguishes detectors.
            VantageKind::Pushed => &entry.name,
        };
        let wrong = entry.health_conditions.iter().filter(|one| one.status != ConditionStatus::False);
        for one in wrong {
            lines.push(Line {
                vantage: words.get(vantage),
                node: words.get(entry.node.as_deref().unwrap_or_default()),
                status: one.condition().map(|condition| match condition.status {
                    Status::DataLoss => StatusWord::DataLoss,
                    Status::Inaccessible => StatusWord::Inaccessible,
                    Status::Degraded => StatusWord::Degraded,
                    Status::Unrecognized(_) => StatusWord::Unrecognized,
                }),
                reason: words.get(&one.reason),
            });
        }
    }
    let order =
        |line: &Line| (Reverse(line.status), line.vantage.clone(), line.node.clone(), line.reason.clone());
    lines.sort_by_cached_key(order);
    lines.dedup();
    lines.truncate(LINES);
    lines
}
