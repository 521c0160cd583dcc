//! Programs from PyPI, each in a virtual environment that is made once and kept outside of the checkout.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail};

use crate::{cache, hex_digest, home, packages, process};

/// Making an environment takes half a minute; a caller waits at most this long.
const PATIENCE: Duration = Duration::from_mins(20);
const STEP_LIMIT: Duration = Duration::from_mins(8);
const SPACE: u64 = 1 << 30;
/// Written last: without it an environment counts as half-made.
const WHOLE: &str = "whole";

/// Every package of schemathesis' environment with its version, so that a run today is the run of tomorrow.
const SCHEMATHESIS: &str = include_str!("python/schemathesis.txt");

/// The path of schemathesis, which tries a service against its own OpenAPI description. Installed first if need be.
pub fn schemathesis() -> Result<PathBuf> {
    program("schemathesis", SCHEMATHESIS)
}

fn program(name: &str, requirements: &str) -> Result<PathBuf> {
    let folder = cache::folder()?.join("python");
    let entry = folder.join(format!("{name}-{}", &hex_digest(requirements.as_bytes())[..12]));
    let program = entry.join("bin").join(name);
    if entry.join(WHOLE).exists() {
        return Ok(program);
    }
    home::make(&folder)?;
    let _lock = cache::lock(&folder.join("lock"), "another Python environment is being made", PATIENCE)?;
    // The last holder of the lock may have made just this.
    if !entry.join(WHOLE).exists() {
        make(&entry, requirements).with_context(|| format!("{name} could not be installed"))?;
    }
    if !program.is_file() {
        bail!("{name} is not among the programs in {}; remove that folder", entry.display());
    }
    Ok(program)
}

fn make(entry: &Path, requirements: &str) -> Result<()> {
    // Python from elsewhere brings its own; Debian's has it in a package.
    if !has_venv() {
        packages::ensure(&["python3-venv"])?;
    }
    // Under the lock, so nobody else is in there: what an earlier try left is rubbish.
    cache::remove(entry)?;
    cache::require_space(entry.parent().unwrap_or(entry), SPACE)?;
    cache::say(&format!("making the Python environment {}", entry.display()));
    let mut venv = Command::new("python3");
    venv.args(["-m", "venv"]).arg(entry);
    process::run(venv, STEP_LIMIT)?.or_fail("python3 -m venv")?;
    let list = entry.join("requirements.txt");
    cache::write_whole(&list, requirements.as_bytes())?;
    let mut pip = Command::new(entry.join("bin/pip"));
    // With all dependencies listed, what is not in the list is a mistake in the list.
    pip.args(["install", "--quiet", "--no-input", "--no-deps", "--only-binary=:all:", "--requirement"])
        .arg(&list);
    process::run(pip, STEP_LIMIT)?.or_fail("pip install")?;
    let mut check = Command::new(entry.join("bin/pip"));
    check.arg("check");
    process::run(check, STEP_LIMIT)?.or_fail("pip check")?;
    cache::write_whole(&entry.join(WHOLE), b"")
}

fn has_venv() -> bool {
    let mut python = Command::new("python3");
    python.args(["-c", "import ensurepip, venv"]);
    process::run(python, STEP_LIMIT).is_ok_and(|finished| finished.success)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_package_is_pinned() {
        for line in SCHEMATHESIS.lines() {
            let pinned =
                line.split_once("==").is_some_and(|(name, version)| !name.is_empty() && !version.is_empty());
            assert!(pinned, "{line}");
        }
        assert!(SCHEMATHESIS.lines().any(|line| line.starts_with("schemathesis==")));
    }
}
