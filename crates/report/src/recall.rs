//! What had been told before this process began, read once.
//!
//! Events hold it all, but the API server forgets them in time; a claim's status lasts, but holds less and may not be
//! kept at all. Together they say what was told and is not over. An object's events are written before its status, so
//! whatever its status says was told.

mod merge;
mod pages;

use jiff::Timestamp;
use kube::Client;
use serde::Deserialize;
use thiserror::Error;
use volmedic_api::{Kind, ObjectRef};
use volmedic_health::{Held, Memo, Subject, Vantage, Volume};

use crate::status::{Claim, Stored};
use crate::story::{ANNOTATION, Story};
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
    /// Claims whose stored status is not what was told, with what was: for
    /// [`Reporter::restate`](crate::Reporter::restate).
    pub stale: Vec<(ObjectRef, Vec<Held>)>,
    /// Claims on which something was told of their volume. Who else uses the volume was not told yet.
    pub told_on: Vec<(ObjectRef, Volume)>,
}

#[derive(Debug, Error)]
pub enum RecallError {
    #[error("cannot read the events written earlier: {0}; without them news would be told twice")]
    Events(String),
    #[error("cannot read the claims' stored health: {0}; without it news would be told twice")]
    Claims(String),
}

impl Recall {
    /// Reads it all, in pages, each with a deadline and a few tries.
    ///
    /// `volume_of` says which volume a claim stands for; `is_ours` who looks at what here.
    pub async fn read(
        &self,
        client: &Client,
        volume_of: impl Fn(&ObjectRef) -> Option<Volume>,
        is_ours: impl Fn(&Subject, &Vantage) -> bool,
    ) -> Result<Recalled, RecallError> {
        let mut evidence = Evidence::new(self.vantage.clone());
        let mut count = 0_usize;
        let selector = format!("source={}", self.component);
        pages::read("/api/v1/events", Some(&selector), client, &mut evidence, |evidence, text| {
            let Some((object, story)) = told(text) else { return };
            let Some(vantage) = crate::story::vantage_from_word(&story.thread.vantage) else { return };
            if is_ours(&story.thread.subject(), &vantage) && within(&mut count, "events") {
                evidence.story(object, vantage, story);
            }
        })
        .await
        .map_err(RecallError::Events)?;
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
        .map_err(RecallError::Claims)?;
        Ok(evidence.merge())
    }
}

fn within(count: &mut usize, what: &str) -> bool {
    *count += 1;
    if *count == MOST + 1 {
        tracing::warn!(
            "more than {MOST} {what} of ours are stored; the rest is not read, and may be told again"
        );
    }
    *count <= MOST
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct SlimEvent {
    metadata: SlimMeta,
    involved_object: SlimObject,
}

#[derive(Debug, Deserialize)]
struct SlimMeta {
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

/// An event of ours. What cannot be read is somebody else's.
fn told(text: &str) -> Option<(Option<ObjectRef>, Story)> {
    let SlimEvent { metadata, involved_object } = serde_json::from_str(text).ok()?;
    let story = Story::read(metadata.annotations.get(ANNOTATION)?)?;
    let SlimObject { kind, namespace, name, uid } = involved_object;
    let is_claim = kind == Kind::PersistentVolumeClaim.as_str();
    let claim = is_claim.then(|| ObjectRef::new(Kind::PersistentVolumeClaim, &namespace, &name, &uid));
    Some((claim, story))
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
