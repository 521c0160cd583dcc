//! `volmedic-sim`: runs histories of faults from seeds. `cargo xtask simulate` builds and starts it.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context;
use clap::{Parser, Subcommand};
use volmedic_sim::{Report, Runner, Tally};

/// Run histories of faults, each determined by its seed, and compare what was reported with the truth
#[derive(Debug, Parser)]
#[command(after_help = "Exit codes: 0 every history was right; 1 one was not; 2 the command line is wrong.")]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run many histories, and print the first that is wrong, as short as it can be made
    Many {
        /// Number of histories
        #[arg(long, default_value_t = 200, value_parser = clap::value_parser!(u64).range(1..), value_name = "N")]
        seeds: u64,
        /// First seed; default: a fresh one, which is printed
        #[arg(long, value_name = "SEED")]
        seed: Option<u64>,
        /// Number of wrong histories after which the run stops
        #[arg(long, default_value_t = 1, value_name = "N")]
        failures: usize,
        /// Do not make the wrong history shorter
        #[arg(long)]
        as_it_is: bool,
        /// File to write the counts to, as JSON
        #[arg(long, value_name = "PATH")]
        tally: Option<PathBuf>,
    },
    /// Run one history in this process, and print its result as one line of JSON
    One {
        seed: u64,
        /// Steps that are left out, by their numbers
        #[arg(long, value_delimiter = ',', value_name = "NUMBERS")]
        without: Vec<String>,
        /// Print everything that happened
        #[arg(long)]
        transcript: bool,
        /// Include the product's debug messages
        #[arg(long)]
        verbose: bool,
    },
}

fn main() -> ExitCode {
    match run(Cli::parse().command) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            say(&format!("error: {error:#}"));
            ExitCode::FAILURE
        }
    }
}

fn run(command: Command) -> anyhow::Result<bool> {
    match command {
        Command::One { seed, without, transcript, verbose } => {
            let numbers = without.iter().filter(|text| !text.is_empty()).map(|text| text.parse());
            let numbers =
                numbers.collect::<Result<Vec<usize>, _>>().context("--without takes numbers of steps")?;
            let outcome = volmedic_sim::run(seed, &numbers, verbose)?;
            if transcript {
                outcome.transcript.iter().for_each(|line| say(line));
            }
            let mut hasher = DefaultHasher::new();
            outcome.transcript.hash(&mut hasher);
            let (violations, counts) = (outcome.violations, outcome.counts);
            let right = violations.is_empty();
            say(&serde_json::to_string(&Report { seed, violations, counts, digest: hasher.finish() })?);
            Ok(right)
        }
        Command::Many { seeds, seed, failures, as_it_is, tally: file } => {
            let from = seed.unwrap_or_else(volmedic_sim::fresh_seed);
            say(&format!("seeds {from} to {}", from.wrapping_add(seeds - 1)));
            let runner = Runner::new(&std::env::current_exe().context("cannot find this program")?);
            let tally = runner.run(from, seeds, failures)?;
            summary(&tally);
            if let Some(file) = file {
                let text = serde_json::json!({"from": from, "tally": tally}).to_string();
                std::fs::write(&file, text).with_context(|| format!("cannot write {}", file.display()))?;
            }
            let Some((seed, violations)) = tally.failed.iter().next() else { return Ok(true) };
            if !as_it_is {
                explain(&runner, *seed, violations)?;
            }
            Ok(false)
        }
    }
}

fn summary(tally: &Tally) {
    let volmedic_sim::Counts { requests, answers, faults, transitions, demanded, kills } = &tally.counts;
    for (kind, count) in faults {
        say(&format!("{count:>8} {kind}"));
    }
    let faults: u64 = faults.values().sum();
    say(&format!(
        "{} histories in {:.1} s: {requests} requests, {answers} answers of the driver, {faults} faults, {kills} deaths, \
         {transitions} transitions, {demanded} of them demanded; {} wrong",
        tally.ran,
        tally.took.as_secs_f64(),
        tally.failed.len()
    ));
    for (seed, violations) in &tally.failed {
        say(&format!("seed {seed}: {}", violations.first().map_or("", String::as_str)));
    }
}

/// Shows the first failing history as short as it can be made.
fn explain(runner: &Runner, seed: u64, violations: &[String]) -> anyhow::Result<()> {
    let without = runner.shrink(seed, volmedic_sim::steps(seed), violations)?;
    let list: Vec<String> = without.iter().map(ToString::to_string).collect();
    let line = format!("volmedic-sim one {seed} --without={} --transcript", list.join(","));
    let program = std::env::current_exe()?;
    let output = std::process::Command::new(program).args(line.split(' ').skip(1)).output()?;
    say(&String::from_utf8_lossy(&output.stdout));
    say(&format!("the whole of it: cargo xtask simulate --replay {seed}"));
    say(&format!("as short as above: cargo xtask simulate --replay {seed} --without={}", list.join(",")));
    Ok(())
}

fn say(line: &str) {
    // Where nobody reads it any more, there is nothing to say it to.
    let _ = writeln!(std::io::stdout().lock(), "{line}");
}
