//! The files that only the program itself can make, because it knows its commands and its resources.

use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, Result, anyhow};

use crate::child;
use crate::workspace::{self, Workspace};

const PACKAGE: &str = "volmedic";
/// Where its tests write what they make.
const VARIABLE: &str = "VOLMEDIC_GENERATED";
/// Most of it is a build, of which `cargo xtask test` needs every part anyway.
const LIMIT: Duration = Duration::from_hours(1);
/// Where those tests are.
const MANUAL: &str = "crates/volmedic/src/manual.rs";

/// The tests, and for each file the path from the workspace's root.
const TESTS: [&str; 2] = [
    "manual::definitions::every_resource_has_a_definition_with_its_own_name",
    "manual::page::every_command_and_flag_is_on_the_page",
];
const FILES: [(&str, &str); 3] = [
    ("nodevolumehealths.yaml", "deploy/chart/files/crds/nodevolumehealths.yaml"),
    ("volumehealths.yaml", "deploy/chart/files/crds/volumehealths.yaml"),
    ("commands.md", "docs/commands.md"),
];

/// Each file's path and what it should hold. None for a workspace without the program.
pub(super) fn files(workspace: &Workspace) -> Result<Vec<(&'static str, String)>> {
    if !workspace.root.join(MANUAL).is_file() {
        return Ok(Vec::new());
    }
    let folder = tempfile::tempdir().context("a folder for temporary files cannot be made")?;
    let mut command = workspace::cargo();
    // As `cargo xtask test` builds it: with the features of the whole workspace, so that nothing is compiled twice.
    command
        .args(["test", "--workspace", "--all-features", "--bin", PACKAGE, "--", "--exact"])
        .args(TESTS)
        .env(VARIABLE, folder.path())
        .current_dir(&workspace.root)
        .stdin(Stdio::null())
        .stdout(Stdio::null());
    child::wait(command, LIMIT).map_err(|why| anyhow!("`cargo test --bin {PACKAGE}` {why}"))?;
    let read = |(name, path): (&str, &'static str)| {
        let text = std::fs::read_to_string(folder.path().join(name));
        let cannot = || format!("{path} was not made: no test of {PACKAGE} wrote {name}; see {MANUAL}");
        Ok((path, text.with_context(cannot)?))
    };
    FILES.into_iter().map(read).collect()
}
