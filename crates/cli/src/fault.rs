//! Injecting faults into volumes of the reference driver, for tests and demonstrations.

use std::error::Error;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use clap::Subcommand;
use volmedic_driver::StateDir;
use volmedic_driver::fault::{Fault, Faults, Kind};
use volmedic_view::text::wrap;

use volmedic_runtime::terminal::size;

/// From this similarity on a name is suggested, together with those that are nearly as similar as the best.
const SIMILAR: f64 = 0.7;
const ALIKE: f64 = 0.05;

const EXIT_CODES: &str = "\
Exit codes: 0 when it was done, 1 when it failed, 2 when the command line is wrong.";

#[derive(Debug, clap::Args)]
#[command(after_help = format!("\
Examples, on a driver with the state directory /var/lib/volmedic-driver:
  volmedic fault list
  volmedic fault inject mounter-killed --state-dir /var/lib/volmedic-driver --volume vol-1
  volmedic fault clear mounter-killed --state-dir /var/lib/volmedic-driver --volume vol-1

{EXIT_CODES}"))]
pub struct Args {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// List all faults, or those that are injected.
    #[command(after_help = format!("\
Examples:
  volmedic fault list
  volmedic fault list --state-dir /var/lib/volmedic-driver --volume vol-1

{EXIT_CODES}"))]
    List {
        /// State directory of a driver, to list the faults that are injected into it.
        #[arg(long, value_name = "PATH")]
        state_dir: Option<PathBuf>,
        /// Volume to list the injected faults of.
        #[arg(long, value_name = "ID", requires = "state_dir")]
        volume: Option<String>,
    },
    /// Inject a fault into a volume, or into the driver.
    #[command(after_help = format!("\
Example:
  volmedic fault inject read-only --state-dir /var/lib/volmedic-driver --volume vol-1

{EXIT_CODES}"))]
    Inject(Victim),
    /// Undo a fault that was injected.
    #[command(after_help = format!("\
Example:
  volmedic fault clear read-only --state-dir /var/lib/volmedic-driver --volume vol-1

{EXIT_CODES}"))]
    Clear(Victim),
}

#[derive(Debug, clap::Args)]
struct Victim {
    /// Name of the fault; `volmedic fault list` lists all.
    #[arg(value_parser = |name: &str| named(name, "volmedic fault list"))]
    fault: Fault,
    /// State directory of the driver.
    #[arg(long, value_name = "PATH")]
    state_dir: PathBuf,
    /// Id of the volume. Left out for faults of the driver itself.
    #[arg(long, value_name = "ID")]
    volume: Option<String>,
}

pub fn run(args: Args) -> Result<(), Box<dyn Error>> {
    match args.action {
        Action::List { state_dir: None, .. } => list(),
        Action::List { state_dir: Some(state), volume } => {
            let active = faults(&state)?.active(volume.as_deref())?;
            let names: Vec<String> = active.iter().map(|fault| format!("{fault}\n")).collect();
            say(&if names.is_empty() { "no fault is injected\n".to_owned() } else { names.concat() })
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
    let root = state.canonicalize().map_err(|error| {
        format!(
            "cannot find the state directory {}: {error}; give the --state-dir of the driver",
            state.display()
        )
    })?;
    Ok(Faults::at(StateDir::new(root)))
}

/// Prints every fault: its name, the kinds of volume that it fits, and what it does.
pub fn list() -> Result<(), Box<dyn Error>> {
    say(&catalogue(size().map_or(usize::MAX, |(columns, _)| columns)))
}

/// A line each; on a terminal that is too narrow for it, what a fault does goes on below.
fn catalogue(columns: usize) -> String {
    let rows = Fault::ALL.iter().map(|fault| (fault.name(), kinds(*fault), fault.what()));
    let rows = [("FAULT", "FITS".to_owned(), "WHAT IT DOES")].into_iter().chain(rows);
    rows.flat_map(|(name, kinds, what)| {
        let head = format!("{name:<22}{kinds:<16}");
        wrap(what, columns, &head, &" ".repeat(head.len()))
    })
    .map(|line| line + "\n")
    .collect()
}

/// The kinds of volume that a fault fits, in few words.
pub fn kinds(fault: Fault) -> String {
    let kinds = fault.kinds();
    let others: Vec<&str> =
        Kind::ALL.iter().filter(|kind| !kinds.contains(kind)).map(|kind| kind.name()).collect();
    match (kinds, others.as_slice()) {
        ([], _) => "the driver".to_owned(),
        (_, []) => "all".to_owned(),
        (_, [one]) => format!("all but {one}"),
        _ => kinds.iter().map(|kind| kind.name()).collect::<Vec<_>>().join(","),
    }
}

/// The fault of this name; or what it may have been meant to be, and the command that lists all.
pub fn named(name: &str, list: &str) -> Result<Fault, String> {
    let likeness = |fault: &&Fault| strsim::jaro(name, fault.name());
    name.parse().map_err(|_| {
        let best = Fault::ALL.iter().map(|fault| likeness(&fault)).fold(SIMILAR, f64::max);
        let similar = Fault::ALL.iter().filter(|fault| likeness(fault) > best - ALIKE).take(3);
        let names: Vec<&str> = similar.map(|fault| fault.name()).collect();
        let meant =
            if names.is_empty() { String::new() } else { format!("did you mean {}? ", names.join(" or ")) };
        format!("there is no fault {name:?}; {meant}`{list}` lists all")
    })
}

/// A reader that closes the pipe has read enough.
fn say(text: &str) -> Result<(), Box<dyn Error>> {
    match io::stdout().write_all(text.as_bytes()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(error.into()),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use volmedic_view::text::width;

    #[test]
    fn every_fault_has_a_line_and_fits_a_terminal_of_80_columns() {
        let whole = catalogue(usize::MAX);
        assert_eq!(whole.lines().count(), Fault::ALL.len() + 1);
        for (fault, line) in Fault::ALL.iter().zip(whole.lines().skip(1)) {
            let words = [fault.name(), &kinds(*fault), fault.what()];
            assert!(words.iter().all(|word| line.contains(word)), "{line}");
        }
        for line in catalogue(80).lines() {
            assert!(width(line) <= 80, "{line}");
        }
        assert_eq!(kinds(Fault::Full), "all but block");
        assert_eq!(kinds(Fault::Shutdown), "ext4,xfs");
        assert_eq!(kinds(Fault::DriverSlow), "the driver");
    }

    #[test]
    fn a_misspelt_name_is_reported_what_it_may_mean() {
        let reported = |name| named(name, "volmedic fault list").unwrap_err();
        assert_eq!(
            reported("fool"),
            "there is no fault \"fool\"; did you mean full? `volmedic fault list` lists all"
        );
        assert!(reported("mounter-kiled").contains("did you mean mounter-killed? "));
        assert_eq!(reported("zz"), "there is no fault \"zz\"; `volmedic fault list` lists all");
        assert_eq!(named("full", ""), Ok(Fault::Full));
    }
}
