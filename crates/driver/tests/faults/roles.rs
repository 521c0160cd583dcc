//! This program as the driver and as a mounter.

use std::path::PathBuf;
use std::time::Duration;

use volmedic_driver::health::{Settings, Thresholds, fsck::Schedule};
use volmedic_driver::mounter::Mounter;
use volmedic_driver::{Config, Dialect, Services, serve};

pub(crate) const DRIVER: &str = "driver-for-tests";

pub(crate) fn run_if_asked() {
    let mut arguments = std::env::args().skip(1);
    match arguments.next().as_deref() {
        Some(DRIVER) => drive(&arguments.collect::<Vec<_>>()),
        Some("mounter") => mount(&arguments.collect::<Vec<_>>()),
        _ => {}
    }
}

fn drive(arguments: &[String]) -> ! {
    let [state, socket, root] = arguments else { panic!("{arguments:?}") };
    let config = Config {
        endpoint: socket.clone(),
        socket_mode: 0o600,
        state_dir: PathBuf::from(state),
        node_id: "node".to_owned(),
        name: "faults.volmedic.dev".to_owned(),
        version: "0".to_owned(),
        dialect: Dialect::Both,
        services: Services { controller: true, node: true },
        allowed_roots: vec![root.into()],
        total_bytes: None,
        max_volume_bytes: 1 << 40,
        call_deadline: Duration::from_mins(1),
        program: std::env::current_exe().unwrap(),
        checks: Settings {
            deadline: Duration::from_secs(1),
            entries: 64,
            thresholds: Thresholds::default(),
            // So often that the effect of a fault, and of its end, is seen within a test's patience.
            fsck: Schedule {
                every: Some(Duration::from_millis(500)),
                runs: 3,
                gap: Duration::from_millis(50),
                deadline: Duration::from_secs(30),
            },
        },
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
    };
    volmedic_driver::mounter::run(&mounter).unwrap();
    std::process::exit(0)
}
