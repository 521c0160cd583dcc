//! The gallery: every fault of the reference driver on every kind of volume it can be done to, with the agent as a
//! process on a real API server, and what it reported about it: what, how soon, and that it is over. Beside it the healthy
//! gallery, of which nothing may be reported.
//!
//! With `VOLMEDIC_GALLERY_PAGE=<file>` the generated part of that file is written again; `VOLMEDIC_GALLERY_HEALTHY=<s>`
//! sets for how many seconds the healthy gallery is open. Needs root, e2fsprogs, xfsprogs and btrfs-progs.
//!
//! This program is also the driver of its tests: it checks file systems more often than the one that is shipped.

#![allow(clippy::unwrap_used, reason = "helpers of tests may fail with the test")]

use libtest_mimic::{Arguments, Trial};

#[allow(dead_code, reason = "shared with the tests of the driver, which use all of it")]
#[path = "../driver/calls.rs"]
mod calls;
#[allow(dead_code, reason = "shared with the tests of the driver, which use all of it")]
#[path = "../driver/ground.rs"]
mod ground;
mod healthy;
mod of_the_driver;
mod of_volumes;
mod others;
mod page;
#[allow(dead_code, reason = "shared with the tests of the controller, which use all of it")]
#[path = "../controller/process.rs"]
mod process;
mod reported;
#[allow(dead_code, reason = "shared with the tests of the controller, which use all of it")]
#[path = "../controller/rights.rs"]
mod rights;
mod role;
mod rows;
#[allow(dead_code, reason = "shared with the tests of the controller, which use all of it")]
#[path = "../controller/server.rs"]
mod server;
mod stage;

/// A trial that runs on an async runtime of its own.
fn trial<F: Future<Output = ()>>(name: &str, test: impl FnOnce() -> F + Send + 'static) -> Trial {
    let run = move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(test());
        // A program that still waits for a volume is not waited for.
        runtime.shutdown_background();
        Ok(())
    };
    Trial::test(name, run).with_ignored_flag(!rustix::process::geteuid().is_root())
}

fn main() {
    volmedic_host::helper::run_if_asked();
    role::run_if_asked();
    let arguments = Arguments::from_args();
    if rustix::process::geteuid().is_root() && !arguments.list {
        volmedic_testkit::packages::ensure(&["btrfs-progs", "e2fsprogs", "mount", "xfsprogs"]).unwrap();
    }
    let mut trials = vec![
        trial("the_driver_in_the_newer_dialect", || of_volumes::every_row(rows::Eyes::Health)),
        trial("the_driver_in_the_older_dialect", || of_volumes::every_row(rows::Eyes::Older)),
        trial("the_hosts_own_eyes_alone", || of_volumes::every_row(rows::Eyes::Host)),
        trial("damage_that_only_a_check_finds_in_the_newer_dialect", || {
            of_volumes::damage(rows::Eyes::Health)
        }),
        trial("damage_that_only_a_check_finds_in_the_older_dialect", || {
            of_volumes::damage(rows::Eyes::Older)
        }),
        trial("nothing_is_told_of_what_is_well", healthy::nothing_is_reported),
    ];
    trials.extend(of_the_driver::trials());
    trials.push(Trial::test("the_page_has_every_row_and_no_other", || {
        page::check_completeness();
        Ok(())
    }));
    let conclusion = libtest_mimic::run(&arguments, trials);
    if !arguments.list {
        page::show(!conclusion.has_failed());
    }
    conclusion.exit();
}
