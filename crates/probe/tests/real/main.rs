//! The checks on real volumes of the reference driver, and the node plugin through its real socket. Needs root,
//! e2fsprogs, xfsprogs and btrfs-progs.
//!
//! This program is also the driver, the mounter and the helper of its tests: each must be a process of its own.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on should say where")]

use libtest_mimic::{Arguments, Trial};
use volmedic_driver::fault::Kind;

mod directory;
mod eyes;
mod faults;
mod members;
mod node;
mod quiet;
mod roles;
mod stage;
mod sysfs;

type Test = (&'static str, fn());

fn main() {
    volmedic_host::helper::run_if_asked();
    roles::run_if_asked();
    if volmedic_testkit::packages::is_root() {
        volmedic_testkit::packages::ensure(&["btrfs-progs", "e2fsprogs", "mount", "xfsprogs"]).unwrap();
    }
    let mut trials: Vec<Trial> = Vec::new();
    for &kind in Kind::ALL {
        let run = move || {
            require_root();
            faults::every_fault_on(kind);
            Ok(())
        };
        let name = format!("the_host_sees_every_fault_it_can_on_{}", kind.name());
        trials.push(Trial::test(name, run));
    }
    for (name, test) in [quiet::TESTS, members::TESTS, sysfs::TESTS, node::TESTS, directory::TESTS].concat() {
        let run = move || {
            require_root();
            test();
            Ok(())
        };
        trials.push(Trial::test(name, run));
    }
    libtest_mimic::run(&Arguments::from_args(), trials).exit();
}

fn require_root() {
    volmedic_testkit::packages::require_root("it mounts volumes");
}
