//! What is believed and what was told about one subject from one vantage, and how one follows the other.
//!
//! Two sets are kept: what is *held* (believed now) and what was *told*. Every change that goes out is the
//! difference between them, so nothing can clear that was not told, and nothing is told twice. Damping is
//! nothing but not telling the difference for a while.

use jiff::Timestamp;

use super::{Belief, Held, Memo};
use crate::{Change, Condition, Conditions, Ending, Policy, Sight, Status, Subject, Vantage, WellKnown, Why};

#[derive(Debug, Default)]
pub(super) struct Note {
    /// Whether a look has ever succeeded.
    seen: bool,
    /// Put back after a restart, and not judged since.
    recalled: bool,
    held: Vec<Held>,
    told: Vec<Told>,
    missing: Row,
    unlisted: u32,
    failed: Row,
    blind_since: Option<Timestamp>,
    /// When the set of conditions changed lately, oldest first; at most one more than the limit.
    changes: Vec<Timestamp>,
    flapping: Option<Flapping>,
}

#[derive(Debug)]
struct Told {
    held: Held,
    /// When it was last spoken of at all, for reminders.
    at: Timestamp,
    /// When its words were last told, for rewording.
    worded: Timestamp,
}

#[derive(Debug, Clone, Copy)]
struct Flapping {
    since: Timestamp,
    told_at: Timestamp,
    last_change: Timestamp,
    /// How often it changed since it began.
    changes: u32,
}

/// How often the same thing happened in a row, and when it began.
#[derive(Debug, Default, Clone, Copy)]
struct Row {
    count: u32,
    since: Option<Timestamp>,
}

impl Row {
    fn add(&mut self, now: Timestamp) -> Timestamp {
        self.count = self.count.saturating_add(1);
        *self.since.get_or_insert(now)
    }
}

impl Note {
    pub(super) fn seen() -> Self {
        Self { seen: true, ..Self::default() }
    }

    /// Seen healthy, and nothing else to remember.
    pub(super) fn is_plain(&self) -> bool {
        let Self { seen, recalled, held, told, missing, unlisted, failed, blind_since, changes, flapping } =
            self;
        *seen
            && !*recalled
            && held.is_empty()
            && told.is_empty()
            && missing.count == 0
            && *unlisted == 0
            && failed.count == 0
            && blind_since.is_none()
            && changes.is_empty()
            && flapping.is_none()
    }

    pub(super) fn is_adverse(&self) -> bool {
        !self.held.is_empty()
    }

    /// Whether what is held is only what an earlier run reported.
    pub(super) fn is_recalled(&self) -> bool {
        self.recalled
    }

    pub(super) fn is_blind(&self) -> bool {
        self.blind_since.is_some()
    }

    pub(super) fn record(&mut self, policy: &Policy, now: Timestamp, sight: Sight) -> Vec<Change> {
        let mut news = Vec::new();
        if let Sight::NotSeen(why) = sight {
            self.fail(policy, now, why, &mut news);
            return news;
        }
        self.failed = Row::default();
        if let Some(since) = self.blind_since.take() {
            news.push(Change::SeesAgain { since, ending: Ending::Recovered });
        }
        self.seen = true;
        if !matches!(sight, Sight::Missing(_)) {
            self.missing = Row::default();
        }
        if !matches!(sight, Sight::Unlisted) {
            self.unlisted = 0;
        }
        match sight {
            Sight::NotSeen(_) => unreachable!("answered above"),
            Sight::Healthy => self.hold(policy, now, now, Conditions::default()),
            Sight::Adverse(conditions) => self.hold(policy, now, now, conditions),
            Sight::Unlisted => {
                self.unlisted = self.unlisted.saturating_add(1);
                if self.held.is_empty() || self.unlisted >= policy.unlisted_after {
                    self.unlisted = 0;
                    self.hold(policy, now, now, Conditions::default());
                }
            }
            Sight::Missing(message) => {
                let since = self.missing.add(now);
                if self.missing.count >= policy.missing_after {
                    let gone = Condition {
                        status: Status::Inaccessible,
                        reason: WellKnown::VolumeNotFound.into(),
                        message,
                    };
                    self.hold(policy, now, since, Conditions::new([gone]));
                }
            }
        }
        self.damp(policy, now, &mut news);
        if self.flapping.is_none() {
            self.tell_difference(policy, now, &mut news);
        }
        news
    }

    fn fail(&mut self, policy: &Policy, now: Timestamp, why: Why, news: &mut Vec<Change>) {
        let since = self.failed.add(now);
        if self.failed.count >= policy.blind_after && self.blind_since.is_none() {
            self.blind_since = Some(since);
            news.push(Change::WentBlind { why, since, looks: self.failed.count });
        }
    }

    /// Believes this from now on. What was believed already keeps its age.
    fn hold(&mut self, policy: &Policy, now: Timestamp, since: Timestamp, conditions: Conditions) {
        self.recalled = false;
        let before = std::mem::take(&mut self.held);
        let mut kept = 0;
        self.held.reserve_exact(conditions.len());
        for condition in conditions {
            let old = before.iter().find(|old| old.condition.is_same(&condition));
            kept += usize::from(old.is_some());
            let since = old.map_or(since, |old| old.since);
            self.held.push(Held { condition, since });
        }
        if kept != before.len() || kept != self.held.len() {
            self.changes.push(now);
            if let Some(flapping) = &mut self.flapping {
                flapping.last_change = now;
                flapping.changes = flapping.changes.saturating_add(1);
            }
            if self.changes.len() > policy.flap_limit as usize + 1 {
                self.changes.remove(0);
            }
        }
    }

