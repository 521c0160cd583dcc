//! From events and stored status to what was reported. No network, no clock.

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap};

use jiff::Timestamp;
use volmedic_api::{Kind, ObjectRef};
use volmedic_health::{Condition, Held, Memo, Status, Subject, Vantage, Volume, WellKnown};

use super::Recalled;
use crate::status::Stored;
use crate::story::{About, Open, Story, Thread};

/// All that was found.
pub(super) struct Evidence {
    vantage: Vantage,
    /// The latest of each thread, on whatever object it was reported.
    stories: HashMap<Thread, Reported>,
    /// How a condition ended by turning into another one.
    replaced: HashMap<Thread, Vec<Replaced>>,
    /// Claims on which a condition of a volume was reported.
    claims: BTreeMap<ObjectRef, Volume>,
    stored: BTreeMap<ObjectRef, (Volume, Stored)>,
    reported: BTreeMap<ObjectRef, (Volume, Stored)>,
}

/// What an event says, and where it stands among the others.
struct Reported {
    vantage: Vantage,
    story: Story,
    order: Order,
}

/// When an event was written. The process that wrote it may have had a wrong clock, and its successor another one; the API
/// server's versions only grow. They can be compared for events on one object, which are written one after the other.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Order {
    object: ObjectRef,
    at: Timestamp,
    /// `None` if the API server does not use numbers.
    version: Option<u64>,
}

/// That a condition turned into another one.
struct Replaced {
    at: Timestamp,
    /// The event that says so.
    order: Order,
}

impl Order {
    /// The versions of both, where they can be compared.
    fn versions(&self, other: &Self) -> Option<(u64, u64)> {
        if self.object == other.object { self.version.zip(other.version) } else { None }
    }

    fn is_after(&self, other: &Self) -> bool {
        self.versions(other).map_or(self.at > other.at, |(mine, theirs)| mine > theirs)
    }

    /// Whether this was written after the other, by a clock that had gone backwards in between.
    fn is_after_against_the_clock(&self, other: &Self) -> bool {
        self.at < other.at && self.versions(other).is_some_and(|(mine, theirs)| mine > theirs)
    }
}

impl Replaced {
    fn ends(&self, reported: &Reported) -> bool {
        self.at >= reported.story.at || self.order.is_after_against_the_clock(&reported.order)
    }
}

impl Evidence {
    pub(super) fn new(vantage: Vantage) -> Self {
        Self {
            vantage,
            stories: HashMap::new(),
            replaced: HashMap::new(),
            claims: BTreeMap::new(),
            stored: BTreeMap::new(),
            reported: BTreeMap::new(),
        }
    }

    /// An event and its `resourceVersion`.
    pub(super) fn story(&mut self, object: ObjectRef, version: &str, vantage: Vantage, story: Story) {
        let order = Order { object: object.clone(), at: story.at, version: version.parse().ok() };
        for (status, at) in &story.replaces {
            let ended = Thread { status: Some(status.clone()), ..story.thread.clone() };
            self.replaced.entry(ended).or_default().push(Replaced { at: *at, order: order.clone() });
        }
        if let (Kind::PersistentVolumeClaim, Subject::Volume(volume), About::Condition) =
            (object.kind, story.thread.subject(), story.thread.about)
        {
            self.claims.insert(object, volume);
        }
        if self.stories.get(&story.thread).is_none_or(|known| order.is_after(&known.order)) {
            self.stories.insert(story.thread.clone(), Reported { vantage, story, order });
        }
    }

    pub(super) fn stored(&mut self, volume: Volume, stored: Stored) {
        self.stored.insert(stored.claim.clone(), (volume, stored));
    }

    /// The same, as it was said to the hub.
    pub(super) fn reported(&mut self, volume: Volume, reported: Stored) {
        self.reported.insert(reported.claim.clone(), (volume, reported));
    }

