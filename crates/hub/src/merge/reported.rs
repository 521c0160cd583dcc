//! What the hub itself reports as events on the claim: what no other component reports. A driver's controller reports what
//! its driver says, and an agent what it finds on its node.
//!
//! A condition is reported if it was not stored before: so an update of the hub reports nothing that lasts already, and of
//! a node that is down either the hub or a sidecar reports both the start and the end.

use jiff::Timestamp;
use volmedic_api::resource::{
    ConditionStatus, HealthCondition, ReportedCondition, VantageHealth, VantageKind, VolumeHealthStatus,
    limit, time,
};
use volmedic_health::WellKnown;

use crate::facts::{Facts, vantage_name};

/// Conditions that have ended and are still listed.
const ENDED: usize = limit::REPORTED / 2;

pub(super) fn of(
    now: Timestamp,
    vantages: &[VantageHealth],
    facts: &Facts,
    stored: Option<&VolumeHealthStatus>,
) -> Vec<ReportedCondition> {
    let mut reported = stored.map(|stored| stored.reported.clone()).unwrap_or_default();
    for one in reported.iter_mut().filter(|one| one.ended.is_none()) {
        if !has(vantages, |entry, condition| is_about(one, entry, condition)) {
            one.ended = Some(time(now));
            one.expired = is_expired(one, facts);
        }
    }
    let before = stored.map_or(&[][..], |stored| &stored.vantages);
    let mut new = Vec::new();
    for entry in vantages {
        for condition in entry.health_conditions.iter().filter(|one| is_ours(entry, one, facts)) {
            let is_known = has(before, |old, known| old.name == entry.name && known.is_same(condition));
            let is_open = reported.iter().any(|one| one.ended.is_none() && is_about(one, entry, condition));
            if !is_known && !is_open {
                new.push(ReportedCondition {
                    vantage: entry.name.clone(),
                    severity: condition.severity().to_string(),
                    reason: condition.reason.clone(),
                    since: condition.last_transition_time.clone(),
                    time: time(now),
                    ended: None,
                    expired: false,
                });
            }
        }
    }
    new.append(&mut reported);
    let mut ended = 0;
    new.retain(|one| {
        ended += usize::from(one.ended.is_some());
        one.ended.is_none() || ended <= ENDED
    });
    new.truncate(limit::REPORTED);
    new
}

fn has(vantages: &[VantageHealth], is_it: impl Fn(&VantageHealth, &HealthCondition) -> bool) -> bool {
    vantages.iter().any(|entry| entry.health_conditions.iter().any(|condition| is_it(entry, condition)))
}

fn is_about(one: &ReportedCondition, entry: &VantageHealth, condition: &HealthCondition) -> bool {
    condition.status == ConditionStatus::True
        && one.vantage == entry.name
        && one.reason == condition.reason
        && one.severity == condition.severity().to_string()
}

/// Whether no other component reports it.
fn is_ours(entry: &VantageHealth, condition: &HealthCondition, facts: &Facts) -> bool {
    if condition.status != ConditionStatus::True {
        return false;
    }
    let reason = WellKnown::from_name(&condition.reason);
    match entry.kind {
        VantageKind::Cluster => reason != Some(WellKnown::NodeDown) || !facts.controller_reports_nodes,
        VantageKind::Pushed => true,
        // An agent says of these only that it does not probe the volume.
        VantageKind::Host => reason.is_some_and(WellKnown::is_found_by_hub),
        VantageKind::Controller | VantageKind::Node | VantageKind::Kubelet => false,
    }
}

/// A pushed report that was not replaced by one without the condition was not repeated.
fn is_expired(one: &ReportedCondition, facts: &Facts) -> bool {
    let replaced = facts.pushed.as_ref().map(|new| vantage_name(VantageKind::Pushed, Some(&new.source)));
    one.vantage.starts_with("pushed/") && replaced.as_deref() != Some(&*one.vantage)
}
