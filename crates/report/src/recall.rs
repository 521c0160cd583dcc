//! What had been reported before this process began, read once.
//!
//! What the claim's status or our part of its VolumeHealth says, we wrote. Events hold more, but every account that may
//! create events can forge them. One counts only if it is on the claim that is bound to the volume it is about, in that
//! claim's namespace, under the name that we would give it; and even then it only prevents that something is reported
//! twice. Its text is not used, and no status is written because of it before the driver has answered.

mod merge;
mod pages;

use jiff::Timestamp;
use kube::Client;
use serde::Deserialize;
use thiserror::Error;
use tokio::sync::SetOnce;
use volmedic_api::resource::{ControllerReport, GROUP, HealthCondition, VERSION};
use volmedic_api::{Kind, ObjectRef};
use volmedic_health::{Conditions, Memo, Subject, Vantage, Volume};

use crate::events;
use crate::failure::Failure;
use crate::status::{Claim, Stored};
use crate::story::{ANNOTATION, Open, Story};
use merge::Evidence;
use pages::Pages;

/// Stories or claims beyond this are left out, with a line in the log.
const MOST: usize = 50_000;
/// What is read before it is known which claims are bound to which volumes waits, but no more than this of each kind.
const WAITING: usize = 10_000;

/// Where to search for what was reported.
#[derive(Debug, Clone)]
pub struct Recall {
    /// Whose events are ours: [`Voice::component`](crate::Voice::component).
    pub component: String,
    /// Whose claim status is ours; `None` not to check claims at all.
    pub field_manager: Option<String>,
    /// Whose reports to the hub are ours: the driver's; `None` not to check them.
    pub reports_of: Option<String>,
    /// From where conditions were seen that only a claim's status remembers.
    pub vantage: Vantage,
}

/// What was reported and is not over.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Recalled {
    /// For [`Ledger::recall`](volmedic_health::Ledger::recall).
    pub memos: Vec<Memo>,
    /// For [`Reporter::prime`](crate::Reporter::prime).
    pub stored: Vec<Stored>,
    /// The same, for what was said to the hub.
    pub reported: Vec<Stored>,
    /// Claims whose stored status and events disagree. Once the driver has answered about the volume, give what then
    /// stands to [`Reporter::restate`](crate::Reporter::restate).
    pub unsettled: Vec<(ObjectRef, Volume)>,
    /// Claims on which something was reported about their volume. On other claims of the volume it was not reported yet.
    pub reported_on: Vec<(ObjectRef, Volume)>,
}

#[derive(Debug, Error)]
pub enum RecallError {
    #[error("cannot read the events written earlier: {0}; without them changes would be reported twice")]
    Events(String),
    #[error("cannot read the claims' stored health: {0}; without it changes would be reported twice")]
    Claims(String),
    #[error("cannot read what was stored in VolumeHealths: {0}; without it recoveries would not be reported")]
    Reports(String),
}

impl Recall {
    /// Reads it all, in pages, each with a deadline and a few tries.
    ///
    /// `bound` says which volume a claim is bound to, or a pod stands for, as soon as that is known; until then what is
    /// read waits for it, up to a limit. `is_ours` says whether events about a subject are used at all, and is not asked
    /// before.
    pub async fn read<B>(
        &self,
        client: &Client,
        bound: impl Future<Output = B>,
        is_ours: impl Fn(&Subject, &Vantage) -> bool,
    ) -> Result<Recalled, RecallError>
    where
        B: Fn(&ObjectRef) -> Option<Volume>,
    {
        let known = SetOnce::new();
        let bound = async {
            // It is set nowhere else.
            let _ = known.set(bound.await);
            Ok::<_, RecallError>(())
        };
        let stories = async {
            let read = self.read_stories(client, &known, is_ours).await;
            read.map_err(|failure| RecallError::Events(pages::sentence(failure)))
        };
        let stored = async {
            let Some(manager) = &self.field_manager else { return Ok(Vec::new()) };
            let pages = Pages::new("/api/v1/persistentvolumeclaims", None, client);
            let read = gather(pages, "claims", &known, |text| stored(text, manager), of_claim).await;
            read.map_err(|failure| RecallError::Claims(pages::sentence(failure)))
        };
        let reported = async {
            let Some(driver) = self.reports_of.as_ref().filter(|_| self.field_manager.is_some()) else {
                return Ok(Vec::new());
            };
            self.read_reports(client, driver, &known).await
        };
        let (stories, stored, reported, ()) = tokio::try_join!(stories, stored, reported, bound)?;
        let mut evidence = Evidence::new(self.vantage.clone());
        for StoredEvent { object, version, vantage, story } in stories {
            evidence.story(object, &version, vantage, story);
        }
        for (volume, stored) in stored {
            evidence.stored(volume, stored);
        }
        for (volume, reported) in reported {
            evidence.reported(volume, reported);
        }
        Ok(evidence.merge())
    }

