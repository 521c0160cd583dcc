//! Logs go to standard error, for people or as JSON.

use std::io;

use clap::{Args, ValueEnum};
use tracing::Level;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{Layer, fmt};

#[derive(Debug, Args)]
#[command(next_help_heading = "Logging")]
pub struct Logging {
    /// Lowest level to log: error, warn, info, debug or trace. Default: info; less for commands whose
    /// output is for people.
    #[arg(long, global = true, value_name = "LEVEL")]
    log_level: Option<Level>,
    /// Format of log lines.
    #[arg(long, global = true, value_enum, default_value_t = Format::Text, value_name = "FORMAT")]
    log_format: Format,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Format {
    Text,
    Json,
}

/// Libraries that print whole answers, which may be megabytes or hold what is not for the log, may only name errors;
/// the others stay quiet below warnings unless everything is asked for.
fn filter(level: Level) -> Targets {
    let others = if level == Level::TRACE { level } else { level.min(Level::WARN) };
    let quiet = volmedic_inventory::LOUD_TARGETS.iter().chain(&["tonic", "h2"]);
    Targets::new()
        .with_default(others)
        .with_target("volmedic", level)
        .with_targets(quiet.map(|target| (*target, Level::ERROR)))
}

impl Logging {
    /// `verbosity` is the number that sidecars written in Go take; it can only make the log longer. `usual` is
    /// what is logged by default; nothing if absent.
    pub fn start(&self, verbosity: Option<u8>, usual: Option<Level>) {
        let Some(asked) = self.log_level.or(usual) else { return };
        let level = match verbosity {
            Some(8..) => Level::TRACE,
            Some(5..=7) => asked.max(Level::DEBUG),
            _ => asked,
        };
        let lines = fmt::layer().with_writer(io::stderr);
        let lines = match self.log_format {
            Format::Text => lines.with_ansi(io::IsTerminal::is_terminal(&io::stderr())).boxed(),
            Format::Json => lines.json().boxed(),
        };
        tracing_subscriber::registry().with(filter(level).and_then(lines)).init();
    }
}
