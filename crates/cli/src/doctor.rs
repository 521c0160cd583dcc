//! `volmedic doctor`: what is installed, what is probed, what is not covered, and how to fix each problem.

mod before;
mod bundle;
mod examine;
mod findings;
mod gate;
mod parts;
mod rights;
mod text;

use std::error::Error;
use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use jiff::Timestamp;
use tokio::time::{Instant, sleep};
use volmedic_runtime::flags::positive;
use volmedic_runtime::terminal::{paint, say};
use volmedic_view::render::json;

use crate::look::{self, Progress, Reach, ReachArgs, innermost};
use findings::{Area, Report};

/// There is a problem; the cluster cannot be checked, or the archive cannot be written.
const PROBLEM: u8 = 1;
const UNREACHED: u8 = 3;
/// Between two checks with `--wait`.
const PAUSE: Duration = Duration::from_secs(2);

/// Check the installation: what runs, what each driver reports, what is not probed, and which rights are missing.
///
/// Each problem comes with what to do. Nothing in the cluster is changed.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  volmedic doctor
  volmedic doctor --pre                       # before installing
  volmedic doctor --wait 2m                   # after installing
  volmedic doctor --bundle report.tar --redact
  volmedic doctor -o json | jq '.findings[] | select(.level == \"problem\")'

Exit codes: 0 when there is no problem; 1 when there is one; 2 when the command line is wrong; 3 when the cluster cannot be
checked, you may read too little of it to be sure, or the archive cannot be written.")]
pub struct Args {
    /// Output format.
    #[arg(long, short, value_enum, default_value_t = Output::Text, value_name = "FORMAT")]
    output: Output,
    /// Only findings about these; the exit code then depends on these only.
    #[arg(long, value_enum, value_delimiter = ',', value_name = "AREA")]
    area: Vec<Area>,
    /// Check again until there is no problem, for this long at most.
    #[arg(long, value_parser = positive, value_name = "DURATION")]
    wait: Option<Duration>,
    /// Check before installing: versions, your rights, Pod Security, SELinux, and directories that differ.
    #[arg(long, conflicts_with_all = ["area", "bundle"])]
    pre: bool,
    /// The namespace in which Volmedic will be installed, for --pre.
    #[arg(long, short, default_value = "volmedic", requires = "pre", value_name = "NAMESPACE")]
    namespace: String,
    /// Also write an archive for a bug report: findings, Volmedic's objects and logs, and what it reads of other objects.
    /// No Secret is read.
    #[arg(long, value_name = "FILE")]
    bundle: Option<PathBuf>,
    /// Replace names, volume handles and addresses in the archive by numbers, and leave out what Volmedic does not read.
    #[arg(long, requires = "bundle")]
    redact: bool,
    #[command(flatten)]
    reach: ReachArgs,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Output {
    Text,
    Json,
}

pub fn run(args: &Args) -> Result<ExitCode, Box<dyn Error>> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let outcome = runtime.block_on(doctor(args));
    runtime.shutdown_background();
    match outcome {
        Ok(code) => Ok(code),
        Err(error) if look::is_closed(&error) => Ok(ExitCode::SUCCESS),
        Err(error) => {
            // If this fails too, there is no other way to report it.
            let _ = writeln!(io::stderr(), "volmedic: {}", innermost_of(&error));
            Ok(ExitCode::from(UNREACHED))
        }
    }
}

fn innermost_of(error: &anyhow::Error) -> String {
    let (outer, inner) = (error.to_string(), innermost(&**error));
    if outer == inner { outer } else { format!("{outer}: {inner}") }
}

async fn doctor(args: &Args) -> anyhow::Result<ExitCode> {
    let reach = args.reach.reach().await?;
    let end = args.wait.map(|limit| Instant::now() + limit);
    let report = loop {
        let report = check(args, &reach).await;
        let settled = !report.partial && report.problems().next().is_none();
        if settled || end.is_none_or(|end| Instant::now() >= end) {
            break report;
        }
        sleep(PAUSE).await;
    };
    match args.output {
        Output::Json => say(&json(&report)?)?,
        Output::Text => say(&text::compose(&report, paint()))?,
    }
    if let Some(file) = &args.bundle {
        let written = bundle::write(&reach, &report, file, args.redact).await?;
        let _ = writeln!(io::stderr(), "{written}");
    }
    Ok(match (report.problems().next().is_some(), report.partial) {
        (true, _) => ExitCode::from(PROBLEM),
        (false, true) => ExitCode::from(UNREACHED),
        (false, false) => ExitCode::SUCCESS,
    })
}

async fn check(args: &Args, reach: &Reach) -> Report {
    let progress = Progress::start();
    let now = Timestamp::now();
    if args.pre {
        return before::check(reach, &args.namespace, now).await;
    }
    let mut report = Report::new(&Box::pin(examine::examine(reach, &progress, now)).await);
    if !args.area.is_empty() {
        report.keep(&args.area);
    }
    report
}
