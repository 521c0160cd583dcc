//! Progress for a person.

use std::io::Write;

/// One line. A closed stderr is no reason to stop.
pub(crate) fn line(text: &str) {
    let _ = writeln!(std::io::stderr(), "{text}");
}

/// What the program was asked for.
pub(crate) fn result(text: &str) {
    let _ = writeln!(std::io::stdout(), "{text}");
}
