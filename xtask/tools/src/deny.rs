//! `cargo xtask deny`: runs cargo-deny, which knows the advisories on crates. It is installed on first use.

use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, anyhow};

use crate::child;
use crate::say;
use crate::workspace::{self, Workspace};

/// The version that was tried with our deny.toml.
const VERSION: &str = "0.20.2";
const INSTALL_LIMIT: Duration = Duration::from_hours(1);
const RUN_LIMIT: Duration = Duration::from_mins(10);

/// Check advisories, licences, sources and banned crates with cargo-deny
#[derive(Debug, clap::Args)]
#[command(after_help = "The first use compiles cargo-deny, which takes several minutes. Its database of \
                  advisories comes from GitHub. Where that cannot be reached, all but the advisories is checked, and the \
                  last line says so.\n\n\
                  Exit codes: 0 nothing to correct, also if the advisories could not be checked, 1 cargo-deny found \
                  something or could not be installed, 2 the command line is wrong.")]
pub(crate) struct Args {
    /// Fail if the advisories cannot be checked
    #[arg(long)]
    require_advisories: bool,
}

pub(crate) fn run(workspace: &Workspace, args: &Args) -> Result<()> {
    let program = installed()?;
    let check = |words: &[&str]| {
        let mut command = Command::new(&program);
        command.args(["--locked", "check"]).args(words).current_dir(&workspace.root).stdin(Stdio::null());
        command
    };
    child::wait(check(&["bans", "licenses", "sources"]), RUN_LIMIT)
        .map_err(|why| anyhow!("cargo-deny has findings, or it {why}"))?;
    // The database is fetched apart, so that a failure to reach it is not taken for a finding.
    let mut fetch = Command::new(&program);
    fetch.args(["--locked", "fetch", "db"]).current_dir(&workspace.root).stdin(Stdio::null());
    if let Err(why) = child::wait(fetch, RUN_LIMIT) {
        let why = anyhow!(
            "the advisories were NOT checked: their database at github.com/rustsec/advisory-db cannot be fetched ({why}); \
             run `cargo xtask deny` again where it can be reached"
        );
        if args.require_advisories {
            return Err(why);
        }
        say::line(format_args!("{why}"));
        return Ok(());
    }
    child::wait(check(&["advisories"]), RUN_LIMIT)
        .map_err(|why| anyhow!("cargo-deny found advisories, or it {why}"))
}

/// Where cargo-deny is, compiled first if need be.
fn installed() -> Result<PathBuf> {
    let root = volmedic_testkit::cache::folder()?.join(format!("cargo-deny-{VERSION}"));
    let program = root.join("bin/cargo-deny");
    if program.exists() {
        return Ok(program);
    }
    say::line(format_args!("compiling cargo-deny {VERSION} into {}", root.display()));
    let mut install = workspace::cargo();
    install.args([
        "install",
        "cargo-deny",
        "--locked",
        "--no-default-features",
        &format!("--version={VERSION}"),
    ]);
    // Not into our target folder, of which `cargo install` would otherwise make use.
    install.arg("--root").arg(&root).env("CARGO_TARGET_DIR", root.join("target")).stdin(Stdio::null());
    child::wait(install, INSTALL_LIMIT).map_err(|why| {
        anyhow!(
            "cargo-deny cannot be installed ({why}); it comes from crates.io, which has to be reachable once"
        )
    })?;
    std::fs::remove_dir_all(root.join("target"))
        .with_context(|| format!("cannot remove {}", root.join("target").display()))?;
    Ok(program)
}
