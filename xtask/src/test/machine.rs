//! What a machine must have before the first step, and all that it lacks told in one go.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Result, bail};
use rustix::fs::statvfs;

use crate::workspace::{Package, Workspace, cargo};

use super::child;
use super::plan::{self, Step, Work};

/// A Debian package, the crates whose tests need it, and for what.
struct Need {
    package: &'static str,
    crates: &'static [&'static str],
    purpose: &'static str,
}

#[rustfmt::skip]
const NEEDS: &[Need] = &[
    Need { package: "btrfs-progs", crates: &["volmedic", "volmedic-driver"], purpose: "to make and check btrfs volumes" },
    Need { package: "busybox-static", crates: &["volmedic", "volmedic-testkit"], purpose: "to make the image of test pods" },
    Need { package: "chromium", crates: &["volmedic"], purpose: "to look at the page as people do" },
    Need { package: "containerd", crates: &["volmedic", "volmedic-testkit"], purpose: "to run test pods" },
    Need { package: "containernetworking-plugins", crates: &["volmedic", "volmedic-testkit"], purpose: "to give test pods a network" },
    Need { package: "e2fsprogs", crates: &["volmedic", "volmedic-driver", "volmedic-host"], purpose: "to make and check ext4 volumes" },
    Need { package: "groff-base", crates: &["volmedic"], purpose: "to judge the manual pages" },
    Need { package: "iproute2", crates: &["volmedic", "volmedic-testkit"], purpose: "to look after the network of test pods" },
    Need { package: "mount", crates: &["volmedic", "volmedic-driver", "volmedic-host", "volmedic-testkit"], purpose: "to mount volumes" },
    Need { package: "prometheus", crates: &["volmedic"], purpose: "to try the alerts with promtool" },
    Need { package: "runc", crates: &["volmedic", "volmedic-testkit"], purpose: "to run test pods" },
    Need { package: "xfsprogs", crates: &["volmedic", "volmedic-driver"], purpose: "to make and check xfs volumes" },
];

/// Crates whose tests build something with Go, besides those that start a cluster.
const GO: &[&str] = &["volmedic-driver", "volmedic-proto"];

/// A whole build takes less; running out in the middle of one gives errors that nobody understands.
const ROOM: u64 = 4 << 30;

/// For these parts, or for everything when there are none.
pub(super) fn step(parts: &[&str]) -> Step {
    let rerun = [&[plan::only("machine").as_str()], parts].concat().join(" ");
    let parts: Vec<String> = parts.iter().map(|part| (*part).to_owned()).collect();
    Step {
        name: "machine",
        about: "tools, packages and room on the disk".into(),
        rerun,
        deadline: Duration::MAX,
        work: Work::Here(Box::new(move |workspace| check(workspace, &parts))),
    }
}

fn check(workspace: &Workspace, parts: &[String]) -> Result<()> {
    let wanted =
        |name: &str| workspace.has(name) && (parts.is_empty() || parts.iter().any(|part| part == name));
    let mut lacks = Vec::new();
    for (subcommand, component) in [("fmt", "rustfmt"), ("clippy", "clippy")] {
        let mut asks = cargo();
        asks.args([subcommand, "--version"]);
        if !answers(asks) {
            lacks.push(format!(
                "`cargo {subcommand}` does not run; install it with `rustup component add {component}`"
            ));
        }
    }
    let builds_with_go = |package: &&Package| {
        wanted(&package.name) && (GO.contains(&package.name.as_str()) || plan::starts_clusters(package))
    };
    let builders: Vec<&str> = workspace.packages.iter().filter(builds_with_go).map(Package::room).collect();
    let mut asks = Command::new("go");
    asks.arg("version");
    if !builders.is_empty() && !answers(asks) {
        lacks.push(format!(
            "`go version` does not run, and the tests of {} need Go; install Go from https://go.dev/dl and put it in PATH",
            builders.join(", ")
        ));
    }
    let target = if workspace.target.exists() { &workspace.target } else { &workspace.root };
    lacks.extend(room(target));
    if let Err(missing) = volmedic_testkit::packages::ensure(&packages(wanted)) {
        let because = NEEDS.iter().filter(|need| missing.packages.iter().any(|name| name == need.package));
        let because: Vec<String> = because.map(|need| format!("{} {}", need.package, need.purpose)).collect();
        lacks.push(format!("{missing} The tests need {}.", because.join(", ")));
    }
    match lacks.as_slice() {
        [] => Ok(()),
        lacks => bail!("this machine is not ready:\n  {}", lacks.join("\n  ")),
    }
}

fn packages(wanted: impl Fn(&str) -> bool) -> Vec<&'static str> {
    NEEDS.iter().filter(|need| need.crates.iter().any(|name| wanted(name))).map(|need| need.package).collect()
}

fn answers(mut command: Command) -> bool {
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    child::wait(command, Duration::from_mins(1)).is_ok()
}

/// What to say when the disk below `folder` is nearly full. A file system that cannot tell is let through.
fn room(folder: &Path) -> Option<String> {
    let facts = statvfs(folder).ok()?;
    let free = facts.f_bavail.saturating_mul(facts.f_frsize);
    short_of_room(folder, free)
}

fn short_of_room(folder: &Path, free: u64) -> Option<String> {
    (free < ROOM).then(|| {
        format!(
            "the disk below {} has {} MiB left, and a whole build needs {} MiB; free some, or set CARGO_TARGET_DIR to a \
             folder on another disk",
            folder.display(),
            free >> 20,
            ROOM >> 20
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_needs_its_own_packages_only() {
        assert_eq!(packages(|name| name == "volmedic-health"), [""; 0]);
        assert_eq!(packages(|name| name == "volmedic-host"), ["e2fsprogs", "mount"]);
        assert_eq!(packages(|_| true).len(), NEEDS.len());
    }

    #[test]
    fn a_node_gets_what_it_asks_for() {
        assert_eq!(packages(|name| name == "volmedic-testkit"), volmedic_testkit::cluster::PACKAGES);
    }

    #[test]
    fn the_table_is_sorted_and_names_each_package_once() {
        assert!(NEEDS.windows(2).all(|pair| pair[0].package < pair[1].package));
    }

    #[test]
    fn a_full_disk_is_a_sentence() {
        let folder = Path::new("/here");
        assert_eq!(short_of_room(folder, ROOM), None);
        let told = short_of_room(folder, 5 << 20).unwrap();
        assert!(
            told.starts_with("the disk below /here has 5 MiB left, and a whole build needs 4096 MiB; free"),
            "{told}"
        );
    }

    #[test]
    fn a_tool_that_is_not_there_does_not_answer() {
        assert!(!answers(Command::new("no-such-tool")));
        assert!(answers(Command::new("true")));
    }
}
