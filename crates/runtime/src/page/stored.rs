//! What a VolumeHealth says, as people are shown it.

use std::sync::Arc;

use volmedic_api::resource::{
    ConditionStatus, Heal, HealOutcome, HealthCondition, HealthWord, PastHeadline, StatusWord, VantageHealth,
    VantageKind, VolumeHealthStatus,
};
use volmedic_health::{Condition, Health, Held, Reason, Status, Vantage};
use volmedic_view::history::Standing;
use volmedic_view::{Moment, Row, Sighting};

/// Puts what is known of a claim's volume into its row. `known` gives names that many rows share one text.
pub fn fill(row: Row, status: &VolumeHealthStatus, mut known: impl FnMut(&str) -> Arc<str>) -> Row {
    let headline = &status.headline;
    let health = health(headline.health, headline.status);
    let condition = match health {
        Health::Adverse(status_word) => Some(worst(status, status_word)),
        Health::Healthy | Health::Unknown => None,
    };
    let health = condition.as_ref().map_or(health, |condition| Health::Adverse(condition.status));
    // Since when a volume is healthy is known, but asks for no action.
    let since = headline.since.as_ref().map(|time| time.0).filter(|_| health != Health::Healthy);
    let unknown = health == Health::Unknown;
    let why = unknown.then(|| headline.message.as_str().into());
    let why_word = headline.reason.as_deref().filter(|_| unknown).map(&mut known);
    let mut seen_by: Vec<Sighting> =
        status.vantages.iter().map(|vantage| sighting(vantage, &mut known)).collect();
    seen_by.sort_by(|a, b| a.vantage.cmp(&b.vantage));
    Row { health, condition, since, why, why_word, seen_by, ..row }
}

fn health(word: HealthWord, status: Option<StatusWord>) -> Health {
    let status = status.or(match word {
        HealthWord::Healthy | HealthWord::HealthUnknown => None,
        // The schema demands a status; who wrote this did without.
        HealthWord::HealthWarning => Some(StatusWord::Degraded),
        HealthWord::HealthFailure => Some(StatusWord::Inaccessible),
    });
    Health::Adverse(match status {
        Some(StatusWord::DataLoss) => Status::DataLoss,
        Some(StatusWord::Inaccessible) => Status::Inaccessible,
        Some(StatusWord::Degraded) => Status::Degraded,
        Some(StatusWord::Unrecognized) => Status::Unrecognized(0),
        None if word == HealthWord::Healthy => return Health::Healthy,
        None => return Health::Unknown,
    })
}

/// The headline's condition. The vantage that sees it knows its number too, where it is one that we do not know.
fn worst(status: &VolumeHealthStatus, word: Status) -> Condition {
    let headline = &status.headline;
    let reason = headline.reason.as_deref().unwrap_or("Unspecified");
    let seer = status.vantages.iter().find(|entry| Some(&entry.name) == headline.vantage.as_ref());
    let its = seer.into_iter().flat_map(|entry| &entry.health_conditions);
    let exact = its.filter(|one| one.reason == reason).find_map(HealthCondition::condition);
    match (word, exact) {
        (Status::Unrecognized(_), Some(exact @ Condition { status: Status::Unrecognized(_), .. })) => exact,
        _ => Condition::new(word, Reason::new(reason), &headline.message),
    }
}

fn sighting(entry: &VantageHealth, known: &mut impl FnMut(&str) -> Arc<str>) -> Sighting {
    let held =
        |one: &HealthCondition| Some(Held { condition: one.condition()?, since: one.last_transition_time.0 });
    let conditions: Vec<Held> = entry.health_conditions.iter().filter_map(held).collect();
    let blind = entry.health_conditions.iter().find(|one| one.status == ConditionStatus::Unknown);
    Sighting {
        vantage: vantage(entry, known),
        health: match conditions.first() {
            Some(worst) => Health::Adverse(worst.condition.status),
            None => health(entry.health, None),
        },
        conditions,
        blind_since: blind.map(|one| one.last_transition_time.0),
        flapping_since: None,
    }
}

