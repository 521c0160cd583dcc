//! This program as the driver.

use std::path::PathBuf;
use std::time::Duration;

use volmedic_driver::health::{Settings, Thresholds, fsck::Schedule};
use volmedic_driver::{Config, Services, serve};

const DRIVER: &str = "driver-of-the-gallery";
/// So often that damage, and its end, is found while somebody waits for it.
const OFTEN: Duration = Duration::from_secs(1);

/// How a driver of the gallery is to be.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Manner {
    /// legacy, health or both.
    pub(crate) dialect: &'static str,
    /// Whether it checks file systems: that takes more of the machine than everything else.
    pub(crate) checks_file_systems: bool,
    /// Whether whatever does not answer within three seconds counts as hung. That is how the figures on the page are
    /// measured; as a test, a machine that has much else to do must not be mistaken for a volume that hangs.
    pub(crate) is_hurried: bool,
}

impl Manner {
    pub(crate) fn new(dialect: &'static str) -> Self {
        Self { dialect, checks_file_systems: false, is_hurried: crate::page::is_measured() }
    }

    /// How long the agent waits for a volume or for a driver, in seconds.
    pub(crate) fn probe_timeout(self) -> u64 {
        if self.is_hurried { 3 } else { 20 }
    }

    /// How long the driver waits for a volume: less, so that its answer reaches the agent in time.
    fn check_deadline(self) -> u64 {
        if self.is_hurried { 2 } else { 12 }
    }
}

/// The arguments that make this program a driver.
pub(crate) fn arguments(
    manner: Manner,
    name: &str,
    state: PathBuf,
    socket: PathBuf,
    root: PathBuf,
) -> Vec<String> {
    let Manner { dialect, checks_file_systems, is_hurried: _ } = manner;
    let deadline = manner.check_deadline();
    let paths = [state, socket, root].map(|path| path.into_os_string().into_string().unwrap());
    let words = [DRIVER, name, dialect].map(str::to_owned).into_iter();
    let words = words.chain([checks_file_systems.to_string(), deadline.to_string()]);
    words.chain(paths).collect()
}

pub(crate) fn run_if_asked() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if arguments.first().is_some_and(|first| first == DRIVER) {
        drive(&arguments[1..]);
    }
}

fn drive(arguments: &[String]) -> ! {
    let [name, dialect, checks_file_systems, deadline, state, socket, root] = arguments else {
        panic!("{arguments:?}")
    };
    let config = Config {
        endpoint: socket.clone(),
        socket_mode: 0o600,
        state_dir: state.into(),
        node_id: "node".to_owned(),
        name: name.clone(),
        version: "0".to_owned(),
        dialect: dialect.parse().unwrap(),
        services: Services { controller: true, node: true },
        allowed_roots: vec![root.into()],
        total_bytes: None,
        max_volume_bytes: 1 << 40,
        call_deadline: Duration::from_mins(1),
        // Mounters are those of the program that is shipped.
        program: crate::process::program(),
        checks: Settings {
            deadline: Duration::from_secs(deadline.parse().unwrap()),
            entries: 64,
            thresholds: Thresholds::default(),
            fsck: Schedule {
                every: (checks_file_systems == "true").then_some(OFTEN),
                runs: 3,
                gap: Duration::from_millis(50),
                deadline: Duration::from_secs(30),
            },
        },
        addons: None,
    };
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .max_blocking_threads(volmedic_driver::THREADS)
        .build()
        .unwrap();
    let outcome = runtime.block_on(serve(config));
    runtime.shutdown_background();
    outcome.unwrap();
    std::process::exit(0)
}
