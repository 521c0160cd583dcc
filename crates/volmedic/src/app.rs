//! The command line, and what each command runs.

use std::error::Error;
use std::io::{self, Write};
use std::process::ExitCode;

use clap::{Parser, Subcommand};
use tracing::Level;

use crate::logging::Logging;
use crate::{agent, conformance, controller, driver, fault, hub, mounter, report, watch};

/// Watches the health of Kubernetes volumes and heals them.
#[derive(Debug, Parser)]
#[command(version, propagate_version = true, max_term_width = 100)]
pub(crate) struct Cli {
    #[command(subcommand)]
    role: Role,
    #[command(flatten)]
    logging: Logging,
}

#[derive(Debug, Subcommand)]
enum Role {
    Agent(Box<agent::Args>),
    /// Judge how a CSI driver, any CSI driver, tells the health of volumes.
    Conformance(conformance::Args),
    Controller(Box<controller::Args>),
    /// Serve the reference CSI driver: volumes on loop devices or in userspace, health in both dialects.
    Driver(driver::Args),
    /// Hurt volumes of the reference driver in real ways, and undo it.
    Fault(fault::Args),
    Hub(Box<hub::Args>),
    /// Serve one volume in userspace. Started by the driver.
    #[command(hide = true)]
    Mounter(mounter::Args),
    Report(report::Args),
    Watch(Box<watch::Args>),
}

impl Role {
    /// The number that sidecars written in Go take for how much to log.
    fn verbosity(&self) -> Option<u8> {
        if let Self::Controller(args) = self { args.verbosity() } else { None }
    }

    /// What is logged if nobody says otherwise. Where the output is for people, log lines would be in the way.
    fn usual_level(&self) -> Option<Level> {
        if let Self::Watch(args) = self { args.usual_level() } else { Some(Level::INFO) }
    }
}

pub(crate) fn run(cli: Cli) -> ExitCode {
    cli.logging.start(cli.role.verbosity(), cli.role.usual_level());
    let outcome = match cli.role {
        Role::Agent(args) => agent::run(*args),
        Role::Conformance(args) => conformance::run(args),
        Role::Controller(args) => controller::run(*args),
        Role::Driver(args) => driver::run(args),
        Role::Fault(args) => fault::run(args),
        Role::Hub(args) => hub::run(*args),
        Role::Mounter(args) => mounter::run(args),
        Role::Report(args) => report::run(args),
        Role::Watch(args) => watch::run(*args),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // There is nobody left to tell if this fails too.
            let _ = writeln!(io::stderr(), "volmedic: {}", chain(&*error));
            ExitCode::FAILURE
        }
    }
}

/// An error and its causes, each once.
fn chain(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(next) = cause {
        let next_text = next.to_string();
        if !text.contains(&next_text) {
            text.push_str(": ");
            text.push_str(&next_text);
        }
        cause = next.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_sound() {
        super::Cli::command().debug_assert();
    }
}
