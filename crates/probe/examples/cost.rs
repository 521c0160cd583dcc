//! How much processor time the host checks take for a volume, beside a loop that only calls statfs, opendir and readdir:
//! `cargo build --release -p volmedic-probe --example cost`, then as root `unshare --mount --propagation=private
//! target/release/examples/cost`. The mounts are gone with the mount namespace.

#![expect(
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "it prints its figures, and stops where it cannot go on"
)]

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use rustix::mount::{MountFlags, mount};
use volmedic_health::Sight;
use volmedic_host::helper::{Helpers, Limits};
use volmedic_probe::host::{Expected, Host, Mode, Settings, Target};

const VOLUMES: usize = 200;
const PASSES: u32 = 10;
/// Between two checks, so that they are spread as those of an agent are.
const PAUSE: Duration = Duration::from_millis(2);

fn main() {
    volmedic_host::helper::run_if_asked();
    let folder = tempfile::tempdir().unwrap();
    let volumes: Vec<PathBuf> = (0..VOLUMES).map(|nth| folder.path().join(nth.to_string())).collect();
    for path in &volumes {
        fs::create_dir(path).unwrap();
        mount("none", path, "tmpfs", MountFlags::empty(), c"size=1m").unwrap();
    }

    let [before, _] = processor_time();
    for _ in 0..PASSES {
        for path in &volumes {
            bare(path);
        }
    }
    let [after, _] = processor_time();
    let bare = after.saturating_sub(before) / PASSES / u32::try_from(VOLUMES).unwrap();

    let expected: Vec<Expected> = volumes.iter().map(|path| expected(path)).collect();
    let host = Host::new(Arc::new(Helpers::new(Limits::default())), Settings::default());
    let before = processor_time();
    for _ in 0..PASSES {
        for expected in &expected {
            let sight = host.look(expected).sight;
            assert!(matches!(sight, Sight::Healthy), "{sight:?}");
            std::thread::sleep(PAUSE);
        }
    }
    // With the helpers that are still there, whose time is counted when they have ended.
    drop(host);
    let after = processor_time();
    let each = |at: usize| after[at].saturating_sub(before[at]) / PASSES / u32::try_from(VOLUMES).unwrap();
    let (own, of_helpers) = (each(0), each(1));
    println!("{VOLUMES} volumes, {PASSES} passes; processor time for one check of one volume:");
    println!("host checks: {own:?} own, {of_helpers:?} of helpers; bare loop: {bare:?}");
    println!("{:.1} times the bare loop", (own + of_helpers).as_secs_f64() / bare.as_secs_f64());
}

fn bare(path: &Path) {
    rustix::fs::statfs(path).unwrap();
    assert!(fs::read_dir(path).unwrap().next().is_none());
}

fn expected(path: &Path) -> Expected {
    Expected {
        driver: "cost.example".into(),
        handle: path.to_string_lossy().into(),
        mode: Mode::Filesystem,
        staging: None,
        targets: vec![Target {
            path: path.into(),
            read_only: false,
            pod: "shop/web-0".into(),
            parts: Vec::new(),
        }],
    }
}

/// Of this process, and of the children that have ended.
fn processor_time() -> [Duration; 2] {
    let own = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    let text = fs::read_to_string("/proc/self/stat").unwrap();
    let fields: Vec<&str> = text.rsplit_once(") ").unwrap().1.split(' ').collect();
    let ticks = |at: usize| fields[at].parse::<u32>().unwrap();
    let each = Duration::from_secs(1) / u32::try_from(rustix::param::clock_ticks_per_second()).unwrap();
    [own.try_into().unwrap(), each * (ticks(13) + ticks(14))]
}
