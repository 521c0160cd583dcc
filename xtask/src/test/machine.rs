//! What a machine must have before the first step. Everything that is missing is reported together.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Result, bail};
use rustix::fs::statvfs;
use xtask::child;
use xtask::workspace::{Package, Workspace, cargo};

use super::plan::{self, Scope, Step, Work};

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
    Need { package: "chromium", crates: &["volmedic"], purpose: "to open the page as people do" },
    Need { package: "containerd", crates: &["volmedic", "volmedic-testkit"], purpose: "to run test pods" },
    Need { package: "containernetworking-plugins", crates: &["volmedic", "volmedic-testkit"], purpose: "to give test pods a network" },
    Need { package: "e2fsprogs", crates: &["volmedic", "volmedic-driver", "volmedic-host"], purpose: "to make and check ext4 volumes" },
    Need { package: "groff-base", crates: &["volmedic"], purpose: "to render the manual pages" },
    Need { package: "iproute2", crates: &["volmedic", "volmedic-testkit"], purpose: "to set up the network of test pods" },
    Need { package: "mount", crates: &["volmedic", "volmedic-driver", "volmedic-host", "volmedic-testkit"], purpose: "to mount volumes" },
    Need { package: "openssl", crates: &["xtask-tools"], purpose: "to check signatures as people do" },
    Need { package: "perl", crates: &["xtask-tools"], purpose: "to unpack what scanners read" },
    Need { package: "prometheus", crates: &["volmedic"], purpose: "to try the alerts with promtool" },
    Need { package: "runc", crates: &["volmedic", "volmedic-testkit"], purpose: "to run test pods" },
    Need { package: "xfsprogs", crates: &["volmedic", "volmedic-driver"], purpose: "to make and check xfs volumes" },
];

/// Crates whose tests build something with Go, besides those that start a cluster.
const GO: &[&str] = &["volmedic-driver", "volmedic-proto"];

/// Where the pinned Kubernetes module says which Go it needs.
const GO_MODULE: &str = "crates/testkit/go/go.mod";

/// A whole build takes less; running out in the middle of one gives errors that are hard to understand.
const ROOM: u64 = 20 << 30;

/// Crates are fetched in this time, or the network is not usable.
const FETCH: Duration = Duration::from_mins(10);

/// For these parts, or for everything when there are none.
pub(super) fn step(scope: &Scope) -> Step {
    let scope = scope.clone();
    Step {
        name: "machine",
        about: "tools, packages, devices and space on the disk".into(),
        rerun: [&[plan::only("machine").as_str()], &scope.words()[..]].concat().join(" "),
        deadline: Duration::MAX,
        starts_after: 0,
        work: Work::Here(Box::new(move |workspace| check(workspace, &scope))),
    }
}

/// Everything that is missing is reported together.
fn check(workspace: &Workspace, scope: &Scope) -> Result<()> {
    let wanted = |name: &str| workspace.has(name) && scope.has(name);
    let needs: Vec<&Need> = NEEDS.iter().filter(|need| need.crates.iter().any(|name| wanted(name))).collect();
    let mut lacks = toolchain();
    let builds_with_go = |package: &&Package| {
        let for_a_cluster = !scope.quick && plan::starts_clusters(package);
        wanted(&package.name) && (GO.contains(&package.name.as_str()) || for_a_cluster)
    };
    let builders: Vec<&str> = workspace.packages.iter().filter(builds_with_go).map(Package::room).collect();
    if !builders.is_empty() {
        let module = std::fs::read_to_string(workspace.root.join(GO_MODULE)).unwrap_or_default();
        let version = output(Command::new("go").arg("version"));
        lacks.extend(go(version.as_deref(), &module, &builders));
    }
    let target = if workspace.target.exists() { &workspace.target } else { &workspace.root };
    lacks.extend(room(target));
    if !needs.is_empty() {
        lacks.extend(rights(volmedic_packages::is_root()));
    }
    let packages: Vec<&str> = needs.iter().map(|need| need.package).collect();
    if let Err(missing) = volmedic_packages::ensure(&packages) {
        let because = needs.iter().filter(|need| missing.packages.iter().any(|name| name == need.package));
        let because: Vec<String> = because.map(|need| format!("{} {}", need.package, need.purpose)).collect();
        lacks.push(format!("{missing} The tests need {}.", because.join(", ")));
    }
    if lacks.is_empty() {
        lacks.extend(fetch(workspace));
    }
    match lacks.as_slice() {
        [] => Ok(()),
        lacks => bail!("this machine is not ready:\n  {}", lacks.join("\n  ")),
    }
}

/// What Rust needs beside the compiler that compiled us.
fn toolchain() -> Vec<String> {
    let mut lacks = Vec::new();
    for (subcommand, component) in [("fmt", "rustfmt"), ("clippy", "clippy")] {
        let mut asks = cargo();
        if output(asks.args([subcommand, "--version"])).is_none() {
            lacks.push(format!(
                "`cargo {subcommand}` does not run; install it with `rustup component add {component}`"
            ));
        }
    }
    // The crate cc, which builds ring, checks the same.
    let compiler = std::env::var("CC").unwrap_or_else(|_| "cc".into());
    if output(Command::new(&compiler).arg("--version")).is_none() {
        lacks.push(format!(
            "the C compiler `{compiler}` does not run, and the crate ring needs one; install it (Debian: `apt-get install \
             gcc libc6-dev`), or set CC to yours"
        ));
    }
    lacks
}

