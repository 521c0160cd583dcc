//! What had been told before this process began, read once.
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
use volmedic_api::resource::{ControllerReport, GROUP, HealthCondition, VERSION};
use volmedic_api::{Kind, ObjectRef};
use volmedic_health::{Conditions, Memo, Subject, Vantage, Volume};

use crate::events;
use crate::failure::Failure;
use crate::status::{Claim, Stored};
use crate::story::{ANNOTATION, Open, Story};
use merge::Evidence;

/// Stories or claims beyond this are left out, with a line in the log.
const MOST: usize = 50_000;

/// Where to look for what was told.
#[derive(Debug, Clone)]
pub struct Recall {
    /// Whose events are ours: [`Voice::component`](crate::Voice::component).
    pub component: String,
    /// Whose claim status is ours; `None` not to look at claims at all.
    pub field_manager: Option<String>,
    /// Whose reports to the hub are ours: the driver's; `None` not to look at them.
    pub reports_of: Option<String>,
    /// From where conditions were seen that only a claim's status remembers.
    pub vantage: Vantage,
}

/// What was told and is not over.
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
    /// Claims on which something was told of their volume. Who else uses the volume was not told yet.
    pub told_on: Vec<(ObjectRef, Volume)>,
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
    /// `volume_of` says which volume a claim is bound to, or a pod stands for; `is_ours` whether events about a subject
    /// are used at all.
    pub async fn read(
        &self,
        client: &Client,
        volume_of: impl Fn(&ObjectRef) -> Option<Volume>,
        is_ours: impl Fn(&Subject, &Vantage) -> bool,
    ) -> Result<Recalled, RecallError> {
        let mut evidence = Evidence::new(self.vantage.clone());
        let now = Timestamp::now();
        let mut count = 0_usize;
        let selector = format!("source={}", self.component);
        pages::read("/api/v1/events", Some(&selector), client, &mut evidence, |evidence, text| {
            let Some((object, version, mut story)) = told(text, &self.component) else { return };
            // A time to come would hold back reminders.
            (story.at, story.since) = (story.at.min(now), story.since.min(now));
            let Ok(vantage) = story.thread.vantage.parse() else { return };
            let subject = story.thread.subject();
            let bound = volume_of(&object).is_some_and(|volume| Subject::Volume(volume) == subject);
            if bound && is_ours(&subject, &vantage) && within(&mut count, "events") {
                evidence.story(object, &version, vantage, story);
            }
        })
        .await
        .map_err(|failure| RecallError::Events(pages::sentence(failure)))?;
        let Some(manager) = &self.field_manager else { return Ok(evidence.merge()) };
        let mut count = 0_usize;
        pages::read("/api/v1/persistentvolumeclaims", None, client, &mut evidence, |evidence, text| {
            let Some(stored) = stored(text, manager) else { return };
            let Some(volume) = volume_of(&stored.claim) else { return };
            if within(&mut count, "claims") {
                evidence.stored(volume, stored);
            }
        })
        .await
        .map_err(|failure| RecallError::Claims(pages::sentence(failure)))?;
        if let Some(driver) = &self.reports_of {
            self.read_reports(client, driver, &mut evidence, volume_of).await?;
        }
        Ok(evidence.merge())
    }

    /// What an earlier run said to the hub. Where there are no VolumeHealths, it said nothing.
    async fn read_reports(
        &self,
        client: &Client,
        driver: &str,
        evidence: &mut Evidence,
        volume_of: impl Fn(&ObjectRef) -> Option<Volume>,
    ) -> Result<(), RecallError> {
        let mut count = 0_usize;
        let path = format!("/apis/{GROUP}/{VERSION}/volumehealths");
        let read = pages::read(&path, None, client, evidence, |evidence, text| {
            let Some(reported) = reported(text, driver) else { return };
            let Some(volume) = volume_of(&reported.claim) else { return };
            if within(&mut count, "VolumeHealths") {
                evidence.reported(volume, reported);
            }
        });
        match read.await {
            Ok(()) | Err(Failure::Gone) => Ok(()),
            Err(Failure::Forbidden(why)) => {
                tracing::warn!(
                    "cannot read what was stored in VolumeHealths: {why}; a recovery since then may not be reported to the \
                     hub; grant list on volumehealths"
                );
                Ok(())
            }
            Err(failure) => Err(RecallError::Reports(pages::sentence(failure))),
        }
    }
}

fn within(count: &mut usize, what: &str) -> bool {
    *count += 1;
    if *count == MOST + 1 {
        tracing::warn!(
            "more than {MOST} {what} of ours are stored; the rest is not read, and may be reported again"
        );
    }
    *count <= MOST
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

/// An event that can be one of ours, with its version: it is where, and is named as, we would write it. What cannot be read is somebody
/// else's.
fn told(text: &str, component: &str) -> Option<(ObjectRef, String, Story)> {
    let SlimEvent { metadata, involved_object, reporting_component } = serde_json::from_str(text).ok()?;
    let story = Story::read(metadata.annotations.get(ANNOTATION)?)?;
    let SlimObject { kind, namespace, name, uid } = involved_object;
    let kind = [Kind::PersistentVolumeClaim, Kind::Pod].into_iter().find(|known| known.as_str() == kind)?;
    let object = ObjectRef::new(kind, &namespace, &name, &uid);
    let good_news = story.state == Open::Closed;
    let expected = events::name(&object, story.thread.fingerprint(&object.uid, good_news));
    let is_ours = metadata.namespace == namespace && metadata.name == expected;
    (is_ours && reporting_component == component).then_some((object, metadata.resource_version, story))
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
