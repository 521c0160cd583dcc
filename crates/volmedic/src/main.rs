//! The binary: arguments, roles, wiring, exit codes. Each role has a file of its own.

mod agent;
mod allocator;
mod app;
mod cluster;
mod conformance;
mod controller;
mod demo;
mod doctor;
mod driver;
mod explain;
mod fault;
mod flags;
mod heal;
mod http;
mod hub;
mod listen;
mod logging;
mod look;
mod manual;
mod mounter;
mod page;
mod report;
mod signals;
mod size;
mod status;
mod terminal;
mod watch;
mod ways;

use std::process::ExitCode;

use clap::Parser;

fn main() -> ExitCode {
    // This program is also its own helper; then nothing below runs.
    volmedic_host::helper::run_if_asked();
    allocator::tune();
    let words = controller::with_two_dashes(std::env::args_os().collect());
    app::run(app::Cli::parse_from(words))
}