    async fn read_stories<B>(
        &self,
        client: &Client,
        known: &SetOnce<B>,
        is_ours: impl Fn(&Subject, &Vantage) -> bool,
    ) -> Result<Vec<StoredEvent>, Failure>
    where
        B: Fn(&ObjectRef) -> Option<Volume>,
    {
        let now = Timestamp::now();
        let selector = format!("source={}", self.component);
        let pages = Pages::new("/api/v1/events", Some(&selector), client);
        let read = |text: &str| {
            let mut event = event(text, &self.component)?;
            // A time to come would hold back reminders.
            let story = &mut event.story;
            (story.at, story.since) = (story.at.min(now), story.since.min(now));
            Some(event)
        };
        let keep = |bound: &B, event: StoredEvent| {
            let subject = event.story.thread.subject();
            let is_bound = bound(&event.object).is_some_and(|volume| Subject::Volume(volume) == subject);
            (is_bound && is_ours(&subject, &event.vantage)).then_some(event)
        };
        gather(pages, "events", known, read, keep).await
    }

    /// What an earlier run said to the hub. Where there are no VolumeHealths, it said nothing.
    async fn read_reports<B>(
        &self,
        client: &Client,
        driver: &str,
        known: &SetOnce<B>,
    ) -> Result<Vec<(Volume, Stored)>, RecallError>
    where
        B: Fn(&ObjectRef) -> Option<Volume>,
    {
        let path = format!("/apis/{GROUP}/{VERSION}/volumehealths");
        let pages = Pages::new(&path, None, client);
        match gather(pages, "VolumeHealths", known, |text| reported(text, driver), of_claim).await {
            Ok(reported) => Ok(reported),
            Err(Failure::Gone) => Ok(Vec::new()),
            Err(Failure::Forbidden(why)) => {
                tracing::warn!(
                    "cannot read what was stored in VolumeHealths: {why}; a recovery since then may not be reported to the \
                     hub; grant list on volumehealths"
                );
                Ok(Vec::new())
            }
            Err(failure) => Err(RecallError::Reports(pages::sentence(failure))),
        }
    }
}

/// What was stored of a claim, with the volume that the claim is bound to.
fn of_claim(bound: &impl Fn(&ObjectRef) -> Option<Volume>, stored: Stored) -> Option<(Volume, Stored)> {
    bound(&stored.claim).map(|volume| (volume, stored))
}

