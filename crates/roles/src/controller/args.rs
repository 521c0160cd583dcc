//! The command line of the controller: external-health-monitor's, so that a deployment of it runs unchanged, and ours.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use volmedic_csi::Address;

use volmedic_runtime::cluster::ClusterArgs;
use volmedic_runtime::election::LeaseArgs;
use volmedic_runtime::flags::{duration, listen, positive};
use volmedic_runtime::http::HttpArgs;
use volmedic_runtime::page::PageArgs;

/// Check all volumes of a CSI driver from beside its controller plugin, and report on each claim what is wrong.
///
/// Takes the place of csi-external-health-monitor-controller: the same flags with the same meanings, the same
/// lease, the same event reasons.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Example, as a container beside the driver's controller plugin:
  volmedic controller --csi-address=/run/csi/socket --leader-election --http-endpoint=:8080

Exit codes: 0 after a signal, 1 when it cannot start or lost its lease, 2 when the command line is wrong.")]
pub struct Args {
    #[command(flatten)]
    driver: DriverArgs,
    #[command(flatten)]
    nodes: NodeArgs,
    #[command(flatten)]
    election: ElectionArgs,
    #[command(flatten)]
    cluster: ClusterArgs,
    #[command(flatten)]
    page: PageArgs,
    #[command(flatten)]
    serve: ServeArgs,
    #[command(flatten)]
    legacy: LegacyArgs,
}

#[derive(Debug, clap::Args)]
#[command(next_help_heading = "The driver")]
struct DriverArgs {
    /// Socket of the driver: a path, or unix:///path.
    #[arg(long, default_value = "/run/csi/socket", value_name = "SOCKET")]
    csi_address: Address,
    /// Required name of the driver; a driver of another name is refused.
    #[arg(long, value_name = "NAME")]
    driver_name: Option<String>,
    /// Deadline of one call to the driver, or of one page of a list.
    #[arg(long, default_value = "15s", value_parser = positive, value_name = "DURATION")]
    timeout: Duration,
    /// Interval between two checks of each volume, where the driver is asked volume by volume.
    #[arg(long, default_value = "1m", value_parser = positive, value_name = "DURATION")]
    monitor_interval: Duration,
    /// Interval between two lists, where the driver lists its volumes.
    #[arg(long, default_value = "5m", value_parser = positive, value_name = "DURATION")]
    list_volumes_interval: Duration,
    /// Maximum number of concurrent calls to the driver.
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u16).range(1..=10_000), value_name = "N")]
    worker_threads: u16,
    /// Interval between two reports of a problem that lasts; 0 reports it once.
    #[arg(long, default_value = "30m", value_parser = duration, value_name = "DURATION")]
    reminder_interval: Duration,
}

#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Nodes that go down")]
struct NodeArgs {
    /// Report on every claim that is used on a node that went down.
    #[arg(long, default_value_t = false, num_args = 0..=1, default_missing_value = "true",
          require_equals = true, action = clap::ArgAction::Set)]
    enable_node_watcher: bool,
    /// Time for which a node must be not ready until it counts as down. (external-health-monitor has 5m here.)
    #[arg(long, default_value = "40s", value_parser = duration, value_name = "DURATION")]
    node_grace_period: Duration,
}

#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Leader election")]
struct ElectionArgs {
    /// Run only while holding the Lease, so that several replicas can stand by.
    #[arg(long, default_value_t = false, num_args = 0..=1, default_missing_value = "true",
          require_equals = true, action = clap::ArgAction::Set)]
    leader_election: bool,
    #[command(flatten)]
    lease: LeaseArgs,
    /// Labels of the Lease, as key:value,key:value.
    #[arg(long, default_value = "", value_parser = labels, value_name = "LABELS", hide_default_value = true)]
    leader_election_labels: Labels,
}

#[derive(Debug, clap::Args)]
#[command(next_help_heading = "HTTP")]
struct ServeArgs {
    #[command(flatten)]
    http: HttpArgs,
    /// The old name of --http-endpoint.
    #[arg(long, value_parser = listen, value_name = "ADDRESS", conflicts_with = "http_endpoint")]
    metrics_address: Option<SocketAddr>,
    /// Time without contact to the driver or the API server after which /readyz fails.
    #[arg(long, default_value = "10m", value_parser = positive, value_name = "DURATION")]
    not_ready_after: Duration,
}

