//! `cargo xtask bench`: builds what is measured and what measures it, both as they are shipped, and runs them.
//!
//! The measuring itself is a separate program, so that this one compiles quickly.

mod check;

use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Result, anyhow};
use clap::Subcommand;

use crate::child;
use crate::dist;
use crate::workspace::{self, Workspace};

/// Where the figures of a full run are kept.
const PAGE: &str = "docs/bench-controller.md";
const AGENT_PAGE: &str = "docs/bench-agent.md";
const CLI_PAGE: &str = "docs/bench-cli.md";
const DRIVER_PAGE: &str = "docs/bench-driver.md";
const HEALER_PAGE: &str = "docs/bench-healer.md";
const HUB_PAGE: &str = "docs/bench-hub.md";
const PUSH_PAGE: &str = "docs/bench-push.md";
const RUN_LIMIT: Duration = Duration::from_hours(4);
const QUICK: [usize; 2] = [1000, 10_000];

/// Measure a role as a process, against its budget
#[derive(Debug, clap::Args)]
#[command(
    arg_required_else_help = true,
    args_conflicts_with_subcommands = true,
    after_help = "Exit codes: 0 everything was measured, 1 something could not be or is above its ceiling, 2 the command line is wrong."
)]
pub(crate) struct Args {
    /// Compare what is counted exactly, on any machine, with bench/ceilings.json. Takes less than a minute once compiled
    #[arg(long)]
    check: bool,
    #[command(subcommand)]
    role: Option<Role>,
}

#[derive(Debug, Subcommand)]
enum Role {
    /// The agent on a node with 1,000 volumes of which ten hang. Writes docs/bench-agent.md. Needs root
    Agent,
    /// `volmedic status` over 100,000 claims, beside kubectl. Writes docs/bench-cli.md
    Cli,
    /// The controller beside a driver with many volumes, and external-health-monitor if it is available
    Controller(Controller),
    /// The reference driver: how time grows from 1,000 to 10,000 volumes. Writes docs/bench-driver.md. Needs root
    Driver,
    /// The healer when the node plugins of 100 nodes with 1,000 attachments restart together. Writes docs/bench-healer.md
    Healer,
    /// The hub with 5,000 claims on 100 nodes, all becoming unhealthy and healthy again. Writes docs/bench-hub.md
    Hub,
    /// The hub's endpoint for pushed reports, at 1,000 reports a second. Writes docs/bench-push.md
    Push,
}

#[derive(Debug, clap::Args)]
struct Controller {
    /// Numbers of volumes, measured one after the other [default: 1000,10000,100000]
    #[arg(long, value_delimiter = ',', value_name = "N")]
    volumes: Vec<usize>,
    /// 1,000 and 10,000 volumes only
    #[arg(long, conflicts_with = "volumes")]
    quick: bool,
    /// Write docs/bench-controller.md, as a full run does anyway
    #[arg(long)]
    write: bool,
    /// Arguments for the program that measures; `-- --help` shows them
    #[arg(last = true, value_name = "ARGUMENTS")]
    rest: Vec<String>,
}

pub(crate) fn run(workspace: &Workspace, args: &Args) -> Result<()> {
    if args.check {
        return check::run(workspace);
    }
    let role = args.role.as_ref().ok_or_else(|| anyhow!("name what to measure, or use --check"))?;
    let (role, more) = match role {
        Role::Agent => ("agent", vec![format!("--page={}", workspace.root.join(AGENT_PAGE).display())]),
        Role::Cli => (
            "cli",
            vec![
                format!("--page={}", workspace.root.join(CLI_PAGE).display()),
                format!("--definitions={}", workspace.root.join("deploy/chart/files/crds").display()),
            ],
        ),
        Role::Controller(controller) => ("controller", controller.arguments(workspace)),
        Role::Driver => return scale(workspace, "driver", "how_time_grows", DRIVER_PAGE),
        Role::Healer => return scale(workspace, "heal", "how_it_scales", HEALER_PAGE),
        Role::Hub => return scale(workspace, "hub", "how_it_scales", HUB_PAGE),
        Role::Push => return scale(workspace, "push", "how_many_reports_it_takes", PUSH_PAGE),
    };
    // What is measured is what is shipped: a program three times as large has as much more of itself in memory.
    let program = dist::build(workspace)?;
    let mut arguments: Vec<String> =
        ["run", "--quiet", "--release", "--package=volmedic-bench", "--", role].map(String::from).to_vec();
    arguments.push(format!("--program={}", program.display()));
    arguments.extend(more);
    step(workspace, &arguments.iter().map(String::as_str).collect::<Vec<_>>(), RUN_LIMIT)
}

