//! `cargo xtask simulate`: builds the simulator and runs histories from seeds; with `--mutations`, also against versions of the
//! product that are wrong on purpose.

mod mutations;
mod page;

use std::path::Path;
use std::time::Duration;

use anyhow::{Result, anyhow};

use crate::child;
use crate::workspace::{self, Workspace};
use page::Outcome;

/// For one build, on a machine that compiles everything.
const BUILD: Duration = Duration::from_hours(1);
const LONGEST: Duration = Duration::from_hours(24);
/// With fewer histories the figures in the page stay as they are.
const FIGURES: u64 = 1_000;

/// Run histories of faults from seeds, and compare what is reported with the truth
#[derive(Debug, clap::Args)]
#[command(
    after_help = "The first wrong history is printed, as short as it can be made. With 1000 histories or more, their figures \
                        are written to docs/reliability.md.\n\nExit codes: 0 every history was right, \
                        or every mutation was found; 1 one was not; 2 the command line is wrong."
)]
pub(crate) struct Args {
    /// Number of histories, for each mutation if there are any
    #[arg(long, default_value_t = 200, value_parser = clap::value_parser!(u64).range(1..), value_name = "N")]
    seeds: u64,
    /// First seed. Default: a fresh one, which is printed
    #[arg(long, value_name = "SEED")]
    seed: Option<u64>,
    /// Print everything that happens in this one history
    #[arg(long, value_name = "SEED", conflicts_with_all = ["seeds", "seed"])]
    replay: Option<u64>,
    /// Steps that are left out of the replayed history, as a failing run prints them
    #[arg(long, value_name = "NUMBERS", requires = "replay", default_value = "", hide_default_value = true)]
    without: String,
    /// Check that the simulator finds each of the defects in its list
    #[arg(long, conflicts_with = "replay")]
    mutations: bool,
    /// Only mutations whose name has this word
    #[arg(long, value_name = "WORD", requires = "mutations", default_value = "", hide_default_value = true)]
    only: String,
}

pub(crate) fn run(workspace: &Workspace, args: &Args) -> Result<()> {
    if args.mutations {
        return mutations::run(workspace, args.seed.unwrap_or(1), args.seeds, &args.only);
    }
    build(&workspace.root, &workspace.target)?;
    let mut command = std::process::Command::new(workspace.target.join("debug/volmedic-sim"));
    if let Some(seed) = args.replay {
        command.args(["one", &seed.to_string(), "--transcript", &format!("--without={}", args.without)]);
    } else {
        let tally = workspace.target.join("simulate.tally");
        command.args(["many", &format!("--seeds={}", args.seeds)]);
        command.args(args.seed.map(|seed| format!("--seed={seed}")));
        command.arg("--tally").arg(&tally);
        child::wait(command, LONGEST).map_err(|why| anyhow!("the simulation {why}"))?;
        return if args.seeds < FIGURES { Ok(()) } else { Outcome::read(&tally)?.write(&workspace.root) };
    }
    child::wait(command, LONGEST).map_err(|why| anyhow!("the simulation {why}"))
}

fn build(root: &Path, target: &Path) -> Result<()> {
    let mut cargo = workspace::cargo();
    cargo
        .args(["build", "--quiet", "--package=volmedic-sim"])
        .current_dir(root)
        .env("CARGO_TARGET_DIR", target);
    child::wait(cargo, BUILD).map_err(|why| anyhow!("the build of the simulator {why}"))
}
