//! Everything that is known of one claim, in one shape that both people and machines are shown.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use jiff::Timestamp;
use kube::Api;
use kube::api::ListParams;
use serde::Serialize;
use volmedic_api::Arrived;
use volmedic_api::resource::{HealthWord, PastHeadline, StatusWord, VantageHealth, VolumeHealthStatus};
use volmedic_health::{Health, Reason, Status, Vantage, WellKnown};
use volmedic_hub::{ClaimKey, DownNode, VolumeId};
use volmedic_inventory::ReadyStatus;
use volmedic_view::timeline::{Lane, Span};
use volmedic_view::{Row, timeline};

use crate::look::{self, Event, Life, Picture, Reach, Rows, Unread, Who};

/// Events that are shown, the latest.
const EVENTS: usize = 30;
/// Pods whose events are read.
const PODS: usize = 10;

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Explained {
    pub(super) at: Timestamp,
    /// Whether who uses it, and what its volume is, could be read.
    #[serde(skip)]
    pub(super) pods_read: bool,
    #[serde(skip)]
    pub(super) volume_read: bool,
    /// The PersistentVolume; empty if it is bound to none.
    #[serde(skip_serializing_if = "str::is_empty")]
    pub(super) persistent_volume: Box<str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) storage_class: Option<Box<str>>,
    pub(super) claim: Row,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) users: Vec<User>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) evidence: Vec<Evidence>,
    /// Vantages that the API server does not hold to their node.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) unverified: Vec<String>,
    /// Newest first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) history: Vec<PastHeadline>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) heals: Vec<volmedic_api::resource::Heal>,
    /// Oldest first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) events: Vec<Reported>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) advice: Vec<Advice>,
    /// What could not be read.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) limits: Vec<String>,
    #[serde(skip)]
    pub(super) lanes: Vec<Lane>,
}

/// A pod that uses the claim, and where.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct User {
    pub(super) pod: String,
    pub(super) node: String,
    /// As in `ready`, or why it is down.
    pub(super) node_state: String,
    /// As in `agent alive`.
    pub(super) agent: String,
}

/// What speaks for what was seen.
#[derive(Debug, Serialize)]
pub(super) struct Evidence {
    pub(super) vantage: String,
    pub(super) lines: Vec<String>,
}

#[derive(Debug, Serialize)]
pub(super) struct Reported {
    pub(super) at: Option<Timestamp>,
    pub(super) warning: bool,
    pub(super) reason: String,
    /// As in `pod db-0`.
    pub(super) on: String,
    pub(super) from: String,
    pub(super) count: i32,
    pub(super) message: String,
}

/// What one reason means and what to do about it.
#[derive(Debug, Serialize)]
pub(super) struct Advice {
    pub(super) reason: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) meaning: Option<String>,
    pub(super) next: String,
    /// What to do in this order, where one step is dangerous without the one before it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) steps: Vec<String>,
}

pub(super) async fn gather(
    reach: &Reach,
    picture: &Picture,
    key: &ClaimKey,
    now: Timestamp,
) -> anyhow::Result<Explained> {
    let world = &picture.world;
    let mut rows = Rows::new(picture, now);
    let row = rows.row(key).context("the claim was read before")?;
    let stored = world.own_stored(key);
    let mut limits = limits(picture);
    let events = match events(reach, &key.namespace, &key.name, &row).await {
        Ok(events) => events,
        Err(why) => {
            // Where nothing else is stored, that was said already.
            if picture.has("events") {
                limits.push(format!("events could not be read: {why}"));
            }
            Vec::new()
        }
    };
    let unverified = |entry: &&VantageHealth| entry.verified == Some(false);
    let down: BTreeSet<&str> = world
        .users_of(key)
        .iter()
        .map(|(node, _)| &**node)
        .filter(|node| world.down(node).is_some())
        .collect();
    Ok(Explained {
        at: now,
        pods_read: picture.has("pods"),
        volume_read: picture.has("persistentvolumes"),
        persistent_volume: world.volume_name_of(key).into(),
        storage_class: world.class_of(key).filter(|class| !class.is_empty()).map(Into::into),
        users: users(picture, &rows.who, key),
        evidence: evidence(picture, &row, world.facts(key).volume.as_ref()),
        unverified: stored.map_or_else(Vec::new, |stored| {
            stored.vantages.iter().filter(unverified).map(|entry| entry.name.clone()).collect()
        }),
        history: stored.map(|stored| stored.history.clone()).unwrap_or_default(),
        heals: stored.map(|stored| stored.heals.clone()).unwrap_or_default(),
        events,
        advice: advice(&row, &down),
        limits,
        lanes: lanes(&row, stored, now),
        claim: row,
    })
}

