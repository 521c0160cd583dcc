//! Asks the agent on a node for a new probe of a volume, right before it is healed: by a request on the agent's Lease, which the
//! agent renews every ten seconds, and its answer there.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::coordination::v1::Lease;
use kube::api::PostParams;
use kube::{Api, Client};
use tokio::time::{Instant, sleep, timeout};
use volmedic_api::{
    Found, PROBE_REQUESTS, ProbeAnswer, ProbeRequest, probe_answers, probe_requests, requests_text,
};
use volmedic_heal::{Place, Refusal};
use volmedic_health::{Reason, Remedy, WellKnown, sanitize_message};
use volmedic_hub::AGENT_LEASE;

/// How long an answer is waited for. The agent sees the request within ten seconds, and its probe may take twelve.
const PATIENCE: Duration = Duration::from_secs(30);
const API: Duration = Duration::from_secs(5);
/// Between two reads of the Lease.
const STEP: Duration = Duration::from_millis(500);
/// A request that is this old is waited for by no hub any more. Clocks of two hubs may differ a little.
const OLD: SignedDuration = SignedDuration::from_mins(5);
/// Tries to write while the agent renews the Lease.
const TRIES: usize = 5;

pub(super) struct Prober {
    leases: Api<Lease>,
    /// Names this process, so that no answer is taken for one to another hub.
    instance: String,
    asked: AtomicU64,
}

impl Prober {
    pub(super) fn new(client: &Client, agent_namespace: &str, instance: &str) -> Self {
        Self {
            leases: Api::namespaced(client.clone(), agent_namespace),
            instance: instance.to_owned(),
            asked: AtomicU64::new(0),
        }
    }

    /// Whether a new probe confirms that the remedy would help.
    pub(super) async fn confirm(
        &self,
        place: &Place,
        reason: &Reason,
        remedy: Remedy,
    ) -> Result<(), Refusal> {
        let not_confirmed = |why: String| Refusal::NotConfirmed { remedy, why: why.into() };
        let asked = timeout(PATIENCE, self.ask(place)).await;
        let late = || {
            let seconds = PATIENCE.as_secs();
            Err(format!(
                "the agent on node {} did not answer within {seconds} s; it must run, and not be older than the hub",
                place.node
            ))
        };
        let answer = asked.unwrap_or_else(|_| late()).map_err(not_confirmed)?;
        judge(&answer, reason, remedy)
    }

    async fn ask(&self, place: &Place) -> Result<ProbeAnswer, String> {
        let number = self.asked.fetch_add(1, Ordering::Relaxed);
        let now = Timestamp::now();
        let id = format!("{}-{}-{number}", self.instance, now.as_millisecond());
        let lease = format!("{AGENT_LEASE}{}", place.node);
        let request = ProbeRequest {
            id: id.clone(),
            driver: place.driver.to_string(),
            volume_handle: place.handle.to_string(),
            time: now,
        };
        self.write(&lease, &request).await?;
        loop {
            sleep(STEP).await;
            let found = self.read(&lease).await;
            let found = found.ok().map(|lease| probe_answers(lease.metadata.annotations.as_ref()));
            if let Some(answer) = found.into_iter().flatten().find(|answer| answer.id == id) {
                return Ok(answer);
            }
        }
    }

    /// The agent may renew the Lease at the same time. Then it is read again.
    async fn write(&self, name: &str, request: &ProbeRequest) -> Result<(), String> {
        let mut why = String::new();
        let began = Instant::now();
        for _ in 0..TRIES {
            let mut lease = self.read(name).await?;
            let answers = probe_answers(lease.metadata.annotations.as_ref());
            let mut requests = probe_requests(lease.metadata.annotations.as_ref());
            requests.retain(|one| {
                let is_new = request.time.duration_since(one.time).abs() < OLD;
                is_new && answers.iter().all(|answer| answer.id != one.id)
            });
            requests.push(request.clone());
            let annotations = lease.metadata.annotations.get_or_insert_default();
            annotations.insert(PROBE_REQUESTS.to_owned(), requests_text(requests));
            match timeout(API, self.leases.replace(name, &PostParams::default(), &lease)).await {
                Ok(Ok(_)) => return Ok(()),
                Ok(Err(error)) => why = error.to_string(),
                Err(_) => "the API server did not answer in time".clone_into(&mut why),
            }
            tracing::debug!(lease = name, elapsed = ?began.elapsed(), "a request for a probe was not written: {why}");
        }
        Err(format!("the request for it could not be written to the Lease {name}: {why}"))
    }

