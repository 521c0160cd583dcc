//! This program as the driver and as a mounter.

use std::path::PathBuf;
use std::time::Duration;

use volmedic_driver::health::{Settings, Thresholds, fsck::Schedule};
use volmedic_driver::mounter::Mounter;
use volmedic_driver::{Config, Dialect, Services, serve};

pub(crate) const DRIVER: &str = "driver-for-tests";
pub(crate) const NAME: &str = "eyes.volmedic.dev";

pub(crate) fn run_if_asked() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.split_first() {
        Some((role, rest)) if role == DRIVER => drive(rest),
        Some((role, rest)) if role == "mounter" => mount(rest),
        _ => {}
    }
}

fn drive(arguments: &[String]) -> ! {
    let [state, socket, root, dialect] = arguments else { panic!("{arguments:?}") };
    let config = Config {
        endpoint: socket.clone(),
        socket_mode: 0o600,
        state_dir: PathBuf::from(state),
        node_id: "node".to_owned(),
        name: NAME.to_owned(),
        version: "0".to_owned(),
        dialect: dialect.parse::<Dialect>().unwrap(),
        services: Services { controller: true, node: true },
        allowed_roots: vec![root.into()],
        total_bytes: None,
        max_volume_bytes: 1 << 40,
        call_deadline: Duration::from_mins(1),
        program: std::env::current_exe().unwrap(),
        checks: Settings {
            deadline: Duration::from_secs(10),
            entries: 64,
            thresholds: Thresholds::default(),
            fsck: Schedule { every: None, ..Schedule::default() },
        },
        addons: None,
    };
    let threads = volmedic_driver::THREADS;
    let mut builder = tokio::runtime::Builder::new_current_thread();
    let runtime = builder.enable_all().max_blocking_threads(threads).build().unwrap();
    let outcome = runtime.block_on(serve(config));
    runtime.shutdown_background();
    outcome.unwrap();
    std::process::exit(0)
}

fn mount(arguments: &[String]) -> ! {
    let value = |name: &str| {
        let at = arguments.iter().position(|argument| argument == name).unwrap();
        arguments[at + 1].clone()
    };
    let mounter = Mounter {
        volume: value("--volume"),
        volume_dir: value("--volume-dir").into(),
        mountpoint: value("--mountpoint").into(),
        parent: value("--parent").parse().unwrap(),
        readonly: arguments.iter().any(|argument| argument == "--readonly"),
        take_over: arguments.iter().any(|argument| argument == "--take-over"),
    };
    volmedic_driver::mounter::run(&mounter).unwrap();
    std::process::exit(0)
}
