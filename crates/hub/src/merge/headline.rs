//! The one line that stands for a volume, what it was before, and what tools wait for.

use std::cmp::Reverse;

use jiff::Timestamp;
use volmedic_api::resource::{
    Condition, ConditionStatus, Headline, HealthCondition, HealthWord, PastHeadline, StatusWord,
    VantageHealth, VolumeHealthStatus, limit, time,
};
use volmedic_health::Status;

/// The condition that tools wait for.
const HEALTHY: &str = "Healthy";

/// The worst that anybody sees; among equals, what has lasted longest.
pub(super) fn of(now: Timestamp, vantages: &[VantageHealth], before: Option<&Headline>) -> Headline {
    let all = vantages.iter().flat_map(|entry| entry.health_conditions.iter().map(move |one| (entry, one)));
    let worst = all.filter(|(_, one)| one.status != ConditionStatus::False).min_by_key(|(entry, one)| {
        let status = one.condition().map(|condition| condition.status);
        (
            Reverse(status),
            one.last_transition_time.clone(),
            entry.kind,
            entry.name.clone(),
            one.reason.clone(),
        )
    });
    let mut headline = match worst {
        Some((entry, one)) => wrong(entry, one),
        None if vantages.is_empty() => {
            Headline { message: "nothing checks this volume".to_owned(), ..Headline::default() }
        }
        None => Headline {
            health: HealthWord::Healthy,
            message: format!("nothing wrong is seen by {}", names(vantages)),
            ..Headline::default()
        },
    };
    if headline.since.is_none() {
        let stays = before.filter(|before| same(before, &headline)).and_then(|before| before.since.clone());
        headline.since = Some(stays.unwrap_or_else(|| time(now)));
    }
    headline
}

fn wrong(entry: &VantageHealth, one: &HealthCondition) -> Headline {
    let status = one.condition().map(|condition| condition.status);
    Headline {
        health: match status {
            Some(Status::DataLoss | Status::Inaccessible) => HealthWord::HealthFailure,
            Some(Status::Degraded) => HealthWord::HealthWarning,
            Some(Status::Unrecognized(_)) | None => HealthWord::HealthUnknown,
        },
        status: status.map(|status| match status {
            Status::DataLoss => StatusWord::DataLoss,
            Status::Inaccessible => StatusWord::Inaccessible,
            Status::Degraded => StatusWord::Degraded,
            Status::Unrecognized(_) => StatusWord::Unrecognized,
        }),
        reason: Some(one.reason.clone()),
        message: one.message.clone(),
        since: Some(one.last_transition_time.clone()),
        vantage: Some(entry.name.clone()),
    }
}

/// A few names, so that the sentence does not change whenever one more of many looks.
fn names(vantages: &[VantageHealth]) -> String {
    const SHOWN: usize = 3;
    let mut names: Vec<&str> = vantages.iter().map(|entry| entry.name.as_str()).collect();
    names.sort_unstable();
    let more = names.len().saturating_sub(SHOWN);
    let shown = names[..names.len().min(SHOWN)].join(", ");
    if more > 0 { format!("{shown} and {more} more") } else { shown }
}

fn same(a: &Headline, b: &Headline) -> bool {
    (a.health, a.status, &a.reason) == (b.health, b.status, &b.reason)
}

/// A line for every change of the headline, newest first. The first line is the first thing that was ever wrong.
pub(super) fn history(
    now: Timestamp,
    headline: &Headline,
    stored: Option<&VolumeHealthStatus>,
) -> Vec<PastHeadline> {
    let mut history = stored.map(|stored| stored.history.clone()).unwrap_or_default();
    let stays = stored.is_some_and(|stored| same(&stored.headline, headline)) && !history.is_empty();
    if !stays {
        let Headline { health, status, reason, message, since: _, vantage } = headline.clone();
        history.insert(0, PastHeadline { time: time(now), health, status, reason, message, vantage });
        history.truncate(limit::HISTORY);
    }
    history
}

/// `Healthy`, as `kubectl wait` understands it.
pub(super) fn standard(
    now: Timestamp,
    headline: &Headline,
    stored: Option<&VolumeHealthStatus>,
) -> Condition {
    let (status, reason) = match headline.health {
        HealthWord::Healthy => (ConditionStatus::True, HEALTHY),
        HealthWord::HealthUnknown => {
            (ConditionStatus::Unknown, headline.reason.as_deref().unwrap_or("NotSeen"))
        }
        HealthWord::HealthWarning | HealthWord::HealthFailure => {
            (ConditionStatus::False, headline.reason.as_deref().unwrap_or("Unspecified"))
        }
    };
    let mut old = stored.iter().flat_map(|stored| &stored.conditions).filter(|old| old.kind == HEALTHY);
    let stays = old.find(|old| old.status == status).map(|old| old.last_transition_time.clone());
    Condition {
        kind: HEALTHY.to_owned(),
        status,
        reason: reason.to_owned(),
        message: headline.message.clone(),
        last_transition_time: stays.unwrap_or_else(|| time(now)),
    }
}
