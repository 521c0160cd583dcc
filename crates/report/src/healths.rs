//! What the driver's controller says, for the hub: `status.controllerReport` of the claim's VolumeHealth, by server-side
//! apply. Only where the API server does not keep it in the claim itself: nothing is said twice.
//!
//! The hub makes a vantage of it, and owns all else in the object. While nothing changes nothing is written; that we
//! live is shown by a Lease that the report names.

mod place;
mod write;

use std::collections::{BTreeMap, HashMap};
use std::convert::Infallible;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use kube::Client;
use parking_lot::Mutex;
use serde::de::IgnoredAny;
use tokio::sync::watch;
use tokio::task::JoinSet;
use volmedic_api::ObjectRef;
use volmedic_api::resource::{ControllerReport, GROUP, HealthCondition, LeaseName, VERSION, limit, time};
use volmedic_health::Conditions;

use crate::failure::{Failure, call};
use crate::heartbeat::Heartbeat;
use crate::sender::{Gate, Verdict};
use crate::status::{Desired, StatusJob, Stored};
use place::{Found, Place};
use write::Written;

/// Claims of which we remember what we said; of more than that a recovery may have to wait for the next start.
const REMEMBERED: usize = 50_000;
/// How often a sign of life is given where no leader election does so.
const HEARTBEAT: Duration = Duration::from_secs(20);

/// How the hub gets to know what a driver's controller says.
#[derive(Debug, Clone)]
pub struct HealthOptions {
    pub driver: String,
    /// The Lease that says that we live.
    pub lease: LeaseName,
    /// Where we have to renew it ourselves, because no leader election does.
    pub beats: Option<Beats>,
}

/// What is on a Lease that we renew ourselves.
#[derive(Debug, Clone)]
pub struct Beats {
    pub labels: BTreeMap<String, String>,
    /// As they are at the moment of a renewal.
    pub annotations: watch::Receiver<BTreeMap<String, String>>,
}

/// Writes our part of VolumeHealths.
pub(crate) struct Healths {
    client: Client,
    manager: String,
    options: HealthOptions,
    place: Mutex<Place>,
    /// What stands in which claim's object.
    known: Mutex<HashMap<ObjectRef, (Conditions, Timestamp)>>,
    heartbeat: Mutex<JoinSet<Infallible>>,
    /// Whether a report was stored, so that the resources are known to be installed.
    is_stored: watch::Sender<bool>,
}

impl Healths {
    pub(crate) fn new(client: Client, manager: &str, options: HealthOptions) -> Self {
        Self {
            client,
            manager: manager.to_owned(),
            options,
            place: Mutex::default(),
            known: Mutex::default(),
            heartbeat: Mutex::default(),
            is_stored: watch::Sender::new(false),
        }
    }

    /// What had been stored before this process began.
    pub(crate) fn prime(&self, stored: &[Stored]) {
        let mut known = self.known.lock();
        for Stored { claim, conditions, at } in stored.iter().take(REMEMBERED) {
            known.insert(claim.clone(), (conditions.clone(), *at));
        }
        let any = !known.is_empty();
        drop(known);
        if any {
            // A reader has to know that a controller still stands for them.
            self.is_stored.send_replace(true);
        }
        self.beat();
    }

    pub(crate) fn reported_unhealthy(&self) -> Vec<ObjectRef> {
        self.known.lock().keys().cloned().collect()
    }

    /// Whether there is anything to do for a claim, as far as that can be said without asking.
    pub(crate) fn wants(&self, claim: &ObjectRef, kept_in_claim: bool) -> bool {
        self.place.lock().may_ask(now()) && (!kept_in_claim || self.known.lock().contains_key(claim))
    }

    /// Whether all that is wrong is to be stated again: VolumeHealths were not there for a while, and may be now.
    pub(crate) fn take_due(&self) -> bool {
        self.place.lock().take_due(now())
    }

    /// It stays forbidden to write.
    pub(crate) fn forbidden(&self) {
        self.place.lock().note(now(), Found::Forbidden);
    }

    /// The server may be another one now.
    pub(crate) fn look_again(&self) {
        self.place.lock().look_again();
    }

    pub(crate) async fn send(
        &self,
        job: &StatusJob,
        kept_in_claim: bool,
        gate: &Gate,
    ) -> Result<Verdict, Failure> {
        let claim = job.claim();
        let before = self.known.lock().get(claim).cloned();
        let Some(wanted) = wanted(job, kept_in_claim, before.as_ref()) else {
            // Where nothing was ever written, that nothing had to be written proves no right to do so.
            let proven = self.place.lock().is_there();
            return Ok(if proven { Verdict::Already } else { Verdict::Unsupported });
        };
        if !self.place.lock().may_try(now()) {
            return Ok(Verdict::Unsupported);
        }
        let report = wanted.as_ref().map(|(conditions, since)| self.report(conditions, *since));
        match self.write(claim, report.as_ref(), before.is_some(), gate).await? {
            Written::Stored => {
                self.found(Found::There);
                self.remember(claim, wanted);
                self.is_stored.send_replace(true);
                self.beat();
                Ok(Verdict::Sent)
            }
            // The object, or the claim of that name, is another one. Should our claim be there, it is tried again soon.
            Written::Another => {
                self.known.lock().remove(claim);
                self.place.lock().soon();
                Ok(Verdict::Gone)
            }
            Written::NoResource => {
                self.found(Found::Missing);
                Ok(Verdict::Unsupported)
            }
            Written::Dropped => {
                self.found(Found::Old);
                Ok(Verdict::Unsupported)
            }
        }
    }

