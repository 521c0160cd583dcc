//! `cargo xtask test --stress N`: the same programs again and again on a machine that is busy, and how often each failed.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::fs;

use anyhow::{Result, bail};
use xtask::say;
use xtask::workspace::Workspace;

use super::burners;
use super::plan::Scope;
use super::programs::{self, Run};

pub(super) fn run(workspace: &Workspace, scope: &Scope, times: u32) -> Result<()> {
    let programs = programs::list(workspace, scope)?;
    let folder = programs::logs(workspace, "stress")?;
    let mut tally = Tally::default();
    for round in 1..=times {
        say::line(format_args!("round {round} of {times}, with every core kept busy"));
        let round_folder = folder.join(round.to_string());
        fs::create_dir_all(&round_folder)?;
        let runs = burners::beside(|| programs::run_all(&programs, &round_folder, scope));
        tally.add(&runs);
    }
    say::line(format_args!("\n{}\nwhat failed runs printed is in {}", tally.table(), folder.display()));
    match tally.failures() {
        0 => Ok(()),
        failures => bail!("{failures} of {} runs of test programs failed", tally.runs()),
    }
}

/// How often each program ran, and how often each of its tests failed.
#[derive(Debug, Default)]
struct Tally {
    programs: BTreeMap<String, Counts>,
}

#[derive(Debug, Default)]
struct Counts {
    runs: u32,
    failed: u32,
    tests: BTreeMap<String, u32>,
}

impl Tally {
    fn add(&mut self, runs: &[Run]) {
        for run in runs {
            let counts = self.programs.entry(run.program.clone()).or_default();
            counts.runs += 1;
            let Some(why) = &run.failure else {
                // Only what failed is worth the space on the disk.
                let _ = fs::remove_file(&run.log);
                continue;
            };
            counts.failed += 1;
            let names = if run.tests.names.is_empty() { std::slice::from_ref(why) } else { &run.tests.names };
            for name in names {
                *counts.tests.entry(name.clone()).or_default() += 1;
            }
        }
    }

    fn runs(&self) -> u32 {
        self.programs.values().map(|counts| counts.runs).sum()
    }

    fn failures(&self) -> u32 {
        self.programs.values().map(|counts| counts.failed).sum()
    }

    /// A row for each program, and below it one for each test that failed.
    fn table(&self) -> String {
        let mut text = format!("{:<28} {:>6} {:>8} {:>7}", "program", "runs", "failures", "rate");
        for (program, counts) in &self.programs {
            let rate = f64::from(counts.failed) / f64::from(counts.runs.max(1)) * 100.0;
            // Writing to a string cannot fail.
            let _ = write!(text, "\n{program:<28} {:>6} {:>8} {rate:>6.1}%", counts.runs, counts.failed);
            for (test, failed) in &counts.tests {
                let _ = write!(text, "\n  {failed} of {}: {test}", counts.runs);
            }
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failures_are_counted_by_program_and_by_test() {
        let run = |program: &str, names: &[&str], failure: Option<&str>| Run::of(program, names, failure);
        let mut tally = Tally::default();
        tally.add(&[run("a", &[], None), run("b/c", &["x", "y"], Some("ended with 101"))]);
        tally.add(&[run("a", &[], None), run("b/c", &["x"], Some("ended with 101"))]);
        tally.add(&[run("a", &[], Some("did not end within 5 s")), run("b/c", &[], None)]);
        assert_eq!((tally.runs(), tally.failures()), (6, 3));
        let rows: Vec<String> = tally
            .table()
            .lines()
            .skip(1)
            .map(|line| line.split_whitespace().collect::<Vec<_>>().join(" "))
            .collect();
        assert_eq!(
            rows,
            ["a 3 1 33.3%", "1 of 3: did not end within 5 s", "b/c 3 2 66.7%", "2 of 3: x", "1 of 3: y"]
        );
    }
}