fn limits(picture: &Picture) -> Vec<String> {
    let failed = picture.unread.iter().filter(|(_, why)| matches!(why, Unread::Failed(_)));
    let mut limits: Vec<String> =
        failed.map(|(kind, why)| format!("{kind} could not be read: {why}")).collect();
    limits.extend(look::forbidden(picture));
    if picture.unread.get("volumehealths") == Some(&Unread::Missing) {
        limits.push(
            "VolumeHealth is not installed, so there is no history: install deploy/chart/files/crds and run the hub"
                .to_owned(),
        );
    }
    limits
}

fn users(picture: &Picture, who: &Who, key: &ClaimKey) -> Vec<User> {
    let user = |(node, pod): &(Arc<str>, Arc<str>)| {
        let ready = picture.nodes.get(&**node).map(|sight| sight.ready.as_ref().map(|ready| ready.status));
        let node_state = match (picture.world.down(node), ready) {
            (Some(DownNode { why, .. }), _) => format!("down: {why}"),
            (None, Some(Some(ReadyStatus::True))) => "ready".to_owned(),
            (None, Some(_)) => "not ready".to_owned(),
            (None, None) if picture.has("nodes") => "deleted".to_owned(),
            (None, None) => "not known".to_owned(),
        };
        let agent = match who.agents.get(&**node) {
            Some(Life::Alive) => "agent alive".to_owned(),
            Some(Life::Silent(Some(since))) => format!("agent not responding since {since:.0}"),
            Some(Life::Silent(None)) => "agent not responding".to_owned(),
            None if picture.has("leases") => "no agent".to_owned(),
            None => "agent not known".to_owned(),
        };
        User { pod: pod.to_string(), node: node.to_string(), node_state, agent }
    };
    picture.world.users_of(key).iter().map(user).collect()
}

fn evidence(picture: &Picture, row: &Row, volume: Option<&VolumeId>) -> Vec<Evidence> {
    let means_it = |driver: &str, handle: &str| volume.is_some_and(|volume| volume.is(driver, handle));
    let mut all = Vec::new();
    for node in &row.nodes {
        for entry in picture.world.node_report(node).into_iter().flat_map(|report| &report.volumes) {
            if means_it(&entry.driver, &entry.volume_handle) && !entry.evidence.is_empty() {
                let vantage = match entry.vantage {
                    volmedic_api::resource::NodeVantage::Node => Vantage::Node(node.clone()),
                    volmedic_api::resource::NodeVantage::Host => Vantage::Host(node.clone()),
                };
                all.push(Evidence { vantage: vantage.name(), lines: entry.evidence.clone() });
            }
        }
    }
    all
}

/// Each reason once, worst first.
fn advice(row: &Row, down: &BTreeSet<&str>) -> Vec<Advice> {
    let mut held: Vec<_> = row.seen_by.iter().flat_map(|sighting| &sighting.conditions).collect();
    held.sort_by_key(|held| std::cmp::Reverse(held.condition.status));
    let mut all: Vec<Advice> = Vec::new();
    for reason in held.iter().map(|held| &held.condition.reason) {
        if all.iter().all(|known| known.reason != reason.as_str()) {
            all.push(Advice {
                reason: reason.to_string(),
                meaning: look::meaning(reason).map(str::to_owned),
                next: reason.advice().to_owned(),
                steps: steps(reason, down),
            });
        }
    }
    if all.is_empty() && row.health == Health::Unknown {
        let reason = if row.reason().is_empty() { "Unknown" } else { row.reason() };
        let meaning = (!row.message().is_empty()).then(|| format!("{}.", capital(row.message())));
        let steps = Vec::new();
        all.push(Advice { reason: reason.to_owned(), meaning, next: row.next().to_owned(), steps });
    }
    all
}

/// How volumes are taken from nodes that are down. Kubernetes never does that by itself, because a node that only cannot be
/// reached may still write.
fn steps(reason: &Reason, down: &BTreeSet<&str>) -> Vec<String> {
    if *reason != WellKnown::NodeDown.into() || down.is_empty() {
        return Vec::new();
    }
    let nodes = down.iter().copied().collect::<Vec<_>>().join(", ");
    let taint = |end: &str| {
        let line = |node: &&str| format!("kubectl taint nodes {node} node.kubernetes.io/out-of-service{end}");
        down.iter().map(line).collect::<Vec<_>>().join("; ")
    };
    vec![
        format!("If {nodes} can be started again soon, do that and stop here. Its pods continue there."),
        "Else make sure that the node is off: switch it off at its management controller or in the cloud's console, and \
         check there that it is off. A node that only does not answer may still write to the volume, and two writers \
         destroy a file system."
            .to_owned(),
        format!(
            "Only then mark it as out of service: {}. Kubernetes deletes its pods and detaches its volumes, and the pods \
             start elsewhere.",
            taint("=nodeshutdown:NoExecute")
        ),
        "Wait until `kubectl get volumeattachments` shows the volume on another node only, and the new pod is ready. A \
         volume on a disk of the node itself cannot move; its pods wait for the node."
            .to_owned(),
        format!("When the node runs again and is Ready, remove the taint: {}", taint("-")),
    ]
}

