//! Leader election, alike in every role that has one.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use kube::Client;
use volmedic_lease::{Candidate, Config, State};

use crate::flags::positive;
use crate::page::Late;
use crate::process::Process;
use crate::signals::Signals;

/// How a Lease is held. Whether there is an election at all is the role's own flag, because its default differs.
#[derive(Debug, Clone, clap::Args)]
#[command(next_help_heading = "Leader election")]
#[allow(clippy::struct_field_names, reason = "the fields are the flags, and these begin alike")]
pub struct LeaseArgs {
    /// Namespace of the Lease. Default: POD_NAMESPACE, else the service account's namespace, else default.
    #[arg(long, default_value = "", value_name = "NAMESPACE", hide_default_value = true)]
    leader_election_namespace: String,
    /// Time for which other replicas respect the leader after they last saw it renew the Lease.
    #[arg(long, default_value = "15s", value_parser = positive, value_name = "DURATION")]
    leader_election_lease_duration: Duration,
    /// Time after which the leader stops by itself if it could not renew the Lease.
    #[arg(long, default_value = "10s", value_parser = positive, value_name = "DURATION")]
    leader_election_renew_deadline: Duration,
    /// Time between two attempts to get or renew the Lease.
    #[arg(long, default_value = "5s", value_parser = positive, value_name = "DURATION")]
    leader_election_retry_period: Duration,
}

impl LeaseArgs {
    pub fn namespace(&self) -> String {
        volmedic_lease::namespace(&self.leader_election_namespace)
    }

    /// The replica that runs this takes part in the election of the Lease `name`.
    pub fn election(&self, name: &str, labels: BTreeMap<String, String>) -> anyhow::Result<Config> {
        let host = volmedic_lease::hostname()
            .context("cannot read this machine's name, which is needed for the lease")?;
        Ok(Config {
            labels,
            lease_duration: self.leader_election_lease_duration,
            renew_deadline: self.leader_election_renew_deadline,
            retry_period: self.leader_election_retry_period,
            ..Config::new(&self.namespace(), name, &volmedic_lease::sanitize(&host))
        })
    }
}

/// The right to act, of one replica among several. A role without an election always has it.
#[derive(Debug, Clone, Default)]
pub struct Leadership(Option<Arc<Candidate>>);

impl Leadership {
    /// Takes part in an election.
    pub fn stand<S>(
        client: &Client,
        election: Config,
        process: &Process,
        page: Option<&Late<S>>,
    ) -> anyhow::Result<Self> {
        tracing::info!("standing for the lease {}/{}", election.namespace, election.name);
        let candidate = Arc::new(Candidate::start(client.clone(), election)?);
        if let Some(page) = page {
            page.stands_for(&candidate);
        }
        let watched = candidate.clone();
        let healthy = move || watched.healthy(Instant::now()).map_err(|error| error.to_string());
        process.health.set_leader(Box::new(healthy));
        // To stand by is all that a replica has to do before it leads; a rollout need not wait for more.
        process.health.set_ready(Box::new(|| Ok(())));
        Ok(Self(Some(candidate)))
    }

    /// Waits until this replica leads. `false` if a signal came first.
    pub async fn won(&self, process: &mut Process) -> anyhow::Result<bool> {
        let Some(candidate) = &self.0 else { return Ok(true) };
        tokio::select! {
            state = candidate.elected() => match state {
                State::Leading => Ok(true),
                _ => bail!("the lease was lost before it was held"),
            },
            () = process.signals.next() => Ok(false),
        }
    }

    /// Waits until this replica must not act any more: because of a signal, or with an error because the Lease was lost.
    pub async fn over(&self, signals: &mut Signals) -> anyhow::Result<()> {
        let lost = async {
            match &self.0 {
                Some(candidate) => candidate.lost().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            () = lost => bail!("the lease was lost; another replica leads now, and this one must restart"),
            () = signals.next() => Ok(()),
        }
    }

    /// Whether this replica may act at this moment.
    pub fn holds(&self) -> bool {
        self.0.as_ref().is_none_or(|candidate| candidate.holds(Instant::now()))
    }

    /// Gives the Lease back, so that another replica need not wait until it expires.
    pub async fn release(self, mut process: Process) {
        process.servers.abort_all();
        // The check holds the candidate too.
        process.health.set_leader(Box::new(|| Ok(())));
        if let Some(candidate) = self.0.and_then(Arc::into_inner) {
            candidate.release().await;
        }
    }
}