/// Reads a list to its end. What `read` makes of an item waits until the bindings are known; then `keep` decides on it.
async fn gather<B, T, K>(
    mut pages: Pages<'_>,
    what: &str,
    known: &SetOnce<B>,
    read: impl Fn(&str) -> Option<T>,
    keep: impl Fn(&B, T) -> Option<K>,
) -> Result<Vec<K>, Failure> {
    let mut waiting = Vec::new();
    let mut kept = Vec::new();
    loop {
        let page = pages.next().await?;
        waiting.extend(page.iter().flatten().filter_map(|item| read(item.get())));
        let is_over = page.is_none();
        drop(page);
        let bound = match known.get() {
            // Others may write what looks like ours, so there is a limit to it.
            None if is_over || waiting.len() >= WAITING => Some(known.wait().await),
            bound => bound,
        };
        if let Some(bound) = bound {
            for one in waiting.drain(..).filter_map(|one| keep(bound, one)) {
                if kept.len() == MOST {
                    tracing::warn!(
                        "more than {MOST} {what} of ours are stored; the rest is not read, and may be reported again"
                    );
                    return Ok(kept);
                }
                kept.push(one);
            }
        }
        if is_over {
            return Ok(kept);
        }
    }
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct SlimEvent {
    metadata: SlimMeta,
    involved_object: SlimObject,
    #[serde(default)]
    reporting_component: String,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct SlimMeta {
    namespace: String,
    name: String,
    #[serde(default)]
    resource_version: String,
    #[serde(default)]
    annotations: std::collections::BTreeMap<String, String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct SlimObject {
    kind: String,
    namespace: String,
    name: String,
    uid: String,
}

/// An event that can be one of ours.
struct StoredEvent {
    object: ObjectRef,
    /// Its `resourceVersion`.
    version: String,
    vantage: Vantage,
    story: Story,
}

/// An event that can be one of ours: it is where, and is named as, we would write it. What cannot be read is somebody
/// else's.
fn event(text: &str, component: &str) -> Option<StoredEvent> {
    let SlimEvent { metadata, involved_object, reporting_component } = serde_json::from_str(text).ok()?;
    let story = Story::read(metadata.annotations.get(ANNOTATION)?)?;
    let vantage = story.thread.vantage.parse().ok()?;
    let SlimObject { kind, namespace, name, uid } = involved_object;
    let kind = [Kind::PersistentVolumeClaim, Kind::Pod].into_iter().find(|known| known.as_str() == kind)?;
    let object = ObjectRef::new(kind, &namespace, &name, &uid);
    let good_news = story.state == Open::Closed;
    let expected = events::name(&object, story.thread.fingerprint(&object.uid, good_news));
    let is_ours = metadata.namespace == namespace && metadata.name == expected;
    (is_ours && reporting_component == component).then_some(StoredEvent {
        object,
        version: metadata.resource_version,
        vantage,
        story,
    })
}

/// A claim whose status we wrote.
fn stored(text: &str, manager: &str) -> Option<Stored> {
    let Claim { metadata, status } = serde_json::from_str(text).ok()?;
    let health = status.health_status?;
    if !metadata.managed_fields.iter().any(|field| field.manager == manager) {
        return None;
    }
    let claim =
        ObjectRef::new(Kind::PersistentVolumeClaim, &metadata.namespace, &metadata.name, &metadata.uid);
    Some(Stored {
        claim,
        conditions: health.conditions(),
        at: health.time().unwrap_or(Timestamp::UNIX_EPOCH),
    })
}

#[derive(Debug, Deserialize)]
struct SlimHealth {
    metadata: SlimHealthMeta,
    #[serde(default)]
    status: SlimHealthStatus,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct SlimHealthMeta {
    namespace: String,
    name: String,
    #[serde(default)]
    owner_references: Vec<SlimObject>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct SlimHealthStatus {
    controller_report: Option<ControllerReport>,
}

/// A VolumeHealth in which we say that something is wrong.
fn reported(text: &str, driver: &str) -> Option<Stored> {
    let SlimHealth { metadata, status } = serde_json::from_str(text).ok()?;
    let report = status.controller_report.filter(|report| report.driver == driver)?;
    let is_claim = |owner: &&SlimObject| owner.kind == Kind::PersistentVolumeClaim.as_str();
    let owner = metadata.owner_references.iter().find(is_claim)?;
    let conditions = Conditions::new(report.health_conditions.iter().filter_map(HealthCondition::condition));
    let claim = ObjectRef::new(Kind::PersistentVolumeClaim, &metadata.namespace, &metadata.name, &owner.uid);
    (!conditions.is_empty()).then_some(Stored { claim, conditions, at: report.since.0 })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Objects that hold what an earlier run reported: events, claims, VolumeHealths.
    #[test]
    fn fuzz_recalled() {
        volmedic_testkit::fuzz("recalled", |bytes| {
            let Ok(text) = std::str::from_utf8(bytes) else { return false };
            let (event, stored) = (event(text, "volmedic"), stored(text, "volmedic"));
            event.is_some() || stored.is_some() || reported(text, "disk.example.net").is_some()
        });
    }
}