    fn report(&self, conditions: &Conditions, since: Timestamp) -> ControllerReport {
        let conditions = conditions.iter().take(limit::CONDITIONS);
        ControllerReport {
            driver: self.options.driver.clone(),
            lease: Some(self.options.lease.clone()),
            health_conditions: conditions.map(|condition| HealthCondition::new(condition, since)).collect(),
            since: time(since),
        }
    }

    fn remember(&self, claim: &ObjectRef, written: Option<(Conditions, Timestamp)>) {
        let mut known = self.known.lock();
        match written {
            Some(said) if !said.0.is_empty() && (known.len() < REMEMBERED || known.contains_key(claim)) => {
                known.insert(claim.clone(), said);
            }
            _ => drop(known.remove(claim)),
        }
    }

    /// Where VolumeHealths are installed there may be a hub, which must be able to see that we run and what we probe.
    fn beat(&self) {
        let mut running = self.heartbeat.lock();
        let HealthOptions { driver, lease, beats } = &self.options;
        if let (Some(Beats { labels, annotations }), true) = (beats, running.is_empty()) {
            let heartbeat = Heartbeat::new(&self.client, &lease.namespace, &lease.name, driver, HEARTBEAT);
            let heartbeat = heartbeat.with(labels.clone(), annotations.clone());
            let (client, is_stored) = (self.client.clone(), self.is_stored.subscribe());
            running.spawn(async move {
                installed(&client, is_stored).await;
                heartbeat.run().await
            });
        }
    }

    fn found(&self, found: Found) {
        if self.place.lock().note(now(), found) {
            match found {
                Found::There => tracing::info!("what the driver says is stored in VolumeHealths for the hub"),
                Found::Missing => tracing::info!(
                    "VolumeHealths (deploy/chart/files/crds) are not installed, so the driver's answers cannot be reported to \
                     the hub; checked again every {} minutes",
                    place::RETRY_EVERY.as_secs() / 60
                ),
                Found::Old => tracing::warn!(
                    "the VolumeHealths that are installed do not keep what a driver's controller says; apply the \
                     deploy/chart/files/crds of this version"
                ),
                // Said where all missing rights are.
                Found::Forbidden => {}
            }
        }
    }
}

/// Returns when VolumeHealths are installed, as the API server says or a report proved.
async fn installed(client: &Client, mut is_stored: watch::Receiver<bool>) {
    while !*is_stored.borrow_and_update() {
        let request = http::Request::get(format!("/apis/{GROUP}/{VERSION}")).body(Vec::new());
        let Ok(request) = request else { return };
        if call(client.request::<IgnoredAny>(request)).await.is_ok() {
            return;
        }
        tokio::select! {
            () = tokio::time::sleep(place::RETRY_EVERY) => {}
            // It fails only when nothing can be stored any more; then this is about to be dropped.
            _ = is_stored.changed() => {}
        }
    }
}

/// What is to be stored; `None` if that is there already, `Some(None)` to take our part away.
#[allow(clippy::option_option)]
fn wanted(
    job: &StatusJob,
    kept_in_claim: bool,
    before: Option<&(Conditions, Timestamp)>,
) -> Option<Option<(Conditions, Timestamp)>> {
    let (conditions, at) = match &job.desired {
        Desired::Says { conditions, at } if !kept_in_claim => (conditions, *at),
        _ => return before.map(|_| None),
    };
    let Some((said, since)) = before else {
        return (!conditions.is_empty()).then(|| Some((conditions.clone(), at)));
    };
    if said == conditions && !job.again {
        return None;
    }
    let same = said.len() == conditions.len() && said.iter().zip(conditions).all(|(a, b)| a.is_same(b));
    Some(Some((conditions.clone(), if same { *since } else { at })))
}

fn now() -> Instant {
    tokio::time::Instant::now().into_std()
}

#[cfg(test)]
mod tests {
    use volmedic_api::Kind;
    use volmedic_health::{Condition, Held, Reason, Status};

    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    fn slow(message: &str) -> Condition {
        Condition::new(Status::Degraded, Reason::new("SlowIO"), message)
    }

    fn job(standing: &[Condition], second: i64) -> StatusJob {
        let claim = ObjectRef::new(Kind::PersistentVolumeClaim, "shop", "data", "u");
        let held = |condition: &Condition| Held { condition: condition.clone(), since: at(second) };
        StatusJob::restate(&claim, &standing.iter().map(held).collect::<Vec<_>>(), at(second))
    }

    #[test]
    fn what_is_there_is_not_written_and_a_recovery_is_only_where_trouble_was_reported() {
        let slow_now = Conditions::new([slow("3 s")]);
        let stood = (slow_now.clone(), at(1));
        let again = job(&[slow("3 s")], 9);
        assert_eq!(wanted(&job(&[], 9), false, None), None, "nothing was told");
        assert_eq!(wanted(&again, false, None), Some(Some((slow_now.clone(), at(9)))));
        assert_eq!(wanted(&again, false, Some(&stood)), None, "it is there");
        assert_eq!(
            wanted(&job(&[slow("5 s")], 9), false, Some(&stood)),
            Some(Some((Conditions::new([slow("5 s")]), at(1)))),
            "other words for the same are no other time"
        );
        let well = Some(Some((Conditions::default(), at(9))));
        assert_eq!(wanted(&job(&[], 9), false, Some(&stood)), well, "a recovery is reported");
        let mut reminder = again;
        reminder.again = true;
        assert_eq!(wanted(&reminder, false, Some(&stood)), Some(Some((slow_now, at(1)))));
    }

    #[test]
    fn what_the_claim_itself_keeps_is_taken_away_here() {
        let stood = (Conditions::new([slow("")]), at(1));
        assert_eq!(wanted(&job(&[slow("")], 9), true, Some(&stood)), Some(None));
        assert_eq!(wanted(&job(&[slow("")], 9), true, None), None);
    }
}
