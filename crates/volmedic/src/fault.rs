//! Hurting volumes of the reference driver, for tests and demonstrations.

use std::error::Error;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use clap::Subcommand;
use volmedic_driver::StateDir;
use volmedic_driver::fault::{Fault, Faults};

const EXIT_CODES: &str = "\
Exit codes: 0 when it was done, 1 when it could not be done, 2 when the command line is wrong.";

#[derive(Debug, clap::Args)]
#[command(after_help = format!("\
Examples, on a driver with the state directory /var/lib/volmedic-driver:
  volmedic fault list
  volmedic fault inject mounter-killed --state-dir /var/lib/volmedic-driver --volume vol-1
  volmedic fault clear mounter-killed --state-dir /var/lib/volmedic-driver --volume vol-1

{EXIT_CODES}"))]
pub(crate) struct Args {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// Show every fault, or those that are injected.
    #[command(after_help = format!("\
Examples:
  volmedic fault list
  volmedic fault list --state-dir /var/lib/volmedic-driver --volume vol-1

{EXIT_CODES}"))]
    List {
        /// Show what is injected into the driver with this state directory.
        #[arg(long, value_name = "PATH")]
        state_dir: Option<PathBuf>,
        /// Show what is injected into this volume.
        #[arg(long, value_name = "ID", requires = "state_dir")]
        volume: Option<String>,
    },
    /// Hurt a volume, or the driver.
    #[command(after_help = format!("\
Example:
  volmedic fault inject read-only --state-dir /var/lib/volmedic-driver --volume vol-1

{EXIT_CODES}"))]
    Inject(Victim),
    /// Undo it.
    #[command(after_help = format!("\
Example:
  volmedic fault clear read-only --state-dir /var/lib/volmedic-driver --volume vol-1

{EXIT_CODES}"))]
    Clear(Victim),
}

#[derive(Debug, clap::Args)]
struct Victim {
    /// The fault; `volmedic fault list` shows them.
    fault: Fault,
    /// The driver's state directory.
    #[arg(long, value_name = "PATH")]
    state_dir: PathBuf,
    /// The volume. Left out for faults of the driver itself.
    #[arg(long, value_name = "ID")]
    volume: Option<String>,
}

pub(crate) fn run(args: Args) -> Result<(), Box<dyn Error>> {
    match args.action {
        Action::List { state_dir: None, .. } => say(&catalogue()),
        Action::List { state_dir: Some(state), volume } => {
            let active = faults(&state)?.active(volume.as_deref())?;
            let names: Vec<String> = active.iter().map(|fault| format!("{fault}\n")).collect();
            say(&if names.is_empty() { "nothing is injected\n".to_owned() } else { names.concat() })
        }
        Action::Inject(Victim { fault, state_dir, volume }) => {
            faults(&state_dir)?.inject(fault, volume.as_deref())?;
            say(&format!("{fault} is injected. {}\nTo undo it, clear it: {}\n", fault.what(), fault.undone()))
        }
        Action::Clear(Victim { fault, state_dir, volume }) => {
            faults(&state_dir)?.clear(fault, volume.as_deref())?;
            say(&format!("{fault} is cleared. {}\n", fault.undone()))
        }
    }
}

fn faults(state: &Path) -> Result<Faults, Box<dyn Error>> {
    let root = state
        .canonicalize()
        .map_err(|error| format!("the state directory {} cannot be found: {error}", state.display()))?;
    Ok(Faults::at(StateDir::new(root)))
}

fn catalogue() -> String {
    let rows = Fault::ALL.iter().map(|fault| {
        let kinds: Vec<&str> = fault.kinds().iter().map(|kind| kind.name()).collect();
        let kinds = if kinds.is_empty() { "the driver".to_owned() } else { kinds.join(",") };
        format!("{:<22}{:<28}{}\n", fault.name(), kinds, fault.what())
    });
    format!("{:<22}{:<28}{}\n{}", "FAULT", "DONE TO", "WHAT IT DOES", rows.collect::<String>())
}

/// Whoever closes the pipe has read enough.
fn say(text: &str) -> Result<(), Box<dyn Error>> {
    match io::stdout().write_all(text.as_bytes()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(error.into()),
        _ => Ok(()),
    }
}