fn vantage(entry: &VantageHealth, known: &mut impl FnMut(&str) -> Arc<str>) -> Vantage {
    let mut node = || known(entry.node.as_deref().unwrap_or_default());
    match entry.kind {
        VantageKind::Controller => Vantage::Controller,
        VantageKind::Node => Vantage::Node(node()),
        VantageKind::Host => Vantage::Host(node()),
        VantageKind::Kubelet => Vantage::Kubelet(node()),
        VantageKind::Cluster => Vantage::Cluster,
        VantageKind::Pushed => Vantage::Pushed(known(entry.source.as_deref().unwrap_or_default())),
    }
}

/// Which claim of which volume something is about.
#[derive(Debug, Clone)]
pub struct About {
    pub driver: Arc<str>,
    pub volume: Arc<str>,
    /// As in `shop/data`.
    pub claim: String,
}

/// What was stored of a claim's past, oldest first.
pub fn story(about: &About, status: &VolumeHealthStatus) -> Vec<Moment> {
    status.history.iter().rev().map(|past| moment(about, past)).collect()
}

/// A headline that came, as a change.
pub fn moment(about: &About, past: &PastHeadline) -> Moment {
    let PastHeadline { time, health: word, status, reason, message, vantage } = past;
    let health = health(*word, *status);
    let condition = match health {
        Health::Adverse(status) => {
            Some(Condition::new(status, Reason::new(reason.as_deref().unwrap_or("Unspecified")), message))
        }
        Health::Healthy | Health::Unknown => None,
    };
    let seer = vantage.as_deref().and_then(|name| name.parse().ok());
    let standing = condition.iter().map(|condition| Standing {
        status: condition.status,
        reason: condition.reason.as_str().into(),
        message: (&*condition.message).into(),
        since: time.0,
    });
    Moment {
        at: time.0,
        driver: about.driver.clone(),
        volume: Some(about.volume.clone()),
        known_as: Some(about.claim.as_str().into()),
        whole: true,
        kind: "headline".into(),
        warning: health != Health::Healthy,
        health,
        standing: standing.collect(),
        blind_since: (health == Health::Unknown).then_some(time.0),
        flapping_since: None,
        text: sentence(&about.claim, health, condition.as_ref(), seer.as_ref(), message).into(),
        vantage: seer.unwrap_or(Vantage::Cluster),
    }
}

fn sentence(
    claim: &str,
    health: Health,
    condition: Option<&Condition>,
    seer: Option<&Vantage>,
    message: &str,
) -> String {
    let by = seer.map(|seer| format!(", seen by {seer}")).unwrap_or_default();
    let words = |text: &str| if text.is_empty() { String::new() } else { format!(" ({text})") };
    match (condition, health) {
        (Some(condition), _) => {
            let next = condition.reason.advice();
            format!("claim {claim} is {condition}{}{by}. Next: {next}", words(&condition.message))
        }
        (None, Health::Healthy) => format!("claim {claim} is healthy{}", words(message)),
        (None, _) => format!("the health of claim {claim} is unknown{}{by}", words(message)),
    }
}

/// What was done to heal it, newest first.
pub fn heals(status: &VolumeHealthStatus) -> Vec<volmedic_view::Heal> {
    status.heals.iter().map(heal).collect()
}

