//! The page of all commands and flags. Only the program itself knows them.

use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, Result, anyhow};

use crate::child;
use crate::workspace::{self, Workspace};

pub(super) const PAGE: &str = "docs/commands.md";

const PACKAGE: &str = "volmedic";
/// The test that writes the page where it is told to.
const TEST: &str = "manual::page::every_command_and_flag_is_on_the_page";
const VARIABLE: &str = "VOLMEDIC_COMMANDS_PAGE";
/// Most of it is a build, of which `cargo xtask test` needs every part a little later anyway.
const LIMIT: Duration = Duration::from_hours(1);

/// Where that test is.
const MANUAL: &str = "crates/volmedic/src/manual.rs";

/// Nothing for a workspace without the program.
pub(super) fn page(workspace: &Workspace) -> Result<Option<String>> {
    if !workspace.root.join(MANUAL).is_file() {
        return Ok(None);
    }
    let folder = tempfile::tempdir().context("a folder for temporary files cannot be made")?;
    let path = folder.path().join("commands.md");
    let mut command = workspace::cargo();
    command
        .args(["test", "--all-features", "--bin", PACKAGE, "--", "--exact", TEST])
        .env(VARIABLE, &path)
        .current_dir(&workspace.root)
        .stdin(Stdio::null())
        .stdout(Stdio::null());
    child::wait(command, LIMIT).map_err(|why| anyhow!("`cargo test --bin {PACKAGE}` {why}"))?;
    let page = std::fs::read_to_string(&path);
    page.map(Some).with_context(|| format!("the test {TEST} wrote no page; is it there, under this name?"))
}
