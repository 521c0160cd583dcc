//! What should be stored of a claim, from all that is known and what is stored already. Pure: time is an argument.
//!
//! The same facts give the same result whatever the order in which they came in. A time moves only when what it belongs
//! to changes, so nothing is written while nothing changes.

mod headline;
mod reported;

use std::cmp::Reverse;

use jiff::{SignedDuration, Timestamp};
use volmedic_api::resource::{
    ConditionStatus, ConditionType, HealthCondition, HealthWord, Observed, VantageHealth, VantageKind,
    VolumeHealthStatus, limit, time,
};
use volmedic_health::Conditions;

use crate::facts::{Facts, Pushed, Seen, Since, View, What, vantage_name};
use crate::unknown::Unknown;

/// For so long who has seen less leaves alone what was written from newer reports. Should versions ever go back, as with
/// a store that is restored, nothing is wrong for longer than this.
const NEWER_FOR: SignedDuration = SignedDuration::from_mins(1);

/// Which claims have an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Keep {
    /// Healthy ones too.
    pub all: bool,
    /// How long one stays after its volume recovered.
    pub recovered_for: SignedDuration,
}

/// What is to be done about a claim.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Decision {
    pub action: Action,
    /// When to look again if nothing else happens.
    pub due: Option<Timestamp>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Action {
    /// It is stored as it should be, or is not and should not.
    Nothing,
    Write(Box<VolumeHealthStatus>),
    /// It has been well for long enough.
    Remove,
}

/// What to do with what [`merge`] says.
pub fn decide(now: Timestamp, facts: &Facts, stored: Option<&VolumeHealthStatus>, keep: Keep) -> Decision {
    let wanted = merge(now, facts, stored);
    let expires = wanted.vantages.iter().filter_map(|entry| entry.expires.as_ref()).map(|time| time.0);
    let newer = wanted.vantages.iter().filter(|entry| is_newer(now, entry, facts));
    let newer = newer.filter_map(|entry| entry.observed.as_ref()?.time.0.checked_add(NEWER_FOR).ok());
    let waiting = facts.views.iter().flat_map(|view| &view.seen).filter_map(|seen| seen.counts_from);
    let expiry = expires.chain(newer).chain(waiting.filter(|from| *from > now)).min();
    let unhealthy = wanted.vantages.iter().any(|entry| entry.health != HealthWord::Healthy);
    if unhealthy || keep.all {
        return Decision { action: write_unless_there(wanted, stored), due: expiry };
    }
    let Some(stored) = stored else { return Decision { action: Action::Nothing, due: expiry } };
    let well_since = wanted.headline.since.as_ref().map_or(now, |since| since.0);
    let over = well_since.checked_add(keep.recovered_for).unwrap_or(Timestamp::MAX);
    if over <= now {
        // That it recovered is reported by what is stored, so it is stored first.
        return if wanted.reported == stored.reported {
            Decision { action: Action::Remove, due: None }
        } else {
            Decision { action: Action::Write(Box::new(wanted)), due: Some(now) }
        };
    }
    let due = expiry.map_or(over, |expiry| expiry.min(over));
    Decision { action: write_unless_there(wanted, Some(stored)), due: Some(due) }
}

fn write_unless_there(wanted: VolumeHealthStatus, stored: Option<&VolumeHealthStatus>) -> Action {
    if stored == Some(&wanted) { Action::Nothing } else { Action::Write(Box::new(wanted)) }
}

/// What should be stored, should anything be.
pub fn merge(now: Timestamp, facts: &Facts, stored: Option<&VolumeHealthStatus>) -> VolumeHealthStatus {
    let before = stored.map_or(&[][..], |stored| &stored.vantages);
    let mut vantages: Vec<VantageHealth> =
        facts.views.iter().filter_map(|view| entry(now, view, facts, before)).collect();
    vantages.extend(facts.pushed.iter().filter_map(|pushed| pushed_entry(now, pushed, before)));
    let kept = before.iter().filter(|old| stands(now, old, facts));
    let kept: Vec<_> = kept.filter(|old| vantages.iter().all(|new| new.name != old.name)).cloned().collect();
    vantages.extend(kept);
    vantages.sort_by(|a, b| rank(a).cmp(&rank(b)));
    vantages.dedup_by(|later, first| later.name == first.name);
    let reported = reported::of(now, &vantages, facts, stored);
    let omitted = vantages.len().saturating_sub(limit::VANTAGES);
    vantages.truncate(limit::VANTAGES);

    let before = stored.map(|stored| &stored.headline);
    let headline = headline::of(now, &vantages, facts.unprobed.as_ref(), before);
    let volume = facts.volume.as_ref();
    let (driver, handle) = match volume.and_then(|volume| volume.csi.as_ref()) {
        Some((driver, handle)) => (Some(driver.to_string()), Some(bounded(handle, limit::HANDLE))),
        None => (None, None),
    };
    VolumeHealthStatus {
        history: headline::history(now, &headline, stored),
        conditions: vec![headline::standard(now, &headline, stored)],
        headline,
        persistent_volume_name: volume.map(|volume| volume.name.to_string()),
        driver,
        volume_handle: handle,
        vantages,
        omitted_vantages: u32::try_from(omitted).unwrap_or(u32::MAX),
        reported,
        // The healer's, and the driver's controller's; what the hub applies does not touch them.
        controller_report: stored.and_then(|stored| stored.controller_report.clone()),
        heals: stored.map(|stored| stored.heals.clone()).unwrap_or_default(),
    }
}

