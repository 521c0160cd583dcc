//! The project's task runner: `cargo xtask help` lists the tasks.

use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::process::ExitCode;

use anyhow::Context;
use clap::{ArgAction, ArgMatches, Args, Command, FromArgMatches};
use xtask::workspace::{self, Workspace};
use xtask::{TOOLS, say};

mod test;

const ARGUMENTS: &str = "arguments";

fn command_line() -> Command {
    let runner = Command::new("xtask")
        .bin_name("cargo xtask")
        .about("Builds, tests and checks Volmedic")
        .after_help(
            "Exit codes: 0 success, 1 a check or a command failed (the last line says which), 2 the command line is wrong.",
        )
        .subcommand_required(true)
        .arg_required_else_help(true)
        .subcommand(test::Args::augment_args(Command::new("test")));
    TOOLS.iter().fold(runner, |runner, (name, about)| {
        let arguments = clap::Arg::new(ARGUMENTS)
            .num_args(0..)
            .trailing_var_arg(true)
            .allow_hyphen_values(true)
            .value_parser(clap::value_parser!(OsString))
            .action(ArgAction::Append);
        // Its own `--help` belongs to the tool.
        runner.subcommand(Command::new(*name).about(*about).disable_help_flag(true).arg(arguments))
    })
}

fn main() -> ExitCode {
    match run(&command_line().get_matches()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            say::error(format_args!("error: {error:#}"));
            ExitCode::from(if error.is::<test::Misused>() { 2 } else { 1 })
        }
    }
}

fn run(matches: &ArgMatches) -> anyhow::Result<()> {
    match matches.subcommand() {
        Some(("test", matches)) => test::run(&Workspace::here()?, &test::Args::from_arg_matches(matches)?),
        Some((tool, matches)) => {
            let arguments = matches.get_many::<OsString>(ARGUMENTS).into_iter().flatten();
            // Takes this program's place, so that the exit code and the terminal are the tool's own.
            let error = workspace::tool(tool).args(arguments).exec();
            Err(error).context("cargo did not start; is it installed?")
        }
        None => unreachable!("clap demands a task"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_consistent_and_documents_its_exit_codes() {
        command_line().debug_assert();
        let help = command_line().render_help().to_string();
        assert!(
            help.contains("Exit codes: 0 success, 1 ") && help.contains("2 the command line is wrong"),
            "{help}"
        );
    }

    #[test]
    fn unknown_commands_and_flags_are_refused_with_two() {
        for arguments in [&["xtask", "tset"][..], &["xtask"], &["xtask", "test", "--x"]] {
            let error = command_line().try_get_matches_from(arguments).err().unwrap();
            assert_eq!(error.exit_code(), 2, "{arguments:?}");
        }
    }

    #[test]
    fn a_tool_gets_its_arguments_untouched() {
        let line = ["xtask", "cluster", "kubectl", "get", "--help", "-A", "--", "x"];
        let matches = command_line().try_get_matches_from(line).unwrap();
        let (tool, matches) = matches.subcommand().unwrap();
        let arguments: Vec<_> = matches.get_many::<OsString>(ARGUMENTS).unwrap().collect();
        assert_eq!((tool, arguments.len()), ("cluster", 6), "{arguments:?}");
    }
}
