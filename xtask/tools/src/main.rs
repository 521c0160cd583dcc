//! The tasks of `cargo xtask` that use parts of the product or of its test kit.
//!
//! `cargo xtask` itself starts within seconds on a fresh machine because these are compiled on first use.

use std::process::ExitCode;

use clap::{Parser, Subcommand};
use workspace::Workspace;

pub(crate) use xtask::{child, say, workspace};

mod bench;
mod chart;
mod cluster;
mod codegen;
mod deny;
mod dependencies;
mod dist;
mod fuzz;
mod gallery;
mod lex;
mod metrics;
mod simulate;
mod sources;
mod tidy;
#[cfg(test)]
mod tree;
mod world;

#[derive(Parser)]
#[command(bin_name = "cargo xtask", about = "The larger tasks of `cargo xtask`")]
struct Cli {
    #[command(subcommand)]
    task: Task,
}

#[derive(Subcommand)]
enum Task {
    Bench(bench::Args),
    Chart(chart::Args),
    Cluster(cluster::Args),
    Codegen(codegen::Args),
    Deny(deny::Args),
    Dependencies(dependencies::Args),
    Dist(dist::Args),
    Fuzz(fuzz::Args),
    Gallery(gallery::Args),
    Simulate(simulate::Args),
    Tidy(tidy::Args),
    World(world::Args),
}

fn main() -> ExitCode {
    match run(Cli::parse().task) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            say::error(format_args!("error: {error:#}"));
            ExitCode::FAILURE
        }
    }
}

fn run(task: Task) -> anyhow::Result<()> {
    match task {
        Task::Bench(args) => bench::run(&Workspace::here()?, &args),
        Task::Chart(args) => chart::run(&Workspace::here()?, &args),
        Task::Cluster(args) => cluster::run(args),
        Task::Codegen(args) => codegen::run(&Workspace::here()?, args.check),
        Task::Deny(args) => deny::run(&Workspace::here()?, &args),
        Task::Dependencies(_) => dependencies::run(&Workspace::here()?),
        Task::Dist(args) => dist::run(&Workspace::here()?, &args),
        Task::Fuzz(args) => fuzz::run(&Workspace::here()?, &args),
        Task::Gallery(args) => gallery::run(&Workspace::here()?, &args),
        Task::Simulate(args) => simulate::run(&Workspace::here()?, &args),
        Task::Tidy(_) => tidy::run(&Workspace::here()?),
        Task::World(args) => world::run(&Workspace::here()?, &args),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_consistent_and_has_exactly_the_tasks_that_are_forwarded() {
        Cli::command().debug_assert();
        let tasks: Vec<String> =
            Cli::command().get_subcommands().map(|task| task.get_name().to_owned()).collect();
        assert_eq!(tasks, xtask::TOOLS.map(|(name, _)| name));
    }
}