/// What to say about Go: `version` is what `go version` printed.
fn go(version: Option<&str>, module: &str, builders: &[&str]) -> Option<String> {
    let needed = module.lines().find_map(|line| line.strip_prefix("go ")).unwrap_or("1.26.0");
    let install = format!("install Go {needed} or newer from https://go.dev/dl and put it first in PATH");
    let Some(version) = version else {
        return Some(format!(
            "`go version` does not run, and the tests of {} need Go; {install}",
            builders.join(", ")
        ));
    };
    let installed = version.split_whitespace().find_map(|word| word.strip_prefix("go1"))?;
    let numbers = |text: &str| -> Vec<u32> {
        text.split('.')
            .map(|part| part.chars().map_while(|c| c.to_digit(10)).fold(0, |n, d| n * 10 + d))
            .collect()
    };
    (numbers(&format!("1{installed}")) < numbers(needed))
        .then(|| format!("Go 1{installed} is too old to build Kubernetes; {install}"))
}

/// What a test that mounts something cannot do without.
fn rights(root: bool) -> Vec<String> {
    let mut lacks = Vec::new();
    if !root {
        lacks.push(
            "the tests mount file systems and start a kubelet, which needs root; run `sudo -E env PATH=\"$PATH\" cargo \
             xtask test`, or name crates that need neither: `cargo xtask test health api csi`"
                .into(),
        );
        return lacks;
    }
    for (device, what, module) in
        [("/dev/fuse", "FUSE volumes", "fuse"), ("/dev/loop-control", "loop devices", "loop")]
    {
        if let Err(error) = std::fs::File::options().read(true).write(true).open(device) {
            lacks.push(format!(
                "{device} cannot be opened ({error}), and the tests use {what}; run `modprobe {module}`, or give this \
                 container the device"
            ));
        }
    }
    lacks
}

/// Fetches every crate of the lock file, so that a missing network is noticed here and not in the middle of a build.
fn fetch(workspace: &Workspace) -> Option<String> {
    if !workspace.root.join("Cargo.lock").is_file() {
        return None;
    }
    let mut command = cargo();
    command.args(["fetch", "--locked"]).current_dir(&workspace.root).stdin(Stdio::null());
    let why = child::wait(command, FETCH).err()?;
    Some(format!(
        "the crates that Cargo.lock names cannot be fetched: `cargo fetch --locked` {why}. Is this machine online? After one \
         run with a network the tests need none"
    ))
}

/// What a tool prints, or nothing where it does not run.
fn output(command: &mut Command) -> Option<String> {
    let output = command.stdin(Stdio::null()).stderr(Stdio::null()).output().ok()?;
    output.status.success().then(|| String::from_utf8_lossy(&output.stdout).into_owned())
}

/// What to say when the disk below `folder` is nearly full. Unknown is not full.
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

    fn packages(wanted: impl Fn(&str) -> bool) -> Vec<&'static str> {
        let needs = NEEDS.iter().filter(|need| need.crates.iter().any(|name| wanted(name)));
        needs.map(|need| need.package).collect()
    }

    #[test]
    fn a_part_needs_its_own_packages_only() {
        assert_eq!(packages(|name| name == "volmedic-health"), [""; 0]);
        assert_eq!(packages(|name| name == "volmedic-host"), ["e2fsprogs", "mount"]);
    }

    #[test]
    fn a_node_gets_what_it_asks_for() {
        assert_eq!(packages(|name| name == "volmedic-testkit"), volmedic_packages::OF_A_NODE);
    }

    #[test]
    fn the_table_is_sorted_and_names_each_package_once() {
        assert!(NEEDS.windows(2).all(|pair| pair[0].package < pair[1].package));
    }

    #[test]
    fn a_full_disk_is_a_sentence() {
        let folder = Path::new("/here");
        assert_eq!(short_of_room(folder, ROOM), None);
        let said = short_of_room(folder, 5 << 20).unwrap();
        assert!(
            said.starts_with("the disk below /here has 5 MiB left, and a whole build needs 20480 MiB; free"),
            "{said}"
        );
    }

    #[test]
    fn go_is_judged_by_the_pinned_module() {
        let module = "module x\n\ngo 1.26.0\n";
        let judged = |version: Option<&str>| go(version, module, &["testkit"]);
        assert_eq!(judged(Some("go version go1.26.8 linux/amd64")), None);
        assert_eq!(judged(Some("go version go1.27rc1 linux/amd64")), None);
        assert_eq!(judged(Some("go version devel")), None, "unknown is not old");
        let old = judged(Some("go version go1.19.8 linux/amd64")).unwrap();
        assert_eq!(
            old,
            "Go 1.19.8 is too old to build Kubernetes; install Go 1.26.0 or newer from https://go.dev/dl and put it first in \
             PATH"
        );
        let none = judged(None).unwrap();
        assert!(
            none.starts_with("`go version` does not run, and the tests of testkit need Go; install"),
            "{none}"
        );
    }

    #[test]
    fn without_root_there_is_one_sentence_and_a_way_on() {
        let lacks = rights(false);
        assert!(matches!(&lacks[..], [only] if only.contains("needs root; run `sudo")), "{lacks:?}");
    }

    #[test]
    fn a_tool_that_is_missing_prints_nothing() {
        assert_eq!(output(&mut Command::new("no-such-tool")), None);
        assert_eq!(output(Command::new("echo").arg("x")).as_deref(), Some("x\n"));
    }
}
