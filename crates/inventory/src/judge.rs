//! Whether a node is down. Pure: time is an argument, and nothing here talks to anybody.
//!
//! | what the cluster says | what we say |
//! |---|---|
//! | Ready is True | not down; back, if it was reported as down |
//! | Ready is not True | down once we have seen that for the grace |
//! | so it is, and the node controller's unreachable taint or an administrator's out-of-service taint | down immediately |
//! | no such node any more | down immediately |
//! | nothing about Ready | nothing new |
//!
//! The grace runs from when we first saw it, not from the time in the condition: that was taken from another clock.
//! A node that was never Ready is joining and raises nothing, whatever happens to it.

use std::collections::BTreeMap;
use std::fmt;

use jiff::{SignedDuration, Timestamp};

use crate::nodes::{NodeSight, Ready, ReadyStatus};

/// Deleted nodes that nobody asked to forget. Node names of a cluster that grows and shrinks never come back.
const MOST_DELETED: usize = 1000;
/// At our first look, a Ready condition that is younger than its node by more than this has changed since the node
/// joined. Less may be the difference of two clocks.
const JOINING: SignedDuration = SignedDuration::from_secs(60);

/// Why a node counts as down.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DownWhy {
    /// Ready is `status` for longer than the grace.
    NotReady {
        status: ReadyStatus,
        reason: Box<str>,
    },
    Unreachable,
    OutOfService,
    Deleted,
}

impl fmt::Display for DownWhy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotReady { status, reason } => {
                f.write_str(match status {
                    ReadyStatus::True => "it is ready",
                    ReadyStatus::False => "it says that it is not ready",
                    ReadyStatus::Unknown => "the node controller does not hear from it",
                })?;
                if reason.is_empty() { Ok(()) } else { write!(f, " ({reason})") }
            }
            Self::Unreachable => f.write_str("the node controller declared it unreachable"),
            Self::OutOfService => f.write_str("it was declared out of service"),
            Self::Deleted => f.write_str("it was deleted from the cluster"),
        }
    }
}

/// A node that is down.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Down {
    pub node: Box<str>,
    pub since: Timestamp,
    pub why: DownWhy,
}

/// A change of what we say about a node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    Down(Down),
    /// It was reported as down and is ready again.
    Back {
        node: Box<str>,
    },
}

/// What we say about all nodes.
#[derive(Debug)]
pub struct Judge {
    grace: SignedDuration,
    /// Whether the grace runs from the time in the condition.
    by_times: bool,
    /// In order, so that the same input gives the same output.
    nodes: BTreeMap<Box<str>, Tracked>,
    pass: u64,
}

#[derive(Debug, Default)]
struct Tracked {
    /// None until it was seen.
    uid: Option<Box<str>>,
    was_ready: bool,
    /// Since when we see it not ready.
    failing: Option<Timestamp>,
    down: Option<(Timestamp, DownWhy)>,
    deleted: Option<Timestamp>,
    seen: u64,
}

impl Judge {
    /// As long as the node controller itself waits by default before it gives a node up.
    pub const GRACE: SignedDuration = SignedDuration::from_secs(40);

    pub fn new(grace: SignedDuration) -> Self {
        Self { grace, by_times: false, nodes: BTreeMap::new(), pass: 0 }
    }

    /// For a caller that reads the nodes only once and cannot wait: the grace runs from the time in the condition, which
    /// was taken from another clock.
    pub fn by_times(grace: SignedDuration) -> Self {
        Self { by_times: true, ..Self::new(grace) }
    }

    /// This node was reported as down before a restart. It will not be reported again, but its return will.
    pub fn recall(&mut self, down: Down) {
        let Down { node, since, why } = down;
        let tracked = self.nodes.entry(node).or_default();
        tracked.was_ready = true;
        tracked.down = Some((since, why));
    }

    /// Forgets a deleted node, for instance because no pod is left on it. Does nothing to a node that is there.
    pub fn forget(&mut self, node: &str) {
        if self.nodes.get(node).is_some_and(|tracked| tracked.deleted.is_some()) {
            self.nodes.remove(node);
        }
    }

    /// The nodes that are down, in the order of their names.
    pub fn down(&self) -> impl Iterator<Item = Down> {
        self.nodes.iter().filter_map(|(node, tracked)| {
            let (since, why) = tracked.down.clone()?;
            Some(Down { node: node.clone(), since, why })
        })
    }

    /// When the next grace is over, if no news come before. Judge again then.
    pub fn next_due(&self) -> Option<Timestamp> {
        let waiting = self.nodes.values().filter(|tracked| tracked.down.is_none() && tracked.was_ready);
        waiting.filter_map(|tracked| tracked.failing?.checked_add(self.grace).ok()).min()
    }

