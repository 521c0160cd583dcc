//! Installing with apt-get, so that a machine is never left with a half-configured package by us.

use std::process::{Command, Stdio};
use std::time::Duration;

/// Fetching may stall on the network; it is safe to stop at any moment.
const FETCH_DEADLINE: Duration = Duration::from_mins(10);
/// Unpacking and configuring works on local files only. Stopping it is the last resort.
const INSTALL_DEADLINE: Duration = Duration::from_mins(15);

/// Installs `packages`. The error is the middle of a sentence.
pub(super) fn install(packages: &[String]) -> Result<(), String> {
    // The package lists of a fresh machine are empty or old: only then are they fetched.
    if !apt(&["install", "--download-only"], packages, FETCH_DEADLINE)? {
        if !apt(&["update"], &[], FETCH_DEADLINE)? {
            return Err("`apt-get update` failed (its output is above)".into());
        }
        if !apt(&["install", "--download-only"], packages, FETCH_DEADLINE)? {
            return Err(
                "apt-get could not fetch them without removing something (its output is above)".into()
            );
        }
    }
    match apt(&["install", "--no-download"], packages, INSTALL_DEADLINE) {
        Ok(true) => Ok(()),
        Ok(false) => Err("apt-get could not install them (its output is above)".into()),
        Err(why) => Err(format!("{why}; run `dpkg --configure -a` before the next try")),
    }
}

fn apt(action: &[&str], packages: &[String], deadline: Duration) -> Result<bool, String> {
    let mut command = Command::new("apt-get");
    command
        .args(["-qq", "--yes", "--no-install-recommends", "--no-remove"])
        .args(["-o", "DPkg::Lock::Timeout=300", "-o", "Dpkg::Use-Pty=0"])
        .args(["-o", "Acquire::Retries=2", "-o", "Acquire::http::Timeout=60"])
        .args(action)
        .args(packages)
        .env("DEBIAN_FRONTEND", "noninteractive")
        .env("LC_ALL", "C")
        // Whatever apt-get has to say is for the person who waits, and must not mix with our own output.
        .stdout(Stdio::from(std::io::stderr()));
    super::run(&mut command, deadline)
}
