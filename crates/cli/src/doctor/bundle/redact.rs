//! Replaces names in texts and in objects.

use std::cmp::Reverse;
use std::net::{IpAddr, SocketAddr};

use aho_corasick::AhoCorasick;
use anyhow::Context;
use serde_json::Value;

use super::super::findings::Report;
use super::names::Names;

/// What stands for an address that is not of a known object.
const ADDRESS: &str = "address-x";
const LEFT_OUT: &str = "(left out)";
/// Fields that have words of the API, of Volmedic or of its log, and no names.
const WORDS: [&str; 6] = ["apiVersion", "area", "kind", "level", "target", "type"];
/// Fields with text, in which any name may be.
const TEXTS: [&str; 6] = ["annotations", "args", "command", "evidence", "message", "why"];

/// Replaces all names in one pass.
pub(super) struct Replacer {
    finder: AhoCorasick,
    replacements: Vec<String>,
    /// Whether every name is known, so that text may be kept.
    keeps_text: bool,
}

impl Replacer {
    pub(super) fn new(names: Names) -> anyhow::Result<Self> {
        let keeps_text = names.unknown().is_empty();
        let (names, replacements): (Vec<String>, Vec<String>) = names.replaced.into_iter().unzip();
        let finder = AhoCorasick::new(&names).context("the names cannot be replaced")?;
        Ok(Self { finder, replacements, keeps_text })
    }

    /// Replaces every name in a text. A name counts as one only where no letter or digit is next to it. One of a single letter
    /// must be the whole text: it says nothing, and it may be an option in a command.
    pub(super) fn apply(&self, text: &str) -> String {
        let found = self.finder.find_overlapping_iter(text);
        let found = found.filter(|one| one.len() > 1 || one.len() == text.len());
        let found = found.filter(|one| is_alone(text.as_bytes(), one.start(), one.end()));
        let mut found: Vec<_> = found.collect();
        // Of two names that begin at one place, the longer.
        found.sort_by_key(|one| (one.start(), Reverse(one.end())));
        let (mut replaced, mut done) = (String::with_capacity(text.len()), 0);
        for one in found {
            if one.end() <= done {
                continue;
            }
            if one.start() < done {
                // The rest of a name that begins within another.
                replaced.push('-');
            } else {
                replaced.push_str(&text[done..one.start()]);
            }
            replaced.push_str(&self.replacements[one.pattern().as_usize()]);
            done = one.end();
        }
        replaced.push_str(&text[done..]);
        without_addresses(&replaced)
    }

    /// Replaces names in all values of an object; its keys are words of the API.
    pub(super) fn apply_to(&self, value: &mut Value) {
        match value {
            Value::String(text) => *text = self.apply(text),
            Value::Array(all) => all.iter_mut().for_each(|one| self.apply_to(one)),
            Value::Object(fields) => {
                for (name, field) in fields.iter_mut() {
                    if !(WORDS.contains(&name.as_str()) && field.is_string()) {
                        self.apply_to(field);
                    }
                }
            }
            _ => {}
        }
    }

    /// As [`Self::apply_to`]; leaves out texts if names are missing.
    pub(super) fn object(&self, object: &mut Value) {
        if !self.keeps_text {
            leave_out_texts(object);
        }
        self.apply_to(object);
    }

    /// A log, whose lines may be JSON. Nothing of it if names are missing.
    pub(super) fn log(&self, text: &str) -> Option<String> {
        let line = |line: &str| match serde_json::from_str::<Value>(line) {
            Ok(mut value) if value.is_object() => {
                self.apply_to(&mut value);
                value.to_string()
            }
            _ => self.apply(line),
        };
        self.keeps_text.then(|| text.lines().flat_map(|one| [line(one), "\n".to_owned()]).collect())
    }

    /// The findings, without the cluster's name.
    pub(super) fn report(&self, report: &Report) -> Report {
        let mut report = report.clone();
        "(name replaced)".clone_into(&mut report.cluster);
        let text = |text: &str| if self.keeps_text { self.apply(text) } else { LEFT_OUT.to_owned() };
        for finding in &mut report.findings {
            finding.what = text(&finding.what);
            finding.fix = finding.fix.as_deref().map(text);
        }
        report
    }
}

/// Whether neither end of a name is within a word.
fn is_alone(text: &[u8], start: usize, end: usize) -> bool {
    let is_word = |at: Option<usize>| at.and_then(|at| text.get(at)).is_some_and(u8::is_ascii_alphanumeric);
    let begins = is_word(start.checked_sub(1)) && is_word(Some(start));
    let ends = is_word(end.checked_sub(1)) && is_word(Some(end));
    !begins && !ends
}

fn leave_out_texts(value: &mut Value) {
    match value {
        Value::Array(all) => all.iter_mut().for_each(leave_out_texts),
        Value::Object(fields) => {
            for (name, field) in fields.iter_mut() {
                if TEXTS.contains(&name.as_str()) {
                    leave_out(field);
                } else {
                    leave_out_texts(field);
                }
            }
        }
        _ => {}
    }
}

fn leave_out(value: &mut Value) {
    match value {
        Value::String(text) => LEFT_OUT.clone_into(text),
        Value::Array(all) => all.iter_mut().for_each(leave_out),
        Value::Object(fields) => fields.values_mut().for_each(leave_out),
        _ => {}
    }
}

/// Replaces IP addresses, with or without a port, but not those that every machine has.
fn without_addresses(text: &str) -> String {
    let mut replaced = String::with_capacity(text.len());
    let mut rest = text;
    let is_part = |c: char| c.is_ascii_alphanumeric() || ".:%-".contains(c);
    while let Some(at) = rest.find(is_part) {
        let (before, after) = rest.split_at(at);
        let end = after.find(|c| !is_part(c)).unwrap_or(after.len());
        let (word, behind) = after.split_at(end);
        let bare = word.trim_end_matches(['.', ':', '-']);
        replaced.push_str(before);
        match [bare, word].into_iter().find(|word| is_address(word)) {
            Some(address) => {
                replaced.push_str(ADDRESS);
                replaced.push_str(&word[address.len()..]);
            }
            None => replaced.push_str(word),
        }
        rest = behind;
    }
    replaced.push_str(rest);
    replaced
}

fn is_address(word: &str) -> bool {
    let word = word.split('%').next().unwrap_or_default();
    let ip = word.parse::<IpAddr>().ok();
    let ip = ip.or_else(|| word.parse::<SocketAddr>().ok().map(|address| address.ip()));
    ip.is_some_and(|ip| !ip.is_loopback() && !ip.is_unspecified())
}

#[cfg(test)]
mod tests;
