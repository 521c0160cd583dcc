//! What is offered while a command line is typed, in kubectl's protocol for plugins: one offer a line, and at the end a
//! colon with a number for the shell. It is quick or it offers less: a shell waits for it.

mod cluster;

use std::collections::BTreeMap;
use std::fmt::Write as _;

use clap::{Arg, Command};

/// Offers of one answer. A shell shows no more in any useful way.
const MOST: usize = 500;
/// Words of a command line that are read.
const LONGEST: usize = 256;
/// What the shell does besides: offer files, or not.
const FILES: &str = ":0\n";
const NO_FILES: &str = ":4\n";

/// The words behind the name of the program, of which the last is being typed and may be empty.
pub fn answer(root: &mut Command, words: &[String]) -> String {
    root.build();
    let Some((last, before)) = words.split_last().filter(|_| words.len() <= LONGEST) else {
        return NO_FILES.to_owned();
    };
    let line = Line::read(root, before);
    let (offers, files) = line.offers(last);
    let mut out = String::new();
    for Offer { word, about } in offers.into_iter().take(MOST) {
        // Writing to a string cannot fail.
        let _ = if about.is_empty() { writeln!(out, "{word}") } else { writeln!(out, "{word}\t{about}") };
    }
    out + if files { FILES } else { NO_FILES }
}

struct Offer {
    word: String,
    about: String,
}

impl Offer {
    fn plain(word: String) -> Self {
        Self { word, about: String::new() }
    }
}

/// What was typed before the last word.
struct Line<'a> {
    command: &'a Command,
    /// Values of flags, by the flag's long name.
    given: BTreeMap<String, String>,
    /// The flag whose value comes next.
    open: Option<&'a Arg>,
    positionals: usize,
}

impl<'a> Line<'a> {
    fn read(root: &'a Command, words: &[String]) -> Self {
        let mut line = Self { command: root, given: BTreeMap::new(), open: None, positionals: 0 };
        for word in words {
            if let Some(flag) = line.open.take() {
                line.give(flag, word);
            } else if let Some(long) = word.strip_prefix("--") {
                let (name, value) =
                    long.split_once('=').map_or((long, None), |(name, value)| (name, Some(value)));
                line.flag(|arg| arg.get_long() == Some(name), value);
            } else if let Some(short) = word.strip_prefix('-').filter(|short| !short.is_empty()) {
                let first = short.chars().next();
                let rest = &short[first.map_or(0, char::len_utf8)..];
                line.flag(|arg| arg.get_short() == first, (!rest.is_empty()).then_some(rest));
            } else if let Some(command) = line.command.find_subcommand(word).filter(|_| line.positionals == 0)
            {
                line.command = command;
            } else {
                line.positionals += 1;
            }
        }
        line
    }

    fn flag(&mut self, is_it: impl Fn(&Arg) -> bool, value: Option<&str>) {
        let flag = self.command.get_arguments().find(|arg| is_it(arg));
        let Some(flag) = flag.filter(|flag| flag.get_action().takes_values()) else { return };
        match value {
            Some(value) => self.give(flag, value),
            None => self.open = Some(flag),
        }
    }

    fn give(&mut self, flag: &Arg, value: &str) {
        if let Some(name) = flag.get_long() {
            self.given.insert(name.to_owned(), value.to_owned());
        }
    }

    /// With whether the shell should offer files as well.
    fn offers(&self, last: &str) -> (Vec<Offer>, bool) {
        if let Some(flag) = self.open {
            return self.values(flag, "", last);
        }
        if let Some((name, value)) = last.strip_prefix("--").and_then(|long| long.split_once('=')) {
            let flag = self.command.get_arguments().find(|arg| arg.get_long() == Some(name));
            let before = format!("--{name}=");
            return flag.map_or_else(|| (Vec::new(), false), |flag| self.values(flag, &before, value));
        }
        if last.starts_with('-') {
            return (self.flags(last), false);
        }
        if self.positionals == 0 && self.command.has_subcommands() {
            let all = self.command.get_subcommands().filter(|one| !one.is_hide_set());
            let all = all.filter(|one| one.get_name().starts_with(last));
            let offer = |one: &Command| Offer {
                word: one.get_name().to_owned(),
                about: one
                    .get_about()
                    .map(ToString::to_string)
                    .as_deref()
                    .map_or_else(String::new, first_line),
            };
            return (all.map(offer).collect(), false);
        }
        let positionals: Vec<&Arg> = self.command.get_positionals().collect();
        match positionals.get(self.positionals).or(positionals.last()) {
            Some(arg) if self.positionals < positionals.len() => self.values(arg, "", last),
            _ => (Vec::new(), false),
        }
    }