fn capital(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map(|first| first.to_uppercase().chain(letters).collect()).unwrap_or_default()
}

/// What the headline was, and what stands from each vantage.
fn lanes(row: &Row, stored: Option<&VolumeHealthStatus>, now: Timestamp) -> Vec<Lane> {
    let mut spans: Vec<Span> = Vec::new();
    for past in stored.iter().flat_map(|stored| stored.history.iter().rev()) {
        if let Some(last) = spans.last_mut() {
            (last.to, last.open) = (past.time.0, false);
        }
        spans.push(Span {
            from: past.time.0,
            to: now.max(past.time.0),
            health: health(past),
            reason: past
                .reason
                .as_deref()
                .map_or_else(Box::default, |reason| Reason::new(reason).as_str().into()),
            open: true,
        });
    }
    let mut lanes = timeline::lanes_with(&[], &row.seen_by, now);
    if !spans.is_empty() {
        lanes.insert(0, Lane { vantage: Vantage::Cluster, whole: true, backend: false, spans });
    }
    lanes
}

pub(super) fn health(past: &PastHeadline) -> Health {
    match (past.status, past.health) {
        (Some(StatusWord::DataLoss), _) => Health::Adverse(Status::DataLoss),
        (Some(StatusWord::Inaccessible), _) => Health::Adverse(Status::Inaccessible),
        (Some(StatusWord::Degraded), _) => Health::Adverse(Status::Degraded),
        (Some(StatusWord::Unrecognized), _) => Health::Adverse(Status::Unrecognized(0)),
        (None, HealthWord::Healthy) => Health::Healthy,
        (None, _) => Health::Unknown,
    }
}

/// On the claim whatever they say, on its pods those that are warnings or about health.
async fn events(reach: &Reach, namespace: &str, name: &str, row: &Row) -> Result<Vec<Reported>, Unread> {
    let api: Api<Arrived<Event>> = Api::namespaced(reach.client.clone(), namespace);
    let objects = std::iter::once(("PersistentVolumeClaim", name));
    let objects = objects.chain(row.pods.iter().take(PODS).map(|pod| ("Pod", &**pod)));
    let mut all = Vec::new();
    for (kind, object) in objects {
        let fields = format!("involvedObject.kind={kind},involvedObject.name={object}");
        let params = ListParams { field_selector: Some(fields), ..ListParams::default() };
        let deadline = reach.deadline.min(Duration::from_mins(1));
        look::each(&api, params, deadline, |_, event: &Event| {
            let reported = reported(event);
            if kind == "PersistentVolumeClaim" || reported.warning || is_ours(&reported.reason) {
                all.push(reported);
            }
        })
        .await?;
    }
    all.sort_by_key(|reported| reported.at);
    let surplus = all.len().saturating_sub(EVENTS);
    all.drain(..surplus);
    Ok(all)
}

fn is_ours(reason: &str) -> bool {
    reason.starts_with("Healing") || volmedic_report::EVENT_REASONS.iter().any(|(name, ..)| *name == reason)
}

fn reported(event: &Event) -> Reported {
    let kind = match event.involved_object.kind.as_str() {
        "PersistentVolumeClaim" => "claim",
        "Pod" => "pod",
        other => other,
    };
    Reported {
        at: event.at(),
        warning: event.kind.as_deref() == Some("Warning"),
        reason: event.reason.clone().unwrap_or_default(),
        on: format!("{kind} {}", event.involved_object.name),
        from: event.source.as_ref().and_then(|source| source.component.clone()).unwrap_or_default(),
        count: event.count.unwrap_or(1),
        message: event.message.clone().unwrap_or_default(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A taint before the node is known to be off would let two nodes write to one volume.
    #[test]
    fn a_node_is_switched_off_before_its_volumes_are_taken_from_it() {
        let down = BTreeSet::from(["worker-7"]);
        let steps = steps(&WellKnown::NodeDown.into(), &down);
        let at = |words: &str| steps.iter().position(|step| step.contains(words)).unwrap();
        let taint = "kubectl taint nodes worker-7 node.kubernetes.io/out-of-service";
        let off = at("make sure that the node is off");
        assert!(off < at(&format!("{taint}=nodeshutdown:NoExecute")));
        assert_eq!(at(&format!("{taint}-")), steps.len() - 1);
    }

    #[test]
    fn other_reasons_and_nodes_that_are_up_have_no_such_steps() {
        let down = BTreeSet::from(["worker-7"]);
        assert!(steps(&WellKnown::IOHung.into(), &down).is_empty());
        assert!(steps(&WellKnown::NodeDown.into(), &BTreeSet::new()).is_empty());
    }
}
