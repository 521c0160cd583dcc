//! A program beside a cluster.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail};

use crate::crew::MARK;
use crate::process::{self, Lifetime, Process};

/// How many lines of its log an error about a program shows.
const SHOWN: usize = 30;
/// Between being asked to end and being made to.
const GRACE: Duration = Duration::from_secs(10);

/// A program that runs beside a cluster and ends with this process, however that ends. It carries the cluster's mark,
/// and so does what it starts: whatever outlives it is found when the cluster is cleared away.
#[derive(Debug)]
pub struct Companion {
    name: &'static str,
    process: Process,
    log: PathBuf,
}

impl Companion {
    /// Starts `command`; what it says goes to a log of that name beside the cluster's own logs.
    /// `home` is the cluster's folder.
    pub fn start(home: &Path, name: &'static str, mut command: Command) -> Result<Self> {
        let logs = home.join("logs");
        fs::create_dir_all(&logs).with_context(|| format!("cannot make {}", logs.display()))?;
        let log = logs.join(format!("{name}.log"));
        command.env(MARK, home);
        let process =
            Process::start(command, Lifetime::Tied, &log).with_context(|| format!("{name} did not start"))?;
        Ok(Self { name, process, log })
    }

    /// As it was started.
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// The end of what it said.
    pub fn log(&self) -> String {
        process::tail(&self.log, SHOWN)
    }

    /// Fails, with its last words, when it has ended.
    pub fn check(&mut self) -> Result<()> {
        match self.process.ended() {
            None => Ok(()),
            Some(status) => {
                bail!("{} ended ({status}). The end of its log:\n{}", self.name, self.log())
            }
        }
    }

    /// Asks it to end, and makes it when it does not.
    pub fn stop(mut self) -> Result<()> {
        self.process.stop(GRACE).with_context(|| format!("{} cannot be ended", self.name))
    }
}

impl Drop for Companion {
    fn drop(&mut self) {
        // One that the kernel holds is left to the clearing of the cluster, which reports it.
        let _ = self.process.kill();
    }
}
