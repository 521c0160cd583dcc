//! Against the real kernel: mounts, FUSE servers that die, freeze and stall, loop devices. Needs root.
//!
//! This program is also the helper and the FUSE server of its own tests: the three must be separate processes,
//! or a hang would hold all of them.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on should say where")]

use std::time::{Duration, Instant};

use libtest_mimic::{Arguments, Trial};

mod helpers;
mod limits;
mod mounter;
mod mounts;
mod reported;
mod reused;
mod stalls;
mod volume;
mod watch;

fn main() {
    volmedic_host::helper::run_if_asked();
    mounter::run_if_asked();
    reported::run_if_asked();
    if volmedic_testkit::packages::is_root() {
        volmedic_testkit::packages::ensure(&["btrfs-progs", "e2fsprogs", "mount", "xfsprogs"]).unwrap();
    }
    let tests = [
        helpers::TESTS,
        limits::TESTS,
        mounts::TESTS,
        stalls::TESTS,
        reported::TESTS,
        reused::TESTS,
        watch::TESTS,
    ]
    .concat();
    let trials = tests
        .into_iter()
        .map(|(name, test)| {
            let run = move || {
                volmedic_testkit::packages::require_root("it mounts file systems");
                test();
                Ok(())
            };
            Trial::test(name, run)
        })
        .collect();
    libtest_mimic::run(&Arguments::from_args(), trials).exit();
}

type Test = (&'static str, fn());

/// For whatever must come. A machine under load takes its time.
const PATIENCE: Duration = Duration::from_mins(2);

/// Waits until `holds`, and fails the test when it never does.
fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let end = Instant::now() + PATIENCE;
    while !holds() {
        assert!(Instant::now() < end, "still not so after {PATIENCE:?}: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn block_on<T>(work: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(work)
}
