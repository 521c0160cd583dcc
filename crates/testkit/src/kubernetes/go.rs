//! The Go toolchain: found, judged, and watched while it builds.

use std::collections::{HashSet, VecDeque};
use std::fmt::Write as _;
use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use serde::Deserialize;

use super::{Version, module};
use crate::process::{self, Lifetime, PAUSE};
use crate::{cache, go_module};

/// Resolving fetches gigabytes of modules on a fresh machine.
const RESOLVE_LIMIT: Duration = Duration::from_mins(30);
const BUILD_LIMIT: Duration = Duration::from_mins(90);
const TELL_EVERY: Duration = Duration::from_secs(10);
/// What is kept of a failing build's output.
const LAST_LINES: usize = 40;

pub(super) struct Go {
    program: PathBuf,
}

impl Go {
    /// The installed toolchain, if it is new enough for the committed module.
    pub(super) fn find() -> Result<Self> {
        let path = std::env::var_os("PATH").unwrap_or_default();
        Self::find_in(std::env::split_paths(&path).chain([PathBuf::from("/usr/local/go/bin")]))
    }

    fn find_in(mut folders: impl Iterator<Item = PathBuf>) -> Result<Self> {
        let needed = module::pinned_needs_go();
        let program = folders.find_map(|folder| Some(folder.join("go")).filter(|program| program.is_file()));
        let program = program.with_context(|| {
            format!(
                "Go is not installed: install Go {needed} or newer from https://go.dev/dl/ and put it in PATH"
            )
        })?;
        let go = Self { program };
        go.require(needed)?;
        Ok(go)
    }

    fn require(&self, needed: &str) -> Result<()> {
        let reported = self.variable("GOVERSION")?;
        let installed = reported.strip_prefix("go").unwrap_or(&reported);
        if numbers(installed) < numbers(needed) {
            bail!(
                "{} is Go {installed}, and Go {needed} or newer is needed: install it from https://go.dev/dl/ and put \
                 it first in PATH",
                self.program.display()
            );
        }
        Ok(())
    }

    /// Where compiled packages are kept.
    pub(super) fn cache(&self) -> Result<PathBuf> {
        let folder = PathBuf::from(self.variable("GOCACHE")?);
        fs::create_dir_all(&folder)
            .with_context(|| format!("cannot make Go's build cache {}", folder.display()))?;
        Ok(folder)
    }

    fn variable(&self, name: &str) -> Result<String> {
        let mut command = self.command(Path::new("/"), "readonly");
        command.args(["env", name]);
        let value = process::run(command, Duration::from_secs(30))?.or_fail("`go env`")?;
        Ok(value.trim().to_owned())
    }

    /// Builds the program of `version` in `scratch` and returns where it is.
    pub(super) fn build(&self, version: Version, scratch: &Path) -> Result<PathBuf> {
        let modules = if version == Version::DEFAULT { "readonly" } else { "mod" };
        if version == Version::DEFAULT {
            module::write_pinned(scratch)?;
        } else {
            let upstream = self.upstream(version, scratch)?;
            module::write_derived(scratch, version, &upstream)?;
            let text =
                fs::read_to_string(scratch.join("go.mod")).context("cannot read the derived go.mod")?;
            self.require(module::needed_go(&text).unwrap_or("1.0"))?;
        }
        let mut list = self.command(scratch, modules);
        list.args(["list", "-deps", "."]);
        let step = format!("Kubernetes {version}: fetching and resolving Go modules");
        let packages = watch(list, RESOLVE_LIMIT, |elapsed, _| format!("{step}, {elapsed} s"))?;
        let packages: HashSet<String> = packages.lines().map(str::to_owned).collect();

        let total = packages.len();
        let mut build = self.command(scratch, modules);
        build.args(["build", "-v", "-trimpath", "-ldflags", &stamp(version), "-o", "kube", "."]);
        watch(build, BUILD_LIMIT, move |elapsed, lines| {
            let done = lines.seen.iter().filter(|line| packages.contains(line.as_str())).count();
            let now = lines.seen.last().map_or("nothing new to compile so far", String::as_str);
            format!("Kubernetes {version}: {done} of at most {total} packages compiled, {elapsed} s ({now})")
        })?;
        Ok(scratch.join("kube"))
    }

    /// The module file of Kubernetes itself, as JSON.
    fn upstream(&self, version: Version, scratch: &Path) -> Result<String> {
        #[derive(Deserialize)]
        #[serde(rename_all = "PascalCase")]
        struct Download {
            #[serde(default)]
            error: String,
            #[serde(default)]
            go_mod: PathBuf,
        }
        let mut download = self.command(scratch, "mod");
        download.args(["mod", "download", "-json", &format!("k8s.io/kubernetes@{version}")]);
        let said = process::run(download, RESOLVE_LIMIT)?;
        let answer: Download = serde_json::from_str(&said.stdout).with_context(|| {
            format!("`go mod download` gave no answer for {version}: {}", said.stderr.trim())
        })?;
        if !answer.error.is_empty() {
            bail!("Kubernetes {version} cannot be fetched, does it exist? {}", answer.error);
        }
        let mut edit = self.command(scratch, "mod");
        edit.args(["mod", "edit", "-json"]).arg(&answer.go_mod);
        process::run(edit, Duration::from_secs(30))?.or_fail("`go mod edit`")
    }

