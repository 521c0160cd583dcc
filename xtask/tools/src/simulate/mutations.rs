//! The product with one defect each, made on purpose, in a copy of the checkout. A simulator that does not find them could not
//! find others either.

mod list;

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use super::page::{self, Outcome, PAGE};
use crate::workspace::Workspace;
use crate::{child, say};
use list::{MUTATIONS, Mutation};

/// The table between these lines of the page is written by this command.
const BEGIN: &str = "<!-- mutations: written by cargo xtask simulate --mutations -->";
const END: &str = "<!-- end of mutations -->";
/// For all histories of one mutation.
const RUN: Duration = Duration::from_hours(2);

/// What came of one mutation.
#[derive(Debug)]
enum Found {
    /// By this seed, with its first violation.
    By(u64, String),
    /// Not within this number of histories, which all ran to their end.
    Not(u64),
    /// It was not tried, or not to the end, and why: that says nothing about the simulator.
    Unknown(String),
}

impl Found {
    /// The second and the third column of the table.
    fn cells(&self) -> (String, String) {
        match self {
            Self::By(seed, why) => (seed.to_string(), why.trim().to_owned()),
            Self::Not(seeds) => (format!("not found in {seeds} histories"), String::new()),
            Self::Unknown(why) => {
                ("not tried".to_owned(), why.lines().next().unwrap_or_default().replace('|', "/"))
            }
        }
    }
}

pub(super) fn run(workspace: &Workspace, from: u64, seeds: u64, only: &str) -> Result<()> {
    let chosen: Vec<&Mutation> = MUTATIONS.iter().filter(|mutation| mutation.name.contains(only)).collect();
    if chosen.is_empty() {
        bail!("no mutation has {only:?} in its name; the list is xtask/tools/src/simulate/mutations/list.rs");
    }
    let copy = workspace.target.join("simulate/checkout");
    copy_checkout(&workspace.root, &copy)?;
    let page = workspace.root.join(PAGE);
    let (mut missed, mut unknown) = (Vec::new(), Vec::new());
    for mutation in chosen {
        let began = Instant::now();
        let found = try_one(workspace, &copy, mutation, from, seeds)?;
        let (seed, why) = found.cells();
        say::line(format_args!("{}: {seed} {why} ({} s)", mutation.name, began.elapsed().as_secs()));
        // Each as soon as it is known: a run takes hours, and may not come to its end.
        write(&page, mutation.name, &found)?;
        match found {
            Found::By(..) => {}
            Found::Not(_) => missed.push(mutation.name),
            Found::Unknown(_) => unknown.push(mutation.name),
        }
    }
    let sentence = |what: &str, names: &[&str]| {
        if names.is_empty() { String::new() } else { format!("{what}: {}. ", names.join(", ")) }
    };
    let wrong = sentence("not found", &missed) + &sentence("not tried", &unknown);
    if wrong.is_empty() { Ok(()) } else { bail!("{}", wrong.trim_end()) }
}

/// What git knows of, as it is now. Files that are the same are left alone, so that only what changed is compiled.
fn copy_checkout(root: &Path, copy: &Path) -> Result<()> {
    let mut git = Command::new("git");
    git.args(["ls-files", "-z", "--cached", "--others", "--exclude-standard"]).current_dir(root);
    let output = git.output().context("git did not start; is it installed?")?;
    let names =
        String::from_utf8(output.stdout).context("a file of the checkout has a name that is not text")?;
    for name in names.split('\0').filter(|name| !name.is_empty()) {
        let Ok(content) = fs::read(root.join(name)) else { continue };
        put(&copy.join(name), &content)?;
    }
    Ok(())
}

fn put(path: &Path, content: &[u8]) -> Result<()> {
    if fs::read(path).is_ok_and(|old| old == content) {
        return Ok(());
    }
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder).with_context(|| format!("cannot create {}", folder.display()))?;
    }
    fs::write(path, content).with_context(|| format!("cannot write {}", path.display()))
}

/// An error is about the machine. What is wrong with the mutation alone does not keep the others from being tried.
fn try_one(workspace: &Workspace, copy: &Path, mutation: &Mutation, from: u64, seeds: u64) -> Result<Found> {
    let Mutation { name: _, file, right, wrong } = mutation;
    let original =
        fs::read_to_string(workspace.root.join(file)).with_context(|| format!("cannot read {file}"))?;
    if original.matches(right).count() != 1 {
        return Ok(Found::Unknown(format!("it does not fit {file} any more; correct the list")));
    }
    let path = copy.join(file);
    put(&path, original.replace(right, wrong).as_bytes())?;
    let built = super::build(copy, &workspace.target);
    let found = match built {
        Ok(()) => search(workspace, from, seeds),
        Err(error) => Ok(Found::Unknown(format!("{error:#}"))),
    };
    put(&path, original.as_bytes())?;
    found
}

