//! The command line of the agent. What the controller has too has the same name here.

mod relay;

use std::path::PathBuf;
use std::time::Duration;

use clap::ValueEnum;
use volmedic_csi::Address;

use relay::RelayArgs;
pub(crate) use relay::Relaying;

use volmedic_runtime::cluster::ClusterArgs;
use volmedic_runtime::flags::{duration, positive};
use volmedic_runtime::http::HttpArgs;
use volmedic_runtime::page::PageArgs;

/// Check every CSI volume of every pod on this node, through the drivers and with host checks, and report on the pods
/// what is wrong.
///
/// Needs no support from any driver. Run it once for all drivers on each node, or beside one node plugin with
/// --csi-address.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Example, in a DaemonSet with the host's process and mount namespaces at hand:
  volmedic agent --node-name=$(NODE_NAME) --state-dir=/var/lib/volmedic --http-endpoint=:8080

Exit codes: 0 after a signal, 1 when it cannot start, 2 when the command line is wrong.")]
pub struct Args {
    #[command(flatten)]
    node: NodeArgs,
    #[command(flatten)]
    drivers: DriverArgs,
    #[command(flatten)]
    checks: CheckArgs,
    #[command(flatten)]
    relay: RelayArgs,
    #[command(flatten)]
    cluster: ClusterArgs,
    #[command(flatten)]
    page: PageArgs,
    #[command(flatten)]
    serve: ServeArgs,
}

#[derive(Debug, clap::Args)]
#[command(next_help_heading = "The node")]
struct NodeArgs {
    /// Name of this node in the cluster.
    #[arg(long, env = "NODE_NAME", value_parser = node_name, value_name = "NAME")]
    node_name: String,
    /// Directory in which the kubelet keeps pods and plugins. Default: what the running kubelet says, else
    /// /var/lib/kubelet.
    #[arg(long, value_parser = absolute, value_name = "DIR")]
    kubelet_root_dir: Option<PathBuf>,
    /// Process whose mount table is read instead of the agent's own: 1 in the host's process namespace, where mounts do
    /// not propagate to the agent.
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..), value_name = "PID")]
    mounts_of: Option<u32>,
    /// Directory at which the host's root directory is mounted, to check volumes that are directories of the host
    /// (hostPath). / where the agent runs in no container. Default: they are not checked.
    #[arg(long, value_parser = absolute, value_name = "DIR")]
    host_root: Option<PathBuf>,
    /// Directory to keep what was reported, so that a restart neither repeats nor loses a report.
    #[arg(long, default_value = "/var/lib/volmedic", value_parser = absolute, value_name = "DIR")]
    state_dir: PathBuf,
    /// Whether to keep what is wrong on this node in a NodeVolumeHealth of its name, and renew a Lease, for the hub. auto
    /// does so where the resource is installed.
    #[arg(long, value_enum, default_value_t = NodeReport::Auto, value_name = "HOW")]
    node_report: NodeReport,
}

/// See `--node-report`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum NodeReport {
    Auto,
    Off,
}

#[derive(Debug, clap::Args)]
#[command(next_help_heading = "The drivers")]
struct DriverArgs {
    /// Socket of a node plugin: a path, or unix:///path. May be given several times. Default: the sockets of all drivers
    /// that are registered with the kubelet.
    #[arg(long, value_name = "SOCKET")]
    csi_address: Vec<Address>,
    /// How to use the volume health of a kubelet that asks drivers itself: read it from the pods' status, ask the drivers
    /// all the same, or (auto) read it as soon as the kubelet is seen to write it.
    #[arg(long, value_enum, default_value_t = KubeletHealth::Auto, value_name = "HOW")]
    kubelet_volume_health: KubeletHealth,
}

/// See `--kubelet-volume-health`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum KubeletHealth {
    Auto,
    Ask,
    Read,
}