/// Worst first, then by name: the same set is always in the same order.
fn rank(entry: &VantageHealth) -> (Reverse<HealthWord>, VantageKind, &str) {
    (Reverse(entry.health), entry.kind, &entry.name)
}

/// Whether what is stored of a vantage that says nothing now is still to be believed.
fn stands(now: Timestamp, old: &VantageHealth, facts: &Facts) -> bool {
    match &old.expires {
        Some(expires) => {
            let reported_again =
                facts.pushed.as_ref().is_some_and(|new| old.source.as_deref() == Some(&new.source));
            expires.0 > now && !reported_again
        }
        None => facts.unheard.contains(&old.kind) || is_undetermined(old, facts) || is_newer(now, old, facts),
    }
}

/// Whether it is not known yet if the source of an entry still runs.
fn is_undetermined(old: &VantageHealth, facts: &Facts) -> bool {
    let of_node =
        || old.node.as_deref().is_some_and(|node| facts.undetermined.iter().any(|one| **one == *node));
    match old.kind {
        VantageKind::Host | VantageKind::Node => of_node(),
        VantageKind::Controller => facts.undetermined_controller,
        VantageKind::Kubelet | VantageKind::Cluster | VantageKind::Pushed => false,
    }
}

/// Whether an entry was made from newer reports of nodes than we have seen: others may write too for a moment, and what
/// is news to them would be taken back.
fn is_newer(now: Timestamp, old: &VantageHealth, facts: &Facts) -> bool {
    old.observed.as_ref().is_some_and(|observed| {
        observed.version > facts.reports_seen && now.duration_since(observed.time.0).abs() < NEWER_FOR
    })
}

/// `None` where nothing of what is seen counts yet: that is no view of a volume with which nothing is wrong.
fn entry(now: Timestamp, view: &View, facts: &Facts, before: &[VantageHealth]) -> Option<VantageHealth> {
    let name = vantage_name(view.kind, view.node.as_deref());
    let old = before.iter().find(|old| old.name == name);
    if let Some(newer) = old.filter(|old| is_newer(now, old, facts)) {
        return Some(newer.clone());
    }
    let known = old.map_or(&[][..], |old| &old.health_conditions);
    let probed = last_probe(now, view);
    let counting = view.seen.iter().filter_map(|seen| {
        let new = condition(now, seen, known);
        let counts = seen.counts_from.is_none_or(|from| from <= now);
        (counts || known.iter().any(|old| old.is_same(&new))).then(|| stamped(probed, new, known))
    });
    let mut conditions: Vec<HealthCondition> = counting.collect();
    if conditions.is_empty() && !view.seen.is_empty() {
        return None;
    }
    let undetermined = view.node.as_ref().is_some_and(|node| facts.undetermined.contains(node));
    if undetermined && view.kind == VantageKind::Host {
        let not_responding = known.iter().filter(|old| is_about(old, Unknown::AgentNotResponding));
        conditions.extend(not_responding.cloned());
    }
    if facts.undetermined_controller && view.kind == VantageKind::Controller {
        let not_responding = known.iter().filter(|old| is_about(old, Unknown::ControllerNotResponding));
        conditions.extend(not_responding.cloned());
    }
    order(&mut conditions);
    let health = health(&conditions);
    let mut new = VantageHealth {
        since: since(now, health, &conditions, old),
        name,
        kind: view.kind,
        node: view.node.as_ref().map(ToString::to_string),
        source: None,
        verified: view.verified,
        health,
        expires: None,
        observed: old.and_then(|old| old.observed.clone()),
        health_conditions: conditions,
    };
    let from_reports = matches!(view.kind, VantageKind::Node | VantageKind::Host);
    if from_reports && facts.reports_seen > 0 && old != Some(&new) {
        new.observed = Some(Observed { version: facts.reports_seen, time: time(now) });
    }
    Some(new)
}

/// What is seen now was probed no later than this: a source that is not responding has probed nothing since.
fn last_probe(now: Timestamp, view: &View) -> Timestamp {
    let silent = view.seen.iter().filter_map(|seen| match (&seen.what, seen.since) {
        (What::Unknown { reason, .. }, Since::Exactly(since)) => match Unknown::of_name(reason)? {
            Unknown::AgentNotResponding | Unknown::ControllerNotResponding => Some(since),
            _ => None,
        },
        _ => None,
    });
    silent.min().map_or(now, |since| since.min(now))
}

