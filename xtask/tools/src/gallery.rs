//! `cargo xtask gallery`: every fault on every kind of volume with a real agent, and the table of its reports.
//!
//! The gallery itself is a test of the program, because it starts the roles as tests do. This runs it and shows the
//! table. The duration can be set.

use std::process::Stdio;
use std::time::Duration;

use anyhow::{Result, anyhow, bail};

use crate::child;
use crate::workspace::{self, Workspace};

const PAGE: &str = "docs/gallery.md";
const HEALTHY: &str = "VOLMEDIC_GALLERY_HEALTHY";
const WRITTEN: &str = "VOLMEDIC_GALLERY_PAGE";
/// For the build and all faults.
const LIMIT: Duration = Duration::from_hours(1);
const LONGEST: Duration = Duration::from_hours(24);

/// Inject every fault into real volumes and show what the agent reports
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Needs root, and takes a few minutes.\n\nExit codes: 0 every fault was reported as expected, and nothing else; 1 \
                  something was not; 2 the command line is wrong."
)]
pub(crate) struct Args {
    /// How long the healthy volumes are watched, as in 90s, 10m or 1h
    #[arg(long, default_value = "20s", value_parser = duration, value_name = "DURATION")]
    healthy_for: Duration,
    /// Write the table to docs/gallery.md
    #[arg(long)]
    write: bool,
    /// Only the part whose name has this word, as in nothing_is_told
    #[arg(value_name = "PART", conflicts_with = "write")]
    part: Option<String>,
}

pub(crate) fn run(workspace: &Workspace, args: &Args) -> Result<()> {
    let mut command = workspace::cargo();
    command.args(["test", "--package=volmedic", "--test=gallery", "--", "--nocapture"]);
    command.args(&args.part).current_dir(&workspace.root).stdin(Stdio::null());
    command.env(HEALTHY, args.healthy_for.as_secs().to_string());
    if args.write {
        command.env(WRITTEN, workspace.root.join(PAGE));
    }
    child::wait(command, LIMIT + args.healthy_for).map_err(|why| anyhow!("the gallery {why}"))
}

fn duration(text: &str) -> Result<Duration> {
    let (number, unit) = text.split_at(text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len()));
    let each = match unit {
        "s" => 1,
        "m" => 60,
        "h" => 3600,
        _ => bail!("it must be a number and a unit, as in 90s, 10m or 1h"),
    };
    let seconds = number.parse::<u64>().ok().and_then(|number| number.checked_mul(each));
    match seconds.map(Duration::from_secs) {
        Some(duration) if !duration.is_zero() && duration <= LONGEST => Ok(duration),
        _ => bail!("it must be at least 1s and at most 24h"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_read_and_odd_ones_refused() {
        let seconds =
            |text: &str| duration(text).map(|duration| duration.as_secs()).map_err(|why| why.to_string());
        assert_eq!(seconds("90s"), Ok(90));
        assert_eq!(seconds("10m"), Ok(600));
        assert_eq!(seconds("1h"), Ok(3600));
        for odd in ["", "10", "m", "1.5h", "-1s", "1d", "10m5s"] {
            assert!(seconds(odd).is_err(), "{odd}");
        }
        for out_of_range in ["0s", "25h", "99999999999999999999s", "18446744073709551615h"] {
            assert!(seconds(out_of_range).unwrap_err().contains("at most 24h"), "{out_of_range}");
        }
    }
}