fn heal(attempt: &Heal) -> volmedic_view::Heal {
    let (outcome, well) = match attempt.outcome {
        HealOutcome::Started => ("Started", None),
        HealOutcome::Succeeded => ("Succeeded", Some(true)),
        HealOutcome::Failed => ("Failed", Some(false)),
        HealOutcome::Skipped => ("Skipped", None),
    };
    volmedic_view::Heal {
        at: attempt.time.0,
        outcome,
        well,
        remedy: attempt.remedy.clone(),
        node: attempt.node.clone(),
        message: attempt.message.clone(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn status(value: serde_json::Value) -> VolumeHealthStatus {
        serde_json::from_value(value).expect("a status")
    }

    fn row(status: &VolumeHealthStatus) -> Row {
        fill(Row::new("d".into(), "v".into()), status, |name| name.into())
    }

    #[test]
    fn the_headline_is_the_row_and_each_vantage_stays_visible() {
        let time = "2026-08-21T10:00:00Z";
        let hung = json!({"type": "HealthFailure", "status": "True", "errorCode": "Inaccessible", "reason": "IOHung",
            "message": "statfs hangs", "lastTransitionTime": time});
        let silent = json!({"type": "HealthUnknown", "status": "Unknown", "reason": "AgentSilent", "message": "no word",
            "lastTransitionTime": time});
        let odd = json!({"type": "HealthUnknown", "status": "True", "errorCode": "Unrecognized(9)", "reason": "Odd",
            "message": "", "lastTransitionTime": time});
        let sick = status(json!({
            "headline": {"health": "HealthFailure", "status": "Inaccessible", "reason": "IOHung", "message": "statfs hangs",
                "since": time, "vantage": "host/w1"},
            "vantages": [
                {"name": "host/w1", "kind": "Host", "node": "w1", "health": "HealthFailure", "since": time,
                    "healthConditions": [hung]},
                {"name": "host/w2", "kind": "Host", "node": "w2", "health": "HealthUnknown", "since": time,
                    "healthConditions": [silent]},
                {"name": "kubelet/w1", "kind": "Kubelet", "node": "w1", "health": "Healthy", "since": time},
            ],
        }));
        let shown = row(&sick);
        assert_eq!(shown.health, Health::Adverse(Status::Inaccessible));
        assert_eq!((shown.reason(), shown.message()), ("IOHung", "statfs hangs"));
        let seen: Vec<String> = shown
            .seen_by
            .iter()
            .map(|s| format!("{} {} blind {}", s.vantage, s.health, s.blind_since.is_some()))
            .collect();
        assert_eq!(
            seen,
            [
                "host checks on node w1 Inaccessible blind false",
                "host checks on node w2 Unknown blind true",
                "the kubelet on node w1 Healthy blind false"
            ]
        );

        let strange = status(json!({
            "headline": {"health": "HealthUnknown", "status": "Unrecognized", "reason": "Odd", "vantage": "host/w1"},
            "vantages": [{"name": "host/w1", "kind": "Host", "node": "w1", "health": "HealthUnknown", "since": time,
                "healthConditions": [odd]}],
        }));
        assert_eq!(row(&strange).health, Health::Adverse(Status::Unrecognized(9)), "its number is not lost");

        let unseen =
            status(json!({"headline": {"health": "HealthUnknown", "message": "nothing checks this volume"}}));
        let shown = row(&unseen);
        assert_eq!((shown.health, shown.message()), (Health::Unknown, "nothing checks this volume"));
    }

    #[test]
    fn the_past_is_shown_oldest_first_in_sentences() {
        let about = About { driver: "d".into(), volume: "v".into(), claim: "shop/data".into() };
        let status = status(json!({
            "headline": {"health": "Healthy"},
            "history": [
                {"time": "2026-08-21T10:09:00Z", "health": "Healthy", "message": "nothing wrong is seen by host/w1"},
                {"time": "2026-08-21T10:05:00Z", "health": "HealthUnknown", "reason": "AgentSilent", "message": "no word",
                    "vantage": "host/w1"},
                {"time": "2026-08-21T10:00:00Z", "health": "HealthWarning", "status": "Degraded", "reason": "OutOfCapacity",
                    "message": "99 % used", "vantage": "pushed/scan"},
            ],
        }));
        let texts: Vec<String> =
            story(&about, &status).iter().map(|moment| moment.text.to_string()).collect();
        assert!(texts[0].starts_with(
            "claim shop/data is Degraded/OutOfCapacity (99 % used), seen by reporter scan. Next: "
        ));
        assert_eq!(
            texts[1..],
            [
                "the health of claim shop/data is unknown (no word), seen by host checks on node w1",
                "claim shop/data is healthy (nothing wrong is seen by host/w1)"
            ]
        );
    }
}
