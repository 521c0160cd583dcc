//! File system checks that only read, off the path of any call.
//!
//! A check of a mounted file system sees a moving target, and its journal is not applied. So a volume is called
//! corrupt only if every one of several spaced runs says so, and all of them say the same; and while the journal
//! is pending, only damage inside of a single fixed block counts: a superblock or a group header is written as a
//! whole, so it is whole on the disk at any moment, while two blocks need not agree until the journal is done.

use std::path::{Path, PathBuf};
use std::time::Duration;

mod judge;
mod run;
#[cfg(test)]
mod tests;
mod worker;

pub use judge::Verdict;
pub use worker::{Checked, Fsck};

use judge::Run;

/// How often and how long volumes are checked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Schedule {
    /// How long a result stays good enough. `None` checks nothing at all.
    pub every: Option<Duration>,
    /// How many runs must agree that a volume is corrupt. The first run that disagrees ends the check.
    pub runs: u32,
    /// Between two runs. Longer than the kernel keeps changes in memory (30 s), so that none is seen twice.
    pub gap: Duration,
    /// For one run.
    pub deadline: Duration,
}

impl Default for Schedule {
    fn default() -> Self {
        Self {
            every: Some(Duration::from_hours(6)),
            runs: 3,
            gap: Duration::from_secs(40),
            deadline: Duration::from_mins(5),
        }
    }
}

/// What is to be checked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Job {
    pub tool: Tool,
    /// The image, or a block device. The image is better: a mounted device shows what the kernel has in memory,
    /// the image what is really on the disk.
    pub on: PathBuf,
    /// It is mounted, so what the tool sees may change under it.
    pub mounted: bool,
}

/// The tool of each file system.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tool {
    E2fsck,
    XfsRepair,
    BtrfsCheck,
}

impl Tool {
    pub fn for_fs_type(fs_type: &str) -> Option<Self> {
        match fs_type {
            "ext2" | "ext3" | "ext4" => Some(Self::E2fsck),
            "xfs" => Some(Self::XfsRepair),
            "btrfs" => Some(Self::BtrfsCheck),
            _ => None,
        }
    }

    pub fn program(self) -> &'static str {
        match self {
            Self::E2fsck => "e2fsck",
            Self::XfsRepair => "xfs_repair",
            Self::BtrfsCheck => "btrfs",
        }
    }

    /// Every one of these forbids the tool to write.
    fn arguments(self, on: &Path) -> &'static [&'static str] {
        match self {
            // -f checks everything even when the superblock says it is clean.
            Self::E2fsck => &["-n", "-f"],
            // -f says that it is an image file. Without it xfs_repair refuses files, with it devices go wrong.
            Self::XfsRepair if on.is_file() => &["-n", "-f"],
            Self::XfsRepair => &["-n"],
            // --force only allows checking what is mounted.
            Self::BtrfsCheck => &["check", "--readonly", "--force"],
        }
    }
}

/// Checks once, now, with all its runs and gaps. `stop` is asked between runs and while one is going on.
pub fn check(job: &Job, schedule: &Schedule, stop: &dyn Fn() -> bool) -> Verdict {
    let mut runs = Vec::new();
    for turn in 0..schedule.runs.max(1) {
        if turn > 0 && !run::pause(schedule.gap, stop) {
            return Verdict::Refused { why: "the check was called off".to_owned() };
        }
        let run = run::run(job, schedule.deadline, stop);
        let decided = !matches!(run, Run::Complains { .. });
        runs.push(run);
        if decided {
            break;
        }
    }
    judge::verdict(job, &runs)
}
