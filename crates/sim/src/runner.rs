//! Runs histories in processes of their own, and makes those that fail shorter.

use std::collections::BTreeMap;
use std::hash::{BuildHasher, RandomState};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail};
use serde::{Deserialize, Serialize};

use crate::Counts;

/// No history takes longer on any machine, unless something in it goes round in circles.
const DEADLINE: Duration = Duration::from_mins(2);
/// Attempts to make a failing history shorter.
const SHRINKS: usize = 150;

/// What came of one history, as its process prints it.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Report {
    pub seed: u64,
    pub violations: Vec<String>,
    pub counts: Counts,
    /// Of the whole transcript: the same seed has the same.
    pub digest: u64,
}

/// Of many histories.
#[derive(Debug, Default, Serialize)]
pub struct Tally {
    pub counts: Counts,
    pub ran: usize,
    pub failed: BTreeMap<u64, Vec<String>>,
    pub took: Duration,
}

/// Starts `volmedic-sim one`.
#[derive(Debug, Clone)]
pub struct Runner {
    program: PathBuf,
    workers: usize,
}

/// One that was probably never tried.
pub fn fresh_seed() -> u64 {
    // Short enough to be typed.
    RandomState::new().hash_one(std::process::id()) % 1_000_000_000_000
}

impl Runner {
    pub fn new(program: &Path) -> Self {
        let workers = std::thread::available_parallelism().map_or(1, usize::from);
        Self { program: program.to_owned(), workers }
    }

    /// The histories of these seeds. Stops early after this number of failures.
    pub fn run(&self, from: u64, seeds: u64, most_failures: usize) -> Result<Tally> {
        let began = Instant::now();
        let next = AtomicU64::new(0);
        let tally = Mutex::new(Tally::default());
        std::thread::scope(|scope| {
            let worker = || -> Result<()> {
                loop {
                    let number = next.fetch_add(1, Ordering::SeqCst);
                    if number >= seeds {
                        return Ok(());
                    }
                    let report = self.one(from.wrapping_add(number), &[])?;
                    let mut tally = tally.lock().map_err(|_| anyhow!("another worker panicked"))?;
                    tally.add(&report);
                    if tally.failed.len() >= most_failures {
                        next.store(seeds, Ordering::SeqCst);
                    }
                }
            };
            let workers: Vec<_> = (0..self.workers).map(|_| scope.spawn(worker)).collect();
            for worker in workers {
                worker.join().map_err(|_| anyhow!("a worker panicked"))??;
            }
            Ok::<(), anyhow::Error>(())
        })?;
        let mut tally = tally.into_inner().map_err(|_| anyhow!("a worker panicked"))?;
        tally.took = began.elapsed();
        Ok(tally)
    }

    pub fn one(&self, seed: u64, without: &[usize]) -> Result<Report> {
        let mut command = Command::new(&self.program);
        let without: Vec<String> = without.iter().map(ToString::to_string).collect();
        command.args(["one", &seed.to_string(), &format!("--without={}", without.join(","))]);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child =
            command.spawn().with_context(|| format!("{} did not start", self.program.display()))?;
        let began = Instant::now();
        // What it prints is one line, which fits into a pipe.
        while child.try_wait()?.is_none() {
            if began.elapsed() > DEADLINE {
                child.kill()?;
                child.wait()?;
                let why = format!("it did not end within {} s", DEADLINE.as_secs());
                return Ok(Report { seed, violations: vec![why], counts: Counts::default(), digest: 0 });
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        let output = child.wait_with_output()?;
        let text = String::from_utf8_lossy(&output.stdout);
        match text.lines().last().map(serde_json::from_str) {
            Some(Ok(report)) => Ok(report),
            _ => {
                bail!("seed {seed} ended with {}: {}", output.status, String::from_utf8_lossy(&output.stderr))
            }
        }
    }

    /// Steps that a failing history can be without and still fails, found greedily.
    pub fn shrink(&self, seed: u64, steps: usize, violations: &[String]) -> Result<Vec<usize>> {
        let families: Vec<String> = violations.iter().map(|violation| family(violation)).collect();
        let mut without: Vec<usize> = Vec::new();
        let mut tries = 0;
        let mut size = (steps / 2).max(1);
        loop {
            let left: Vec<usize> = (0..steps).filter(|step| !without.contains(step)).collect();
            for chunk in left.chunks(size) {
                let mut fewer = without.clone();
                fewer.extend(chunk);
                tries += 1;
                if tries > SHRINKS {
                    break;
                }
                let found = self.one(seed, &fewer)?.violations;
                // Another defect would be another history.
                if found.iter().any(|violation| families.contains(&family(violation))) {
                    without = fewer;
                }
            }
            if size == 1 || tries > SHRINKS {
                without.sort_unstable();
                return Ok(without);
            }
            size = (size / 2).max(1);
        }
    }
}

/// What kind of violation it is: its words without times, counts and names.
fn family(violation: &str) -> String {
    let words =
        violation.split_whitespace().filter(|word| !word.contains(|c: char| c.is_ascii_digit() || c == '/'));
    words.collect::<Vec<_>>().join(" ")
}

impl Tally {
    fn add(&mut self, report: &Report) {
        self.ran += 1;
        let Counts { requests, answers, faults, transitions, demanded, kills } = &report.counts;
        self.counts.requests += requests;
        self.counts.answers += answers;
        for (kind, count) in faults {
            *self.counts.faults.entry(kind.clone()).or_default() += count;
        }
        self.counts.transitions += transitions;
        self.counts.demanded += demanded;
        self.counts.kills += kills;
        if !report.violations.is_empty() {
            self.failed.insert(report.seed, report.violations.clone());
        }
    }
}
