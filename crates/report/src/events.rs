//! Events on the objects concerned.
//!
//! An event's name is made of what it reports, so that the same story reported again, by this process or by the next, updates
//! the event that is there: `count` goes up and `lastTimestamp` moves, as `kubectl` shows it. An annotation holds the
//! time of the transition, so that sending one transition twice counts it once. The API server forgets events an
//! hour after their last update; reminders come more often than that.

pub(crate) mod text;

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Event, EventSource, ObjectReference};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use kube::api::{Api, Patch, PatchParams, PostParams};
use kube::{Client, ResourceExt};
use serde_json::json;
use volmedic_api::{Kind, ObjectRef};
use volmedic_health::{Change, Transition};

use crate::failure::{Failure, call};
use crate::sender::{Gate, Verdict};
use crate::story::{ANNOTATION, Story};
pub(crate) use text::cut;
pub use text::{EVENT_REASONS, EventReason};

/// Creating, finding it there, reading it, writing it, and again if somebody was faster.
const STEPS: usize = 4;
/// How many of the moments that one job stands for are remembered one by one.
const MOMENTS: usize = 32;
/// The longest name of an object is 253 bytes; this leaves room for the rest of an event's name.
const NAME_ROOM: usize = 200;
/// Objects without a namespace have their events here, where `kubectl` looks for them.
const NO_NAMESPACE: &str = "default";

/// Where the hub's events come from.
const HUB: &str = "volmedic-hub";
/// Where the healer's events come from.
const HEALER: &str = "volmedic-healer";
/// Where the agent's events come from; which agent is said by the host beside it.
const AGENT: &str = "volmedic-agent";
/// What marks an event of an agent, so that the API server checks it, and no other, against the pods of the namespace.
const MARK: (&str, &str) = ("volmedic.dev/reported-by", "agent");

/// In whose name events are written.
#[derive(Debug, Clone)]
pub struct Voice {
    /// Shown by `kubectl` as where the event comes from, and how we know our own events again.
    pub component: String,
    /// Which replica: the pod's name.
    pub instance: String,
    /// The node that it speaks from, where that matters.
    pub host: Option<String>,
}

impl Voice {
    /// For the controller of a driver: the name under which external-health-monitor writes, so that what filters by
    /// it keeps working.
    pub fn of_controller(driver: &str, instance: &str) -> Self {
        Self {
            component: format!("csi-pv-monitor-controller-{driver}"),
            instance: instance.to_owned(),
            host: None,
        }
    }

    /// For the hub, of which one leads.
    pub fn of_hub(instance: &str) -> Self {
        Self { component: HUB.to_owned(), instance: instance.to_owned(), host: None }
    }

    /// For the healer, of which there is one.
    pub fn of_healer(instance: &str) -> Self {
        Self { component: HEALER.to_owned(), instance: instance.to_owned(), host: None }
    }

    /// For the agent on a node.
    pub fn of_agent(node: &str, instance: &str) -> Self {
        Self { component: AGENT.to_owned(), instance: instance.to_owned(), host: Some(node.to_owned()) }
    }

    /// Who speaks from a node marks what it writes.
    fn labels(&self) -> Option<BTreeMap<String, String>> {
        self.host.is_some().then(|| [(MARK.0.to_owned(), MARK.1.to_owned())].into())
    }
}

/// One event to write, or several occurrences of it that could not be written one by one.
#[derive(Debug)]
pub(crate) struct EventJob {
    object: ObjectRef,
    transition: Arc<Transition>,
    known_as: Option<Arc<str>>,
    reason: EventReason,
    fingerprint: u64,
    /// When the occurrences were that this job stands for, oldest first.
    moments: Vec<Timestamp>,
    /// How many more there were before those.
    earlier: i32,
}

impl EventJob {
    /// `None` if the transition is not worth an event.
    pub(crate) fn new(
        object: &ObjectRef,
        transition: &Arc<Transition>,
        known_as: Option<&Arc<str>>,
    ) -> Option<Self> {
        let reason = text::reason(transition)?;
        let (_, warning, _) = reason;
        let fingerprint = Story::of(transition).thread.fingerprint(&object.uid, !warning);
        let moments = vec![transition.at];
        Some(Self {
            object: object.clone(),
            transition: transition.clone(),
            known_as: known_as.cloned(),
            reason,
            fingerprint,
            moments,
            earlier: 0,
        })
    }

    pub(crate) fn object(&self) -> &ObjectRef {
        &self.object
    }

    pub(crate) fn is_same_story(&self, other: &Self) -> bool {
        self.fingerprint == other.fingerprint
    }

    pub(crate) fn absorb(&mut self, newer: Self) {
        let Self { object: _, transition, known_as, reason, fingerprint: _, moments, earlier } = newer;
        (self.transition, self.known_as, self.reason) = (transition, known_as, reason);
        self.moments.extend(moments);
        self.earlier = self.earlier.saturating_add(earlier);
        let surplus = self.moments.len().saturating_sub(MOMENTS);
        self.moments.drain(..surplus);
        self.earlier = self.earlier.saturating_add(i32::try_from(surplus).unwrap_or(i32::MAX));
    }

    pub(crate) fn is_minor(&self) -> bool {
        matches!(self.transition.change, Change::Reminder { .. })
    }

    /// How many occurrences an event does not know of whose latest is `known`.
    fn unknown_after(&self, known: Option<Timestamp>) -> i32 {
        let place = known.and_then(|known| self.moments.iter().position(|moment| *moment == known));
        let count = |moments: usize| i32::try_from(moments).unwrap_or(i32::MAX);
        match place {
            Some(place) => count(self.moments.len() - 1 - place),
            None => self.earlier.saturating_add(count(self.moments.len())),
        }
    }

