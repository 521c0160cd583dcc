//! Where all of xtask's own output goes. A closed pipe (`| head`) must not cause a panic.

use std::fmt::Display;
use std::io::{self, Write};

/// One line for a person, out before anything that a child process prints next.
pub fn line(text: impl Display) {
    let mut out = io::stdout().lock();
    let _ = writeln!(out, "{text}").and_then(|()| out.flush());
}

pub fn error(text: impl Display) {
    let _ = writeln!(io::stderr().lock(), "{text}");
}
