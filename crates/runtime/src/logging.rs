//! Logs go to standard error, for people or as JSON.

mod queue;

use std::io::{self, Write};
use std::sync::OnceLock;
use std::time::Duration;

use clap::{Args, ValueEnum};
use tracing::Level;
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::fmt::writer::BoxMakeWriter;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{Layer, fmt};
use volmedic_panics::Outlet;

use queue::{Notice, Queue, to_stderr};

/// For what is still to be written when the process ends; whatever reads it may have stopped.
const FLUSH: Duration = Duration::from_secs(3);

/// What a process does while nothing reads its log, as when the log pipe of a container is full.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Delivery {
    /// It waits: nothing is lost. For commands that answer and exit.
    Complete,
    /// It goes on, drops lines and says how many. For roles, which have more important things to do.
    Lossy,
}

static QUEUE: OnceLock<Queue> = OnceLock::new();

/// Writes a line that is no log line, behind all log lines.
pub fn say(line: &str) {
    match QUEUE.get() {
        Some(queue) => queue.push(format!("{line}\n").into_bytes()),
        // If this fails too, there is nowhere left to report it.
        None => drop(writeln!(io::stderr(), "{line}")),
    }
}

/// Waits until all lines are written, for a few seconds if nothing reads them. Called before the process ends.
pub fn flush() {
    if let Some(queue) = QUEUE.get() {
        queue.flush(FLUSH);
    }
}

/// The lines' own thread, for all of the process. Without it, if it cannot start, lines are written where they come up.
fn queue(notice: Notice) -> Option<&'static Queue> {
    let queue = Queue::start(notice, to_stderr).ok()?;
    volmedic_panics::report_through(Outlet { write: say, flush });
    Some(QUEUE.get_or_init(|| queue))
}

fn dropped(count: u64) -> String {
    format!("{count} log lines were dropped, because standard error was not read")
}

fn notice_as_text(count: u64) -> Vec<u8> {
    let now = jiff::Timestamp::now();
    format!("{now:.6}  WARN {}: {}\n", module_path!(), dropped(count)).into_bytes()
}

fn notice_as_json(count: u64) -> Vec<u8> {
    let fields = serde_json::json!({"message": dropped(count), "dropped": count});
    let timestamp = format!("{:.6}", jiff::Timestamp::now());
    let line = serde_json::json!({
        "timestamp": timestamp, "level": "WARN", "fields": fields, "target": module_path!(),
    });
    format!("{line}\n").into_bytes()
}

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

/// Reports each answer of 500 and above as an error, without what was asked. The part that asked reports it, too, where it
/// is an error: a release of Kubernetes that does not know a field answers so.
const ANSWERS: &str = "kube_client::client::builder";

/// Libraries that print whole answers, which may be megabytes or hold what is not for the log, may only name errors;
/// the others stay quiet below warnings unless everything is asked for.
fn filter(level: Level) -> Targets {
    let others = if level == Level::TRACE { level } else { level.min(Level::WARN) };
    let quiet = volmedic_inventory::LOUD_TARGETS.iter().chain(&["tonic", "h2"]);
    let answers = if level >= Level::DEBUG { LevelFilter::ERROR } else { LevelFilter::OFF };
    Targets::new()
        .with_default(others)
        .with_target("volmedic", level)
        .with_targets(quiet.map(|target| (*target, Level::ERROR)))
        .with_target(ANSWERS, answers)
}

impl Logging {
    /// `verbosity` is the number that sidecars written in Go take; it can only make the log longer. `usual` is
    /// what is logged by default; nothing if absent.
    pub fn start(&self, verbosity: Option<u8>, usual: Option<Level>, delivery: Delivery) {
        let Some(asked) = self.log_level.or(usual) else { return };
        let level = match verbosity {
            Some(8..) => Level::TRACE,
            Some(5..=7) => asked.max(Level::DEBUG),
            _ => asked,
        };
        let notice = match self.log_format {
            Format::Text => notice_as_text,
            Format::Json => notice_as_json,
        };
        let queue = if delivery == Delivery::Lossy { queue(notice) } else { None };
        let writer = match queue {
            Some(queue) => BoxMakeWriter::new(queue.clone()),
            None => BoxMakeWriter::new(io::stderr),
        };
        let lines = fmt::layer().with_writer(writer);
        let lines = match self.log_format {
            Format::Text => lines.with_ansi(io::IsTerminal::is_terminal(&io::stderr())).boxed(),
            Format::Json => lines.json().boxed(),
        };
        tracing_subscriber::registry().with(filter(level).and_then(lines)).init();
    }
}

#[cfg(test)]
mod tests;
