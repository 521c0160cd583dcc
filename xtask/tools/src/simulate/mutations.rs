//! The product with one defect each, made on purpose, in a copy of the checkout. A simulator that does not find them could not
//! find others either.

mod list;

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use crate::say;
use crate::workspace::Workspace;
use list::{MUTATIONS, Mutation};

const PAGE: &str = "docs/reliability.md";
/// The table between these lines of the page is written by this command.
const BEGIN: &str = "<!-- mutations: written by cargo xtask simulate --mutations -->";
const END: &str = "<!-- end of mutations -->";
/// For all histories of one mutation.
const RUN: Duration = Duration::from_hours(2);

/// What came of one mutation.
struct Found {
    name: &'static str,
    /// The seed and its first violation.
    by: Option<(u64, String)>,
}

pub(super) fn run(workspace: &Workspace, from: u64, seeds: u64, only: &str) -> Result<()> {
    let chosen: Vec<&Mutation> = MUTATIONS.iter().filter(|mutation| mutation.name.contains(only)).collect();
    if chosen.is_empty() {
        bail!("no mutation has {only:?} in its name; the list is xtask/tools/src/simulate/mutations/list.rs");
    }
    let copy = workspace.target.join("simulate/checkout");
    copy_checkout(&workspace.root, &copy)?;
    let mut all = Vec::new();
    for mutation in chosen {
        let began = Instant::now();
        let by = try_one(workspace, &copy, mutation, from, seeds)?;
        let found = match &by {
            Some((seed, _)) => format!("found by seed {seed}"),
            None => format!("NOT FOUND within {seeds} seeds"),
        };
        say::line(format_args!("{}: {found} ({} s)", mutation.name, began.elapsed().as_secs()));
        all.push(Found { name: mutation.name, by });
    }
    write(&workspace.root.join(PAGE), &all)?;
    let missed: Vec<&str> = all.iter().filter(|found| found.by.is_none()).map(|found| found.name).collect();
    if missed.is_empty() { Ok(()) } else { bail!("not found: {}", missed.join(", ")) }
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

fn try_one(
    workspace: &Workspace,
    copy: &Path,
    mutation: &Mutation,
    from: u64,
    seeds: u64,
) -> Result<Option<(u64, String)>> {
    let Mutation { name, file, right, wrong } = mutation;
    let original =
        fs::read_to_string(workspace.root.join(file)).with_context(|| format!("cannot read {file}"))?;
    if original.matches(right).count() != 1 {
        bail!(
            "the mutation {name:?} does not fit {file} any more: {right:?} is not there exactly once; correct the list"
        );
    }
    let path = copy.join(file);
    put(&path, original.replace(right, wrong).as_bytes())?;
    let tried = super::build(copy, &workspace.target).and_then(|()| search(workspace, from, seeds));
    put(&path, original.as_bytes())?;
    tried.with_context(|| format!("the mutation {name:?}"))
}

fn search(workspace: &Workspace, from: u64, seeds: u64) -> Result<Option<(u64, String)>> {
    // Another build may take the program's place meanwhile.
    let program = workspace.target.join("simulate/mutant");
    fs::copy(workspace.target.join("debug/volmedic-sim"), &program).context("the simulator was not built")?;
    let mut command = Command::new(&program);
    command.args(["many", &format!("--seeds={seeds}"), &format!("--seed={from}"), "--as-it-is"]);
    let child =
        command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().context("the simulator did not start")?;
    let began = Instant::now();
    let output = child.wait_with_output().context("the simulator cannot be waited for")?;
    if began.elapsed() > RUN {
        bail!("{seeds} histories took longer than {} s; run fewer", RUN.as_secs());
    }
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let failed = text.lines().find_map(|line| line.strip_prefix("seed ")?.split_once(": "));
    Ok(failed.and_then(|(seed, why)| Some((seed.parse().ok()?, why.to_owned()))))
}

/// Puts what was found into the page. Mutations that were not tried keep their lines.
fn write(page: &Path, found: &[Found]) -> Result<()> {
    let text = fs::read_to_string(page).with_context(|| format!("cannot read {}", page.display()))?;
    let (Some(begin), Some(end)) = (text.find(BEGIN), text.find(END)) else {
        bail!("{} has no lines {BEGIN:?} and {END:?}, between which the table goes", page.display());
    };
    let old: Vec<&str> = text[begin..end].lines().filter(|line| line.starts_with("| ")).collect();
    let mut table = String::from("\n\n| defect | found by seed | first violation |\n|---|---|---|\n");
    for Mutation { name, .. } in MUTATIONS {
        let prefix = format!("| {name} |");
        let line = match found.iter().find(|found| found.name == *name) {
            Some(Found { by: Some((seed, why)), .. }) => format!("{prefix} {seed} | {} |", why.trim()),
            Some(_) => format!("{prefix} not found | |"),
            None => old
                .iter()
                .find(|line| line.starts_with(&prefix))
                .map_or_else(|| format!("{prefix} not tried | |"), |line| (*line).to_owned()),
        };
        table.push_str(&line);
        table.push('\n');
    }
    table.push('\n');
    let new = format!("{}{table}{}", &text[..begin + BEGIN.len()], &text[end..]);
    fs::write(page, new).with_context(|| format!("cannot write {}", page.display()))
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
}
