//! Secrets on their way to a driver, and the guarantee that its answers do not bring them back out.

use std::borrow::Cow;
use std::collections::HashMap;
use std::fmt;
use std::sync::LazyLock;

const STAND_IN: &str = "[secret]";
/// A shorter value is replaced only where it stands as a word: "on" must not eat half of "connection".
const SHORT: usize = 4;
/// Lines of a longer value, such as a key in PEM, are secrets of their own from this length on.
const LINE: usize = 8;

/// What a Kubernetes Secret holds for a driver. Printing it prints nothing of it.
#[derive(Clone, Default)]
pub struct Secrets {
    values: HashMap<String, String>,
    /// What must not appear in any text, longest first, so that no value hides a part of a longer one.
    needles: Vec<String>,
}

impl Secrets {
    pub fn new(values: HashMap<String, String>) -> Self {
        let mut needles = Vec::new();
        for value in values.values() {
            let lines = value.lines().map(str::trim).filter(|line| line.len() >= LINE);
            needles
                .extend(lines.chain([value.trim()]).filter(|needle| !needle.is_empty()).map(str::to_owned));
        }
        needles.sort_by(|a, b| b.len().cmp(&a.len()).then_with(|| a.cmp(b)));
        needles.dedup();
        Self { values, needles }
    }

    /// For calls that take none.
    pub fn none() -> &'static Self {
        static NONE: LazyLock<Secrets> = LazyLock::new(Secrets::default);
        &NONE
    }

    pub fn is_empty(&self) -> bool {
        self.values.is_empty()
    }

    /// For the request, and for nothing else.
    pub(crate) fn for_wire(&self) -> HashMap<String, String> {
        self.values.clone()
    }

    /// The length of the longest text this hides.
    pub(crate) fn longest(&self) -> usize {
        self.needles.first().map_or(0, String::len)
    }

    /// The text with every secret in it replaced.
    pub(crate) fn hide<'a>(&self, text: &'a str) -> Cow<'a, str> {
        let mut text = Cow::Borrowed(text);
        for needle in &self.needles {
            if text.contains(needle.as_str()) {
                text = Cow::Owned(replace(&text, needle));
            }
        }
        text
    }
}

impl fmt::Debug for Secrets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("[redacted]")
    }
}

fn replace(text: &str, needle: &str) -> String {
    if needle.len() >= SHORT {
        return text.replace(needle, STAND_IN);
    }
    let mut replaced = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find(needle) {
        let (before, after) = (&rest[..at], &rest[at + needle.len()..]);
        let is_word = !replaced.chars().chain(before.chars()).next_back().is_some_and(char::is_alphanumeric)
            && !after.chars().next().is_some_and(char::is_alphanumeric);
        replaced.push_str(before);
        replaced.push_str(if is_word { STAND_IN } else { needle });
        rest = after;
    }
    replaced.push_str(rest);
    replaced
}

#[cfg(test)]
mod tests {
    use super::*;

    fn secrets(values: &[&str]) -> Secrets {
        Secrets::new(values.iter().enumerate().map(|(i, v)| (format!("key{i}"), (*v).to_owned())).collect())
    }

    #[test]
    fn an_echo_is_hidden() {
        let some = secrets(&["hunter2", "hunter2-and-more", ""]);
        assert_eq!(some.hide("login hunter2 failed"), "login [secret] failed");
        assert_eq!(some.hide("login hunter2-and-more failed"), "login [secret] failed");
        assert_eq!(some.hide("nothing here"), "nothing here");
    }

    #[test]
    fn a_short_value_is_hidden_as_a_word_only() {
        let some = secrets(&["on"]);
        assert_eq!(some.hide("connection on"), "connection [secret]");
        assert_eq!(some.hide("on: on, one, on"), "[secret]: [secret], one, [secret]");
        assert_eq!(some.hide("onon"), "onon");
    }

    #[test]
    fn one_line_of_a_key_is_hidden() {
        let some = secrets(&["-----BEGIN KEY-----\nMIIEvQIBADANBg\nxyz\n-----END KEY-----\n"]);
        assert_eq!(some.hide("cannot parse MIIEvQIBADANBg"), "cannot parse [secret]");
    }

    #[test]
    fn printing_says_nothing() {
        assert_eq!(format!("{:?}", secrets(&["hunter2"])), "[redacted]");
    }
}
