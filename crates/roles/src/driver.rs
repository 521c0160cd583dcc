//! The driver role.

use std::error::Error;
use std::path::PathBuf;
use std::time::Duration;

use rustix::process::{Signal, getppid, set_parent_process_death_signal};
use rustix::thread::{CapabilitySet, capabilities};
use tokio::runtime::Builder;
use volmedic_driver::health::{Settings, Thresholds, fsck::Schedule};
use volmedic_driver::{Addons, Config, Dialect, Registrar, Services, serve_registered};

use volmedic_runtime::{process, size};

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  volmedic driver --endpoint unix:///run/csi.sock --node-id here --state-dir /var/lib/volmedic-driver \\
    --allowed-root /mnt
  volmedic watch --csi-address unix:///run/csi.sock      # in another terminal, to see its volumes

The node service mounts volumes and needs root; `--services controller` does not.

Exit codes: 0 after a signal, 1 when it cannot start, 2 when the command line is wrong.")]
pub struct Args {
    #[command(flatten)]
    service: ServiceArgs,
    #[command(flatten)]
    storage: StorageArgs,
    #[command(flatten)]
    checks: CheckArgs,
    #[command(flatten)]
    heal: HealArgs,
}

/// What is served, and where.
#[derive(Debug, clap::Args)]
struct ServiceArgs {
    /// Unix socket to serve on.
    #[arg(long, env = "CSI_ENDPOINT", value_name = "unix:///PATH")]
    endpoint: String,
    /// Mode of the socket, in octal.
    #[arg(long, default_value = "0600", value_parser = mode, value_name = "MODE")]
    socket_mode: u32,
    /// Unix socket on which the kubelet finds the driver, in its plugins_registry directory. Without it, another program
    /// has to register the driver.
    #[arg(long, value_name = "unix:///PATH")]
    registration_socket: Option<String>,
    /// Path of the driver's own socket as the kubelet sees it [default: that of --endpoint].
    #[arg(long, value_name = "PATH", requires = "registration_socket")]
    kubelet_registration_path: Option<PathBuf>,
    /// Name of the driver.
    #[arg(long, default_value = "driver.volmedic.dev")]
    name: String,
    /// Id of this node.
    #[arg(long)]
    node_id: String,
    /// Services to serve: controller, node or both.
    #[arg(long, default_value = "controller,node", value_name = "LIST")]
    services: Services,
    /// CSI dialect to report health in: legacy, health or both.
    #[arg(long, default_value = "both")]
    dialect: Dialect,
    /// Maximum seconds of one call; then the caller is asked to retry.
    #[arg(long, default_value_t = 120, value_parser = clap::value_parser!(u64).range(1..=3600), value_name = "SECONDS")]
    call_deadline: u64,
    /// Process that starts this one. When it dies, so does this.
    #[arg(long, hide = true, value_name = "PID")]
    parent: Option<u32>,
}

/// What volumes are made from, and where they may appear.
#[derive(Debug, clap::Args)]
struct StorageArgs {
    /// Directory for the volumes and their state.
    #[arg(long, value_name = "PATH")]
    state_dir: PathBuf,
    /// Directory below which volumes may be staged and published. May be given several times.
    #[arg(long = "allowed-root", default_value = "/var/lib/kubelet", value_name = "PATH")]
    allowed_roots: Vec<PathBuf>,
    /// Maximum size of all volumes together.
    #[arg(long, value_parser = size::bytes, value_name = "BYTES")]
    capacity: Option<u64>,
    /// Maximum size of one volume.
    #[arg(long, default_value = "1Ti", value_parser = size::bytes, value_name = "BYTES")]
    max_volume_size: u64,
}

/// How volumes are checked.
#[derive(Debug, clap::Args)]
struct CheckArgs {
    /// Seconds without an answer to one call after which a volume counts as hung.
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u64).range(1..=300), value_name = "SECONDS")]
    check_deadline: u64,
    /// Percentage of used bytes from which a volume is out of capacity.
    #[arg(long, default_value_t = 98, value_parser = clap::value_parser!(u8).range(1..=100), value_name = "PERCENT")]
    full_bytes: u8,
    /// Percentage of used inodes from which a volume is out of inodes.
    #[arg(long, default_value_t = 98, value_parser = clap::value_parser!(u8).range(1..=100), value_name = "PERCENT")]
    full_inodes: u8,
    /// Minutes between two file system checks of a volume; 0 turns them off.
    #[arg(long, default_value_t = 360, value_name = "MINUTES")]
    fsck_every: u64,
    /// Number of file system checks that must agree that a volume is corrupt.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=10), value_name = "NUMBER")]
    fsck_runs: u32,
    /// Seconds between those checks.
    #[arg(long, default_value_t = 40, value_name = "SECONDS")]
    fsck_gap: u64,
}

