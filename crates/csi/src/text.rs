//! Text that a driver sent: bounded, readable, harmless on a terminal.

use std::borrow::Cow;
use std::fmt::Write as _;

/// Enough for any sentence a person will read in an error.
const MAX_QUOTE: usize = 1024;

/// Reads at most `max` bytes of text. Bytes that are no UTF-8 become replacement characters.
pub(crate) fn read(bytes: &[u8], max: usize) -> Text {
    // A few bytes more than wanted, so that a character split by the slice lies behind the cut.
    let head = bytes.get(..max.saturating_add(4)).unwrap_or(bytes);
    let not_utf8 = std::str::from_utf8(head).is_err_and(|error| error.valid_up_to() < max.min(bytes.len()));
    let mut text = String::from_utf8_lossy(head).into_owned();
    // Replacement characters make the text longer than its bytes, so the cut is judged on the text.
    let cut = bytes.len() > max || text.len() > max;
    text.truncate(text.floor_char_boundary(max));
    text.shrink_to_fit();
    Text { clean: text, cut, not_utf8 }
}

/// What [`read`] made of some bytes.
#[derive(Debug)]
pub(crate) struct Text {
    pub(crate) clean: String,
    pub(crate) cut: bool,
    pub(crate) not_utf8: bool,
}

/// For use in an error: cut to a length a person reads, on one line, with nothing that steers a terminal.
pub(crate) fn quote(text: &str) -> String {
    let head = &text[..text.floor_char_boundary(MAX_QUOTE)];
    let mut quoted = String::with_capacity(head.len());
    for char in head.chars() {
        if char.is_control() || is_unseen(char) {
            quoted.extend(char.escape_default());
        } else {
            quoted.push(char);
        }
    }
    if head.len() < text.len() {
        let _ = write!(quoted, "… ({} bytes more)", text.len() - head.len());
    }
    quoted
}

/// Characters that are no control characters but reorder, break or hide text: bidirectional overrides, line and
/// paragraph separators, zero-width marks.
fn is_unseen(char: char) -> bool {
    matches!(char, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{2069}' | '\u{feff}')
}

/// All of the text if it is short, else its head with a mark.
pub(crate) fn shorten(text: &str, max: usize) -> Cow<'_, str> {
    if text.len() <= max {
        return Cow::Borrowed(text);
    }
    Cow::Owned(format!("{}…", &text[..text.floor_char_boundary(max)]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bounded_at_a_character() {
        let Text { clean, cut, not_utf8 } = read("aé".as_bytes(), 2);
        assert_eq!((clean.as_str(), cut, not_utf8), ("a", true, false));
        let Text { clean, cut, not_utf8 } = read("aé".as_bytes(), 3);
        assert_eq!((clean.as_str(), cut, not_utf8), ("aé", false, false));
        let Text { clean, cut, not_utf8 } = read("é".repeat(1000).as_bytes(), 4);
        assert_eq!((clean.as_str(), cut, not_utf8), ("éé", true, false));
    }

    #[test]
    fn bad_bytes_are_replaced_and_reported() {
        let Text { clean, cut, not_utf8 } = read(b"disk \xff gone", 100);
        assert_eq!((clean.as_str(), cut, not_utf8), ("disk \u{fffd} gone", false, true));
        let Text { clean, cut, not_utf8 } = read(b"\xff\xff\xff\xff", 4);
        assert_eq!((clean.as_str(), cut, not_utf8), ("\u{fffd}", true, true));
        // A character cut by the end of the text itself is wrong, too.
        assert!(read(b"a\xc3", 100).not_utf8);
    }

    #[test]
    fn quotes_are_one_harmless_line() {
        assert_eq!(quote("a\nb\u{1b}[31m\u{202e}c"), "a\\nb\\u{1b}[31m\\u{202e}c");
        let long = quote(&"é".repeat(1000));
        assert!(long.ends_with("… (976 bytes more)"), "{long}");
        assert!(long.len() < 1100);
    }

    proptest::proptest! {
        #[test]
        fn any_bytes_stay_within_the_bound(bytes: Vec<u8>, max in 0_usize..64) {
            let read = read(&bytes, max);
            assert!(read.clean.len() <= max);
            if let Ok(valid) = std::str::from_utf8(&bytes) {
                assert!(!read.not_utf8);
                assert!(valid.starts_with(&read.clean));
                assert_eq!(read.cut, valid.len() > max);
            }
        }
    }
}
