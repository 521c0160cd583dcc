//! That we live, for the hub: a Lease that is renewed.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta};
use kube::api::PostParams;
use kube::{Api, Client};
use tokio::sync::watch;
use tokio::time::{MissedTickBehavior, interval, timeout};
use volmedic_api::{ProbeRequest, probe_requests};

use crate::failure::Failure;

/// The number of beats for which the Lease is valid; one or two may get lost.
const BEATS: u32 = 4;

pub(crate) struct Heartbeat {
    api: Api<Lease>,
    name: String,
    holder: String,
    every: Duration,
    labels: BTreeMap<String, String>,
    /// As they are at the moment of a beat: a change costs no write of its own, unless `prompt`.
    annotations: watch::Receiver<BTreeMap<String, String>>,
    prompt: bool,
    /// The requests that others left on the Lease.
    requests: Option<watch::Sender<Vec<ProbeRequest>>>,
    /// As it was last read or written.
    lease: Option<Lease>,
    trouble: bool,
}

impl Heartbeat {
    pub(crate) fn new(client: &Client, namespace: &str, name: &str, holder: &str, every: Duration) -> Self {
        Self {
            api: Api::namespaced(client.clone(), namespace),
            name: name.to_owned(),
            holder: holder.to_owned(),
            every: every.max(Duration::from_millis(100)),
            labels: BTreeMap::new(),
            annotations: watch::channel(BTreeMap::new()).1,
            prompt: false,
            requests: None,
            lease: None,
            trouble: false,
        }
    }

    /// With these on the Lease.
    pub(crate) fn with(
        self,
        labels: BTreeMap<String, String>,
        annotations: watch::Receiver<BTreeMap<String, String>>,
    ) -> Self {
        Self { labels, annotations, ..self }
    }

    /// Hands over the requests for new probes that it finds on the Lease. The annotations are the answers, and a change of them
    /// is written immediately.
    pub(crate) fn answering(
        self,
        requests: watch::Sender<Vec<ProbeRequest>>,
        annotations: watch::Receiver<BTreeMap<String, String>>,
    ) -> Self {
        Self { requests: Some(requests), annotations, prompt: true, ..self }
    }

    pub(crate) async fn run(mut self) -> Infallible {
        let mut beats = interval(self.every);
        beats.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                _ = beats.tick() => {}
                Ok(()) = self.annotations.changed(), if self.prompt => {}
            }
            let beat = match self.beat().await {
                // The hub left a request, which is seen when the Lease is read again.
                Err(Failure::Conflict) if self.prompt => self.beat().await,
                beat => beat,
            };
            match beat {
                Ok(()) => self.trouble = false,
                Err(failure) => {
                    self.lease = None;
                    if !std::mem::replace(&mut self.trouble, true) {
                        tracing::warn!(
                            "the lease {} that shows the hub that this process runs cannot be renewed: {}; retrying",
                            self.name,
                            sentence(&failure)
                        );
                    }
                }
            }
        }
    }

    /// One write where the Lease is as we left it; else it is read first.
    async fn beat(&mut self) -> Result<(), Failure> {
        let limit = self.every;
        let mut lease = match self.lease.take() {
            Some(lease) => lease,
            None => within(limit, self.api.get_opt(&self.name)).await?.unwrap_or_else(|| Lease {
                metadata: ObjectMeta { name: Some(self.name.clone()), ..ObjectMeta::default() },
                spec: None,
            }),
        };
        for (texts, known) in [
            (self.labels.clone(), &mut lease.metadata.labels),
            (self.annotations.borrow_and_update().clone(), &mut lease.metadata.annotations),
        ] {
            if !texts.is_empty() {
                known.get_or_insert_default().extend(texts);
            }
        }
        let seconds = (self.every * BEATS).as_secs().max(1);
        lease.spec = Some(LeaseSpec {
            holder_identity: Some(self.holder.clone()),
            lease_duration_seconds: Some(i32::try_from(seconds).unwrap_or(i32::MAX)),
            renew_time: Some(MicroTime(Timestamp::now())),
            ..lease.spec.take().unwrap_or_default()
        });
        let params = PostParams::default();
        let written = if lease.metadata.resource_version.is_some() {
            within(limit, self.api.replace(&self.name, &params, &lease)).await?
        } else {
            within(limit, self.api.create(&params, &lease)).await?
        };
        if let Some(requests) = &self.requests {
            let found = probe_requests(written.metadata.annotations.as_ref());
            requests.send_if_modified(|known| {
                let changed = *known != found;
                *known = found;
                changed
            });
        }
        self.lease = Some(written);
        Ok(())
    }
}

fn sentence(failure: &Failure) -> String {
    match failure {
        Failure::Gone => "its namespace is not there".to_owned(),
        Failure::Exists | Failure::Conflict => "somebody else writes it at the same time".to_owned(),
        Failure::Forbidden(why) => {
            format!("we may not write it: {why}; apply the rights shipped for this role")
        }
        Failure::Owned(why)
        | Failure::Refused(why)
        | Failure::UnknownField(why)
        | Failure::Away(why)
        | Failure::Busy { why, .. } => why.clone(),
    }
}

/// Waits for an answer, but no longer than the time to the next try.
async fn within<T>(
    limit: Duration,
    request: impl Future<Output = Result<T, kube::Error>>,
) -> Result<T, Failure> {
    match timeout(limit, request).await {
        Ok(answer) => answer.map_err(|error| Failure::of(&error)),
        Err(_) => Err(Failure::Away(format!("no answer within {} s", limit.as_secs().max(1)))),
    }
}