    /// Judges all nodes there are, as [`Nodes::current`](crate::Nodes::current) gives them. Only a complete and current
    /// view will do: a node that is missing from it is deleted, and one that failed before the view went stale may be
    /// well by now.
    pub fn pass<'a>(
        &mut self,
        now: Timestamp,
        nodes: impl IntoIterator<Item = &'a NodeSight>,
    ) -> Vec<Verdict> {
        self.pass += 1;
        let mut verdicts = Vec::new();
        for sight in nodes {
            if !self.nodes.contains_key(&sight.name) {
                self.nodes.insert(sight.name.clone(), Tracked::default());
            }
            if let Some(tracked) = self.nodes.get_mut(&sight.name) {
                tracked.seen = self.pass;
                verdicts.extend(tracked.look(now, self.grace, self.by_times, sight));
            }
        }
        let pass = self.pass;
        self.nodes.retain(|node, tracked| {
            if tracked.seen == pass {
                return true;
            }
            verdicts.extend(tracked.vanish(now, node));
            tracked.down.is_some()
        });
        self.limit();
        verdicts.sort_by(|a, b| a.node().cmp(b.node()));
        verdicts
    }

    /// Drops the nodes that were deleted first, past the limit.
    fn limit(&mut self) {
        let gone = self.nodes.iter().filter_map(|(node, tracked)| Some((tracked.deleted?, node.clone())));
        let mut gone: Vec<_> = gone.collect();
        let over = gone.len().saturating_sub(MOST_DELETED);
        gone.sort_unstable();
        for (_, node) in &gone[..over] {
            self.nodes.remove(node);
        }
    }
}

impl Tracked {
    fn look(
        &mut self,
        now: Timestamp,
        grace: SignedDuration,
        by_times: bool,
        sight: &NodeSight,
    ) -> Option<Verdict> {
        self.deleted = None;
        if self.uid.as_ref() != Some(&sight.uid) {
            // Another node, maybe of the same name. What was reported about the name stays reported.
            self.uid = Some(sight.uid.clone());
            self.was_ready = self.down.is_some() || has_been_ready(sight);
            self.failing = None;
        }
        let ready = sight.ready.as_ref()?;
        if ready.status == ReadyStatus::True {
            self.was_ready = true;
            self.failing = None;
            return self.down.take().map(|_| Verdict::Back { node: sight.name.clone() });
        }
        // The earlier of the two, in case our own clock was put back.
        let begun = ready.since.filter(|_| by_times).unwrap_or(now);
        let first = self.failing.unwrap_or(begun).min(now);
        self.failing = Some(first);
        if self.down.is_some() || !self.was_ready {
            return None;
        }
        let why = if sight.unreachable {
            DownWhy::Unreachable
        } else if sight.out_of_service {
            DownWhy::OutOfService
        } else if now.duration_since(first) >= grace {
            DownWhy::NotReady { status: ready.status, reason: ready.reason.clone() }
        } else {
            return None;
        };
        // Others know better since when, unless their clock is ahead of ours.
        let since = ready.since.map_or(first, |since| since.min(first));
        Some(self.go_down(&sight.name, since, why))
    }

    /// The node is not there any more.
    fn vanish(&mut self, now: Timestamp, node: &str) -> Option<Verdict> {
        self.deleted.get_or_insert(now);
        let since = self.failing.take().unwrap_or(now);
        match &mut self.down {
            Some((_, why)) => *why = DownWhy::Deleted,
            None if self.was_ready => return Some(self.go_down(node, since, DownWhy::Deleted)),
            None => {}
        }
        None
    }

    fn go_down(&mut self, node: &str, since: Timestamp, why: DownWhy) -> Verdict {
        self.down = Some((since, why.clone()));
        Verdict::Down(Down { node: node.into(), since, why })
    }
}

impl Verdict {
    pub fn node(&self) -> &str {
        match self {
            Self::Down(down) => &down.node,
            Self::Back { node } => node,
        }
    }
}

/// Whether a node that we see for the first time was ever ready. In doubt it was: better one report too many about a
/// node that joins than none about one that failed while we were not looking.
fn has_been_ready(sight: &NodeSight) -> bool {
    let Some(Ready { status, reason, since }) = &sight.ready else { return false };
    match status {
        ReadyStatus::True => true,
        // The node controller's words for a node that was registered but never sent a status.
        ReadyStatus::Unknown if **reason == *"NodeStatusNeverUpdated" => false,
        // And for one whose kubelet sent a status and then stopped.
        ReadyStatus::Unknown if **reason == *"NodeStatusUnknown" => true,
        ReadyStatus::False | ReadyStatus::Unknown => match (since, sight.created) {
            (Some(since), Some(created)) => since.duration_since(created) > JOINING,
            _ => true,
        },
    }
}

#[cfg(test)]
mod tests;