/// Flags of external-health-monitor that nothing is left to do for.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Taken for compatibility, without effect")]
struct LegacyArgs {
    /// New volumes are noticed immediately.
    #[arg(long, value_parser = duration, value_name = "DURATION")]
    volume_list_add_interval: Option<Duration>,
    /// Nodes are watched, not listed.
    #[arg(long, value_parser = duration, value_name = "DURATION")]
    node_list_add_interval: Option<Duration>,
    /// There is no cache that could go out of step.
    #[arg(long, value_parser = duration, value_name = "DURATION")]
    resync: Option<Duration>,
    /// One thread is enough.
    #[arg(long, num_args = 0..=1, default_missing_value = "true", require_equals = true, value_name = "BOOL")]
    automaxprocs: Option<bool>,
    /// See --log-level; 5 and more mean debug, 8 and more trace.
    #[arg(long = "v", short = 'v', value_name = "N")]
    pub(crate) verbosity: Option<u8>,
    /// See --log-level.
    #[arg(long, value_name = "PATTERN=N,...")]
    vmodule: Option<String>,
    /// See --log-format.
    #[arg(long, value_name = "FORMAT")]
    logging_format: Option<String>,
    /// Nothing is held back.
    #[arg(long, value_parser = duration, value_name = "DURATION")]
    log_flush_frequency: Option<Duration>,
    /// Everything goes to standard error already.
    #[arg(long, num_args = 0..=1, default_missing_value = "true", require_equals = true, value_name = "BOOL")]
    logtostderr: Option<bool>,
}

/// Go programs take one dash for two before a flag of any length, and so do the manifests made for them.
pub fn with_two_dashes(mut words: Vec<OsString>) -> Vec<OsString> {
    if words.get(1).is_some_and(|role| role == "controller") {
        for word in &mut words[2..] {
            let Some(text) = word.to_str() else { continue };
            let name = text.strip_prefix('-').and_then(|flag| flag.split('=').next()).unwrap_or_default();
            if name.len() > 1 && name.starts_with(|c: char| c.is_ascii_lowercase()) {
                *word = format!("-{text}").into();
            }
        }
    }
    words
}

type Labels = BTreeMap<String, String>;

/// What the arguments come to.
#[derive(Debug, Clone)]
pub(crate) struct Config {
    pub(crate) address: Address,
    pub(crate) driver_name: Option<String>,
    pub(crate) call_deadline: Duration,
    pub(crate) look_every: Duration,
    pub(crate) list_every: Duration,
    pub(crate) workers: usize,
    pub(crate) remind_every: Option<Duration>,
    /// How long a node must be not ready; `None` where nodes are not watched.
    pub(crate) node_grace: Option<Duration>,
    pub(crate) election: Option<Election>,
    pub(crate) kubeconfig: Option<PathBuf>,
    pub(crate) qps: f64,
    pub(crate) burst: f64,
    pub(crate) page: PageArgs,
    pub(crate) http: HttpArgs,
    /// Time without contact after which the role is not ready.
    pub(crate) not_ready_after: Duration,
    /// What was given and has no effect, as sentences for the log.
    pub(crate) notes: Vec<String>,
}

#[derive(Debug, Clone)]
pub(crate) struct Election {
    pub(crate) lease: LeaseArgs,
    pub(crate) labels: Labels,
}

impl Args {
    pub fn verbosity(&self) -> Option<u8> {
        self.legacy.verbosity
    }

    pub(crate) fn resolve(self) -> Config {
        let Self { driver, nodes, election, cluster, page, serve, legacy } = self;
        let mut notes = legacy.notes();
        if serve.metrics_address.is_some() {
            notes.push("--metrics-address is deprecated; use --http-endpoint".to_owned());
        }
        Config {
            address: driver.csi_address,
            driver_name: driver.driver_name,
            call_deadline: driver.timeout,
            look_every: driver.monitor_interval,
            list_every: driver.list_volumes_interval,
            workers: driver.worker_threads.into(),
            remind_every: Some(driver.reminder_interval).filter(|every| !every.is_zero()),
            node_grace: nodes.enable_node_watcher.then_some(nodes.node_grace_period),
            election: election
                .leader_election
                .then_some(Election { lease: election.lease, labels: election.leader_election_labels }),
            kubeconfig: cluster.kubeconfig(),
            qps: cluster.kube_api_qps,
            burst: cluster.kube_api_burst,
            page,
            http: HttpArgs {
                http_endpoint: serve.http.http_endpoint.or(serve.metrics_address),
                ..serve.http
            },
            not_ready_after: serve.not_ready_after,
            notes,
        }
    }
}

