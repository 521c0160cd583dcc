//! The least that a check of a volume could take: statfs, opendir and readdir, in one loop over the same mounts.

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result};
use rustix::time::{ClockId, clock_gettime};

/// So that the time of one pass can be measured.
const PASSES: u32 = 10;
/// As many as the agent reads of a directory.
const ENTRIES: usize = 64;

/// The processor time of one pass over all of these.
pub(super) fn pass(volumes: &[PathBuf]) -> Result<Duration> {
    // What is read for the first time is not measured.
    let mut began = Duration::ZERO;
    for nth in 0..=PASSES {
        if nth == 1 {
            began = processor_time()?;
        }
        for path in volumes {
            let name = || format!("cannot read {}", path.display());
            rustix::fs::statfs(path).with_context(name)?;
            for entry in fs::read_dir(path).with_context(name)?.take(ENTRIES) {
                entry.with_context(name)?;
            }
        }
    }
    Ok(processor_time()?.saturating_sub(began) / PASSES)
}

fn processor_time() -> Result<Duration> {
    clock_gettime(ClockId::ThreadCPUTime).try_into().context("the kernel does not report the processor time")
}
