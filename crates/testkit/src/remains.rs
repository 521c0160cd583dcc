//! Clearing away what a cluster left, from any moment of its life: processes first, then what those held.

use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use rustix::process::Signal;

use crate::crew::{MARK, Roster};
use crate::process::{self, Identity, PAUSE};
use crate::{cgroups, home, mounts, network};

pub(crate) mod settings;
mod traces;

/// A killed process is gone within milliseconds, unless the kernel holds it.
const DEATH_LIMIT: Duration = Duration::from_secs(30);

/// Ends everything that belongs to the cluster in `folder` and removes the folder. Safe to repeat; what is gone
/// already is fine.
pub(crate) fn clear(folder: &Path) -> Result<()> {
    quiet(folder)?;
    // Removing follows mounts: with one left it would empty somebody's volume.
    if let Some(point) = mounts::below(folder)?.first() {
        bail!("{} is mounted again; not removing {}", point.display(), folder.display());
    }
    home::remove_folder(folder)
}

/// As [`clear`], but the folder stays, with its logs.
pub(crate) fn quiet(folder: &Path) -> Result<()> {
    let group = cgroups::parent(folder);
    end_processes(folder, &group)?;
    traces::remove(folder)?;
    mounts::undo(folder)?;
    cgroups::remove(&group)?;
    network::release(folder)?;
    settings::restore(folder)
}

/// Kills the recorded programs, everything with the cluster's mark and everything in its control groups, until a check
/// finds nothing.
fn end_processes(folder: &Path, group: &str) -> Result<()> {
    let end = Instant::now() + DEATH_LIMIT;
    loop {
        let mut left: Vec<Identity> =
            Roster::read(folder).members.into_values().filter(|one| one.alive()).collect();
        left.extend(marked(folder));
        left.extend(cgroups::processes(group));
        if left.is_empty() {
            return Ok(());
        }
        for process in &left {
            process.signal(Signal::KILL)?;
        }
        if Instant::now() >= end {
            let numbers: Vec<String> = left.iter().map(|process| process.pid.to_string()).collect();
            bail!(
                "processes {} of {} are still there {} s after SIGKILL, stuck in the kernel; free what they wait for \
                 (see /proc/<number>/stack), then try again",
                numbers.join(", "),
                folder.display(),
                DEATH_LIMIT.as_secs()
            );
        }
        thread::sleep(PAUSE);
    }
}

/// Whether a process belongs to any cluster of ours.
pub(crate) fn is_marked(process: Identity) -> bool {
    let environment = fs::read(format!("/proc/{}/environ", process.pid)).unwrap_or_default();
    let mark = format!("{MARK}=");
    environment.split(|byte| *byte == 0).any(|entry| entry.starts_with(mark.as_bytes()))
}

/// Processes that carry the cluster's mark in the environment they were started with.
fn marked(folder: &Path) -> Vec<Identity> {
    let mut mark = format!("{MARK}=").into_bytes();
    mark.extend_from_slice(folder.as_os_str().as_bytes());
    let carries = |process: &Identity| {
        let environment = fs::read(format!("/proc/{}/environ", process.pid)).unwrap_or_default();
        environment.split(|byte| *byte == 0).any(|entry| entry == mark)
    };
    process::every().into_iter().filter(|process| carries(process) && process.alive()).collect()
}
