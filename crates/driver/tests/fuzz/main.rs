//! Arbitrary sequences of calls and arbitrary bytes, into the driver over its socket. Nothing is ever mounted: no path
//! in here is one that the driver may accept.
//!
//! What must hold whatever comes: the driver lives, answers with a code that CSI knows for the call, answers the same
//! when asked the same again, and leaves everything outside of its state directory as it was.
//!
//! This program is also the helper of its own tests.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on should say where")]

mod bytes;
mod ground;
mod sequences;

use libtest_mimic::{Arguments, Trial};

fn main() {
    volmedic_host::helper::run_if_asked();
    let tests: [(&str, fn()); 3] = [
        ("arbitrary_sequences_of_calls", sequences::arbitrary_sequences_of_calls),
        ("arbitrary_bytes_to_every_method", bytes::arbitrary_bytes_to_every_method),
        ("every_method_is_reached", bytes::every_method_is_reached),
    ];
    let trials = tests.map(|(name, test)| {
        Trial::test(name, move || {
            test();
            Ok(())
        })
    });
    libtest_mimic::run(&Arguments::from_args(), trials.into_iter().collect()).exit();
}
