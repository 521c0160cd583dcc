//! What is believed and what was reported about one subject from one vantage, and how one follows the other.
//!
//! Two sets are kept: what is *held* (believed now) and what was *reported*. Every change that goes out is the
//! difference between them, so nothing can clear that was not reported, and nothing is reported twice. Damping is
//! nothing but not reporting the difference for a while.

use jiff::Timestamp;

use super::{Belief, Held, Memo};
use crate::{Change, Condition, Conditions, Ending, Policy, Sight, Status, Subject, Vantage, WellKnown, Why};

#[derive(Debug, Default)]
pub(super) struct Note {
    /// Whether a check has ever succeeded.
    seen: bool,
    /// Put back after a restart, and not judged since.
    recalled: bool,
    held: Vec<Held>,
    reported: Vec<Reported>,
    missing: Row,
    unlisted: u32,
    failed: Row,
    blind_since: Option<Timestamp>,
    /// When the set of conditions changed lately, oldest first; at most one more than the limit.
    changes: Vec<Timestamp>,
    flapping: Option<Flapping>,
}

#[derive(Debug)]
struct Reported {
    held: Held,
    /// When it was last spoken of at all, for reminders.
    at: Timestamp,
    /// When its words were last reported, for rewording.
    worded: Timestamp,
}

#[derive(Debug, Clone, Copy)]
struct Flapping {
    since: Timestamp,
    reported_at: Timestamp,
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
        let Self {
            seen,
            recalled,
            held,
            reported,
            missing,
            unlisted,
            failed,
            blind_since,
            changes,
            flapping,
        } = self;
        *seen
            && !*recalled
            && held.is_empty()
            && reported.is_empty()
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

    pub(super) fn cannot_probe(&self) -> bool {
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
                let flapping = Flapping { since, reported_at: now, last_change: now, changes };
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

    /// Reports what is held and was not reported, and what was reported and is no longer held.
    fn tell_difference(&mut self, policy: &Policy, now: Timestamp, news: &mut Vec<Change>) {
        let (mut same, mut other) = (Vec::new(), Vec::new());
        for reported in std::mem::take(&mut self.reported) {
            let held = self.held.iter().any(|held| held.condition.is_same(&reported.held.condition));
            if held { same.push(reported) } else { other.push(reported) }
        }
        for held in &self.held {
            let is_same = |reported: &Reported| reported.held.condition.is_same(&held.condition);
            if let Some(place) = same.iter().position(is_same) {
                let mut reported = same.swap_remove(place);
                let reworded = reported.held.condition.message != held.condition.message;
                if reworded && now.duration_since(reported.worded) >= policy.reword_every {
                    reported.held.condition.message = held.condition.message.clone();
                    reported.worded = now;
                    news.push(Change::Reworded {
                        condition: held.condition.clone(),
                        since: reported.held.since,
                    });
                }
                self.reported.push(reported);
                continue;
            }
            // The same reason under another status is one story, not an end and a beginning.
            let earlier =
                other.iter().position(|reported| reported.held.condition.reason == held.condition.reason);
            let (to, since) = (held.condition.clone(), held.since);
            news.push(match earlier {
                Some(place) => Change::Changed { from: other.remove(place).held.condition, to, since },
                None => Change::Appeared { condition: to, since },
            });
            self.reported.push(Reported { held: held.clone(), at: now, worded: now });
        }
        for Reported { held: Held { condition, since }, .. } in other {
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
            if now.duration_since(flapping.reported_at) >= every {
                news.push(self.tell_flapping(flapping));
                self.flapping = Some(Flapping { reported_at: now, ..flapping });
            }
            return news;
        }
        for reported in &mut self.reported {
            if now.duration_since(reported.at) >= every {
                reported.at = now;
                let Held { condition, since } = reported.held.clone();
                news.push(Change::Reminder { condition, since });
            }
        }
        news
    }

    /// Ends everything that was reported.
    pub(super) fn close(self, ending: Ending) -> Vec<Change> {
        let reported = self.reported.into_iter().map(|reported| reported.held);
        reported
            .map(|Held { condition, since }| Change::Cleared { condition, since, ending })
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
        let latest = self.reported.iter().map(|reported| reported.at.max(reported.worded)).max();
        let reported_at = latest.or(self.flapping.map(|f| f.reported_at)).or(self.blind_since)?;
        Some(Memo {
            subject: subject.clone(),
            vantage: vantage.clone(),
            reported: self.reported.iter().map(|reported| reported.held.clone()).collect(),
            reported_at,
            blind_since: self.blind_since,
            flapping_since: self.flapping.map(|flapping| flapping.since),
        })
    }

    pub(super) fn recall(
        &mut self,
        reported: Vec<Held>,
        at: Timestamp,
        blind_since: Option<Timestamp>,
        flapping_since: Option<Timestamp>,
    ) {
        self.seen = true;
        self.recalled = true;
        // A store may hold what no note ever would: the same condition twice, or too many.
        let ages: Vec<Held> = reported;
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
        self.reported =
            self.held.iter().map(|held| Reported { held: held.clone(), at, worded: at }).collect();
        self.blind_since = blind_since;
        // Where it was in its flapping is not remembered: it gets a whole quiet window to settle.
        self.flapping =
            flapping_since.map(|since| Flapping { since, reported_at: at, last_change: at, changes: 0 });
    }
}
