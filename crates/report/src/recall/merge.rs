//! From events and stored status to what was told. No network, no clock.

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
    /// The latest of each thread, on whatever object it was told.
    stories: HashMap<Thread, (Vantage, Story)>,
    /// When a condition ended by turning into another one.
    replaced: HashMap<Thread, Timestamp>,
    /// Claims on which a condition of a volume was told.
    claims: BTreeMap<ObjectRef, Volume>,
    stored: BTreeMap<ObjectRef, (Volume, Stored)>,
    reported: BTreeMap<ObjectRef, (Volume, Stored)>,
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

    pub(super) fn story(&mut self, object: ObjectRef, vantage: Vantage, story: Story) {
        for (status, at) in &story.replaces {
            let ended = Thread { status: Some(status.clone()), ..story.thread.clone() };
            let known = self.replaced.entry(ended).or_insert(*at);
            *known = (*known).max(*at);
        }
        if let (Kind::PersistentVolumeClaim, Subject::Volume(volume), About::Condition) =
            (object.kind, story.thread.subject(), story.thread.about)
        {
            self.claims.insert(object, volume);
        }
        let newer = self.stories.get(&story.thread).is_none_or(|(_, known)| known.at < story.at);
        if newer {
            self.stories.insert(story.thread.clone(), (vantage, story));
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
        for (thread, (vantage, story)) in &stories {
            let ended = replaced.get(thread).is_some_and(|at| *at >= story.at);
            if story.state == Open::Open && !ended {
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
                let closed =
                    stories.get(&thread).is_some_and(|(_, s)| s.state == Open::Closed && s.at >= *at);
                if !closed && replaced.get(&thread).is_none_or(|ended| ended < at) {
                    hold(memo(&mut memos, &subject, vantage, *at), condition, *at);
                }
            }
        }
        for memo in memos.values_mut() {
            memo.told.sort_by(|a, b| rank(&a.condition).cmp(&rank(&b.condition)));
        }
        let unsettled = unsettled(&memos, &claims, &stored);
        // What waits for the driver's answer needs a memo, even one that nothing was reported in.
        for (_, volume) in &unsettled {
            memo(&mut memos, &Subject::Volume(volume.clone()), &self_vantage, Timestamp::UNIX_EPOCH);
        }
        let mut told_on = claims;
        told_on.extend(stored.iter().map(|(claim, (volume, _))| (claim.clone(), volume.clone())));
        let kept = kept.into_values().map(|(_, stored)| stored).collect();
        let told_on = told_on.into_iter().collect();
        Recalled { memos: memos.into_values().collect(), stored: kept, reported: said, unsettled, told_on }
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
        told: Vec::new(),
        told_at: at,
        blind_since: None,
        flapping_since: None,
    });
    memo.told_at = memo.told_at.max(at);
    memo
}

fn add(memo: &mut Memo, story: &Story) {
    match story.thread.about {
        About::Condition => memo.told.extend(story.held().map(|mut held| {
            held.condition.message = "".into();
            held
        })),
        About::Blindness => memo.blind_since = Some(story.since),
        About::Flapping => memo.flapping_since = Some(story.since),
    }
}

/// Worst first, as conditions are shown everywhere.
fn rank(condition: &Condition) -> (Reverse<Status>, &str) {
    (Reverse(condition.status), condition.reason.as_str())
}

/// The stored words are the newer ones; the event knows better since when.
fn hold(memo: &mut Memo, condition: &Condition, at: Timestamp) {
    match memo.told.iter_mut().find(|held| held.condition.is_same(condition)) {
        Some(held) => held.condition.message = condition.message.clone(),
        None => memo.told.push(Held { condition: condition.clone(), since: at }),
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
    let mut told: HashMap<&Volume, Vec<&Condition>> = HashMap::new();
    for memo in memos.values() {
        if let Subject::Volume(volume) = &memo.subject {
            told.entry(volume).or_default().extend(memo.told.iter().map(|held| &held.condition));
        }
    }
    let mut all: BTreeMap<&ObjectRef, &Volume> = claims.iter().collect();
    all.extend(stored.iter().map(|(claim, (volume, _))| (claim, volume)));
    all.retain(|claim, volume| {
        let expected = told.get(volume).map(|told| set(told.iter().copied())).unwrap_or_default();
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
