//! The one line that stands for a volume, what it was before, and what tools wait for.

use jiff::Timestamp;
use volmedic_api::resource::{
    Condition, ConditionStatus, Headline, HealthCondition, HealthWord, PastHeadline, StatusWord,
    VantageHealth, VolumeHealthStatus, limit, time,
};
use volmedic_health::{Health, Status};

use crate::facts::Unprobed;
use crate::unknown::Unknown;

/// The condition that tools wait for.
const HEALTHY: &str = "Healthy";

/// The worst that any vantage sees; among equals, what has lasted longest. Healthy only if some vantage probes the
/// volume: `unprobed` says why where none does.
pub(super) fn of(
    now: Timestamp,
    vantages: &[VantageHealth],
    unprobed: Option<&Unprobed>,
    before: Option<&Headline>,
) -> Headline {
    let all = vantages.iter().flat_map(|entry| entry.health_conditions.iter().map(move |one| (entry, one)));
    let worst = all.filter(|(_, one)| one.status != ConditionStatus::False).min_by_key(|(entry, one)| {
        let health = one.condition().map_or(Health::Unknown, |condition| Health::Adverse(condition.status));
        (health.rank(Some(one.last_transition_time.0)), entry.kind, entry.name.clone(), one.reason.clone())
    });
    let mut headline = match worst {
        Some((entry, one)) => wrong(entry, one, vantages),
        None if vantages.is_empty() => Headline {
            reason: Some(unprobed.map_or(Unknown::NotProbed, |unprobed| unprobed.reason).name().to_owned()),
            message: unprobed
                .map_or("no vantage probes this volume", |unprobed| &unprobed.message)
                .to_owned(),
            ..Headline::default()
        },
        None => Headline {
            health: HealthWord::Healthy,
            message: format!("nothing wrong is seen by {}", names(vantages)),
            ..Headline::default()
        },
    };
    headline.message.truncate(headline.message.floor_char_boundary(limit::MESSAGE));
    if headline.since.is_none() {
        let stays = before.filter(|before| same(before, &headline)).and_then(|before| before.since.clone());
        headline.since = Some(stays.unwrap_or_else(|| time(now)));
    }
    headline
}

fn wrong(entry: &VantageHealth, one: &HealthCondition, all: &[VantageHealth]) -> Headline {
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
        message: with_others(&one.message, entry, status, all),
        since: Some(one.last_transition_time.clone()),
        vantage: Some(entry.name.clone()),
    }
}

/// The message, and which other vantages see the volume otherwise. The names are of vantages that are stored anyway, so
/// that this adds no write.
fn with_others(message: &str, seer: &VantageHealth, status: Option<Status>, all: &[VantageHealth]) -> String {
    const SHOWN: usize = 3;
    let mut others: Vec<String> = all
        .iter()
        .filter(|entry| entry.name != seer.name)
        .filter_map(|entry| {
            let worst = entry.health_conditions.iter().find(|one| one.status != ConditionStatus::False);
            match worst {
                None => Some(format!("{} sees nothing wrong", entry.name)),
                Some(one) => {
                    let other = one.condition()?;
                    (Some(other.status) != status).then(|| format!("{} sees {other}", entry.name))
                }
            }
        })
        .collect();
    if others.is_empty() {
        return message.to_owned();
    }
    others.sort_unstable();
    let more = others.len().saturating_sub(SHOWN);
    others.truncate(SHOWN);
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    let others = format!("others see it differently: {}{more}", others.join(", "));
    if message.is_empty() {
        return others;
    }
    let room = limit::MESSAGE.saturating_sub(others.len() + 2);
    format!("{}; {others}", &message[..message.floor_char_boundary(room)])
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
            (ConditionStatus::Unknown, headline.reason.as_deref().unwrap_or(Unknown::NotProbed.name()))
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
