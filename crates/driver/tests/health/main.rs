//! The check library on real loop devices, mounts and file systems. Needs root, e2fsprogs, xfsprogs, btrfs-progs.
//!
//! This program is also the helper of its own tests.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on should say where")]

use libtest_mimic::{Arguments, Trial};

mod damage;
mod looks;
mod volume;

fn main() {
    volmedic_host::helper::run_if_asked();
    if volmedic_testkit::packages::is_root() {
        volmedic_testkit::packages::ensure(&["btrfs-progs", "e2fsprogs", "mount", "xfsprogs"]).unwrap();
    }
    let tests = [looks::TESTS, damage::TESTS].concat();
    let mut trials = Vec::new();
    for (name, kinds, test) in tests {
        for &fs_type in kinds {
            let run = move || {
                volmedic_testkit::packages::require_root("it mounts file systems");
                test(fs_type);
                Ok(())
            };
            trials.push(Trial::test(format!("{fs_type}::{name}"), run));
        }
    }
    libtest_mimic::run(&Arguments::from_args(), trials).exit();
}

/// A name, the file systems it is run on, and what is run.
type Test = (&'static str, &'static [&'static str], fn(&'static str));

const ALL: &[&str] = &["ext4", "xfs", "btrfs"];
