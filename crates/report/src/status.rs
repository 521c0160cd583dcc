//! The claim's durable status: `status.healthStatus`, by server-side apply on the status subresource.
//!
//! What the driver reports replaces what was stored, whatever stored it. The time moves only when the set of (status,
//! reason) changes. After a recovery the field stays, without conditions, so that a reader sees when it was; where
//! no process watches any more, or nothing that is wrong has a word in the API, our field is removed.

mod shape;
mod support;

use std::collections::HashMap;
use std::time::Instant;

use jiff::Timestamp;
use kube::Client;
use kube::api::{Patch, PatchParams, Request};
use parking_lot::Mutex;
use serde_json::json;
use tokio::sync::watch;
use volmedic_api::{Kind, ObjectRef};
use volmedic_health::{Change, Conditions, Ending, Held};

use crate::Notice;
use crate::failure::{Failure, call};
use crate::sender::{Gate, Verdict};
pub(crate) use shape::{Claim, HealthStatus};
pub use support::Support;
use support::{Field, Fight, Fights};

/// Claims of which we remember what we stored; beyond that, more is written than strictly needed.
const REMEMBERED: usize = 50_000;

/// What a claim's status is to become.
#[derive(Debug, Clone)]
pub(crate) struct StatusJob {
    claim: ObjectRef,
    pub(crate) desired: Desired,
    /// Nothing changed; but somebody may have taken away what is not checked in between.
    pub(crate) again: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Desired {
    /// This is wrong; nothing, if it recovered.
    Says { conditions: Conditions, at: Timestamp },
    /// Nothing is said any more.
    Nothing,
}

/// What is stored for a claim.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stored {
    pub claim: ObjectRef,
    pub conditions: Conditions,
    /// Since when the set is as it is.
    pub at: Timestamp,
}

impl StatusJob {
    /// `None` if the notice changes nothing that is stored.
    pub(crate) fn new(claim: &ObjectRef, notice: &Notice) -> Option<Self> {
        if claim.kind != Kind::PersistentVolumeClaim {
            return None;
        }
        let at = match &notice.transition.change {
            Change::Appeared { .. } | Change::Changed { .. } | Change::Cleared { .. } => notice.transition.at,
            // Only words changed. Should we not know since when the set stands, this is the best guess.
            Change::Reworded { since, .. } => {
                notice.standing.iter().map(|held| held.since).max().unwrap_or(*since)
            }
            Change::Reminder { .. }
            | Change::Flapping { .. }
            | Change::Settled { .. }
            | Change::WentBlind { .. }
            | Change::SeesAgain { .. } => return None,
        };
        let unwatched = matches!(
            notice.transition.change,
            Change::Cleared { ending: Ending::LeftInventory | Ending::VantageGone, .. }
        );
        if unwatched && notice.standing.is_empty() {
            return Some(Self { claim: claim.clone(), desired: Desired::Nothing, again: false });
        }
        Some(Self::restate(claim, &notice.standing, at))
    }

    /// The same again, if the notice is a reminder.
    pub(crate) fn reminder(claim: &ObjectRef, notice: &Notice) -> Option<Self> {
        let is_one = matches!(notice.transition.change, Change::Reminder { .. });
        let since = notice.standing.iter().map(|held| held.since).max()?;
        let is_claim = claim.kind == Kind::PersistentVolumeClaim;
        (is_one && is_claim).then(|| Self { again: true, ..Self::restate(claim, &notice.standing, since) })
    }

    /// Brings the stored status to what stands.
    pub(crate) fn restate(claim: &ObjectRef, standing: &[Held], at: Timestamp) -> Self {
        let conditions = Conditions::new(
            standing.iter().map(|held| held.condition.clone()).filter(|c| c.status.api_value().is_some()),
        );
        // An empty list would read as health.
        let wordless = conditions.is_empty() && !standing.is_empty();
        let desired = if wordless { Desired::Nothing } else { Desired::Says { conditions, at } };
        Self { claim: claim.clone(), desired, again: false }
    }

    pub(crate) fn claim(&self) -> &ObjectRef {
        &self.claim
    }

    pub(crate) fn absorb(&mut self, newer: Self) {
        let again = self.again || newer.again;
        *self = Self { again, ..newer };
    }
}