fn is_about(condition: &HealthCondition, why: Unknown) -> bool {
    condition.status == ConditionStatus::Unknown && Unknown::of_name(&condition.reason) == Some(why)
}

/// None for a report that all is healthy: there is nothing to keep until it expires.
fn pushed_entry(now: Timestamp, pushed: &Pushed, before: &[VantageHealth]) -> Option<VantageHealth> {
    if pushed.conditions.is_empty() {
        return None;
    }
    let name = vantage_name(VantageKind::Pushed, Some(&pushed.source));
    let old = before.iter().find(|old| old.name == name);
    let known = old.map_or(&[][..], |old| &old.health_conditions);
    let seen = |what| Seen::new(What::Wrong(what), Since::NotAfter(now));
    let each = Conditions::new(pushed.conditions.iter().cloned()).into_iter();
    let mut conditions: Vec<_> =
        each.map(|what| stamped(now, condition(now, &seen(what), known), known)).collect();
    order(&mut conditions);
    let health = health(&conditions);
    let expires = match old.and_then(|old| old.expires.clone()) {
        // Reported again while it stands for long yet: nothing is gained by writing that down.
        Some(expires)
            if known == conditions
                && now.duration_until(expires.0) * 2 > now.duration_until(pushed.expires) =>
        {
            expires
        }
        _ => time(pushed.expires),
    };
    Some(VantageHealth {
        since: since(now, health, &conditions, old),
        name,
        kind: VantageKind::Pushed,
        node: None,
        source: Some(pushed.source.to_string()),
        verified: None,
        health,
        expires: Some(expires),
        observed: None,
        health_conditions: conditions,
    })
}

/// A condition with the time since when it is so.
fn condition(now: Timestamp, seen: &Seen, known: &[HealthCondition]) -> HealthCondition {
    let said = match seen.since {
        Since::Exactly(at) | Since::NotAfter(at) => at.min(now),
        Since::Unsaid => now,
    };
    let mut new = match &seen.what {
        What::Wrong(condition) => HealthCondition::new(condition, said),
        What::Unknown { reason, message } => HealthCondition::unknown(reason, message, said),
    };
    // A clock that is ahead of ours knows nothing exactly.
    if !matches!(seen.since, Since::Exactly(at) if at <= now)
        && let Some(old) = known.iter().find(|old| old.is_same(&new))
    {
        new.last_transition_time = old.last_transition_time.clone().min(new.last_transition_time);
    }
    new
}

/// The probe time stays while nothing else moves. What nobody could probe has none.
fn stamped(probed: Timestamp, mut new: HealthCondition, known: &[HealthCondition]) -> HealthCondition {
    let unchanged = known.iter().find(|old| {
        old.is_same(&new)
            && old.message == new.message
            && old.last_transition_time == new.last_transition_time
    });
    new.last_probe_time = match unchanged {
        Some(old) => old.last_probe_time.clone(),
        None => (new.status == ConditionStatus::True).then(|| time(probed)),
    };
    new
}

/// Worst first, no two that say the same, and no more than there is room for.
fn order(conditions: &mut Vec<HealthCondition>) {
    conditions.sort_by(|a, b| severity(a).cmp(&severity(b)).then_with(|| a.message.cmp(&b.message)));
    conditions.dedup_by(|later, first| later.is_same(first));
    conditions.truncate(limit::CONDITIONS);
}

/// Orders by how bad it is: data loss before a volume that cannot be reached, though both are failures.
fn severity(condition: &HealthCondition) -> impl Ord + use<> {
    let status = condition.condition().map(|condition| condition.status);
    (Reverse(condition.kind), Reverse(status), condition.reason.clone())
}

fn health(conditions: &[HealthCondition]) -> HealthWord {
    let words = conditions.iter().map(|condition| match (condition.kind, condition.status) {
        (_, ConditionStatus::False) => HealthWord::Healthy,
        (_, ConditionStatus::Unknown) | (ConditionType::HealthUnknown, _) => HealthWord::HealthUnknown,
        (ConditionType::HealthWarning, ConditionStatus::True) => HealthWord::HealthWarning,
        (ConditionType::HealthFailure, ConditionStatus::True) => HealthWord::HealthFailure,
    });
    words.max().unwrap_or(HealthWord::Healthy)
}

/// Since when a vantage sees what it sees.
fn since(
    now: Timestamp,
    health: HealthWord,
    conditions: &[HealthCondition],
    old: Option<&VantageHealth>,
) -> k8s_openapi::apimachinery::pkg::apis::meta::v1::Time {
    match old.filter(|old| old.health == health) {
        Some(old) => old.since.clone(),
        None => {
            let worst = conditions.first().map(|condition| condition.last_transition_time.clone());
            worst.unwrap_or_else(|| time(now))
        }
    }
}

fn bounded(text: &str, limit: usize) -> String {
    text[..text.floor_char_boundary(limit)].to_owned()
}

#[cfg(test)]
mod tests;
