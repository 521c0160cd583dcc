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

use crate::failure::Failure;

/// The number of beats for which the Lease is valid; one or two may get lost.
const BEATS: u32 = 4;

pub(crate) struct Heartbeat {
    api: Api<Lease>,
    name: String,
    holder: String,
    every: Duration,
    labels: BTreeMap<String, String>,
    /// As they are at the moment of a beat: a change costs no write of its own.
    annotations: watch::Receiver<BTreeMap<String, String>>,
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

    pub(crate) async fn run(mut self) -> Infallible {
        let mut beats = interval(self.every);
        beats.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            beats.tick().await;
            match self.beat().await {
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
            (self.annotations.borrow().clone(), &mut lease.metadata.annotations),
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
