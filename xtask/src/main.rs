//! The project's task runner: `cargo xtask help` shows what it can do.

use std::process::ExitCode;

use clap::{Parser, Subcommand};
use workspace::Workspace;

mod bench;
mod chart;
mod cluster;
mod codegen;
mod dist;
mod gallery;
mod lex;
mod metrics;
mod say;
mod sources;
mod test;
mod tidy;
#[cfg(test)]
mod tree;
mod workspace;

#[derive(Parser)]
#[command(
    bin_name = "cargo xtask",
    about = "Builds, tests and checks Volmedic",
    after_help = "Exit codes: 0 all is well, 1 a check or a command failed (the last line says which), \
                  2 the command line is wrong."
)]
struct Cli {
    #[command(subcommand)]
    task: Task,
}

#[derive(Subcommand)]
enum Task {
    /// Run everything that must pass before a change goes in, or the same for some parts only
    Test(test::Args),
    /// Check the architecture and the house rules: crate graph, orphan files, documented reasons and metrics
    Tidy,
    /// Write every generated file
    Codegen {
        /// Write nothing; fail when a file is not what would be written
        #[arg(long)]
        check: bool,
    },
    /// Write the manifests that are made from the Helm chart
    Chart(chart::Args),
    /// Run a real one-node Kubernetes on this machine
    Cluster(cluster::Args),
    /// Build what is shipped: a static program, an image, the chart, a bill of materials, checksums
    Dist(dist::Args),
    /// Measure a role as a process, against what it is meant to keep
    Bench(bench::Args),
    /// Hurt real volumes in every way there is, and show what the agent tells about it
    Gallery(gallery::Args),
}

fn main() -> ExitCode {
    match run(Cli::parse().task) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            say::error(format_args!("error: {error:#}"));
            ExitCode::from(if error.is::<test::Misused>() { 2 } else { 1 })
        }
    }
}

fn run(task: Task) -> anyhow::Result<()> {
    match task {
        Task::Test(args) => test::run(&Workspace::here()?, &args),
        Task::Tidy => tidy::run(&Workspace::here()?),
        Task::Codegen { check } => codegen::run(&Workspace::here()?, check),
        Task::Chart(args) => chart::run(&Workspace::here()?, &args),
        Task::Cluster(args) => cluster::run(args),
        Task::Dist(args) => dist::run(&Workspace::here()?, &args),
        Task::Bench(args) => bench::run(&Workspace::here()?, &args),
        Task::Gallery(args) => gallery::run(&Workspace::here()?, &args),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_consistent_and_says_its_exit_codes() {
        Cli::command().debug_assert();
        let help = Cli::command().render_help().to_string();
        assert!(
            help.contains("Exit codes: 0 all is well, 1 ") && help.contains("2 the command line is wrong"),
            "{help}"
        );
    }

    #[test]
    fn unknown_commands_and_flags_are_refused_with_two() {
        for arguments in
            [&["xtask", "tset"][..], &["xtask", "tidy", "--hard"], &["xtask"], &["xtask", "test", "--x"]]
        {
            let error = Cli::try_parse_from(arguments).err().unwrap();
            assert_eq!(error.exit_code(), 2, "{arguments:?}");
        }
    }
}
