//! Logs go to standard error, for people or as JSON.

use std::io;

use clap::{Args, ValueEnum};
use tracing::Level;

#[derive(Debug, Args)]
#[command(next_help_heading = "Logging")]
pub(crate) struct Logging {
    /// Log this and everything more serious: error, warn, info, debug or trace.
    #[arg(long, global = true, default_value = "info", value_name = "LEVEL")]
    log_level: Level,
    /// How log lines look.
    #[arg(long, global = true, value_enum, default_value_t = Format::Text, value_name = "FORMAT")]
    log_format: Format,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Format {
    Text,
    Json,
}

impl Logging {
    /// `verbosity` is the number that sidecars written in Go take; it can only make the log longer.
    pub(crate) fn start(&self, verbosity: Option<u8>) {
        let level = match verbosity {
            Some(8..) => Level::TRACE,
            Some(5..=7) => self.log_level.max(Level::DEBUG),
            _ => self.log_level,
        };
        let builder = tracing_subscriber::fmt().with_max_level(level).with_writer(io::stderr);
        match self.log_format {
            Format::Text => builder.with_ansi(io::IsTerminal::is_terminal(&io::stderr())).init(),
            Format::Json => builder.json().init(),
        }
    }
}
