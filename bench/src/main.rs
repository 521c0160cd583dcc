//! Measures whole roles as processes, against what they are meant to keep. `cargo xtask bench` runs it.

use std::process::ExitCode;

use clap::{Parser, Subcommand};

mod agent;
mod audit;
mod bare;
mod cli;
mod controller;
mod fill;
mod ground;
mod machine;
mod news;
mod page;
mod peer;
mod process;
mod say;

#[derive(Parser)]
#[command(
    name = "volmedic-bench",
    about = "Measures Volmedic's roles",
    after_help = "Exit codes: 0 everything was measured, 1 something could not be (the last line says what), 2 the \
                  command line is wrong."
)]
struct Cli {
    #[command(subcommand)]
    role: Role,
}

#[derive(Subcommand)]
enum Role {
    /// The agent on a node with a thousand volumes, at rest and while ten of them hang. Needs root
    Agent(agent::Args),
    /// `status` beside kubectl, on a real API server with many claims
    Cli(cli::Args),
    /// The controller, at rest and while a thousand volumes fail, against a real API server
    Controller(controller::Args),
    /// Drain a list and do nothing with it: what the controller's passes are compared with
    #[command(hide = true)]
    Drain(bare::Args),
}

fn main() -> ExitCode {
    let done = match Cli::parse().role {
        Role::Agent(args) => agent::run(args),
        Role::Cli(args) => cli::run(args),
        Role::Controller(args) => controller::run(args),
        Role::Drain(args) => bare::run(&args),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            say::line(&format!("error: {error:#}"));
            ExitCode::FAILURE
        }
    }
}
