//! A short summary of how two texts differ: enough to see what happened, no more.

use std::fmt::Write;

/// Maximum number of lines shown of each side.
const SHOWN: usize = 8;

/// The lines between the common beginning and the common end, old ones with `-`, new ones with `+`.
pub(super) fn show(old: &str, new: &str) -> String {
    let (old, new): (Vec<&str>, Vec<&str>) = (old.lines().collect(), new.lines().collect());
    let start = old.iter().zip(&new).take_while(|(a, b)| a == b).count();
    let (old, new) = (&old[start..], &new[start..]);
    let end = old.iter().rev().zip(new.iter().rev()).take_while(|(a, b)| a == b).count();
    let mut text = format!("  from line {}:", start + 1);
    for (mark, lines) in [('-', &old[..old.len() - end]), ('+', &new[..new.len() - end])] {
        for line in lines.iter().take(SHOWN) {
            // Writing to a string cannot fail.
            let _ = write!(text, "\n  {mark} {line}");
        }
        if lines.len() > SHOWN {
            let _ = write!(text, "\n  {mark} … {} more lines", lines.len() - SHOWN);
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::show;

    #[test]
    fn only_what_differs_is_shown() {
        assert_eq!(show("a\nb\nc\nd", "a\nB\nc\nd"), "  from line 2:\n  - b\n  + B");
        assert_eq!(show("a\nc", "a\nb\nc"), "  from line 2:\n  + b");
        assert_eq!(show("a\na", "a"), "  from line 2:\n  - a");
        assert_eq!(show("", "a"), "  from line 1:\n  + a");
    }

    #[test]
    fn a_long_difference_is_cut() {
        let shown = show("", &"x\n".repeat(30));
        assert_eq!(shown.lines().count(), 1 + 8 + 1);
        assert!(shown.ends_with("+ … 22 more lines"), "{shown}");
    }
}
