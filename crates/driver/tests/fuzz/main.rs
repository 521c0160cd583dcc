//! Arbitrary sequences of calls and arbitrary bytes, into the driver over its socket. In most of them no path is one that
//! the driver may accept, so nothing is mounted and there can be many; a few are about volumes that are really mounted.
//!
//! What must hold whatever comes: the driver lives, answers with a code that CSI knows for the call, answers the same
//! when asked the same again, and leaves everything outside of its state directory as it was.
//!
//! This program is also the helper and the mounter of its own tests.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on should say where")]

mod bytes;
mod ground;
mod mounts;
mod sequences;

use libtest_mimic::{Arguments, Trial};

fn main() {
    volmedic_host::helper::run_if_asked();
    mounts::mount_if_asked();
    let tests: [(&str, fn()); 3] = [
        ("arbitrary_sequences_of_calls", sequences::arbitrary_sequences_of_calls),
        ("arbitrary_bytes_to_every_method", bytes::arbitrary_bytes_to_every_method),
        ("every_method_is_reached", bytes::every_method_is_reached),
    ];
    let trial = |(name, test): (&str, fn())| {
        Trial::test(name, move || {
            test();
            Ok(())
        })
    };
    let mut trials: Vec<Trial> = tests.into_iter().map(trial).collect();
    trials.push(trial(("arbitrary_sequences_that_mount", || {
        volmedic_testkit::packages::require_root("it mounts volumes");
        mounts::arbitrary_sequences_that_mount();
    })));
    libtest_mimic::run(&Arguments::from_args(), trials).exit();
}