/// The measurement is a test that is not run with the others, because it starts the role as they do.
fn scale(workspace: &Workspace, target: &str, name: &str, page: &str) -> Result<()> {
    let target = format!("--test={target}");
    let test = ["test", "--release", "--package=volmedic", &target];
    let which = ["--", "--ignored", "--nocapture", name];
    let page = workspace.root.join(page);
    step_with(workspace, &[&test[..], &which[..]].concat(), RUN_LIMIT, |command| {
        command.env("VOLMEDIC_BENCH_PAGE", page);
    })
}

impl Controller {
    fn volumes(&self) -> &[usize] {
        if self.quick { &QUICK } else { &self.volumes }
    }

    fn arguments(&self, workspace: &Workspace) -> Vec<String> {
        let mut arguments = Vec::new();
        let mut made_by = "cargo xtask bench controller".to_owned();
        if !self.volumes().is_empty() {
            let volumes: Vec<String> = self.volumes().iter().map(usize::to_string).collect();
            let volumes = format!("--volumes={}", volumes.join(","));
            made_by = format!("{made_by} {volumes}");
            arguments.push(volumes);
        }
        if self.write || self.volumes().is_empty() {
            arguments.push(format!("--page={}", workspace.root.join(PAGE).display()));
        }
        arguments.push(format!("--made-by={made_by}"));
        arguments.extend(self.rest.iter().cloned());
        arguments
    }
}

fn step(workspace: &Workspace, arguments: &[&str], limit: Duration) -> Result<()> {
    step_with(workspace, arguments, limit, |_| {})
}

fn step_with(
    workspace: &Workspace,
    arguments: &[&str],
    limit: Duration,
    prepare: impl FnOnce(&mut Command),
) -> Result<()> {
    let mut command = workspace::cargo();
    command.args(arguments).current_dir(&workspace.root).stdin(Stdio::null());
    prepare(&mut command);
    child::wait(command, limit).map_err(|why| anyhow!("`cargo {}` {why}", arguments[0]))
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Debug, Parser)]
    struct Cli {
        #[command(flatten)]
        args: Args,
    }

    /// What the measuring program is given, without the page's folder.
    fn check(line: &str, expected: &[&str]) {
        let Some(Role::Controller(controller)) = Cli::try_parse_from(line.split(' ')).unwrap().args.role
        else {
            panic!("{line} is not about the controller");
        };
        let workspace = Workspace::here().unwrap();
        let root = format!("{}/", workspace.root.display());
        let given: Vec<String> =
            controller.arguments(&workspace).iter().map(|argument| argument.replace(&root, "")).collect();
        assert_eq!(given, expected, "{line}");
    }

    #[test]
    fn only_a_full_run_writes_the_page_unasked() {
        check(
            "bench controller",
            &["--page=docs/bench-controller.md", "--made-by=cargo xtask bench controller"],
        );
        let quick = ["--volumes=1000,10000", "--made-by=cargo xtask bench controller --volumes=1000,10000"];
        check("bench controller --quick", &quick);
        check("bench controller --volumes=1000,10000", &quick);
        check(
            "bench controller --volumes=7 --write -- --alone",
            &[
                "--volumes=7",
                "--page=docs/bench-controller.md",
                "--made-by=cargo xtask bench controller --volumes=7",
                "--alone",
            ],
        );
    }
}
