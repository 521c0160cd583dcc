//! What the commands write into docs/reliability.md.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result, bail};
use serde::Deserialize;

pub(super) const PAGE: &str = "docs/reliability.md";
const BEGIN: &str = "<!-- figures: written by cargo xtask simulate --seeds -->";
const END: &str = "<!-- end of figures -->";

/// What the simulator writes with `--tally`.
#[derive(Debug, Deserialize)]
pub(super) struct Outcome {
    from: u64,
    pub(super) tally: Tally,
}

#[derive(Debug, Deserialize)]
pub(super) struct Tally {
    counts: Counts,
    pub(super) ran: u64,
    /// The violations of histories that were wrong, by their seeds.
    pub(super) failed: BTreeMap<u64, Vec<String>>,
}

#[derive(Debug, Deserialize)]
struct Counts {
    requests: u64,
    answers: u64,
    faults: BTreeMap<String, u64>,
    transitions: u64,
    demanded: u64,
    kills: u64,
}

impl Outcome {
    pub(super) fn read(file: &Path) -> Result<Self> {
        let text = fs::read(file).with_context(|| format!("cannot read {}", file.display()))?;
        serde_json::from_slice(&text).with_context(|| format!("{} makes no sense", file.display()))
    }

    /// Puts the figures into the page.
    pub(super) fn write(&self, root: &Path) -> Result<()> {
        replace(&root.join(PAGE), BEGIN, END, &self.tables())
    }

    fn tables(&self) -> String {
        let Self { from, tally: Tally { counts, ran, failed } } = self;
        let Counts { requests, answers, faults, transitions, demanded, kills } = counts;
        let rows = [
            (
                "histories",
                format!("{}, seeds {from} to {}", grouped(*ran), from.wrapping_add(ran.saturating_sub(1))),
            ),
            ("of them wrong", grouped(failed.len() as u64)),
            ("requests to the API server", grouped(*requests)),
            ("answers of the driver", grouped(*answers)),
            ("appearances and ends of conditions", grouped(*transitions)),
            ("conditions that lasted, so that they had to be reported", grouped(*demanded)),
            ("deaths of a controller", grouped(*kills)),
            ("faults", grouped(faults.values().sum())),
        ];
        let mut text = "| | |\n|---|---|\n".to_owned();
        for (name, value) in rows {
            let _ = writeln!(text, "| {name} | {value} |");
        }
        text.push_str("\n| fault | times |\n|---|---|\n");
        for (kind, count) in faults {
            let _ = writeln!(text, "| {kind} | {} |", grouped(*count));
        }
        text
    }
}

/// With a comma between thousands.
fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// What is between two lines of a page.
pub(super) fn between<'a>(page: &'a str, begin: &str, end: &str) -> Option<&'a str> {
    page.split_once(begin)?.1.split_once(end).map(|(text, _)| text)
}

/// Puts a text between two lines of a page.
pub(super) fn replace(page: &Path, begin: &str, end: &str, text: &str) -> Result<()> {
    let old = fs::read_to_string(page).with_context(|| format!("cannot read {}", page.display()))?;
    let Some(inner) = between(&old, begin, end) else {
        bail!("{} has no lines {begin:?} and {end:?}, between which the figures go", page.display());
    };
    let new = old.replacen(&format!("{begin}{inner}{end}"), &format!("{begin}\n\n{text}\n{end}"), 1);
    fs::write(page, new).with_context(|| format!("cannot write {}", page.display()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workspace::Workspace;

    const TALLY: &str = r#"{"from": 7, "tally": {"ran": 12000, "failed": {"9": ["lost"]}, "took": {"secs": 1, "nanos": 0},
        "counts": {"requests": 1234567, "answers": 999, "transitions": 1000, "demanded": 5, "kills": 0,
                   "faults": {"watches cut": 3, "terminated": 2000}}}}"#;

    #[test]
    fn the_figures_take_the_place_of_the_older_ones_and_of_nothing_else() {
        let dir = tempfile::tempdir().unwrap();
        let (file, page) = (dir.path().join("tally"), dir.path().join(PAGE));
        fs::write(&file, TALLY).unwrap();
        fs::create_dir(page.parent().unwrap()).unwrap();
        fs::write(&page, format!("before\n{BEGIN}\nold\n{END}\nafter\n")).unwrap();
        for _ in 0..2 {
            Outcome::read(&file).unwrap().write(dir.path()).unwrap();
        }
        let text = fs::read_to_string(&page).unwrap();
        let lines = [
            "before",
            BEGIN,
            "",
            "| | |",
            "|---|---|",
            "| histories | 12,000, seeds 7 to 12006 |",
            "| of them wrong | 1 |",
            "| requests to the API server | 1,234,567 |",
            "| answers of the driver | 999 |",
            "| appearances and ends of conditions | 1,000 |",
            "| conditions that lasted, so that they had to be reported | 5 |",
            "| deaths of a controller | 0 |",
            "| faults | 2,003 |",
            "",
            "| fault | times |",
            "|---|---|",
            "| terminated | 2,000 |",
            "| watches cut | 3 |",
            "",
            END,
            "after",
        ];
        assert_eq!(text.lines().collect::<Vec<_>>(), lines);
        fs::write(&page, "no lines").unwrap();
        assert!(Outcome::read(&file).unwrap().write(dir.path()).is_err());
    }

    #[test]
    fn the_page_has_a_place_for_them() {
        let root = Workspace::here().unwrap().root;
        let page = fs::read_to_string(root.join(PAGE)).unwrap();
        assert!(between(&page, BEGIN, END).is_some());
    }
}