/// How volumes are healed.
#[derive(Debug, clap::Args)]
struct HealArgs {
    /// Unix socket to serve csi-addons on (identity and healing).
    #[arg(long, value_name = "unix:///PATH")]
    addons_endpoint: Option<String>,
    /// Seconds for which processes that use a volume wait after its mounter died, so that a heal can restore their
    /// mounts; after that they get errors.
    #[arg(long, default_value_t = 600, value_parser = clap::value_parser!(u64).range(0..=86400), value_name = "SECONDS", requires = "addons_endpoint")]
    session_grace: u64,
    /// Heal a file system that an error made read-only by making it writable again.
    #[arg(long, requires = "addons_endpoint")]
    heal_read_only: bool,
    /// File with a token that callers must send as the secret `token` to heal.
    #[arg(long, value_name = "PATH", requires = "addons_endpoint")]
    heal_token_file: Option<PathBuf>,
}

impl HealArgs {
    fn addons(self) -> Option<Addons> {
        let Self { addons_endpoint, session_grace, heal_read_only, heal_token_file } = self;
        addons_endpoint.map(|endpoint| Addons {
            endpoint,
            session_grace: Duration::from_secs(session_grace),
            remount_writable: heal_read_only,
            token_file: heal_token_file,
        })
    }
}

impl CheckArgs {
    fn settings(&self) -> Settings {
        let defaults = Settings::default();
        let share = |percent: u8| f64::from(percent) / 100.0;
        Settings {
            deadline: Duration::from_secs(self.check_deadline),
            thresholds: Thresholds {
                bytes: share(self.full_bytes),
                inodes: share(self.full_inodes),
                ..defaults.thresholds
            },
            fsck: Schedule {
                every: (self.fsck_every > 0).then(|| Duration::from_secs(self.fsck_every.saturating_mul(60))),
                runs: self.fsck_runs,
                gap: Duration::from_secs(self.fsck_gap),
                ..defaults.fsck
            },
            ..defaults
        }
    }
}

fn mode(text: &str) -> Result<u32, String> {
    let mode =
        u32::from_str_radix(text, 8).map_err(|error| format!("{text:?} is not an octal mode: {error}"))?;
    if mode <= 0o777 { Ok(mode) } else { Err(format!("{text} is more than 0777")) }
}

/// A caller that started a driver for itself leaves none behind, however it ends.
fn die_with(parent: u32) -> Result<(), Box<dyn Error>> {
    set_parent_process_death_signal(Some(Signal::KILL))?;
    // It may have died before that.
    let now = getppid().map(|pid| pid.as_raw_nonzero().get());
    if now == i32::try_from(parent).ok() {
        Ok(())
    } else {
        Err("the process that started this driver is gone".into())
    }
}

fn may_mount() -> bool {
    capabilities(None).is_ok_and(|sets| sets.effective.contains(CapabilitySet::SYS_ADMIN))
}

pub fn run(args: Args) -> Result<(), Box<dyn Error>> {
    let Args { service, storage, checks, heal } = args;
    if let Some(parent) = service.parent {
        die_with(parent)?;
    }
    if service.services.node && !may_mount() {
        return Err("the node service mounts volumes, which needs root; run it as root, or without the node service: \
                    --services controller"
            .into());
    }
    let own = service.endpoint.strip_prefix("unix://").unwrap_or(&service.endpoint);
    let seen_by_kubelet = service.kubelet_registration_path.unwrap_or_else(|| own.into());
    let registrar = service.registration_socket.map(|socket| Registrar { socket, endpoint: seen_by_kubelet });
    if registrar.is_some() && !service.services.node {
        return Err("the kubelet calls the node service, which this process does not serve; leave out \
                    --registration-socket, or add node to --services"
            .into());
    }
    let config = Config {
        endpoint: service.endpoint,
        socket_mode: service.socket_mode,
        state_dir: storage.state_dir,
        node_id: service.node_id,
        name: service.name,
        version: env!("CARGO_PKG_VERSION").to_owned(),
        dialect: service.dialect,
        services: service.services,
        allowed_roots: storage.allowed_roots,
        total_bytes: storage.capacity,
        max_volume_bytes: storage.max_volume_size,
        call_deadline: Duration::from_secs(service.call_deadline),
        program: std::env::current_exe()?,
        checks: checks.settings(),
        addons: heal.addons(),
    };
    let mut builder = Builder::new_current_thread();
    let serving = async { Ok::<_, Box<dyn Error>>(serve_registered(config, registrar).await?) };
    process::run_on(builder.max_blocking_threads(volmedic_driver::THREADS), serving)
}
