//! `cargo xtask chart`: the manifests that are generated from the chart. Separate from `codegen`, because it needs helm,
//! which is built from its Go module first.

use anyhow::{Result, bail};
use volmedic_testkit::helm::Chart;

use crate::codegen;
use crate::workspace::Workspace;

/// Write the manifests that are generated from the Helm chart
#[derive(Debug, clap::Args)]
#[command(after_help = "The first run builds helm, which takes minutes.\n\n\
                        Exit codes: 0 all files are up to date, 1 they are not or could not be made, 2 the command line is wrong.")]
pub(crate) struct Args {
    /// Write nothing; fail when a file is not what would be written
    #[arg(long)]
    check: bool,
}

pub(crate) fn run(workspace: &Workspace, args: &Args) -> Result<()> {
    let chart = Chart::of(&workspace.root)?;
    chart.lint()?;
    let made = chart.manifests()?;
    let stale = codegen::settle(workspace, &made, "cargo xtask chart", args.check)?;
    if args.check && stale > 0 {
        bail!("{stale} of {} manifests are out of date; run `cargo xtask chart` and commit them", made.len());
    }
    Ok(())
}