/// Writes claims' status.
pub(crate) struct Statuses {
    client: Client,
    manager: String,
    field: Mutex<Field>,
    fights: Mutex<Fights>,
    known: Mutex<HashMap<ObjectRef, (Conditions, Timestamp)>>,
    support: watch::Sender<Support>,
}

impl Statuses {
    pub(crate) fn new(client: Client, manager: &str) -> Self {
        Self {
            client,
            manager: manager.to_owned(),
            field: Mutex::new(Field::new()),
            fights: Mutex::default(),
            known: Mutex::default(),
            support: watch::Sender::new(Support::Unknown),
        }
    }

    /// What had been stored before this process began.
    pub(crate) fn prime(&self, stored: &[Stored]) {
        let mut known = self.known.lock();
        for Stored { claim, conditions, at } in stored.iter().take(REMEMBERED) {
            known.insert(claim.clone(), (conditions.clone(), *at));
        }
    }

    /// The claims of which it is remembered that something is wrong with them.
    pub(crate) fn reported_unhealthy(&self) -> Vec<ObjectRef> {
        let known = self.known.lock();
        known.iter().filter(|(_, (said, _))| !said.is_empty()).map(|(claim, _)| claim.clone()).collect()
    }

    /// It stays forbidden to write.
    pub(crate) fn forbidden(&self) {
        self.note(Support::Forbidden);
    }

    pub(crate) fn support(&self) -> watch::Receiver<Support> {
        self.support.subscribe()
    }

    /// The server may be another one now.
    pub(crate) fn look_again(&self) {
        self.field.lock().look_again();
    }

    pub(crate) async fn send(&self, job: &StatusJob, gate: &Gate) -> Result<Verdict, Failure> {
        let Some(wanted) = self.wanted(job) else { return Ok(Verdict::Already) };
        let now = now();
        if !self.field.lock().may_try(now) {
            return Ok(Verdict::Unsupported);
        }
        if self.fights.lock().keeps_away(now, &job.claim.uid) {
            return Ok(Verdict::Contested);
        }
        match self.write(job, wanted.as_ref(), gate).await {
            Ok(verdict) => Ok(verdict),
            // Not ours any more: deleted, or another claim of the same name.
            Err(Failure::Conflict) => Err(Failure::Gone),
            Err(failure) => Err(failure),
        }
    }

    /// What to write; `None` if that is there already, `Some(None)` to take our field away.
    #[allow(clippy::option_option)]
    fn wanted(&self, job: &StatusJob) -> Option<Option<HealthStatus>> {
        let Desired::Says { conditions, at } = &job.desired else { return Some(None) };
        let known = self.known.lock();
        let Some((stored, since)) = known.get(&job.claim) else {
            return Some(Some(HealthStatus::new(conditions, *at)));
        };
        if stored == conditions {
            return None;
        }
        let same_set = stored.len() == conditions.len()
            && stored.iter().zip(conditions).all(|(old, new)| old.is_same(new));
        Some(Some(HealthStatus::new(conditions, if same_set { *since } else { *at })))
    }

    async fn write(
        &self,
        job: &StatusJob,
        wanted: Option<&HealthStatus>,
        gate: &Gate,
    ) -> Result<Verdict, Failure> {
        let mut answer = match self.apply(job, wanted, false, gate).await {
            Err(Failure::Owned(why)) => match self.fight(job, &why) {
                Fight::GoOn => self.apply(job, wanted, true, gate).await?,
                Fight::GiveWay | Fight::StayAway => return self.give_way(job, gate).await,
            },
            Err(Failure::UnknownField(_)) => {
                self.note(Support::Dropped);
                return Ok(Verdict::Unsupported);
            }
            other => other?,
        };
        let Some(wanted) = wanted else {
            self.known.lock().remove(&job.claim);
            return Ok(Verdict::Sent);
        };
        if answer.status.health_status.as_ref().is_some_and(|stored| stored.set() != wanted.set()) {
            // Entries of somebody else's, which an apply of ours cannot take away.
            let why = "it holds conditions that another writer left there";
            match self.fight(job, why) {
                Fight::GoOn => {
                    self.clear(job, &answer, gate).await?;
                    answer = self.apply(job, Some(wanted), true, gate).await?;
                }
                Fight::GiveWay | Fight::StayAway => return self.give_way(job, gate).await,
            }
        }
        let Some(_) = answer.status.health_status else {
            self.note(Support::Dropped);
            return Ok(Verdict::Unsupported);
        };
        self.note(Support::Kept);
        self.remember(job, wanted);
        Ok(Verdict::Sent)
    }