impl LegacyArgs {
    fn notes(&self) -> Vec<String> {
        let Self {
            volume_list_add_interval,
            node_list_add_interval,
            resync,
            automaxprocs,
            verbosity: _,
            vmodule,
            logging_format,
            log_flush_frequency,
            logtostderr,
        } = self;
        let given = [
            (
                volume_list_add_interval.is_some(),
                "--volume-list-add-interval has no effect: new volumes are noticed immediately",
            ),
            (
                node_list_add_interval.is_some(),
                "--node-list-add-interval has no effect: nodes are watched, not listed",
            ),
            (resync.is_some(), "--resync has no effect: there is no cache that could go out of step"),
            (automaxprocs.is_some(), "--automaxprocs has no effect: one thread is enough"),
            (vmodule.is_some(), "--vmodule has no effect: use --log-level"),
            (logging_format.is_some(), "--logging-format has no effect: use --log-format"),
            (log_flush_frequency.is_some(), "--log-flush-frequency has no effect: nothing is held back"),
            (logtostderr.is_some(), "--logtostderr has no effect: everything goes to standard error already"),
        ];
        given.into_iter().filter(|(given, _)| *given).map(|(_, note)| note.to_owned()).collect()
    }
}

fn labels(text: &str) -> Result<Labels, String> {
    volmedic_lease::parse_labels(text).map_err(|error| error.to_string())
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
        let words = std::iter::once("controller").chain(line.split_whitespace());
        Only::try_parse_from(words).map(|only| only.args.resolve()).map_err(|error| error.to_string())
    }

    #[test]
    fn the_arguments_of_external_health_monitors_own_deployments() {
        let sample =
            parse("--v=5 --csi-address=/csi/csi.sock --leader-election --http-endpoint=:8080").unwrap();
        assert!(sample.election.is_some());
        assert_eq!(sample.http.http_endpoint.unwrap().port(), 8080);
        let every_flag = parse(
            "--csi-address=unix:///csi/csi.sock --timeout=1m --monitor-interval=1m30s --list-volumes-interval=10m \
             --volume-list-add-interval=5m --node-list-add-interval=5m --worker-threads=20 \
             --enable-node-watcher=true --resync=10m --leader-election=true --leader-election-namespace=storage \
             --leader-election-lease-duration=137s --leader-election-renew-deadline=107s \
             --leader-election-retry-period=26s --leader-election-labels=a:b,c:d --kube-api-qps=5 \
             --kube-api-burst=10 --metrics-address=:9090 --metrics-path=/m --automaxprocs -v 2",
        )
        .unwrap();
        assert_eq!(every_flag.look_every, Duration::from_secs(90));
        assert_eq!(every_flag.workers, 20);
        assert_eq!(every_flag.node_grace, Some(Duration::from_secs(40)));
        assert_eq!(every_flag.election.unwrap().labels.len(), 2);
        assert_eq!(every_flag.notes.len(), 5, "{:?}", every_flag.notes);
    }

    #[test]
    fn one_dash_is_as_good_as_two() {
        let check = |line: &str, expected: &str| {
            let words = with_two_dashes(line.split(' ').map(OsString::from).collect());
            let words: Vec<_> = words.iter().map(|word| word.to_string_lossy()).collect();
            assert_eq!(words.join(" "), expected);
        };
        check(
            "volmedic controller -csi-address=/a -v=5 -v 5",
            "volmedic controller --csi-address=/a -v=5 -v 5",
        );
        check("volmedic controller --timeout -1s -h -", "volmedic controller --timeout -1s -h -");
        check("volmedic driver -xyz", "volmedic driver -xyz");
        check("volmedic", "volmedic");
    }

    #[test]
    fn defaults() {
        let config = parse("").unwrap();
        assert_eq!(config.address.to_string(), "/run/csi/socket");
        assert!(
            config.election.is_none() && config.node_grace.is_none() && config.http.http_endpoint.is_none()
        );
        assert_eq!((config.qps, config.burst), (50.0, 100.0));
        assert_eq!(config.remind_every, Some(Duration::from_mins(30)));
        assert!(config.notes.is_empty());
    }

    #[test]
    fn bad_input_gets_a_sentence() {
        let check = |line: &str, expected: &str| {
            let error = parse(line).expect_err(line);
            assert!(error.contains(expected), "{line}: {error}");
        };
        check("--monitor-interval=0s", "it must be greater than zero");
        check("--monitor-interval=-1m", "is negative");
        check("--list-volumes-interval=5", "use Go's way");
        check("--worker-threads=0", "0 is not in 1..=10000");
        check("--http-endpoint=:8080 --metrics-address=:8081", "cannot be used with");
        check("--http-endpoint=nowhere", "is no address");
        check("--csi-address=tcp://10.0.0.1:1", "tcp");
        check("--kube-api-qps=0", "a number above 0");
        check("--leader-election-labels=x", "label");
        check("--no-such-flag", "unexpected argument");
    }
}