    fn flags(&self, last: &str) -> Vec<Offer> {
        let all = self.command.get_arguments().filter(|arg| !arg.is_hide_set());
        let offer = |arg: &Arg| {
            let word = format!("--{}", arg.get_long()?);
            let about =
                arg.get_help().map(ToString::to_string).as_deref().map_or_else(String::new, first_line);
            word.starts_with(last).then_some(Offer { word, about })
        };
        all.filter_map(offer).collect()
    }

    /// `before` is what the word has in front of the value.
    fn values(&self, arg: &Arg, before: &str, typed: &str) -> (Vec<Offer>, bool) {
        let known = arg.get_possible_values();
        if !known.is_empty() {
            let offers = known.iter().filter(|value| !value.is_hide_set()).filter_map(|value| {
                let about = value.get_help().map(ToString::to_string);
                let about = about.as_deref().map_or_else(String::new, first_line);
                let word = format!("{before}{}", value.get_name());
                value.get_name().starts_with(typed).then_some(Offer { word, about })
            });
            return (offers.collect(), false);
        }
        let files = arg.get_value_names().unwrap_or_default().iter();
        if files.into_iter().any(|name| matches!(name.as_str(), "FILE" | "DIRECTORY" | "FOLDER" | "PATH")) {
            return (Vec::new(), true);
        }
        // Only the commands that talk to a cluster as a person does.
        let talks = self.command.get_arguments().any(|arg| arg.get_long() == Some("context"));
        let kind = arg.get_long().unwrap_or(arg.get_id().as_str());
        let words = if talks { cluster::words(kind, typed, &self.given) } else { Vec::new() };
        let fits = |word: &String| word.starts_with(typed) && is_safe(word);
        let mut words: Vec<String> = words.into_iter().filter(fits).collect();
        words.sort_unstable();
        words.dedup();
        (words.into_iter().map(|word| Offer::plain(format!("{before}{word}"))).collect(), false)
    }
}

/// Shells put an offer into the line as it is. Names of contexts are free text, and others come from a cluster: what could
/// mean something to a shell or end a line of this protocol is not offered.
fn is_safe(word: &str) -> bool {
    let plain = |letter: char| letter.is_ascii_alphanumeric() || "-._:/@+=%,".contains(letter);
    !word.is_empty() && word.len() <= 512 && !word.starts_with('-') && word.chars().all(plain)
}

/// Descriptions are ours, but a line is a line.
fn first_line(text: &str) -> String {
    text.lines().next().unwrap_or_default().replace('\t', " ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn root() -> Command {
        let output = Arg::new("output").short('o').long("output").value_parser(["table", "json"]);
        let file = Arg::new("file").long("file").value_name("FILE").help("A file.\nMore of it");
        let hidden = Arg::new("secret").long("secret").hide(true);
        let one = Command::new("status").about("Show it").arg(output).arg(file).arg(hidden);
        Command::new("volmedic").subcommand(one).subcommand(Command::new("internal").hide(true))
    }

    #[track_caller]
    fn check(words: &[&str], expected: &str) {
        let words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
        assert_eq!(answer(&mut root(), &words), expected, "{words:?}");
    }

    #[test]
    fn commands_flags_and_values() {
        check(&["st"], "status\tShow it\n:4\n");
        check(&["status", "--f"], "--file\tA file.\n:4\n");
        check(&["status", "--s"], ":4\n");
        check(&["status", "-o", ""], "table\njson\n:4\n");
        check(&["status", "--output", "j"], "json\n:4\n");
        check(&["status", "--output=j"], "--output=json\n:4\n");
        check(&["status", "-ojson", "--file", "x"], ":0\n");
        check(&["status", "x", "y"], ":4\n");
        check(&["in"], ":4\n");
        check(&["unknown", "x"], ":4\n");
        check(&[], ":4\n");
        check(&vec!["x"; 1000], ":4\n");
        check(&["status", "--", "-", "--=", "-ä", ""], ":4\n");
    }

    #[test]
    fn nothing_that_a_shell_would_run_or_break_on() {
        for word in ["prod", "arn:aws:eks:eu-1:1/c", "me@cluster", "a_b.c-d"] {
            assert!(is_safe(word), "{word}");
        }
        for word in [
            "",
            "-n",
            "a b",
            "$(reboot)",
            "`x`",
            "a;b",
            "a\nb",
            "a\tb",
            "a|b",
            "a>b",
            "~",
            "*",
            "ä",
            "\u{202e}x",
            "a'b",
            "a\"b",
            "a\\b",
        ] {
            assert!(!is_safe(word), "{word:?}");
        }
    }
}
