//! The command line, and what each command runs.

use std::error::Error;
use std::process::ExitCode;

use clap::{CommandFactory, Parser, Subcommand};
use tracing::Level;

use volmedic_cli::{conformance, doctor, explain, fault, heal, report, status};
use volmedic_roles::{agent, controller, driver, hub, mounter, watch};
use volmedic_runtime::logging::{self, Delivery, Logging};

use crate::manual;

/// Watches the health of Kubernetes volumes and heals them.
#[derive(Debug, Parser)]
#[command(
    version,
    propagate_version = true,
    max_term_width = 100,
    after_help = "\
Examples:
  volmedic demo                                                # volumes that fail and heal, on this machine
  volmedic watch --csi-address unix:///run/csi.sock            # any CSI driver, no cluster
  volmedic status                                              # a cluster's volumes, worst first
  volmedic help agent                                          # what a command takes

Exit codes: 0 on success, 1 when something failed (the last line on standard error says what), 2 when the command
line is wrong. Some commands have more; their own help says so."
)]
pub(crate) struct Cli {
    #[command(subcommand)]
    role: Role,
    #[command(flatten)]
    logging: Logging,
}

#[derive(Debug, Subcommand)]
enum Role {
    Agent(Box<agent::Args>),
    #[command(visible_alias = "completion")]
    Completions(manual::completions::Args),
    /// Check how any CSI driver reports the health of its volumes.
    Conformance(conformance::Args),
    Controller(Box<controller::Args>),
    Demo(volmedic_demo::Args),
    Doctor(doctor::Args),
    /// Serve the reference CSI driver: volumes on loop devices or in userspace, health in both dialects.
    Driver(driver::Args),
    Explain(Box<explain::Args>),
    /// Inject real faults into volumes of the reference driver, and undo them.
    Fault(fault::Args),
    Heal(heal::Args),
    Hub(Box<hub::Args>),
    Man(manual::man::Args),
    /// Serve one volume in userspace. Started by the driver.
    #[command(hide = true)]
    Mounter(mounter::Args),
    Report(report::Args),
    Status(Box<status::Args>),
    Watch(Box<watch::Args>),
}

impl Role {
    /// The number that sidecars written in Go take for how much to log.
    fn verbosity(&self) -> Option<u8> {
        if let Self::Controller(args) = self { args.verbosity() } else { None }
    }

    /// What runs permanently must not wait until its log is read.
    fn delivery(&self) -> Delivery {
        match self {
            Self::Agent(_) | Self::Controller(_) | Self::Driver(_) | Self::Hub(_) | Self::Mounter(_) => {
                Delivery::Lossy
            }
            _ => Delivery::Complete,
        }
    }

    /// The default log level. Where the output is for people, log lines would be in the way.
    fn usual_level(&self) -> Option<Level> {
        match self {
            Self::Demo(args) => args.usual_level(),
            // What goes wrong is their answer.
            Self::Doctor(_) | Self::Explain(_) => None,
            Self::Status(args) => args.usual_level(),
            Self::Watch(args) => args.usual_level(),
            _ => Some(Level::INFO),
        }
    }
}

pub(crate) fn run(cli: Cli) -> ExitCode {
    cli.logging.start(cli.role.verbosity(), cli.role.usual_level(), cli.role.delivery());
    let outcome = match cli.role {
        Role::Agent(args) => agent::run(*args),
        Role::Completions(args) => manual::completions::run(&args, Cli::command()),
        Role::Conformance(args) => return ended(conformance::run(args)),
        Role::Controller(args) => controller::run(*args),
        Role::Demo(args) => volmedic_demo::run(args),
        Role::Doctor(args) => return ended(doctor::run(&args)),
        Role::Driver(args) => driver::run(args),
        Role::Explain(args) => return ended(explain::run(*args)),
        Role::Fault(args) => fault::run(args),
        Role::Heal(args) => return ended(heal::run(&args)),
        Role::Hub(args) => hub::run(*args),
        Role::Man(args) => manual::man::run(&args, Cli::command()),
        Role::Mounter(args) => mounter::run(args),
        Role::Report(args) => report::run(args),
        Role::Status(args) => return ended(status::run(*args)),
        Role::Watch(args) => watch::run(*args),
    };
    ended(outcome.map(|()| ExitCode::SUCCESS))
}

/// What the exit code is, and what is said of a failure.
fn ended(outcome: Result<ExitCode, Box<dyn Error>>) -> ExitCode {
    match outcome {
        Ok(code) => code,
        Err(error) => {
            logging::say(&format!("volmedic: {}", chain(&*error)));
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
