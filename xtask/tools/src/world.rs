//! `cargo xtask world`: drivers of other projects on a real cluster, and what Volmedic reports of faults in their volumes.
//!
//! The run itself is a test of the program, because it starts a cluster as tests do. It writes its results as data; the
//! table in the documentation is generated from that, and nothing in it is written by hand.

use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, Result, anyhow};

use crate::child;
use crate::codegen;
use crate::workspace::{self, Workspace};

mod rules;
mod table;

/// What the run measured.
const RESULTS: &str = "docs/driver-results.json";
const PAGE: &str = "docs/driver-matrix.md";
/// The same for the conformance rules.
const CONFORMANCE: &str = "docs/conformance-hostpath.json";
const CONFORMANCE_PAGE: &str = "docs/conformance-hostpath.md";
/// For the builds and all drivers.
const LIMIT: Duration = Duration::from_hours(3);

/// Run drivers of other projects on a real cluster and write what is reported of faults into the driver matrix
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Needs root. The first run builds the drivers from their Go modules; a run takes up to an hour. The results \
                  are in docs/driver-results.json, the table made of them in docs/driver-matrix.md.\n\n\
                  Exit codes: 0 the run was whole or the page is up to date, 1 it was not, 2 the command line is wrong."
)]
pub(crate) struct Args {
    /// Driver to run: hostpath, local-path or juicefs. May be given several times; without it all are
    #[arg(long, value_parser = ["hostpath", "local-path", "juicefs"])]
    driver: Vec<String>,
    /// Run nothing; write the table from the results that there are
    #[arg(long, conflicts_with = "driver")]
    table: bool,
    /// Run and write nothing; fail if the table is not the one of the results
    #[arg(long, conflicts_with_all = ["driver", "table"])]
    check: bool,
}

pub(crate) fn run(workspace: &Workspace, args: &Args) -> Result<()> {
    if !args.table && !args.check {
        let mut command = workspace::cargo();
        command.args(["test", "--package=volmedic", "--test=cluster", "--"]);
        // One after the other: each has the machine to itself, and waits for that only for a while.
        command.args(["--ignored", "--nocapture", "--test-threads=1", "--exact"]);
        command.arg("foreign::world::drivers_of_other_projects");
        command.arg("foreign::conformance::the_rules_are_checked_with_hostpath");
        if args.driver.is_empty() || args.driver.iter().any(|driver| driver == "juicefs") {
            command.arg("foreign::heal::a_juicefs_volume_whose_mount_process_died_is_healed_by_a_new_pod");
        }
        command.current_dir(&workspace.root).stdin(Stdio::null());
        command.env("VOLMEDIC_WORLD_RESULTS", workspace.root.join(RESULTS));
        command.env("VOLMEDIC_WORLD_DRIVERS", args.driver.join(","));
        command.env("VOLMEDIC_WORLD_CONFORMANCE", workspace.root.join(CONFORMANCE));
        child::wait(command, LIMIT).map_err(|why| anyhow!("the run {why}"))?;
    }
    let stale = codegen::settle(workspace, &pages(workspace)?, "cargo xtask world --table", args.check)?;
    if args.check && stale > 0 {
        return Err(anyhow!("the pages are out of date; run `cargo xtask world --table` and commit them"));
    }
    Ok(())
}

/// The pages that are made of the results.
fn pages(workspace: &Workspace) -> Result<Vec<(&'static str, String)>> {
    let read = |path: &str| {
        let path = workspace.root.join(path);
        std::fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))
    };
    let senseless = |path: &str| format!("{path} makes no sense; run `cargo xtask world`");
    let rows: Vec<table::Row> = serde_json::from_str(&read(RESULTS)?).with_context(|| senseless(RESULTS))?;
    let report = serde_json::from_str(&read(CONFORMANCE)?).with_context(|| senseless(CONFORMANCE))?;
    Ok(vec![(PAGE, table::insert(&read(PAGE)?, &rows)?), (CONFORMANCE_PAGE, rules::page(&report))])
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Cli {
        #[command(flatten)]
        args: Args,
    }

    #[test]
    fn bad_arguments_are_refused_with_two() {
        for arguments in
            [&["--driver", "ceph"][..], &["--check", "--table"], &["--check", "--driver", "juicefs"]]
        {
            let error = Cli::try_parse_from([&["world"], arguments].concat()).err().unwrap();
            assert_eq!(error.exit_code(), 2, "{arguments:?}");
        }
    }

    #[test]
    fn the_pages_in_the_documentation_are_those_of_the_results() {
        let workspace = Workspace::here().unwrap();
        for (path, made) in pages(&workspace).unwrap() {
            let there = std::fs::read_to_string(workspace.root.join(path)).unwrap();
            assert_eq!(there, made, "{path}: run `cargo xtask world --table`");
        }
    }
}
