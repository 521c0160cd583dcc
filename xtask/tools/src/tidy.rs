//! `cargo xtask tidy`: the architecture and the house rules, checked by machine. All findings are reported together.

use std::fmt;
use std::path::PathBuf;

use anyhow::{Result, bail};

use crate::say;
use crate::sources::{self, Source};
use crate::workspace::Workspace;

mod documented;
mod edges;
mod language;
mod orphans;
mod profiles;
mod unfinished;

/// Check the architecture and the house rules: crate graph, orphan files, profiles, documented reasons and metrics, language
#[derive(Debug, clap::Args)]
pub(crate) struct Args {}

/// A longer file gets a warning.
const LONG_FILE: usize = 500;

/// One broken rule: where, and what to do about it.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Finding {
    pub(crate) file: PathBuf,
    pub(crate) line: usize,
    pub(crate) what: String,
}

impl Finding {
    fn new(file: impl Into<PathBuf>, line: usize, what: impl Into<String>) -> Self {
        Self { file: file.into(), line, what: what.into() }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}", self.file.display(), self.line, self.what)
    }
}

pub(crate) fn run(workspace: &Workspace) -> Result<()> {
    let sources = sources::read(workspace)?;
    for warning in long_files(&sources) {
        say::line(format_args!("warning: {warning}"));
    }
    let mut findings = edges::check(workspace);
    findings.extend(orphans::check(workspace, &sources));
    findings.extend(profiles::check(workspace));
    findings.extend(documented::check(workspace, &sources));
    findings.extend(language::check(workspace, &sources));
    findings.extend(unfinished::check(&workspace.root, &sources));
    findings.sort_by(|a, b| (&a.file, a.line).cmp(&(&b.file, b.line)));
    for finding in &findings {
        say::error(finding);
    }
    match findings.len() {
        0 => say::line(format_args!("tidy: {} files, nothing to correct", sources.len())),
        1 => bail!(
            "one thing is not tidy; correct what the line above says, then run `cargo xtask tidy` again"
        ),
        many => bail!(
            "{many} things are not tidy; correct what the lines above say, then run `cargo xtask tidy` again"
        ),
    }
    Ok(())
}

fn long_files(sources: &[Source]) -> Vec<Finding> {
    let mut long = Vec::new();
    for source in sources.iter().filter(|source| source.is_rust()) {
        let lines = source.text.lines().count();
        if lines > LONG_FILE {
            let what = format!(
                "{lines} lines; split files of more than {LONG_FILE} lines by what their parts are for"
            );
            long.push(Finding::new(&source.path, lines, what));
        }
    }
    long
}

/// Findings as lines, for comparison.
#[cfg(test)]
fn lines(findings: &[Finding]) -> Vec<String> {
    findings.iter().map(ToString::to_string).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tree::Tree;

    #[test]
    fn a_long_file_is_reported_and_a_shorter_one_is_not() {
        let long = "\n".repeat(LONG_FILE + 1);
        let middling = "\n".repeat(LONG_FILE);
        let tree = Tree::workspace(&[], &[("a.rs", &long), ("b.rs", &middling), ("c.md", &long)]);
        let found = lines(&long_files(&tree.sources()));
        assert_eq!(
            found,
            ["a.rs:501: 501 lines; split files of more than 500 lines by what their parts are for"]
        );
    }

    #[test]
    fn a_tidy_workspace_passes_and_all_findings_of_another_are_reported_together() {
        let tree = Tree::workspace(&[("volmedic-health", "")], &[]);
        crate::codegen::run(&tree.load(), false).unwrap();
        run(&tree.load()).unwrap();
        tree.write("crates/health/src/lost.rs", "");
        run(&tree.load()).unwrap_err();
        tree.write("crates/health/src/unfinished.rs", "fn f() { todo!() }");
        let error = run(&tree.load()).unwrap_err().to_string();
        assert!(error.starts_with("3 things are not tidy"), "{error}");
    }
}
