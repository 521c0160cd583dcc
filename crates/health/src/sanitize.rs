//! Any text becomes text the API server takes.
//!
//! One bad reason makes the server refuse a whole status write, so nothing reaches a [`Condition`] without
//! passing through here. The result is valid whatever came in, stable (sanitising twice changes nothing),
//! and recognisable (what was valid is kept as it was).
//!
//! [`Condition`]: crate::Condition

use std::borrow::Cow;

/// The longest reason that the API server takes.
pub const MAX_REASON_BYTES: usize = 256;
/// The longest message that the API server takes.
pub const MAX_MESSAGE_BYTES: usize = 1024;

const ELLIPSIS: &str = "…";
/// A separator and eight hexadecimal digits.
const FINGERPRINT_BYTES: usize = 9;

/// A reason matches `^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$` and has at most 256 bytes.
pub fn reason(text: &str) -> Cow<'_, str> {
    if is_reason(text) {
        return Cow::Borrowed(text);
    }
    if !text.bytes().any(|b| b.is_ascii_alphanumeric()) {
        return Cow::Owned(match text.trim() {
            "" => "Unspecified".to_owned(),
            foreign => format!("Reason_{:08x}", fingerprint(foreign)),
        });
    }
    let mut clean = String::with_capacity(text.len().min(MAX_REASON_BYTES) + 1);
    for c in text.trim().chars() {
        let c = if c.is_ascii_alphanumeric() || matches!(c, '_' | ',' | ':') { c } else { '_' };
        if clean.is_empty() && !c.is_ascii_alphabetic() {
            clean.push('R');
        }
        clean.push(c);
    }
    if clean.len() > MAX_REASON_BYTES {
        // Two long reasons that differ only at their ends must stay two reasons.
        clean.truncate(MAX_REASON_BYTES - FINGERPRINT_BYTES);
        clean = format!("{clean}_{:08x}", fingerprint(text));
    }
    if clean.ends_with([',', ':']) {
        clean.pop();
        clean.push('_');
    }
    Cow::Owned(clean)
}

/// A message has at most 1024 bytes, is one line, and holds nothing that could rewrite a terminal or turn
/// the reading direction around.
pub fn message(text: &str) -> Cow<'_, str> {
    let trimmed = text.trim();
    if trimmed.len() <= MAX_MESSAGE_BYTES && !trimmed.chars().any(is_unprintable) {
        return Cow::Borrowed(trimmed);
    }
    let mut clean = String::with_capacity(trimmed.len().min(MAX_MESSAGE_BYTES));
    let mut pending_space = false;
    for c in trimmed.chars() {
        if is_unprintable(c) {
            pending_space = true;
            continue;
        }
        if pending_space && !clean.is_empty() && !c.is_whitespace() && !clean.ends_with(' ') {
            clean.push(' ');
        }
        pending_space = false;
        clean.push(c);
        if clean.len() > MAX_MESSAGE_BYTES {
            truncate_at_char(&mut clean, MAX_MESSAGE_BYTES - ELLIPSIS.len());
            clean.truncate(clean.trim_end().len());
            clean.push_str(ELLIPSIS);
            return Cow::Owned(clean);
        }
    }
    clean.truncate(clean.trim_end().len());
    Cow::Owned(clean)
}

fn is_reason(text: &str) -> bool {
    text.len() <= MAX_REASON_BYTES
        && text.starts_with(|c: char| c.is_ascii_alphabetic())
        && text.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'_' | b',' | b':'))
        && text.ends_with(|c: char| c.is_ascii_alphanumeric() || c == '_')
}

/// Control characters, line and paragraph separators, and the marks that reorder text.
fn is_unprintable(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{200e}' | '\u{200f}' | '\u{061c}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{feff}')
}

fn truncate_at_char(text: &mut String, limit: usize) {
    let end = (0..=limit.min(text.len())).rev().find(|&i| text.is_char_boundary(i)).unwrap_or(0);
    text.truncate(end);
}

/// FNV-1a: stable across builds and releases, which the standard hashers do not promise.
fn fingerprint(text: &str) -> u32 {
    text.bytes().fold(0x811c_9dc5, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[track_caller]
    fn check(input: &str, expected: &str) {
        assert_eq!(reason(input), expected);
    }

    #[test]
    fn valid_reasons_stay() {
        for valid in ["OutOfCapacity", "a", "Raid_5:Leg,2", "X_"] {
            check(valid, valid);
        }
    }

    #[test]
    fn invalid_reasons_stay_recognisable() {
        check("", "Unspecified");
        check("  ", "Unspecified");
        check("disk-failure", "disk_failure");
        check("5xx errors", "R5xx_errors");
        check("_private", "R_private");
        check("ends:", "ends_");
        check("Disk.Bad;", "Disk_Bad_");
        check("磁盘", "Reason_334eb424");
    }

    #[test]
    fn long_reasons_that_differ_stay_different() {
        let (a, b) = ("x".repeat(300) + "a", "x".repeat(300) + "b");
        assert_eq!(reason(&a).len(), MAX_REASON_BYTES);
        assert_ne!(reason(&a), reason(&b));
    }

    #[test]
    fn messages_become_one_harmless_line() {
        assert_eq!(message("plain text, 99 % used"), "plain text, 99 % used");
        assert_eq!(message("two\r\nlines\tand a tab\n"), "two lines and a tab");
        assert_eq!(message("\u{1b}[31mred\u{1b}[0m"), "[31mred [0m");
        assert_eq!(message("abc\u{202e}cba"), "abc cba");
        let long = message(&"ü".repeat(2000)).into_owned();
        assert!(long.len() <= MAX_MESSAGE_BYTES && long.ends_with('…') && long.starts_with("üüü"));
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn any_reason_becomes_valid_and_stable(text in any::<String>()) {
            let clean = reason(&text).into_owned();
            prop_assert!(is_reason(&clean), "{clean:?}");
            prop_assert_eq!(reason(&clean), clean.as_str());
        }

        #[test]
        fn near_valid_reasons_become_valid_and_stable(text in "[A-Za-z0-9_,: .-]{0,300}") {
            let clean = reason(&text).into_owned();
            prop_assert!(is_reason(&clean), "{clean:?}");
            prop_assert_eq!(reason(&clean), clean.as_str());
        }

        #[test]
        fn any_message_becomes_valid_and_stable(text in any::<String>(), times in 1_usize..60) {
            let text = text.repeat(times);
            let clean = message(&text).into_owned();
            prop_assert!(clean.len() <= MAX_MESSAGE_BYTES);
            prop_assert!(!clean.chars().any(is_unprintable));
            prop_assert_eq!(message(&clean), clean.as_str());
        }
    }
}
