//! The command line of the hub. What the controller has too has the same name here.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use jiff::SignedDuration;
use volmedic_hub::{Keep, Settings};

use super::heal::{HealArgs, HealConfig};
use super::push::Endpoint;
use volmedic_runtime::cluster::ClusterArgs;
use volmedic_runtime::election::LeaseArgs;
use volmedic_runtime::flags::{duration, listen, positive, rate};
use volmedic_runtime::http::HttpArgs;
use volmedic_runtime::page::PageArgs;

/// Writes of claims that may be on the way at the same time.
const WORKERS: usize = 16;

/// Merge what controllers, agents, kubelets and the cluster know into one VolumeHealth for each claim.
///
/// Run one Deployment of it in the cluster. Its resources (deploy/chart/files/crds) must be installed.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Example, in a Deployment with two replicas:
  volmedic hub --http-endpoint=:8080

Exit codes: 0 after a signal, 1 when it cannot start or loses the lease, 2 when the command line is wrong.")]
pub struct Args {
    #[command(flatten)]
    claims: ClaimArgs,
    #[command(flatten)]
    nodes: NodeArgs,
    #[command(flatten)]
    cluster: ClusterArgs,
    #[command(flatten)]
    election: ElectionArgs,
    #[command(flatten)]
    heal: HealArgs,
    #[command(flatten)]
    push: PushArgs,
    #[command(flatten)]
    page: PageArgs,
    #[command(flatten)]
    serve: ServeArgs,
}

#[derive(Debug, clap::Args)]
#[command(next_help_heading = "The claims")]
struct ClaimArgs {
    /// Keep a VolumeHealth for every claim, not only for those that are or recently were unhealthy.
    #[arg(long)]
    all_claims: bool,
    /// Time for which a VolumeHealth is kept after its volume recovered.
    #[arg(long, default_value = "24h", value_parser = duration, value_name = "DURATION")]
    keep_recovered: Duration,
    /// Mark the PersistentVolumes of unhealthy claims with the label volmedic.dev/health and the annotation PVUnhealthMessage.
    #[arg(long)]
    mark_volumes: bool,
}

#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Nodes and their agents")]
struct NodeArgs {
    /// Time for which a node must be not ready until it counts as down.
    #[arg(long, default_value = "40s", value_parser = duration, value_name = "DURATION")]
    node_grace_period: Duration,
    /// Time after which the NodeVolumeHealth of a deleted node is deleted.
    #[arg(long, default_value = "5m", value_parser = positive, value_name = "DURATION")]
    clear_nodes_after: Duration,
    /// Namespace of the agents' Leases. Default: that of the hub's own Lease.
    #[arg(long, default_value = "", value_name = "NAMESPACE", hide_default_value = true)]
    agent_namespace: String,
}

#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Leader election")]
struct ElectionArgs {
    /// Run only while holding the Lease, so that several replicas can stand by.
    #[arg(long, default_value_t = true, num_args = 0..=1, default_missing_value = "true",
          require_equals = true, action = clap::ArgAction::Set)]
    leader_election: bool,
    #[command(flatten)]
    lease: LeaseArgs,
}

#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Reports of others")]
#[allow(clippy::struct_field_names, reason = "the fields are the flags, and these begin alike")]
struct PushArgs {
    /// Address on which reports of other detectors are accepted, as 0.0.0.0:8443. Off if not given.
    #[arg(long, value_parser = listen, value_name = "ADDRESS")]
    push_endpoint: Option<SocketAddr>,
    /// Certificate of that address; read again when it changes.
    #[arg(long, requires = "push_tls_key", value_name = "FILE")]
    push_tls_cert: Option<PathBuf>,
    /// Key of that certificate.
    #[arg(long, requires = "push_tls_cert", value_name = "FILE")]
    push_tls_key: Option<PathBuf>,
    /// Reports per second that one account may send on average; bursts may be five times as large.
    #[arg(long, default_value_t = 100.0, value_parser = rate, value_name = "N")]
    push_rate: f64,
}

#[derive(Debug, clap::Args)]
#[command(next_help_heading = "HTTP")]
struct ServeArgs {
    #[command(flatten)]
    http: HttpArgs,
    /// Time without contact to the API server after which /readyz fails.
    #[arg(long, default_value = "10m", value_parser = positive, value_name = "DURATION")]
    not_ready_after: Duration,
}

/// What the hub runs with.
#[derive(Debug)]
pub(crate) struct Config {
    pub(crate) kubeconfig: Option<PathBuf>,
    pub(crate) keeper: Settings,
    pub(crate) node_grace: SignedDuration,
    pub(crate) clear_nodes_after: Duration,
    pub(crate) agent_namespace: String,
    /// None where there is one replica that needs no Lease.
    pub(crate) election: Option<LeaseArgs>,
    pub(crate) heal: Option<HealConfig>,
    pub(crate) push: Option<Endpoint>,
    pub(crate) page: PageArgs,
    pub(crate) http: HttpArgs,
    pub(crate) not_ready_after: Duration,
}

impl Args {
    pub(crate) fn resolve(self) -> Config {
        let Self { claims, nodes, cluster, election, heal, push, page, serve } = self;
        let signed = |time: Duration| SignedDuration::try_from(time).unwrap_or(SignedDuration::MAX);
        #[allow(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "it is above 0 and kept small"
        )]
        let burst = cluster.kube_api_burst.clamp(1.0, 100_000.0) as u32;
        let agent_namespace = match nodes.agent_namespace {
            none if none.is_empty() => election.lease.namespace(),
            some => some,
        };
        Config {
            kubeconfig: cluster.kubeconfig(),
            keeper: Settings {
                keep: Keep { all: claims.all_claims, recovered_for: signed(claims.keep_recovered) },
                qps: cluster.kube_api_qps,
                burst,
                workers: WORKERS,
                mark_volumes: claims.mark_volumes,
            },
            node_grace: signed(nodes.node_grace_period),
            clear_nodes_after: nodes.clear_nodes_after,
            heal: heal.resolve(&agent_namespace),
            agent_namespace,
            election: election.leader_election.then_some(election.lease),
            push: push.push_endpoint.map(|address| Endpoint {
                address,
                tls: push.push_tls_cert.zip(push.push_tls_key),
                rate: push.push_rate,
            }),
            page,
            http: serve.http,
            not_ready_after: serve.not_ready_after,
        }
    }
}
