//! What a tool's exit code and words mean, alone and over several runs.

use std::collections::BTreeSet;
use std::fmt;
use std::time::Duration;

use super::{Job, Tool};

/// What came of checking a file system.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    Clean,
    /// Every run found the same damage.
    Corrupt {
        evidence: String,
    },
    /// Every run complained, but about nothing that a busy file system could not explain.
    Inconclusive {
        complaints: usize,
    },
    /// The tool refused to check. Says nothing about the volume.
    Refused {
        why: String,
    },
    TimedOut {
        after: Duration,
    },
    ToolMissing {
        tool: &'static str,
    },
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Clean => write!(f, "clean"),
            Self::Corrupt { evidence } => write!(f, "corrupt: {evidence}"),
            Self::Inconclusive { complaints } => {
                write!(f, "inconclusive: {complaints} complaints, none that use alone could not explain")
            }
            Self::Refused { why } => write!(f, "the tool refused: {why}"),
            Self::TimedOut { after } => write!(f, "the tool did not end within {} s", after.as_secs()),
            Self::ToolMissing { tool } => write!(f, "{tool} is not installed; install its package"),
        }
    }
}

/// What came of one run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Run {
    Clean,
    Complains {
        /// The complaints, without what differs from run to run for no reason.
        complaints: BTreeSet<String>,
        /// The tool had to leave a journal unread.
        journal_pending: bool,
    },
    Refused(String),
    TimedOut(Duration),
    ToolMissing,
}

/// How many lines go into the evidence.
const QUOTED: usize = 3;

pub(super) fn verdict(job: &Job, runs: &[Run]) -> Verdict {
    let mut common: Option<BTreeSet<String>> = None;
    let mut pending = job.mounted;
    for run in runs {
        match run {
            Run::Clean => return Verdict::Clean,
            Run::Refused(why) => return Verdict::Refused { why: why.clone() },
            Run::TimedOut(after) => return Verdict::TimedOut { after: *after },
            Run::ToolMissing => return Verdict::ToolMissing { tool: job.tool.program() },
            Run::Complains { complaints, journal_pending } => {
                pending |= journal_pending;
                common = Some(match common {
                    None => complaints.clone(),
                    Some(before) => &before & complaints,
                });
            }
        }
    }
    let common = common.unwrap_or_default();
    let counts = |line: &&String| !pending || is_certain(job.tool, line);
    let evidence: Vec<&str> = common.iter().filter(counts).map(String::as_str).take(QUOTED).collect();
    if evidence.is_empty() {
        return Verdict::Inconclusive { complaints: common.len() };
    }
    Verdict::Corrupt { evidence: format!("{} says {}", job.tool.program(), evidence.join(" / ")) }
}

/// Reads one run. `code` is `None` when a signal ended the tool.
pub(super) fn read(tool: Tool, code: Option<i32>, said: &str) -> Run {
    let last = || {
        said.lines().rev().find(|line| !line.trim().is_empty()).unwrap_or("it said nothing").trim().to_owned()
    };
    let Some(code) = code else { return Run::Refused(format!("{} was killed", tool.program())) };
    let complains = match tool {
        // 4 is "errors left"; 8 is also used when not even a superblock is found.
        Tool::E2fsck => code & 4 != 0 || code & 8 != 0 && said.contains("does not describe a valid ext"),
        Tool::XfsRepair => code == 1 && !said.contains("couldn't initialize XFS library"),
        // One code for everything: only the words distinguish damage from being kept out.
        Tool::BtrfsCheck => code == 1 && !BTRFS_KEPT_OUT.iter().any(|words| said.contains(words)),
    };
    if complains {
        let complaints = said.lines().filter(|line| is_complaint(tool, line)).map(steady).collect();
        let journal_pending =
            said.contains("skipping journal recovery") || said.contains("metadata changes in a log");
        return Run::Complains { complaints, journal_pending };
    }
    if code == 0 { Run::Clean } else { Run::Refused(format!("exit code {code}: {}", last())) }
}

const BTRFS_KEPT_OUT: [&str; 4] =
    ["currently mounted", "No such file or directory", "Permission denied", "Device or resource busy"];

/// Headings, progress and answers to its own questions are no complaints.
fn is_complaint(tool: Tool, line: &str) -> bool {
    let line = line.trim();
    let noise: &[&str] = match tool {
        Tool::E2fsck => {
            &["e2fsck ", "Pass ", "Warning", "Fix? ", "Clear? ", "Recreate? ", "Suppress messages? "]
        }
        Tool::XfsRepair => &[
            "Phase ",
            "- ",
            "Cannot get host filesystem",
            "Repair may fail",
            "the image and",
            "No modify flag",
            "Exiting now",
            "Cannot proceed",
            "attempting to find",
            "ALERT",
            "which is being ignored",
            "destroyed because",
        ],
        Tool::BtrfsCheck => &[
            "[",
            "Opening",
            "Checking",
            "UUID",
            "WARNING",
            "total ",
            "btree ",
            "file data",
            "referenced",
            "found ",
        ],
    };
    let summary = tool == Tool::E2fsck
        && (line.contains("WARNING: Filesystem still has errors") || line.contains("non-contiguous"));
    !line.is_empty() && !summary && !noise.iter().any(|start| line.starts_with(start))
}

/// Takes out addresses in the tool's own memory, which differ with every run.
fn steady(line: &str) -> String {
    let words = line.trim().split(' ').map(|word| {
        let is_address = word.strip_prefix("0x").is_some_and(|digits| digits.trim_end_matches(',').len() > 8);
        if is_address { "(address)" } else { word }
    });
    words.collect::<Vec<_>>().join(" ")
}

/// Whether a complaint is damage inside of one fixed block, which no unfinished journal can explain.
fn is_certain(tool: Tool, line: &str) -> bool {
    let line = line.to_ascii_lowercase();
    let any = |words: &[&str]| words.iter().any(|word| line.contains(word));
    match tool {
        // Bitmaps have their checksums in another block, so theirs do not count.
        Tool::E2fsck => {
            any(&[
                "bad magic",
                "superblock invalid",
                "does not describe a valid",
                "superblock checksum",
                "descriptor checksum",
                "corrupt group descriptor",
                "group descriptors look bad",
            ]) || line.starts_with("group descriptor") && line.contains("checksum")
                || line.contains("resize inode not valid")
                || line.contains("seems to contain garbage")
        }
        Tool::XfsRepair => {
            line.contains("superblock") && any(&["bad", "could not find"])
                || any(&["xfs_agf", "xfs_agi", "xfs_agfl", " agf ", " agi ", " agfl "])
                    && any(&["crc", "bad magic"])
        }
        // Copy on write: what the superblock leads to is complete, pending or not. Sharing a line with every
        // other run is proof enough.
        Tool::BtrfsCheck => true,
    }
}
