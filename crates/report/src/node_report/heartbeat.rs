//! That the agent lives.

use std::convert::Infallible;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta};
use kube::api::PostParams;
use kube::{Api, Client};
use tokio::time::{MissedTickBehavior, interval};

use super::{sentence, within};
use crate::failure::Failure;

/// The Lease is good for so many beats; one or two may get lost.
const BEATS: u32 = 4;

pub(super) struct Heartbeat {
    api: Api<Lease>,
    name: String,
    node: String,
    every: Duration,
    /// As it was last read or written.
    lease: Option<Lease>,
    trouble: bool,
}

impl Heartbeat {
    pub(super) fn new(client: &Client, namespace: &str, name: &str, node: &str, every: Duration) -> Self {
        Self {
            api: Api::namespaced(client.clone(), namespace),
            name: name.to_owned(),
            node: node.to_owned(),
            every: every.max(Duration::from_millis(100)),
            lease: None,
            trouble: false,
        }
    }

    pub(super) async fn run(mut self) -> Infallible {
        let mut beats = interval(self.every);
        beats.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            beats.tick().await;
            match self.beat().await {
                Ok(()) => self.trouble = false,
                Err(failure) => {
                    self.lease = None;
                    if !std::mem::replace(&mut self.trouble, true) {
                        let why = match &failure {
                            Failure::Gone => "its namespace is not there".to_owned(),
                            other => sentence(other),
                        };
                        tracing::warn!("the hub is not told that this agent lives: {why}; trying on");
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
        let seconds = (self.every * BEATS).as_secs().max(1);
        lease.spec = Some(LeaseSpec {
            holder_identity: Some(self.node.clone()),
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