    fn name(&self) -> String {
        name(&self.object, self.fingerprint)
    }

    fn namespace(&self) -> &str {
        namespace(&self.object)
    }

    fn event(&self, voice: &Voice) -> Event {
        let first = self.moments.first().copied().unwrap_or(self.transition.at);
        let (reason, warning, _) = self.reason;
        let story = Story::of(&self.transition).write();
        Event {
            metadata: ObjectMeta {
                name: Some(self.name()),
                namespace: Some(self.namespace().to_owned()),
                annotations: story.map(|story| [(ANNOTATION.to_owned(), story)].into()),
                labels: voice.labels(),
                ..ObjectMeta::default()
            },
            involved_object: involved(&self.object),
            type_: Some(if warning { "Warning" } else { "Normal" }.to_owned()),
            reason: Some(reason.to_owned()),
            message: Some(text::message(&self.transition, self.known_as.as_deref())),
            count: Some(self.unknown_after(None)),
            first_timestamp: Some(Time(first)),
            last_timestamp: Some(Time(self.transition.at)),
            source: Some(EventSource { component: Some(voice.component.clone()), host: voice.host.clone() }),
            reporting_component: Some(voice.component.clone()),
            reporting_instance: Some(voice.instance.clone()),
            ..Event::default()
        }
    }

    /// What changes in the event that is there.
    fn update(&self, old: &Event, more: i32, voice: &Voice) -> serde_json::Value {
        let (reason, ..) = self.reason;
        let story = Story::of(&self.transition).after(stored(old));
        json!({
            // Refused if somebody else wrote in between: counts are not to be lost.
            "metadata": {
                "resourceVersion": old.resource_version(),
                "annotations": { ANNOTATION: story.write() },
                "labels": voice.labels().unwrap_or_default(),
            },
            "count": old.count.unwrap_or(0).saturating_add(more),
            "lastTimestamp": Time(self.transition.at),
            "message": text::message(&self.transition, self.known_as.as_deref()),
            "reason": reason,
            "reportingInstance": voice.instance,
        })
    }
}

/// The name of an event about an object: what it reports, after the object's own name.
pub(crate) fn name(object: &ObjectRef, fingerprint: u64) -> String {
    let name = &object.name;
    let end = (0..=NAME_ROOM.min(name.len())).rev().find(|&end| name.is_char_boundary(end)).unwrap_or(0);
    let short = name[..end].trim_end_matches(|c: char| !c.is_ascii_alphanumeric());
    format!("{short}.{fingerprint:016x}")
}

/// Where events about an object are.
pub(crate) fn namespace(object: &ObjectRef) -> &str {
    if object.namespace.is_empty() { NO_NAMESPACE } else { &object.namespace }
}

pub(crate) fn involved(object: &ObjectRef) -> ObjectReference {
    let ObjectRef { kind, namespace, name, uid } = object;
    ObjectReference {
        api_version: Some(api_version(*kind).to_owned()),
        kind: Some(kind.as_str().to_owned()),
        namespace: (!namespace.is_empty()).then(|| namespace.to_string()),
        name: Some(name.to_string()),
        uid: Some(uid.to_string()),
        ..ObjectReference::default()
    }
}

fn api_version(kind: Kind) -> &'static str {
    match kind {
        Kind::PersistentVolumeClaim | Kind::Pod | Kind::Node => "v1",
    }
}

/// Writes events.
pub(crate) struct Events {
    client: Client,
    voice: Voice,
    reads: bool,
}

impl Events {
    pub(crate) fn new(client: Client, voice: Voice, reads: bool) -> Self {
        Self { client, voice, reads }
    }

    /// The event that is there. Who may not read it can still patch nothing, which answers the same.
    async fn find(&self, api: &Api<Event>, name: &str) -> Result<Option<Event>, Failure> {
        if self.reads {
            return call(api.get_opt(name)).await;
        }
        // What an earlier version of ours wrote may lack the mark.
        let patch = json!({"metadata": {"labels": self.voice.labels().unwrap_or_default()}});
        match call(api.patch(name, &PatchParams::default(), &Patch::Merge(patch))).await {
            Ok(event) => Ok(Some(event)),
            Err(Failure::Gone) => Ok(None),
            Err(failure) => Err(failure),
        }
    }

    pub(crate) async fn send(&self, job: &EventJob, gate: &Gate) -> Result<Verdict, Failure> {
        let api = Api::<Event>::namespaced(self.client.clone(), job.namespace());
        let name = job.name();
        // A reminder nearly always finds its event; other news nearly never does.
        let mut look = job.is_minor();
        for _ in 0..STEPS {
            if !look {
                gate.pass().await;
                match call(api.create(&PostParams::default(), &job.event(&self.voice))).await {
                    Ok(_) => return Ok(Verdict::Sent),
                    Err(Failure::Exists) => {}
                    Err(failure) => return Err(failure),
                }
            }
            gate.pass().await;
            let Some(old) = self.find(&api, &name).await? else {
                look = false;
                continue;
            };
            let more = job.unknown_after(stored(&old).map(|story| story.at));
            if more == 0 {
                return Ok(Verdict::Already);
            }
            gate.pass().await;
            let patch = Patch::Merge(job.update(&old, more, &self.voice));
            match call(api.patch(&name, &PatchParams::default(), &patch)).await {
                Ok(_) => return Ok(Verdict::Sent),
                Err(Failure::Conflict) => look = true,
                // It ran out between reading and writing.
                Err(Failure::Gone) => look = false,
                Err(failure) => return Err(failure),
            }
        }
        Err(Failure::Conflict)
    }
}

/// What an event reported last.
fn stored(event: &Event) -> Option<Story> {
    Story::read(event.annotations().get(ANNOTATION)?)
}

#[cfg(test)]
mod tests;
