//! `cargo xtask test`: what must pass before a change goes in, step by step, the quick steps first.

use std::fmt::{self, Write};
use std::time::{Duration, Instant};

use anyhow::{Result, bail};

use crate::say;
use crate::workspace::{Package, Workspace};
use plan::{Step, Work};

pub(crate) mod child;
mod machine;
mod plan;
mod programs;

/// The arguments of `cargo xtask test`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Exit codes: 0 every step passed, 1 a step failed, 2 the command line is wrong.")]
pub(crate) struct Args {
    /// Parts to test, by the name of their crate (`health` or `volmedic-health`); all when none is given
    parts: Vec<String>,
    /// Go on after a failed step, to see everything that is wrong
    #[arg(long)]
    keep_going: bool,
    /// Run one step only, by the name that the table at the end of a run shows
    #[arg(long, value_name = "STEP")]
    only: Option<String>,
    /// Minutes that each step may take, instead of its own limit
    #[arg(long, value_name = "MINUTES", value_parser = clap::value_parser!(u64).range(1..=1440))]
    deadline: Option<u64>,
}

/// A part or step that was asked for and is not there: a mistake on the command line.
#[derive(Debug)]
pub(crate) struct Misused(String);

impl fmt::Display for Misused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Misused {}

pub(crate) fn run(workspace: &Workspace, args: &Args) -> Result<()> {
    let parts = parts(workspace, &args.parts)?;
    let mut steps = plan::steps(workspace, &parts);
    if let Some(wanted) = &args.only {
        let known: Vec<&str> = steps.iter().map(|step| step.name).collect();
        if !known.contains(&wanted.as_str()) {
            let known = known.join(", ");
            return Err(Misused(format!("there is no step `{wanted}` here; the steps are: {known}")).into());
        }
        steps.retain(|step| step.name == wanted);
    }
    if let Some(minutes) = args.deadline {
        for step in &mut steps {
            step.deadline = Duration::from_mins(minutes);
        }
    }
    let done = walk(&steps, args.keep_going, |step| perform(workspace, step));
    say::line(format_args!("\n{}", table(&done)));
    let failed: Vec<&Done> =
        done.iter().filter(|done| matches!(done.outcome, Outcome::Failed { .. })).collect();
    for Done { step, outcome } in &failed {
        if let Outcome::Failed { why, .. } = outcome {
            say::error(format_args!("{}: {why}\n  rerun just this step: {}", step.name, step.rerun));
        }
    }
    match failed.as_slice() {
        [] => Ok(()),
        [one] => bail!("the step `{}` failed", one.step.name),
        many => bail!("{} steps failed", many.len()),
    }
}

/// The packages that were asked for, each once, or none for the whole workspace.
fn parts<'a>(workspace: &'a Workspace, names: &[String]) -> Result<Vec<&'a Package>> {
    let mut parts: Vec<&Package> = Vec::new();
    for name in names {
        let part = workspace.find(name).map_err(|error| Misused(error.to_string()))?;
        if !parts.iter().any(|known| known.name == part.name) {
            parts.push(part);
        }
    }
    Ok(parts)
}

fn perform(workspace: &Workspace, step: &Step) -> Result<(), String> {
    match &step.work {
        Work::Here(work) => work(workspace).map_err(|error| format!("{error:#}")),
        Work::Child(command) => child::run(command, &workspace.root, step.deadline),
    }
}

/// What became of a step.
struct Done<'a> {
    step: &'a Step,
    outcome: Outcome,
}

enum Outcome {
    Passed(Duration),
    Failed { took: Duration, why: String },
    NotRun,
}

/// Goes through the steps and says where it is. After a failure the rest is not run unless asked for.
fn walk(steps: &[Step], keep_going: bool, perform: impl Fn(&Step) -> Result<(), String>) -> Vec<Done<'_>> {
    let mut done: Vec<Done<'_>> = Vec::new();
    let count = steps.len();
    let mut stopped = false;
    for (index, step) in steps.iter().enumerate() {
        if stopped {
            done.push(Done { step, outcome: Outcome::NotRun });
            continue;
        }
        let place = format!("[{}/{count}] {}", index + 1, step.name);
        say::line(format_args!("{place}: {}", step.about));
        let start = Instant::now();
        let result = perform(step);
        let took = start.elapsed();
        let outcome = match result {
            Ok(()) => {
                say::line(format_args!("{place}: passed after {:.1} s", took.as_secs_f64()));
                Outcome::Passed(took)
            }
            Err(why) => {
                say::line(format_args!("{place}: FAILED after {:.1} s", took.as_secs_f64()));
                stopped = !keep_going;
                Outcome::Failed { took, why }
            }
        };
        done.push(Done { step, outcome });
    }
    done
}

fn table(done: &[Done<'_>]) -> String {
    // Writing to a string cannot fail.
    let mut text = format!("{:<10} {:<8} {:>8}", "step", "result", "seconds");
    for Done { step, outcome } in done {
        let (result, took) = match outcome {
            Outcome::Passed(took) => ("passed", Some(took)),
            Outcome::Failed { took, .. } => ("FAILED", Some(took)),
            Outcome::NotRun => ("not run", None),
        };
        let took = took.map_or_else(|| "-".to_owned(), |took| format!("{:.1}", took.as_secs_f64()));
        let _ = write!(text, "\n{:<10} {result:<8} {took:>8}", step.name);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn step(name: &'static str) -> Step {
        Step {
            name,
            about: String::new(),
            work: Work::Here(Box::new(|_| Ok(()))),
            rerun: format!("do {name}"),
            deadline: Duration::from_secs(1),
        }
    }

    /// The table with times left out, for steps of which `bad` fails.
    fn check(keep_going: bool, expected: &[&str]) {
        let steps = ["format", "clippy", "tests"].map(step);
        let done =
            walk(&steps, keep_going, |step| if step.name == "clippy" { Err("no".into()) } else { Ok(()) });
        let lines: Vec<String> = table(&done)
            .lines()
            .skip(1)
            .map(|line| {
                let (words, took) = line.rsplit_once(' ').unwrap();
                assert!(took == "-" || took.parse::<f64>().is_ok(), "{line}");
                words.split_whitespace().collect::<Vec<_>>().join(" ")
            })
            .collect();
        assert_eq!(lines, expected);
    }

    #[test]
    fn a_failure_stops_the_walk_unless_asked_to_go_on() {
        check(false, &["format passed", "clippy FAILED", "tests not run"]);
        check(true, &["format passed", "clippy FAILED", "tests passed"]);
    }

    #[test]
    fn parts_are_found_by_either_name_and_counted_once() {
        let workspace = Workspace::here().unwrap();
        let names = ["health", "volmedic-health", "xtask"].map(String::from);
        let found: Vec<&str> =
            parts(&workspace, &names).unwrap().iter().map(|part| part.name.as_str()).collect();
        assert_eq!(found, ["volmedic-health", "xtask"]);
        let error = parts(&workspace, &["helth".into()]).unwrap_err();
        assert!(error.is::<Misused>() && error.to_string().contains("there is no part `helth`"), "{error}");
    }
}