#[derive(Debug, clap::Args)]
#[command(next_help_heading = "The checks")]
struct CheckArgs {
    /// Interval between two checks of each volume. A volume is also checked immediately when the kernel reports a change.
    #[arg(long, default_value = "1m", value_parser = positive, value_name = "DURATION")]
    monitor_interval: Duration,
    /// Deadline of one call to a volume or a driver. A volume that does not answer a call in time is hung; a driver that
    /// does not answer is unreachable. All calls of one check of a volume have three times as long.
    #[arg(long, default_value = "10s", value_parser = positive, value_name = "DURATION")]
    probe_timeout: Duration,
    /// Maximum number of concurrent calls to one driver.
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u16).range(1..=1_000), value_name = "N")]
    workers: u16,
    /// Maximum number of concurrent helper processes, not counting those that are stuck in the kernel.
    #[arg(long, default_value_t = 16, value_parser = clap::value_parser!(u16).range(1..=1_000), value_name = "N")]
    max_helpers: u16,
    /// Maximum number of helper processes stuck in the kernel. Beyond it no further volume is checked on the host.
    #[arg(long, default_value_t = 64, value_parser = clap::value_parser!(u16).range(1..=10_000), value_name = "N")]
    max_stuck_helpers: u16,
    /// Percentage of used bytes above which a file system is out of capacity.
    #[arg(long, default_value_t = 98, value_parser = clap::value_parser!(u8).range(1..=100), value_name = "PERCENT")]
    capacity_threshold: u8,
    /// Percentage of used inodes above which a file system is out of inodes.
    #[arg(long, default_value_t = 98, value_parser = clap::value_parser!(u8).range(1..=100), value_name = "PERCENT")]
    inode_threshold: u8,
    /// Interval between two reports of a problem that lasts; 0 reports it once.
    #[arg(long, default_value = "30m", value_parser = duration, value_name = "DURATION")]
    reminder_interval: Duration,
}

#[derive(Debug, clap::Args)]
#[command(next_help_heading = "HTTP")]
struct ServeArgs {
    #[command(flatten)]
    http: HttpArgs,
    /// Serve how full each claim is under the kubelet's names, kubelet_volume_stats_*.
    #[arg(long, default_value_t = false, num_args = 0..=1, default_missing_value = "true",
          require_equals = true, action = clap::ArgAction::Set)]
    volume_stats_metrics: bool,
}

/// What the arguments come to.
#[derive(Debug, Clone)]
pub(crate) struct Config {
    pub(crate) node: String,
    pub(crate) kubelet_root: Option<PathBuf>,
    pub(crate) mounts_of: Option<u32>,
    pub(crate) host_root: Option<PathBuf>,
    pub(crate) state_dir: PathBuf,
    pub(crate) node_report: NodeReport,
    /// Empty to find them.
    pub(crate) addresses: Vec<Address>,
    pub(crate) kubelet_health: KubeletHealth,
    pub(crate) look_every: Duration,
    pub(crate) look_deadline: Duration,
    pub(crate) workers: usize,
    pub(crate) helpers: usize,
    pub(crate) stuck_helpers: usize,
    pub(crate) full_bytes: u8,
    pub(crate) full_inodes: u8,
    pub(crate) remind_every: Option<Duration>,
    pub(crate) relaying: Option<Relaying>,
    pub(crate) kubeconfig: Option<PathBuf>,
    pub(crate) qps: f64,
    pub(crate) burst: f64,
    pub(crate) page: PageArgs,
    pub(crate) http: HttpArgs,
    pub(crate) usage_metrics: bool,
}

impl Args {
    pub(crate) fn resolve(self) -> Config {
        let Self { node, drivers, checks, relay, cluster, page, serve } = self;
        let kubeconfig = cluster.kubeconfig();
        Config {
            node: node.node_name,
            kubelet_root: node.kubelet_root_dir,
            mounts_of: node.mounts_of,
            host_root: node.host_root,
            state_dir: node.state_dir,
            node_report: node.node_report,
            addresses: drivers.csi_address,
            kubelet_health: drivers.kubelet_volume_health,
            look_every: checks.monitor_interval,
            look_deadline: checks.probe_timeout,
            workers: checks.workers.into(),
            helpers: checks.max_helpers.into(),
            stuck_helpers: checks.max_stuck_helpers.into(),
            full_bytes: checks.capacity_threshold,
            full_inodes: checks.inode_threshold,
            remind_every: Some(checks.reminder_interval).filter(|every| !every.is_zero()),
            relaying: relay.resolve(),
            kubeconfig,
            qps: cluster.kube_api_qps,
            burst: cluster.kube_api_burst,
            page,
            http: serve.http,
            usage_metrics: serve.volume_stats_metrics,
        }
    }
}

