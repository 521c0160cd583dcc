//! This program as the driver, as a mounter and as somebody who uses a volume.

use std::path::PathBuf;
use std::time::Duration;

use volmedic_driver::health::{Settings, Thresholds, fsck::Schedule};
use volmedic_driver::mounter::Mounter;
use volmedic_driver::{Addons, Config, Dialect, serve};

use super::heal::user;

pub(crate) const DRIVER: &str = "driver-for-tests";
/// A program that uses a volume, as a pod's does.
pub(crate) const USER: &str = "user-for-tests";

pub(crate) fn run_if_asked() {
    let mut arguments = std::env::args().skip(1);
    match arguments.next().as_deref() {
        Some(DRIVER) => drive(&arguments.collect::<Vec<_>>()),
        Some(USER) => user::run(&arguments.collect::<Vec<_>>()),
        Some("mounter") => mount(&arguments.collect::<Vec<_>>()),
        _ => {}
    }
}

fn drive(arguments: &[String]) -> ! {
    let [state, socket, root, rest @ ..] = arguments else { panic!("{arguments:?}") };
    let given = |name: &str| rest.iter().find_map(|argument| argument.strip_prefix(name));
    let addons = given("--addons-endpoint=").map(|endpoint| Addons {
        endpoint: endpoint.to_owned(),
        session_grace: Duration::from_secs(
            given("--session-grace=").map_or(600, |text| text.parse().unwrap()),
        ),
        remount_writable: given("--heal-read-only").is_some(),
        token_file: given("--heal-token-file=").map(PathBuf::from),
    });
    let config = Config {
        endpoint: socket.clone(),
        socket_mode: 0o600,
        state_dir: PathBuf::from(state),
        node_id: "node".to_owned(),
        name: "faults.volmedic.dev".to_owned(),
        version: "0".to_owned(),
        dialect: Dialect::Both,
        services: given("--services=").unwrap_or("controller,node").parse().unwrap(),
        allowed_roots: vec![root.into()],
        total_bytes: None,
        max_volume_bytes: 1 << 40,
        call_deadline: Duration::from_mins(1),
        program: std::env::current_exe().unwrap(),
        checks: Settings {
            deadline: Duration::from_secs(
                given("--check-deadline=").map_or(10, |text| text.parse().unwrap()),
            ),
            entries: 64,
            thresholds: Thresholds::default(),
            // So often that the effect of a fault, and of its end, is seen soon.
            fsck: Schedule {
                every: Some(Duration::from_millis(500)),
                runs: 3,
                gap: Duration::from_millis(50),
                deadline: Duration::from_mins(1),
            },
        },
        addons,
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
    let given = |name: &str| arguments.iter().any(|argument| argument == name);
    let mounter = Mounter {
        volume: value("--volume"),
        volume_dir: value("--volume-dir").into(),
        mountpoint: value("--mountpoint").into(),
        parent: value("--parent").parse().unwrap(),
        readonly: given("--readonly"),
        take_over: given("--take-over"),
    };
    volmedic_driver::mounter::run(&mounter).unwrap();
    std::process::exit(0)
}
