//! The system packages that tests need: found, installed with apt-get as root on Debian, or named in an error.

use std::fmt;
use std::io::{self, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

mod apt;
mod probe;

/// What a Kubernetes node needs from the system.
pub const OF_A_NODE: [&str; 6] =
    ["busybox-static", "containerd", "containernetworking-plugins", "iproute2", "mount", "runc"];

/// Makes sure that each of these Debian packages, or what it provides, is on this machine.
///
/// Root on Debian (or a distribution made from it) gets the missing ones installed; nothing that is installed is
/// ever removed for it. Everybody else gets an error that says what to install.
pub fn ensure(packages: &[&str]) -> Result<(), MissingPackages> {
    let missing = missing(packages);
    if missing.is_empty() {
        return Ok(());
    }
    let refused = |why: String| MissingPackages { packages: missing.clone(), why };
    if !is_debian(&std::fs::read_to_string("/etc/os-release").unwrap_or_default()) {
        return Err(refused("this is not Debian, so they cannot be installed for you".into()));
    }
    if !is_root() {
        return Err(refused("only root may install them".into()));
    }
    // Progress for a person; a closed stderr is no reason to stop.
    let _ = writeln!(io::stderr(), "installing {} with apt-get", missing.join(" "));
    apt::install(&missing).map_err(refused)?;

    let still = self::missing(packages);
    if still.is_empty() {
        return Ok(());
    }
    let why = "apt-get reported success, yet their programs are not there".into();
    Err(MissingPackages { packages: still, why })
}

/// Whether this process has root's rights.
pub fn is_root() -> bool {
    effective_user_is_root(&std::fs::read_to_string("/proc/self/status").unwrap_or_default())
}

/// Fails the test that calls it unless it runs with root's rights. `why` completes "because".
///
/// # Panics
/// Without root's rights.
#[track_caller]
pub fn require_root(why: &str) {
    assert!(
        is_root(),
        "this test takes root, because {why}; run it with `sudo -E env PATH=\"$PATH\" cargo test`"
    );
}

/// Whether a program needs no dynamic loader.
pub fn is_static(program: &Path) -> bool {
    probe::is_static(program)
}

/// Those of `packages` that are not here, in the order given.
pub fn missing(packages: &[&str]) -> Vec<String> {
    packages.iter().filter(|name| !probe::present(name)).map(|name| (*name).to_owned()).collect()
}

/// Packages that are needed, not here, and could not be installed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MissingPackages {
    /// Debian's names of the missing packages.
    pub packages: Vec<String>,
    /// Why they were not installed: the middle of a sentence.
    pub why: String,
}

impl fmt::Display for MissingPackages {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = self.packages.join(" ");
        write!(f, "packages are missing: {names}; {}. ", self.why)?;
        write!(f, "On Debian run `sudo apt-get update && sudo apt-get install {names}`")?;
        let programs: Vec<String> = self.packages.iter().filter_map(|name| probe::describe(name)).collect();
        if programs.is_empty() {
            return write!(f, ".");
        }
        write!(f, "; elsewhere install what provides {}.", programs.join("; "))
    }
}

impl std::error::Error for MissingPackages {}

fn is_debian(os_release: &str) -> bool {
    os_release
        .lines()
        .filter_map(|line| line.strip_prefix("ID=").or_else(|| line.strip_prefix("ID_LIKE=")))
        .flat_map(|value| value.trim_matches('"').split_whitespace())
        .any(|id| id == "debian")
}

/// Reads the effective user id out of `/proc/<pid>/status`; anything unreadable counts as not root.
fn effective_user_is_root(status: &str) -> bool {
    status
        .lines()
        .find_map(|line| line.strip_prefix("Uid:"))
        .and_then(|ids| ids.split_whitespace().nth(1))
        .is_some_and(|effective| effective == "0")
}

/// Runs `command` to its end, at most for `deadline`. `Ok(true)` means that it succeeded.
fn run(command: &mut Command, deadline: Duration) -> Result<bool, String> {
    let program = command.get_program().to_string_lossy().into_owned();
    let mut child =
        command.stdin(Stdio::null()).spawn().map_err(|error| format!("{program} did not start: {error}"))?;
    let end = std::time::Instant::now() + deadline;
    loop {
        match child.try_wait() {
            Ok(Some(status)) => return Ok(status.success()),
            Ok(None) if std::time::Instant::now() < end => std::thread::sleep(Duration::from_millis(50)),
            Ok(None) => {
                let _ = child.kill();
                let _ = child.wait();
                return Err(format!("{program} did not end within {} s and was stopped", deadline.as_secs()));
            }
            Err(error) => return Err(format!("waiting for {program} failed: {error}")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn debian_and_its_children_are_recognised() {
        for (text, expected) in [
            ("NAME=x\nID=debian\n", true),
            ("ID=ubuntu\nID_LIKE=debian\n", true),
            ("ID=mint\nID_LIKE=\"ubuntu debian\"\n", true),
            ("ID=fedora\n", false),
            ("PRETTY_NAME=debian\n", false),
            ("", false),
        ] {
            assert_eq!(is_debian(text), expected, "{text:?}");
        }
    }

    #[test]
    fn root_is_judged_by_the_effective_id() {
        assert!(effective_user_is_root("Name:\tx\nUid:\t1000\t0\t0\t0\n"));
        assert!(!effective_user_is_root("Uid:\t0\t1000\t0\t0\n"));
        assert!(!effective_user_is_root(""));
    }

    #[test]
    fn the_error_says_what_to_install_and_why_it_was_not() {
        let error = MissingPackages {
            packages: vec!["xfsprogs".into(), "no-such".into()],
            why: "only root may install them".into(),
        };
        assert_eq!(
            error.to_string(),
            "packages are missing: xfsprogs no-such; only root may install them. \
             On Debian run `sudo apt-get update && sudo apt-get install xfsprogs no-such`; \
             elsewhere install what provides mkfs.xfs and xfs_io.",
        );
    }

    #[test]
    fn nothing_asked_is_nothing_missing() {
        assert_eq!(ensure(&[]), Ok(()));
        assert_eq!(missing(&["no-such-package-anywhere"]), ["no-such-package-anywhere"]);
    }

    #[test]
    fn a_command_past_its_deadline_is_stopped_and_named() {
        let error = run(Command::new("sleep").arg("30"), Duration::from_millis(80)).unwrap_err();
        assert_eq!(error, "sleep did not end within 0 s and was stopped");
        assert_eq!(run(&mut Command::new("true"), Duration::from_mins(2)), Ok(true));
        assert_eq!(run(&mut Command::new("false"), Duration::from_mins(2)), Ok(false));
    }
}
