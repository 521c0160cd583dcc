//! Every fault on every kind of volume: what each call then answers, and that it is healthy again once undone.
//!
//! The expected answers are the table in `docs/faults.md`. With `VOLMEDIC_BLESS=1` the table is written again
//! instead of compared. Needs root, e2fsprogs, xfsprogs and btrfs-progs.
//!
//! What a heal repairs, and that it harms nothing, is shown on the same ground.
//!
//! This program is also the driver, the mounter and the helper of its tests: each must be a process of its own.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on should say where")]

use libtest_mimic::{Arguments, Trial};
use volmedic_driver::fault::Kind;

mod driver;
mod heal;
mod of_the_driver;
mod roles;
mod table;
mod volumes;

fn main() {
    volmedic_host::helper::run_if_asked();
    roles::run_if_asked();
    if volmedic_testkit::packages::is_root() {
        volmedic_testkit::packages::ensure(&["btrfs-progs", "e2fsprogs", "mount", "xfsprogs"]).unwrap();
    }
    let mut trials = Vec::new();
    for &kind in Kind::ALL {
        let run = move || {
            require_root();
            volumes::every_fault_on(kind);
            Ok(())
        };
        trials.push(Trial::test(format!("every_fault_on_{}", kind.name()), run));
    }
    for &kind in Kind::ALL {
        let run = move || {
            require_root();
            heal::harm::a_heal_does_no_harm_to(kind);
            Ok(())
        };
        trials.push(Trial::test(format!("a_heal_does_no_harm_to_{}", kind.name()), run));
    }
    for &(name, test) in of_the_driver::TESTS.iter().chain(heal::tests()) {
        let run = move || {
            require_root();
            test();
            Ok(())
        };
        trials.push(Trial::test(name, run));
    }
    trials.push(Trial::test("the_table_has_no_row_that_is_not_tested", || {
        table::check_completeness();
        Ok(())
    }));
    let conclusion = libtest_mimic::run(&Arguments::from_args(), trials);
    table::bless();
    conclusion.exit();
}

fn require_root() {
    volmedic_testkit::packages::require_root("it mounts volumes");
}
