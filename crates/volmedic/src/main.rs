//! The binary: the command line and exit codes. What a command does is in `volmedic-roles`, `volmedic-cli` or `volmedic-demo`.

mod allocator;
mod app;
mod manual;

use std::process::ExitCode;

use clap::Parser;

fn main() -> ExitCode {
    volmedic_panics::end_process_on_panic();
    // This program is also its own helper; then nothing below runs.
    volmedic_host::helper::run_if_asked();
    allocator::tune();
    if let Some(words) = manual::completions::asked(std::env::args_os()) {
        return manual::completions::complete(&words);
    }
    let words = volmedic_roles::controller::with_two_dashes(std::env::args_os().collect());
    let code = app::run(app::Cli::parse_from(words));
    volmedic_runtime::logging::flush();
    code
}
