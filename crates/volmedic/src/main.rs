//! The binary: arguments, roles, wiring, exit codes. Each role has a file of its own.

mod app;
mod conformance;
mod controller;
mod driver;
mod fault;
mod http;
mod logging;
mod mounter;
mod size;

use std::process::ExitCode;

use clap::Parser;

fn main() -> ExitCode {
    // This program is also its own helper; then nothing below runs.
    volmedic_host::helper::run_if_asked();
    let words = controller::with_two_dashes(std::env::args_os().collect());
    app::run(app::Cli::parse_from(words))
}