    async fn read(&self, name: &str) -> Result<Lease, String> {
        match timeout(API, self.leases.get(name)).await {
            Ok(Ok(lease)) => Ok(lease),
            Ok(Err(error)) => Err(format!("the Lease {name} of the agent there cannot be read: {error}")),
            Err(_) => Err(format!("the Lease {name} of the agent there was not read in time")),
        }
    }
}

/// What an answer says for a remedy.
fn judge(answer: &ProbeAnswer, reason: &Reason, remedy: Remedy) -> Result<(), Refusal> {
    let not_confirmed = |why: String| Err(Refusal::NotConfirmed { remedy, why: why.into() });
    let hangs = reason.well_known() == Some(WellKnown::IOHung);
    let reasons: Vec<Reason> = answer.reasons.iter().map(|text| Reason::new(text)).collect();
    let message = sanitize_message(&answer.message);
    match answer.found {
        Found::Healthy => Err(Refusal::ProbedHealthy { remedy }),
        // That a probe does not end is what IOHung means.
        Found::NotEnded if hangs && remedy == Remedy::NodeHealer => Ok(()),
        Found::NotEnded | Found::NotProbed => not_confirmed(format!("it could not be probed: {message}")),
        Found::Unhealthy => {
            let below =
                reasons.iter().find(|one| one.well_known().is_some_and(WellKnown::prevents_new_mount));
            if let (Remedy::RecreatePods, Some(below)) = (remedy, below) {
                return not_confirmed(format!("it found {below}, against which a new mount does not help"));
            }
            if reasons.iter().any(|one| one.remedies().contains(&remedy)) {
                return Ok(());
            }
            let found: Vec<&str> = reasons.iter().map(Reason::as_str).collect();
            not_confirmed(format!("it found {} and not {reason}", found.join(", ")))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(
        found: Found,
        reasons: &[&str],
        reported: WellKnown,
        remedy: Remedy,
        expected: Result<(), &str>,
    ) {
        let reasons = reasons.iter().map(|reason| (*reason).to_owned()).collect();
        let answer = ProbeAnswer::new("1", found, reasons, "why");
        match (judge(&answer, &reported.into(), remedy), expected) {
            (Ok(()), Ok(())) => {}
            (Err(refusal), Err(part)) => assert!(refusal.to_string().contains(part), "{refusal}"),
            (found, _) => panic!("{found:?} instead of {expected:?}"),
        }
    }

    #[test]
    fn only_a_new_probe_that_finds_it_unhealthy_lets_anything_be_done() {
        use Remedy::{NodeHealer, RecreatePods};
        use WellKnown::{IOHung, MounterDead, StaleHandle};
        let healthy = "found it healthy, so nothing was done";
        check(Found::Unhealthy, &["MounterDead"], MounterDead, NodeHealer, Ok(()));
        check(Found::Unhealthy, &["SlowIO", "StaleHandle"], StaleHandle, RecreatePods, Ok(()));
        check(Found::Healthy, &[], MounterDead, NodeHealer, Err(healthy));
        check(Found::Healthy, &[], StaleHandle, RecreatePods, Err(healthy));
        for found in [Found::NotProbed, Found::NotEnded] {
            check(found, &[], MounterDead, NodeHealer, Err("it could not be probed: why"));
            check(found, &[], StaleHandle, RecreatePods, Err("it could not be probed: why"));
        }
        check(Found::NotEnded, &[], IOHung, NodeHealer, Ok(()));
        check(Found::NotProbed, &[], IOHung, NodeHealer, Err("could not be probed"));
        check(
            Found::Unhealthy,
            &["SlowIO"],
            MounterDead,
            NodeHealer,
            Err("it found SlowIO and not MounterDead"),
        );
        check(
            Found::Unhealthy,
            &["StaleHandle", "DiskRemoved"],
            StaleHandle,
            RecreatePods,
            Err("it found DiskRemoved, against which a new mount does not help"),
        );
    }
}
