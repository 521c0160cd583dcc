//! Text that came from elsewhere, made harmless, and times as people say them.

use std::borrow::Cow;
use std::fmt;

use jiff::{SignedDuration, Timestamp};
use unicode_width::UnicodeWidthChar;

/// Names are shown as they are, but for characters that could rewrite a terminal or turn the reading direction
/// around: each of those is shown as `\u{…}`, so that two different names are never shown alike.
pub fn plain(text: &str) -> Cow<'_, str> {
    if !text.chars().any(is_treacherous) {
        return Cow::Borrowed(text);
    }
    let mut shown = String::with_capacity(text.len() + 16);
    for c in text.chars() {
        if is_treacherous(c) {
            shown.extend(c.escape_unicode());
        } else {
            shown.push(c);
        }
    }
    Cow::Owned(shown)
}

/// Control characters, separators of lines, marks that reorder text, and what has no width at all.
fn is_treacherous(c: char) -> bool {
    c.is_control()
        || matches!(c,
            '\u{00ad}' | '\u{061c}' | '\u{180e}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e007f}')
}

/// How many columns a text takes on a terminal.
pub fn width(text: &str) -> usize {
    text.chars().map(|c| c.width().unwrap_or(0)).sum()
}

/// The text, or as much of it as fits with an ellipsis.
pub fn fit(text: &str, columns: usize) -> Cow<'_, str> {
    if width(text) <= columns {
        return Cow::Borrowed(text);
    }
    let mut cut = String::new();
    let mut used = 0;
    for c in text.chars() {
        used += c.width().unwrap_or(0);
        if used + 1 > columns {
            break;
        }
        cut.push(c);
    }
    if columns > 0 {
        cut.push('…');
    }
    Cow::Owned(cut)
}

/// In lines of at most this many columns, broken between words. A word that is longer than a line is not broken.
pub fn wrap(text: &str, columns: usize, first: &str, others: &str) -> Vec<String> {
    let mut lines = Vec::new();
    let mut line = first.to_owned();
    let mut empty = true;
    for word in text.split(' ') {
        if !empty && width(&line) + 1 + width(word) > columns {
            lines.push(std::mem::replace(&mut line, others.to_owned()));
            empty = true;
        }
        if !empty {
            line.push(' ');
        }
        line.push_str(word);
        empty = false;
    }
    lines.push(line);
    lines
}

/// A duration in its largest unit: `40 s`, `12 min`, `3 h`, `5 d`.
#[derive(Debug, Clone, Copy)]
pub struct Age(pub SignedDuration);

impl Age {
    pub fn between(since: Timestamp, now: Timestamp) -> Self {
        Self(now.duration_since(since))
    }
}

impl fmt::Display for Age {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seconds = self.0.as_secs().max(0);
        let text = match seconds {
            0..120 => format!("{seconds} s"),
            120..7_200 => format!("{} min", seconds / 60),
            7_200..172_800 => format!("{} h", seconds / 3_600),
            _ => format!("{} d", seconds / 86_400),
        };
        f.pad(&text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_could_deceive_is_spelt_out_and_the_rest_is_kept() {
        assert_eq!(plain("pvc-12_ä.磁盘 😀"), "pvc-12_ä.磁盘 😀");
        assert_eq!(plain("a\u{1b}[2Jb\nc"), "a\\u{1b}[2Jb\\u{a}c");
        assert_eq!(plain("abc\u{202e}cba"), "abc\\u{202e}cba");
        assert_eq!(plain("x\u{200b}y\u{2066}"), "x\\u{200b}y\\u{2066}");
        // Written from right to left, but honestly so.
        assert_eq!(plain("כרך"), "כרך");
    }

    #[test]
    fn text_is_cut_by_columns_not_by_bytes() {
        assert_eq!(fit("volume", 6), "volume");
        assert_eq!(fit("volumes", 6), "volum…");
        assert_eq!(fit("磁盘磁盘", 5), "磁盘…");
        assert_eq!(width(&fit("磁盘磁盘", 4)), 3);
        assert_eq!(fit("abc", 0), "");
    }

    #[test]
    fn sentences_are_broken_between_words() {
        assert_eq!(wrap("one two three", 9, "> ", "  "), ["> one two", "  three"]);
        assert_eq!(wrap("see http://127.0.0.1:8090/", 9, "", ""), ["see", "http://127.0.0.1:8090/"]);
        assert_eq!(wrap("", 9, "> ", "  "), ["> "]);
    }

    #[test]
    fn ages_in_their_largest_unit() {
        let check = |seconds, expected: &str| {
            assert_eq!(Age(SignedDuration::from_secs(seconds)).to_string(), expected);
        };
        check(-3, "0 s");
        check(119, "119 s");
        check(120, "2 min");
        check(7_300, "2 h");
        check(172_800, "2 d");
    }
}