    /// Takes our part away, or it would stand there unattended beside theirs.
    async fn give_way(&self, job: &StatusJob, gate: &Gate) -> Result<Verdict, Failure> {
        self.apply(job, None, true, gate).await?;
        self.known.lock().remove(&job.claim);
        Ok(Verdict::Contested)
    }

    async fn apply(
        &self,
        job: &StatusJob,
        wanted: Option<&HealthStatus>,
        force: bool,
        gate: &Gate,
    ) -> Result<Claim, Failure> {
        let params =
            PatchParams { field_manager: Some(self.manager.clone()), force, ..PatchParams::default() };
        let mut body = json!({
            "apiVersion": "v1",
            "kind": "PersistentVolumeClaim",
            // The server refuses the write if the claim of that name is another one.
            "metadata": { "name": job.claim.name, "uid": job.claim.uid },
        });
        if let Some(wanted) = wanted {
            body["status"] = json!({ "healthStatus": wanted });
        }
        self.patch(job, &params, &Patch::Apply(body), gate).await
    }

    /// Removes the whole field, whatever owns parts of it, if it is still as it was read.
    async fn clear(&self, job: &StatusJob, read: &Claim, gate: &Gate) -> Result<(), Failure> {
        let params = PatchParams { field_manager: Some(self.manager.clone()), ..PatchParams::default() };
        let body = json!({
            "metadata": { "uid": job.claim.uid, "resourceVersion": read.metadata.resource_version },
            "status": { "healthStatus": null },
        });
        match self.patch(job, &params, &Patch::Merge(body), gate).await {
            // It changed in between, so it is checked again as a whole.
            Err(Failure::Conflict) => {
                Err(Failure::Busy { after: None, why: "the claim changed while it was written".to_owned() })
            }
            other => other.map(drop),
        }
    }

    async fn patch(
        &self,
        job: &StatusJob,
        params: &PatchParams,
        patch: &Patch<serde_json::Value>,
        gate: &Gate,
    ) -> Result<Claim, Failure> {
        let claims =
            Request::new(format!("/api/v1/namespaces/{}/persistentvolumeclaims", job.claim.namespace));
        let request = claims.patch_subresource("status", &job.claim.name, params, patch);
        let request = request.map_err(|error| Failure::Refused(error.to_string()))?;
        gate.pass().await;
        call(self.client.request::<Claim>(request)).await
    }

    fn fight(&self, job: &StatusJob, why: &str) -> Fight {
        let fight = self.fights.lock().note(now(), &job.claim.uid);
        if fight == Fight::GiveWay {
            tracing::warn!(
                "another writer keeps changing the health status of {}; it is left alone for an hour: {why}",
                job.claim
            );
        }
        fight
    }

    fn note(&self, support: Support) {
        if self.field.lock().note(now(), support) {
            match support {
                Support::Dropped => tracing::info!(
                    "the API server does not keep status.healthStatus of claims (feature gate CSIVolumeHealth); \
                     events report what is wrong, and the field is tried again every hour"
                ),
                Support::Kept => tracing::info!("the API server keeps status.healthStatus of claims"),
                Support::Forbidden | Support::Unknown => {}
            }
            self.support.send_replace(support);
        }
    }

    fn remember(&self, job: &StatusJob, written: &HealthStatus) {
        let (conditions, claim) = (written.conditions(), &job.claim);
        let mut known = self.known.lock();
        match written.time() {
            Some(at) if !conditions.is_empty() && (known.len() < REMEMBERED || known.contains_key(claim)) => {
                known.insert(claim.clone(), (conditions, at));
            }
            _ => {
                known.remove(claim);
            }
        }
    }
}

fn now() -> Instant {
    tokio::time::Instant::now().into_std()
}
