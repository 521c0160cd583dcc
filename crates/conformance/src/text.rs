//! What a driver says, cut to what fits in one line of a table.

use tonic::{Code, Status};

const LONGEST: usize = 320;

/// One line without control characters, and not longer than a table bears.
pub(crate) fn line(text: &str) -> String {
    let mut clean = String::new();
    for word in text.split(|c: char| c.is_whitespace() || c.is_control()).filter(|word| !word.is_empty()) {
        if !clean.is_empty() {
            clean.push(' ');
        }
        clean.push_str(word);
        if clean.len() > LONGEST {
            let end = (0..=LONGEST).rev().find(|&at| clean.is_char_boundary(at)).unwrap_or(0);
            clean.truncate(end);
            clean.push('…');
            break;
        }
    }
    clean
}

/// A failed call: its code as the specification writes it, and the driver's sentence.
pub(crate) fn said(status: &Status) -> String {
    format!("{} {:?}", code(status.code()), line(status.message()))
}

pub(crate) fn code(code: Code) -> &'static str {
    match code {
        Code::Ok => "OK",
        Code::Cancelled => "CANCELLED",
        Code::Unknown => "UNKNOWN",
        Code::InvalidArgument => "INVALID_ARGUMENT",
        Code::DeadlineExceeded => "DEADLINE_EXCEEDED",
        Code::NotFound => "NOT_FOUND",
        Code::AlreadyExists => "ALREADY_EXISTS",
        Code::PermissionDenied => "PERMISSION_DENIED",
        Code::ResourceExhausted => "RESOURCE_EXHAUSTED",
        Code::FailedPrecondition => "FAILED_PRECONDITION",
        Code::Aborted => "ABORTED",
        Code::OutOfRange => "OUT_OF_RANGE",
        Code::Unimplemented => "UNIMPLEMENTED",
        Code::Internal => "INTERNAL",
        Code::Unavailable => "UNAVAILABLE",
        Code::DataLoss => "DATA_LOSS",
        Code::Unauthenticated => "UNAUTHENTICATED",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whatever_comes_becomes_one_short_line() {
        assert_eq!(line("a\n\u{1b}[31mb\t c"), "a [31mb c");
        assert!(line(&"ü".repeat(5_000)).len() <= LONGEST + "…".len());
    }
}