    pub(super) fn merge(self) -> Recalled {
        let Self { vantage: self_vantage, stories, replaced, claims, stored, reported } = self;
        let said: Vec<Stored> = reported.values().map(|(_, reported)| reported.clone()).collect();
        // What the claim itself keeps counts.
        let (kept, mut stored) = (stored, reported);
        stored.extend(kept.clone());
        let mut memos: BTreeMap<(Subject, Vantage), Memo> = BTreeMap::new();
        let has_turned = |reported: &Reported| {
            replaced.get(&reported.story.thread).is_some_and(|all| all.iter().any(|by| by.ends(reported)))
        };
        for reported in stories.values() {
            let Reported { vantage, story, order: _ } = reported;
            if story.state == Open::Open && !has_turned(reported) {
                let thread = &story.thread;
                add(memo(&mut memos, &thread.subject(), vantage, story.at), story);
            }
        }
        for (volume, Stored { conditions, at, .. }) in stored.values() {
            let subject = Subject::Volume(volume.clone());
            for condition in conditions {
                let vantage = match condition.reason.well_known() {
                    Some(WellKnown::NodeDown) => &Vantage::Cluster,
                    _ => &self_vantage,
                };
                let thread = thread_of(volume, vantage, condition);
                let reported = stories.get(&thread);
                // Events are written before the status. If the last one written says that it is over, the status is old.
                let closed = reported.is_some_and(|reported| {
                    reported.story.state == Open::Closed
                        && (reported.order.version.is_some() || reported.story.at >= *at)
                });
                let turned = replaced.get(&thread).is_some_and(|all| all.iter().any(|by| by.at >= *at))
                    || reported.is_some_and(has_turned);
                if !closed && !turned {
                    hold(memo(&mut memos, &subject, vantage, *at), condition, *at);
                }
            }
        }
        for memo in memos.values_mut() {
            memo.reported.sort_by(|a, b| rank(&a.condition).cmp(&rank(&b.condition)));
        }
        let unsettled = unsettled(&memos, &claims, &stored);
        // What waits for the driver's answer needs a memo, even one that nothing was reported in.
        for (_, volume) in &unsettled {
            memo(&mut memos, &Subject::Volume(volume.clone()), &self_vantage, Timestamp::UNIX_EPOCH);
        }
        let mut reported_on = claims;
        reported_on.extend(stored.iter().map(|(claim, (volume, _))| (claim.clone(), volume.clone())));
        let kept = kept.into_values().map(|(_, stored)| stored).collect();
        let reported_on = reported_on.into_iter().collect();
        Recalled {
            memos: memos.into_values().collect(),
            stored: kept,
            reported: said,
            unsettled,
            reported_on,
        }
    }
}

fn memo<'a>(
    memos: &'a mut BTreeMap<(Subject, Vantage), Memo>,
    subject: &Subject,
    vantage: &Vantage,
    at: Timestamp,
) -> &'a mut Memo {
    let memo = memos.entry((subject.clone(), vantage.clone())).or_insert_with(|| Memo {
        subject: subject.clone(),
        vantage: vantage.clone(),
        reported: Vec::new(),
        reported_at: at,
        blind_since: None,
        flapping_since: None,
    });
    memo.reported_at = memo.reported_at.max(at);
    memo
}

fn add(memo: &mut Memo, story: &Story) {
    match story.thread.about {
        About::Condition => memo.reported.extend(story.held().map(|mut held| {
            held.condition.message = "".into();
            held
        })),
        About::Unseen => memo.blind_since = Some(story.since),
        About::Flapping => memo.flapping_since = Some(story.since),
    }
}

/// Worst first, as conditions are shown everywhere.
fn rank(condition: &Condition) -> (Reverse<Status>, &str) {
    (Reverse(condition.status), condition.reason.as_str())
}

/// The stored words are the newer ones; the event knows better since when.
fn hold(memo: &mut Memo, condition: &Condition, at: Timestamp) {
    match memo.reported.iter_mut().find(|held| held.condition.is_same(condition)) {
        Some(held) => held.condition.message = condition.message.clone(),
        None => memo.reported.push(Held { condition: condition.clone(), since: at }),
    }
}

fn thread_of(volume: &Volume, vantage: &Vantage, condition: &Condition) -> Thread {
    Thread {
        driver: volume.driver.to_string(),
        handle: Some(volume.handle.to_string()),
        vantage: vantage.name(),
        about: About::Condition,
        status: Some(condition.status.to_string()),
        reason: Some(condition.reason.to_string()),
    }
}

/// Claims whose events say something else than their status: the events got through and the status did not, or the
/// events are not ours.
fn unsettled(
    memos: &BTreeMap<(Subject, Vantage), Memo>,
    claims: &BTreeMap<ObjectRef, Volume>,
    stored: &BTreeMap<ObjectRef, (Volume, Stored)>,
) -> Vec<(ObjectRef, Volume)> {
    let mut reported: HashMap<&Volume, Vec<&Condition>> = HashMap::new();
    for memo in memos.values() {
        if let Subject::Volume(volume) = &memo.subject {
            reported.entry(volume).or_default().extend(memo.reported.iter().map(|held| &held.condition));
        }
    }
    let mut all: BTreeMap<&ObjectRef, &Volume> = claims.iter().collect();
    all.extend(stored.iter().map(|(claim, (volume, _))| (claim, volume)));
    all.retain(|claim, volume| {
        let expected = reported.get(volume).map(|reported| set(reported.iter().copied())).unwrap_or_default();
        let found = stored.get(claim).map(|(_, stored)| set(stored.conditions.iter())).unwrap_or_default();
        expected != found
    });
    all.into_iter().map(|(claim, volume)| (claim.clone(), volume.clone())).collect()
}

fn set<'a>(conditions: impl Iterator<Item = &'a Condition>) -> Vec<(Status, String)> {
    let storable = conditions.filter(|condition| condition.status.api_value().is_some());
    let mut set: Vec<_> = storable.map(|c| (c.status, c.reason.to_string())).collect();
    set.sort();
    set.dedup();
    set
}

#[cfg(test)]
mod tests;