fn absolute(text: &str) -> Result<PathBuf, String> {
    let path = PathBuf::from(text);
    if path.is_absolute() { Ok(path) } else { Err("it must be a path that begins with /".to_owned()) }
}

/// It becomes a field selector: whatever is no name of a node would select something else.
fn node_name(text: &str) -> Result<String, String> {
    let fits = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-' || c == '.';
    if !text.is_empty() && text.len() <= 253 && text.chars().all(fits) {
        Ok(text.to_owned())
    } else {
        Err("a node's name has lower case letters, digits, - and . only".to_owned())
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Debug, Parser)]
    struct Only {
        #[command(flatten)]
        args: Args,
    }

    fn parse(line: &str) -> Result<Config, String> {
        let words = std::iter::once("agent").chain(line.split_whitespace());
        Only::try_parse_from(words).map(|only| only.args.resolve()).map_err(|error| error.to_string())
    }

    #[test]
    fn defaults() {
        let config = parse("--node-name=worker-7.example.net").unwrap();
        assert!(
            config.addresses.is_empty()
                && config.kubelet_root.is_none()
                && config.http.http_endpoint.is_none()
        );
        assert_eq!(config.look_every, Duration::from_mins(1));
        assert_eq!(config.remind_every, Some(Duration::from_mins(30)));
        assert_eq!((config.full_bytes, config.full_inodes), (98, 98));
        assert_eq!(config.kubelet_health, KubeletHealth::Auto);
        assert_eq!(config.node_report, NodeReport::Auto);
        assert!(!config.usage_metrics);
    }

    #[test]
    fn several_drivers_and_everything_else() {
        let config = parse(
            "--node-name=n --csi-address=/a.sock --csi-address=unix:///b.sock --kubelet-volume-health=read \
             --volume-stats-metrics --reminder-interval=0s --capacity-threshold=90 --inode-threshold=80 \
             --kubelet-root-dir=/k --state-dir=/s --host-root=/host --monitor-interval=5s --probe-timeout=2s --workers=4 \
             --max-helpers=3 --max-stuck-helpers=9 --http-endpoint=:0 --node-report=off",
        )
        .unwrap();
        assert_eq!(config.addresses.len(), 2);
        assert!(config.usage_metrics && config.remind_every.is_none());
        assert_eq!(config.node_report, NodeReport::Off);
        assert_eq!((config.full_bytes, config.full_inodes), (90, 80));
        assert_eq!(config.host_root.as_deref(), Some(std::path::Path::new("/host")));
        assert_eq!((config.workers, config.helpers, config.stuck_helpers), (4, 3, 9));
    }

    #[test]
    fn bad_input_gets_a_sentence() {
        let check = |line: &str, expected: &str| {
            let error = parse(line).expect_err(line);
            assert!(error.contains(expected), "{line}: {error}");
        };
        check("--node-name=", "a node's name has lower case letters");
        check("--node-name=a,status.phase=b", "a node's name has lower case letters");
        check("--node-name=n --state-dir=here", "begins with /");
        check("--node-name=n --capacity-threshold=101", "101 is not in 1..=100");
        check("--node-name=n --monitor-interval=0s", "it must be greater than zero");
        check("--node-name=n --workers=0", "0 is not in 1..=1000");
        check("--node-name=n --kubelet-volume-health=maybe", "possible values: auto, ask, read");
        check("--node-name=n --node-report=maybe", "possible values: auto, off");
        check("--node-name=n --csi-address=tcp://10.0.0.1:1", "tcp");
    }
}
