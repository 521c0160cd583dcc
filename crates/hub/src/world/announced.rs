//! Which starts and ends of conditions are to be reported as events, by what is stored. Nothing is reported before it is
//! stored, so that every hub reports the same under the same names.

use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use tokio::sync::Notify;
use volmedic_api::resource::{ReportedCondition, VolumeHealthStatus};
use volmedic_health::{Change, Condition, Ending, Reason, Status, Subject, Transition, Vantage};

use super::World;
use crate::ClaimKey;
use crate::facts::NO_DRIVER;

/// Reports that wait for the one who sends them, who takes them all in one step.
const MOST: usize = 20_000;
/// A hub that begins reports again what is younger: the one before may have ended before it had sent it. The API server
/// refuses what it has already, and it keeps events for an hour.
const AGAIN: SignedDuration = SignedDuration::from_mins(15);

/// A start or an end to report.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Announcement {
    pub claim: ClaimKey,
    pub claim_uid: Box<str>,
    pub transition: Transition,
    /// What distinguishes it from everything else that happens to the claim, and is the same for every hub.
    pub which: String,
}

#[derive(Debug)]
pub(super) struct Announcements {
    woken: Arc<Notify>,
    /// What is older was reported by an earlier hub.
    from: Timestamp,
    waiting: Vec<Announcement>,
    lost: usize,
}

impl World {
    /// From now on, what is stored is to be reported, and `woken` is notified of it.
    pub fn announce(&mut self, now: Timestamp, woken: Arc<Notify>) {
        let from = now.checked_sub(AGAIN).unwrap_or(Timestamp::MIN);
        self.announcements = Some(Announcements { woken, from, waiting: Vec::new(), lost: 0 });
    }

    /// What there is to report, oldest first, and how much there was no room for.
    pub fn take_announcements(&mut self) -> (Vec<Announcement>, usize) {
        let Some(all) = &mut self.announcements else { return (Vec::new(), 0) };
        (std::mem::take(&mut all.waiting), std::mem::take(&mut all.lost))
    }

    pub(super) fn note_reported(&mut self, key: &ClaimKey, before: Option<&VolumeHealthStatus>) {
        let Some(all) = &mut self.announcements else { return };
        let Some(stored) = self.stored.get(key) else { return };
        let (Some(status), Some(owner)) = (&stored.status, &stored.owner) else { return };
        let known = before.map_or(&[][..], |before| &before.reported);
        let news = news(&status.reported, known, all.from);
        for (one, ended) in news {
            if all.waiting.len() >= MOST {
                all.lost += 1;
                continue;
            }
            all.waiting.push(Announcement {
                claim: key.clone(),
                claim_uid: owner.to_string().into(),
                transition: transition(status, one, ended),
                which: which(one, ended),
            });
            all.woken.notify_one();
        }
    }
}

/// The starts and ends that are not known yet, oldest first.
fn news<'a>(
    reported: &'a [ReportedCondition],
    known: &[ReportedCondition],
    from: Timestamp,
) -> Vec<(&'a ReportedCondition, bool)> {
    let mut news = Vec::new();
    for one in reported {
        let is_it = |old: &&ReportedCondition| {
            (&old.vantage, &old.reason, &old.severity, &old.time)
                == (&one.vantage, &one.reason, &one.severity, &one.time)
        };
        let old = known.iter().find(is_it);
        if old.is_none() && one.time.0 >= from {
            news.push((one, false));
        }
        if one.ended.as_ref().is_some_and(|ended| ended.0 >= from)
            && old.is_none_or(|old| old.ended.is_none())
        {
            news.push((one, true));
        }
    }
    let at = |(one, ended): &(&ReportedCondition, bool)| match &one.ended {
        Some(time) if *ended => (time.0, true),
        _ => (one.time.0, false),
    };
    news.sort_by_key(at);
    news
}

fn which(one: &ReportedCondition, ended: bool) -> String {
    let ReportedCondition { vantage, severity, reason, since: _, time, ended: _, expired: _ } = one;
    let end = if ended { "end" } else { "start" };
    format!("{vantage} {severity}/{reason} {} {end}", time.0.as_second())
}

fn transition(status: &VolumeHealthStatus, one: &ReportedCondition, ended: bool) -> Transition {
    let name = status.persistent_volume_name.as_deref().unwrap_or("without a PersistentVolume");
    let subject = Subject::volume(
        status.driver.as_deref().unwrap_or(NO_DRIVER),
        status.volume_handle.as_deref().unwrap_or(name),
    );
    let message = status.vantages.iter().filter(|entry| entry.name == one.vantage).find_map(|entry| {
        let condition = entry.health_conditions.iter().find(|condition| condition.reason == one.reason)?;
        Some(condition.message.clone())
    });
    let severity = one.severity.parse().unwrap_or(Status::Unrecognized(0));
    let condition = Condition::new(severity, Reason::new(&one.reason), &message.unwrap_or_default());
    let since = one.since.0;
    let (at, change) = match &one.ended {
        Some(end) if ended => {
            let ending = if one.expired { Ending::VantageGone } else { Ending::Recovered };
            (end.0, Change::Cleared { condition, since, ending })
        }
        _ => (one.time.0, Change::Appeared { condition, since }),
    };
    Transition { at, subject, vantage: one.vantage.parse().unwrap_or(Vantage::Cluster), change }
}
