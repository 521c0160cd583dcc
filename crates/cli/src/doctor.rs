//! `volmedic doctor`: what is installed, who looks at what, what nobody sees, and how to mend each.

mod examine;
mod findings;
mod gate;
mod parts;
mod rights;
mod text;

use std::error::Error;
use std::io::{self, Write};
use std::process::ExitCode;

use jiff::Timestamp;
use volmedic_view::render::json;

use crate::look::{self, Progress, ReachArgs, innermost};
use findings::{Level, Report};
use volmedic_runtime::terminal::{paint, say};

/// Something is to be mended; the cluster could not be examined at all.
const MEND: u8 = 1;
const UNREACHED: u8 = 3;

/// Examine the installation: what runs, which drivers tell what, what nobody sees, who lacks which rights.
///
/// Each finding that is to be mended comes with what to do. Nothing is written; what you may not read is said.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  volmedic doctor
  volmedic doctor --context staging
  volmedic doctor -o json | jq '.findings[] | select(.level == \"mend\")'

Exit codes: 0 when nothing is to be mended; 1 when something is; 2 when the command line is wrong; 3 when the cluster cannot
be examined, or you may read too little of it to say.")]
pub struct Args {
    /// How it is shown.
    #[arg(long, short, value_enum, default_value_t = Output::Text, value_name = "FORMAT")]
    output: Output,
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
            // There is nobody left to tell if this fails too.
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
    let progress = Progress::start();
    let facts = Box::pin(examine::examine(&reach, &progress, Timestamp::now())).await;
    drop(progress);
    let report = Report::new(&facts);
    match args.output {
        Output::Json => say(&json(&report)?)?,
        Output::Text => say(&text::compose(&report, paint()))?,
    }
    let mend = report.findings.iter().any(|finding| finding.level == Level::Mend);
    Ok(match (mend, report.partial) {
        (true, _) => ExitCode::from(MEND),
        (false, true) => ExitCode::from(UNREACHED),
        (false, false) => ExitCode::SUCCESS,
    })
}
