//! Where all of xtask's own words go. A reader that left (`| head`) is no reason to panic.

use std::fmt::Display;
#[cfg(not(test))]
use std::io::{self, Write};

/// One line for a person, out before anything that a child process says next.
#[cfg(not(test))]
pub(crate) fn line(text: impl Display) {
    let mut out = io::stdout().lock();
    let _ = writeln!(out, "{text}").and_then(|()| out.flush());
}

#[cfg(not(test))]
pub(crate) fn error(text: impl Display) {
    let _ = writeln!(io::stderr().lock(), "{text}");
}

// The test harness keeps only what goes through its macros; a made-up failure must not show up in a real log.
#[cfg(test)]
pub(crate) use self::{captured as line, captured as error};

#[cfg(test)]
#[allow(clippy::print_stdout)]
pub(crate) fn captured(text: impl Display) {
    println!("{text}");
}
