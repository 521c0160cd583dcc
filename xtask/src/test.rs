//! `cargo xtask test`: what must pass before a change is merged, step by step, the quick steps first.

use std::fmt::{self, Write};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Result, bail};

use plan::{CommandLine, Program, Scope, Step, Work};
use xtask::child::Running;
use xtask::say;
use xtask::workspace::{self, Workspace};

mod burners;
mod machine;
mod output;
mod plan;
mod programs;
mod stress;

/// Run everything that must pass before a change is merged, for all parts or for some
#[derive(Debug, clap::Args)]
#[command(
    after_help = "CI runs it without arguments. For daily work use --quick, or name the crates that you changed.\n\n\
                  Exit codes: 0 every step passed, 1 a step failed, 2 the command line is wrong."
)]
pub(crate) struct Args {
    /// Parts to test: a crate (`health` or `volmedic-health`) or one of its test programs (`volmedic/hub`) [default: all]
    parts: Vec<String>,
    /// Leave out tests that start Kubernetes or are slow: a few minutes once everything is compiled
    #[arg(long)]
    quick: bool,
    /// Run the test programs N times while every core is busy, and print how often each test failed
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000), conflicts_with_all = ["only", "keep_going"])]
    stress: Option<u32>,
    /// Run the tests about the API server, or the named parts, with another release of Kubernetes: v1.30 to v1.37, or an
    /// exact release such as v1.33.0. It is built first if need be, which takes up to 15 minutes
    #[arg(long, value_name = "RELEASE", conflicts_with = "quick")]
    kubernetes: Option<String>,
    /// Continue after a failed step, to see all failures
    #[arg(long)]
    keep_going: bool,
    /// Run one step only, by its name in the table that ends a run
    #[arg(long, value_name = "STEP")]
    only: Option<String>,
    /// Maximum time of each step in minutes, instead of its own limit
    #[arg(long, value_name = "MINUTES", value_parser = clap::value_parser!(u64).range(1..=1440))]
    deadline: Option<u64>,
}

/// A part or step on the command line that does not exist.
#[derive(Debug)]
pub(crate) struct Misused(String);

impl fmt::Display for Misused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Misused {}

pub(crate) fn run(workspace: &Workspace, args: &Args) -> Result<()> {
    let scope = Scope::of(workspace, &args.parts, args.quick, args.kubernetes.as_deref())
        .map_err(|error| Misused(error.to_string()))?;
    if let Some(times) = args.stress {
        return stress::run(workspace, &scope, times);
    }
    let mut steps = plan::steps(workspace, &scope);
    if let Some(wanted) = &args.only {
        let known: Vec<&str> = steps.iter().map(|step| step.name).collect();
        if !known.contains(&wanted.as_str()) {
            let known = known.join(", ");
            return Err(Misused(format!("there is no step `{wanted}` here; the steps are: {known}")).into());
        }
        steps.retain(|step| step.name == wanted);
        // Nothing was built before it.
        steps.iter_mut().for_each(Step::compile_tool);
    }
    if let Some(minutes) = args.deadline {
        for step in &mut steps {
            step.deadline = Duration::from_mins(minutes);
        }
    }
    let done = walk(workspace, &steps, args.keep_going);
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

fn prepare(line: &CommandLine, workspace: &Workspace) -> Command {
    let mut command = match line.program {
        Program::Cargo => workspace::cargo(),
        Program::Tools => Command::new(workspace.target.join("debug/xtask-tools")),
    };
    command
        .args(&line.arguments)
        .envs(line.variables.iter().map(|(name, value)| (name, value)))
        .current_dir(&workspace.root)
        .stdin(Stdio::null());
    command
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

/// A step that runs beside others, because it mostly downloads and compiles something separate.
struct Ahead {
    name: &'static str,
    running: Running,
}

/// Performs the steps and shows progress. After a failure the rest is not run unless asked for.
fn walk<'a>(workspace: &Workspace, steps: &'a [Step], keep_going: bool) -> Vec<Done<'a>> {
    let mut done: Vec<Done<'_>> = Vec::new();
    let mut ahead: Option<Ahead> = None;
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
        let result = match (&step.work, ahead.take_if(|ahead| ahead.name == step.name)) {
            (_, Some(ahead)) => ahead.running.wait(step.deadline),
            (Work::Here(work), None) => work(workspace).map_err(|error| format!("{error:#}")),
            (Work::Child(line), None) => {
                Running::start(prepare(line, workspace)).and_then(|running| running.wait(step.deadline))
            }
        };
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
        if !stopped && let Some(next) = steps[index + 1..].iter().find(|step| step.starts_after == index + 1)
        {
            ahead = start_ahead(next, workspace);
        }
    }
    if let Some(ahead) = ahead {
        ahead.running.stop();
    }
    done
}

/// Where it cannot be started now, it is started when its turn comes, and the error is shown there.
fn start_ahead(step: &Step, workspace: &Workspace) -> Option<Ahead> {
    let Work::Child(line) = &step.work else { return None };
    let running = Running::start(prepare(line, workspace)).ok()?;
    say::line(format_args!("(beside the next steps) {}: {}", step.name, step.about));
    Some(Ahead { name: step.name, running })
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
        let work = move |_: &Workspace| if name == "clippy" { bail!("no") } else { Ok(()) };
        Step {
            name,
            about: String::new(),
            work: Work::Here(Box::new(work)),
            rerun: format!("do {name}"),
            deadline: Duration::from_mins(2),
            starts_after: 0,
        }
    }

    /// The table with times left out, for steps of which `clippy` fails.
    fn check(keep_going: bool, expected: &[&str]) {
        let steps = ["format", "clippy", "tests"].map(step);
        let done = walk(&Workspace::here().unwrap(), &steps, keep_going);
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
    fn a_step_that_starts_ahead_is_waited_for_in_its_turn_and_stopped_when_its_turn_never_comes() {
        let mut later = step("later");
        later.work = Work::Child(CommandLine::cargo(&["--version"]));
        later.starts_after = 1;
        let steps = [step("format"), step("build"), later];
        let done = walk(&Workspace::here().unwrap(), &steps, false);
        assert!(done.iter().all(|done| matches!(done.outcome, Outcome::Passed(_))), "{}", table(&done));
        let [format, _, later] = steps;
        let done = [format, step("clippy"), later];
        let done = walk(&Workspace::here().unwrap(), &done, false);
        assert!(matches!(done[2].outcome, Outcome::NotRun), "{}", table(&done));
    }
}