fn search(workspace: &Workspace, from: u64, seeds: u64) -> Result<Found> {
    let folder = workspace.target.join("simulate");
    let (program, tally) = (folder.join("mutant"), folder.join("mutant.tally"));
    // Another build may take the program's place meanwhile.
    fs::copy(workspace.target.join("debug/volmedic-sim"), &program).context("the simulator was not built")?;
    // What is there afterwards was written by this run.
    if let Err(error) = fs::remove_file(&tally)
        && error.kind() != std::io::ErrorKind::NotFound
    {
        return Err(error).with_context(|| format!("cannot remove {}", tally.display()));
    }
    let mut command = Command::new(&program);
    command.args(["many", &format!("--seeds={seeds}"), &format!("--seed={from}"), "--as-it-is"]);
    command.arg("--tally").arg(&tally).stdin(Stdio::null()).stdout(Stdio::null());
    let ended = child::wait(command, RUN);
    // Its exit code is 1 for a history that is wrong and for an error of its own; only the first leaves its counts.
    let outcome = Outcome::read(&tally).map_err(|error| format!("{error:#}"));
    Ok(judge(ended, outcome, seeds))
}

fn judge(ended: Result<(), String>, outcome: Result<Outcome, String>, seeds: u64) -> Found {
    match (ended, outcome) {
        (_, Ok(outcome)) => match outcome.tally.failed.into_iter().next() {
            Some((seed, violations)) => Found::By(seed, violations.into_iter().next().unwrap_or_default()),
            None if outcome.tally.ran == seeds => Found::Not(seeds),
            None => Found::Unknown(format!("only {} of {seeds} histories ran", outcome.tally.ran)),
        },
        (Err(why), Err(_)) => Found::Unknown(format!("the simulator {why}")),
        (Ok(()), Err(why)) => Found::Unknown(why),
    }
}

/// Puts one line into the page. All others stay as they are.
fn write(page: &Path, name: &str, found: &Found) -> Result<()> {
    let text = fs::read_to_string(page).with_context(|| format!("cannot read {}", page.display()))?;
    let old = page::between(&text, BEGIN, END).unwrap_or_default();
    let mut table = "| defect | found by seed | first violation |\n|---|---|---|\n".to_owned();
    for Mutation { name: other, .. } in MUTATIONS {
        let prefix = format!("| {other} |");
        let line = if *other == name {
            let (seed, why) = found.cells();
            format!("{prefix} {seed} | {why} |")
        } else {
            let known = old.lines().find(|line| line.starts_with(&prefix));
            known.map_or_else(|| format!("{prefix} not tried | |"), str::to_owned)
        };
        table.push_str(&line);
        table.push('\n');
    }
    page::replace(page, BEGIN, END, &table)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_mutation_fits_its_file_once_and_changes_it() {
        let workspace = Workspace::here().unwrap();
        for Mutation { name, file, right, wrong } in MUTATIONS {
            let text = fs::read_to_string(workspace.root.join(file)).unwrap();
            assert_eq!(text.matches(right).count(), 1, "{name} in {file}");
            assert_ne!(right, wrong, "{name}");
        }
        let names: std::collections::BTreeSet<&str> =
            MUTATIONS.iter().map(|mutation| mutation.name).collect();
        assert_eq!(names.len(), MUTATIONS.len());
    }

    fn outcome(ran: u64, failed: &str) -> Result<Outcome, String> {
        let text = format!(
            r#"{{"from": 1, "tally": {{"ran": {ran}, "failed": {failed}, "counts": {{"requests": 1, "answers": 1,
                "faults": {{}}, "transitions": 1, "demanded": 1, "kills": 1}}}}}}"#
        );
        serde_json::from_str(&text).map_err(|error| error.to_string())
    }

    #[test]
    fn a_simulator_that_failed_found_nothing_and_missed_nothing() {
        let failed = || Err("ended with exit status: 101".to_owned());
        let cells = |found: Found| found.cells().0;
        assert_eq!(cells(judge(failed(), outcome(3, r#"{"12": ["lost"]}"#), 9)), "12");
        assert_eq!(cells(judge(Ok(()), outcome(9, "{}"), 9)), "not found in 9 histories");
        assert_eq!(cells(judge(Ok(()), outcome(3, "{}"), 9)), "not tried");
        let crashed = judge(failed(), Err("no such file".to_owned()), 9).cells();
        assert_eq!(crashed, ("not tried".to_owned(), "the simulator ended with exit status: 101".to_owned()));
    }

    #[test]
    fn each_result_takes_one_line_and_leaves_the_others() {
        let dir = tempfile::tempdir().unwrap();
        let page = dir.path().join("page.md");
        fs::write(&page, format!("before\n{BEGIN}\n{END}\nafter\n")).unwrap();
        let names = [MUTATIONS[0].name, MUTATIONS[1].name];
        write(&page, names[0], &Found::By(7, "lost".to_owned())).unwrap();
        write(&page, names[1], &Found::Not(500)).unwrap();
        let text = fs::read_to_string(&page).unwrap();
        assert!(text.contains(&format!("| {} | 7 | lost |\n", names[0])), "{text}");
        assert!(text.contains(&format!("| {} | not found in 500 histories |  |\n", names[1])), "{text}");
        assert_eq!(text.matches("| not tried |").count(), MUTATIONS.len() - 2, "{text}");
        assert!(text.starts_with("before\n") && text.ends_with("\nafter\n"), "{text}");
    }
}
