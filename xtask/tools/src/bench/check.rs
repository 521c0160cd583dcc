//! `cargo xtask bench --check`: what tests count exactly, against ceilings that are committed.
//!
//! Times depend on the machine and are not compared. The tests print `counted NAME NUMBER`; of several numbers with one
//! name the largest counts.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs::{self, File};
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, bail};

use super::step_with;
use crate::say;
use crate::workspace::Workspace;

const CEILINGS: &str = "bench/ceilings.json";
/// The test programs that count.
const TESTS: [&str; 3] = ["footprint", "footprint_names", "footprint_node"];
const PACKAGES: [&str; 2] = ["volmedic-hub", "volmedic-inventory"];
/// Most of it is compiling.
const LIMIT: Duration = Duration::from_mins(30);

pub(super) fn run(workspace: &Workspace) -> Result<()> {
    let output = workspace.target.join("bench-check.txt");
    let file = File::create(&output).with_context(|| format!("cannot write {}", output.display()))?;
    let mut arguments = vec!["test".to_owned()];
    arguments.extend(PACKAGES.map(|package| format!("--package={package}")));
    arguments.extend(TESTS.map(|test| format!("--test={test}")));
    arguments.extend(["--", "--nocapture"].map(str::to_owned));
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let ran = step_with(workspace, &arguments, LIMIT, |command| {
        command.stdout(file);
    });
    let text = read(&output)?;
    ran.with_context(|| format!("the tests that count failed:\n{text}"))?;
    let ceilings = workspace.root.join(CEILINGS);
    let ceilings = serde_json::from_str(&read(&ceilings)?)
        .with_context(|| format!("{CEILINGS} is no object of names and numbers"))?;
    let (report, wrong) = compare(&counted(&text)?, &ceilings);
    say::line(report.trim_end());
    if !wrong.is_empty() {
        bail!("{}", wrong.join("; "));
    }
    Ok(())
}

fn read(path: &Path) -> Result<String> {
    fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))
}

/// The largest number of each name. Several tests write to one file, so a line may begin with another one's text.
fn counted(text: &str) -> Result<BTreeMap<String, u64>> {
    let mut counted = BTreeMap::new();
    for line in text.lines() {
        let Some((_, rest)) = line.split_once("counted ") else { continue };
        let (name, number) = rest.split_once(' ').with_context(|| format!("what is counted here? {line}"))?;
        let number: u64 =
            number.trim().parse().with_context(|| format!("how many are counted here? {line}"))?;
        let largest = counted.entry(name.to_owned()).or_insert(number);
        *largest = number.max(*largest);
    }
    Ok(counted)
}

/// A line for each name, and what is wrong.
fn compare(counted: &BTreeMap<String, u64>, ceilings: &BTreeMap<String, u64>) -> (String, Vec<String>) {
    let mut report = String::new();
    let mut wrong = Vec::new();
    for (name, number) in counted {
        match ceilings.get(name) {
            Some(ceiling) => {
                let _ = writeln!(report, "{name}: {number}, at most {ceiling}");
                if number > ceiling {
                    wrong.push(format!(
                        "{name} is {number}, which is above its ceiling of {ceiling}; make it smaller, or raise the \
                         ceiling in {CEILINGS} and say why in the commit"
                    ));
                }
            }
            None => wrong.push(format!("{name} has no ceiling; add {number} to {CEILINGS}")),
        }
    }
    let missing = ceilings.keys().filter(|name| !counted.contains_key(*name));
    wrong.extend(missing.map(|name| format!("no test counts {name} any more; remove it from {CEILINGS}")));
    (report, wrong)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(all: &[(&str, u64)]) -> BTreeMap<String, u64> {
        all.iter().map(|(name, number)| ((*name).to_owned(), *number)).collect()
    }

    #[test]
    fn the_largest_of_each_name_counts() {
        let text = "running 1 test\ntest a ... counted a.bytes 7\ncounted a.bytes 9\ncounted b.bytes 1\nok\n";
        assert_eq!(counted(text).unwrap(), of(&[("a.bytes", 9), ("b.bytes", 1)]));
        assert!(counted("counted a.bytes many").is_err());
    }

    #[test]
    fn more_than_the_ceiling_and_what_one_side_lacks_are_wrong() {
        let (report, wrong) = compare(&of(&[("a", 9), ("b", 1)]), &of(&[("a", 9), ("b", 1)]));
        assert_eq!((&*report, wrong.len()), ("a: 9, at most 9\nb: 1, at most 1\n", 0));
        let (_, wrong) = compare(&of(&[("a", 10), ("b", 1)]), &of(&[("a", 9), ("c", 1)]));
        let begins: Vec<bool> =
            ["a is 10, which is above", "b has no ceiling; add 1", "no test counts c any more"]
                .iter()
                .zip(&wrong)
                .map(|(begin, wrong)| wrong.starts_with(begin))
                .collect();
        assert_eq!(begins, [true; 3], "{wrong:?}");
    }

    #[test]
    fn the_committed_ceilings_can_be_read() {
        let workspace = Workspace::here().unwrap();
        let text = read(&workspace.root.join(CEILINGS)).unwrap();
        let ceilings: BTreeMap<String, u64> = serde_json::from_str(&text).unwrap();
        assert!(!ceilings.is_empty());
    }
}