    fn command(&self, folder: &Path, modules: &str) -> Command {
        let mut command = go_module::command(&self.program, folder, modules);
        command.env("GOTMPDIR", folder);
        command
    }
}

/// Linker flags: small, and the programs know their own release.
fn stamp(version: Version) -> String {
    let mut flags = "-s -w".to_owned();
    for package in ["k8s.io/component-base/version", "k8s.io/client-go/pkg/version"] {
        for (name, value) in [
            ("gitVersion", version.to_string()),
            ("gitMajor", "1".to_owned()),
            ("gitMinor", version.minor.to_string()),
            ("gitTreeState", "clean".to_owned()),
        ] {
            // Writing to a string cannot fail.
            let _ = write!(flags, " -X {package}.{name}={value}");
        }
    }
    flags
}

/// `1.26.8` as something that compares; a release candidate counts as its release.
fn numbers(version: &str) -> Vec<u32> {
    let leading = |part: &str| {
        let digits: String = part.chars().take_while(char::is_ascii_digit).collect();
        digits.parse().unwrap_or(0)
    };
    version.split('.').map(leading).collect()
}

#[derive(Default)]
struct Lines {
    /// As many as there are packages, and not many more: the rest is dropped.
    seen: Vec<String>,
    last: VecDeque<String>,
}

/// Runs `command`, reports how far it is every ten seconds, and returns its standard output.
fn watch(mut command: Command, limit: Duration, tell: impl Fn(u64, &Lines) -> String) -> Result<String> {
    let what = command.get_args().take(2).map(|word| word.to_string_lossy()).collect::<Vec<_>>().join(" ");
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child =
        process::spawn(command, Lifetime::Tied).with_context(|| format!("`go {what}` did not start"))?;
    let lines = Arc::new(Mutex::new(Lines::default()));
    let errors = child.stderr.take().map(|pipe| {
        let lines = Arc::clone(&lines);
        thread::spawn(move || note(pipe, &lines))
    });
    let output = child.stdout.take().map(|mut pipe| {
        thread::spawn(move || {
            let mut bytes = Vec::new();
            let _ = pipe.read_to_end(&mut bytes);
            String::from_utf8_lossy(&bytes).into_owned()
        })
    });
    let (start, mut next) = (Instant::now(), TELL_EVERY);
    let status = loop {
        if let Some(status) = child.try_wait().with_context(|| format!("cannot wait for `go {what}`"))? {
            break status;
        }
        let elapsed = start.elapsed();
        if elapsed >= limit {
            process::end_group(&mut child);
            bail!("`go {what}` did not end within {} minutes and was stopped", limit.as_secs() / 60);
        }
        if elapsed >= next {
            next += TELL_EVERY;
            cache::say(&tell(elapsed.as_secs(), &lines.lock().unwrap_or_else(PoisonError::into_inner)));
        }
        thread::sleep(PAUSE);
    };
    let _ = errors.map(thread::JoinHandle::join);
    let output = output.and_then(|thread| thread.join().ok()).unwrap_or_default();
    if !status.success() {
        let lines = lines.lock().unwrap_or_else(PoisonError::into_inner);
        let last: Vec<&str> = lines.last.iter().map(String::as_str).collect();
        bail!("`go {what}` failed ({status}). The end of what it said:\n{}", last.join("\n"));
    }
    Ok(output)
}

fn note(pipe: impl Read, lines: &Mutex<Lines>) {
    const MOST: usize = 20_000;
    for line in BufReader::new(pipe).lines().map_while(Result::ok) {
        let mut lines = lines.lock().unwrap_or_else(PoisonError::into_inner);
        if lines.last.len() == LAST_LINES {
            lines.last.pop_front();
        }
        lines.last.push_back(line.clone());
        if lines.seen.len() < MOST {
            lines.seen.push(line);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn releases_compare_by_number() {
        for (older, newer) in [("1.9.9", "1.26.0"), ("1.26", "1.26.1"), ("1.26.8", "1.27rc1"), ("", "1.0")] {
            assert!(numbers(older) < numbers(newer), "{older} is older than {newer}");
        }
    }

    #[test]
    fn a_go_that_is_missing_or_too_old_is_named_with_what_is_needed() {
        let folder = tempfile::tempdir().unwrap();
        let find = || Go::find_in([folder.path().to_owned()].into_iter()).err().unwrap().to_string();
        let missing = find();
        assert!(missing.starts_with("Go is not installed: install Go 1."), "{missing}");

        let program = folder.path().join("go");
        fs::write(&program, "#!/bin/sh\necho go1.4.2\n").unwrap();
        fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
        let old = find();
        assert!(
            old.contains("is Go 1.4.2, and Go 1.") && old.contains("install it from https://go.dev/dl/"),
            "{old}"
        );
    }

    #[test]
    fn a_failing_build_shows_the_end_of_what_it_said() {
        let mut command = Command::new("sh");
        command.args(["-c", "for n in $(seq 100); do echo line $n >&2; done; exit 1"]);
        let error = watch(command, Duration::from_secs(30), |_, _| String::new()).unwrap_err().to_string();
        assert!(error.contains("line 61\n") && error.ends_with("line 100"), "{error}");
        assert!(!error.contains("line 60\n"), "{error}");
    }
}
