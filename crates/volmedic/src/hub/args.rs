//! The command line of the hub. What the controller has too has the same name here.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use jiff::SignedDuration;
use volmedic_hub::{Keep, Settings};

use super::heal::{HealArgs, HealConfig};
use super::push::Endpoint;
use crate::cluster::ClusterArgs;
use crate::flags::{duration, http_path, listen, positive, rate};
use crate::page::PageArgs;

/// Writes of claims that may be on the way at once.
const WORKERS: usize = 16;

/// Merge what controllers, agents, kubelets and the cluster know into one VolumeHealth for each claim.
///
/// Run one Deployment of it in the cluster. Its resources (deploy/chart/files/crds) must be installed.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Example, in a Deployment with two replicas:
  volmedic hub --http-endpoint=:8080

Exit codes: 0 after a signal, 1 when it cannot start or loses the lease, 2 when the command line is wrong.")]
pub(crate) struct Args {
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
    http: HttpArgs,
}

#[derive(Debug, clap::Args)]
#[command(next_help_heading = "The claims")]
struct ClaimArgs {
    /// A VolumeHealth for every claim, and not only for those that are or recently were ill.
    #[arg(long)]
    all_claims: bool,
    /// A VolumeHealth stays for so long after its volume recovered.
    #[arg(long, default_value = "24h", value_parser = duration, value_name = "DURATION")]
    keep_recovered: Duration,
    /// Mark the PersistentVolumes of ill claims with the label volmedic.dev/health and the annotation PVUnhealthMessage.
    #[arg(long)]
    mark_volumes: bool,
}

#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Nodes and their agents")]
struct NodeArgs {
    /// A node is down when it was not ready for so long.
    #[arg(long, default_value = "40s", value_parser = duration, value_name = "DURATION")]
    node_grace_period: Duration,
    /// What an agent left behind on a node that is gone is cleared away after so long.
    #[arg(long, default_value = "5m", value_parser = positive, value_name = "DURATION")]
    clear_nodes_after: Duration,
    /// Where the agents' Leases are. Default: where the hub's own Lease is.
    #[arg(long, default_value = "", value_name = "NAMESPACE", hide_default_value = true)]
    agent_namespace: String,
}

#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Leader election")]
#[allow(clippy::struct_field_names, reason = "the fields are the flags, and these begin alike")]
struct ElectionArgs {
    /// Run only while holding the Lease, so that several replicas can stand by.
    #[arg(long, default_value_t = true, num_args = 0..=1, default_missing_value = "true",
          require_equals = true, action = clap::ArgAction::Set)]
    leader_election: bool,
    /// Where the Lease is. Default: POD_NAMESPACE, else the service account's namespace, else default.
    #[arg(long, default_value = "", value_name = "NAMESPACE", hide_default_value = true)]
    leader_election_namespace: String,
    /// Others respect the leader for so long after they last saw it renew.
    #[arg(long, default_value = "15s", value_parser = positive, value_name = "DURATION")]
    leader_election_lease_duration: Duration,
    /// The leader stops after so long without a renewal.
    #[arg(long, default_value = "10s", value_parser = positive, value_name = "DURATION")]
    leader_election_renew_deadline: Duration,
    /// The time between two tries.
    #[arg(long, default_value = "5s", value_parser = positive, value_name = "DURATION")]
    leader_election_retry_period: Duration,
}

#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Reports of others")]
#[allow(clippy::struct_field_names, reason = "the fields are the flags, and these begin alike")]
struct PushArgs {
    /// Take reports of others' detectors here, as 0.0.0.0:8443. Off if not given.
    #[arg(long, value_parser = listen, value_name = "ADDRESS")]
    push_endpoint: Option<SocketAddr>,
    /// The certificate to take them with; read again when it changes.
    #[arg(long, requires = "push_tls_key", value_name = "FILE")]
    push_tls_cert: Option<PathBuf>,
    /// Its key.
    #[arg(long, requires = "push_tls_cert", value_name = "FILE")]
    push_tls_key: Option<PathBuf>,
    /// Reports a second that one account may send, on average; five times as many at once.
    #[arg(long, default_value_t = 100.0, value_parser = rate, value_name = "N")]
    push_rate: f64,
}

#[derive(Debug, clap::Args)]
#[command(next_help_heading = "HTTP")]
struct HttpArgs {
    /// Serve metrics and health here, as :8080 or 127.0.0.1:8080. Off if not given.
    #[arg(long, value_parser = listen, value_name = "ADDRESS")]
    http_endpoint: Option<SocketAddr>,
    /// Where the metrics are.
    #[arg(long, default_value = "/metrics", value_parser = http_path, value_name = "PATH")]
    metrics_path: String,
    /// Not ready when out of touch with the API server for so long.
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
    pub(crate) election: Option<Election>,
    pub(crate) heal: Option<HealConfig>,
    pub(crate) push: Option<Endpoint>,
    pub(crate) page: PageArgs,
    pub(crate) http: Option<SocketAddr>,
    pub(crate) metrics_path: String,
    pub(crate) not_ready_after: Duration,
}

#[derive(Debug)]
pub(crate) struct Election {
    pub(crate) namespace: String,
    pub(crate) lease_duration: Duration,
    pub(crate) renew_deadline: Duration,
    pub(crate) retry_period: Duration,
}

impl Args {
    pub(crate) fn resolve(self) -> Config {
        let Self { claims, nodes, cluster, election, heal, push, page, http } = self;
        let namespace = volmedic_lease::namespace(&election.leader_election_namespace);
        let signed = |time: Duration| SignedDuration::try_from(time).unwrap_or(SignedDuration::MAX);
        #[allow(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "it is above 0 and kept small"
        )]
        let burst = cluster.kube_api_burst.clamp(1.0, 100_000.0) as u32;
        let agent_namespace = match nodes.agent_namespace {
            none if none.is_empty() => namespace.clone(),
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
            election: election.leader_election.then_some(Election {
                namespace,
                lease_duration: election.leader_election_lease_duration,
                renew_deadline: election.leader_election_renew_deadline,
                retry_period: election.leader_election_retry_period,
            }),
            push: push.push_endpoint.map(|address| Endpoint {
                address,
                tls: push.push_tls_cert.zip(push.push_tls_key),
                rate: push.push_rate,
            }),
            page,
            http: http.http_endpoint,
            metrics_path: http.metrics_path,
            not_ready_after: http.not_ready_after,
        }
    }
}