    /// Begins and ends flapping.
    fn damp(&mut self, policy: &Policy, now: Timestamp, news: &mut Vec<Change>) {
        self.changes.retain(|&at| now.duration_since(at) < policy.flap_window);
        match self.flapping {
            None if self.changes.len() > policy.flap_limit as usize => {
                let since = self.changes.first().copied().unwrap_or(now);
                let changes = u32::try_from(self.changes.len()).unwrap_or(u32::MAX);
                let flapping = Flapping { since, told_at: now, last_change: now, changes };
                self.flapping = Some(flapping);
                news.push(self.tell_flapping(flapping));
            }
            Some(flapping) if now.duration_since(flapping.last_change) >= policy.flap_window => {
                self.flapping = None;
                self.changes.clear();
                news.push(Change::Settled { since: flapping.since, ending: Ending::Recovered });
            }
            _ => {}
        }
    }

    fn tell_flapping(&self, flapping: Flapping) -> Change {
        let now = Conditions::new(self.held.iter().map(|held| held.condition.clone()));
        Change::Flapping { changes: flapping.changes, since: flapping.since, now }
    }

    /// Tells what is held and was not told, and what was told and is no longer held.
    fn tell_difference(&mut self, policy: &Policy, now: Timestamp, news: &mut Vec<Change>) {
        let (mut same, mut other) = (Vec::new(), Vec::new());
        for told in std::mem::take(&mut self.told) {
            let held = self.held.iter().any(|held| held.condition.is_same(&told.held.condition));
            if held { same.push(told) } else { other.push(told) }
        }
        for held in &self.held {
            let is_same = |told: &Told| told.held.condition.is_same(&held.condition);
            if let Some(place) = same.iter().position(is_same) {
                let mut told = same.swap_remove(place);
                let reworded = told.held.condition.message != held.condition.message;
                if reworded && now.duration_since(told.worded) >= policy.reword_every {
                    told.held.condition.message = held.condition.message.clone();
                    told.worded = now;
                    news.push(Change::Reworded { condition: held.condition.clone(), since: told.held.since });
                }
                self.told.push(told);
                continue;
            }
            // The same reason under another status is one story, not an end and a beginning.
            let earlier = other.iter().position(|told| told.held.condition.reason == held.condition.reason);
            let (to, since) = (held.condition.clone(), held.since);
            news.push(match earlier {
                Some(place) => Change::Changed { from: other.remove(place).held.condition, to, since },
                None => Change::Appeared { condition: to, since },
            });
            self.told.push(Told { held: held.clone(), at: now, worded: now });
        }
        for Told { held: Held { condition, since }, .. } in other {
            news.push(Change::Cleared { condition, since, ending: Ending::Recovered });
        }
    }

    pub(super) fn tick(&mut self, policy: &Policy, now: Timestamp) -> Vec<Change> {
        let mut news = Vec::new();
        if self.flapping.is_none() {
            self.changes.retain(|&at| now.duration_since(at) < policy.flap_window);
        }
        let Some(every) = policy.remind_every else { return news };
        if let Some(flapping) = self.flapping {
            if now.duration_since(flapping.told_at) >= every {
                news.push(self.tell_flapping(flapping));
                self.flapping = Some(Flapping { told_at: now, ..flapping });
            }
            return news;
        }
        for told in &mut self.told {
            if now.duration_since(told.at) >= every {
                told.at = now;
                let Held { condition, since } = told.held.clone();
                news.push(Change::Reminder { condition, since });
            }
        }
        news
    }

    /// Ends everything that was told.
    pub(super) fn close(self, ending: Ending) -> Vec<Change> {
        let told = self.told.into_iter().map(|told| told.held);
        told.map(|Held { condition, since }| Change::Cleared { condition, since, ending })
            .chain(self.flapping.map(|Flapping { since, .. }| Change::Settled { since, ending }))
            .chain(self.blind_since.map(|since| Change::SeesAgain { since, ending }))
            .collect()
    }

    pub(super) fn belief(&self) -> Belief {
        Belief {
            seen: self.seen,
            conditions: self.held.clone(),
            blind_since: self.blind_since,
            flapping_since: self.flapping.map(|flapping| flapping.since),
        }
    }

    pub(super) fn memo(&self, subject: &Subject, vantage: &Vantage) -> Option<Memo> {
        let latest = self.told.iter().map(|told| told.at.max(told.worded)).max();
        let told_at = latest.or(self.flapping.map(|f| f.told_at)).or(self.blind_since)?;
        Some(Memo {
            subject: subject.clone(),
            vantage: vantage.clone(),
            told: self.told.iter().map(|told| told.held.clone()).collect(),
            told_at,
            blind_since: self.blind_since,
            flapping_since: self.flapping.map(|flapping| flapping.since),
        })
    }

    pub(super) fn recall(
        &mut self,
        told: Vec<Held>,
        at: Timestamp,
        blind_since: Option<Timestamp>,
        flapping_since: Option<Timestamp>,
    ) {
        self.seen = true;
        self.recalled = true;
        // A store may hold what no note ever would: the same condition twice, or too many.
        let ages: Vec<Held> = told;
        let clean = Conditions::new(ages.iter().map(|held| held.condition.clone()));
        self.held = clean
            .into_iter()
            .map(|condition| {
                let age = ages
                    .iter()
                    .filter(|held| held.condition.is_same(&condition))
                    .map(|held| held.since)
                    .min();
                Held { condition, since: age.unwrap_or(at) }
            })
            .collect();
        self.told = self.held.iter().map(|held| Told { held: held.clone(), at, worded: at }).collect();
        self.blind_since = blind_since;
        // Where it was in its flapping is not remembered: it gets a whole quiet window to settle.
        self.flapping =
            flapping_since.map(|since| Flapping { since, told_at: at, last_change: at, changes: 0 });
    }
}
