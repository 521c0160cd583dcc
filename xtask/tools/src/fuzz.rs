//! `cargo xtask fuzz`: feeds mutated input to the parsers that read what others wrote, on stable Rust.
//!
//! Each target is a test of the crate that has the parser. How inputs are mutated is in the test kit (`fuzz.rs` there).

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail};
use volmedic_testkit::fuzz::{CURRENT, SECONDS, corpus, name};
use volmedic_testkit::seed;

use crate::child;
use crate::say;
use crate::workspace::{self, Workspace};

/// For one build, on a machine that compiles everything.
const BUILD: Duration = Duration::from_hours(1);
/// How much longer than asked a target may run.
const MORE: Duration = Duration::from_mins(2);

/// A target, the crate that has it, and what it reads.
struct Target {
    name: &'static str,
    part: &'static str,
    about: &'static str,
}

#[rustfmt::skip]
const TARGETS: &[Target] = &[
    Target { name: "api-objects", part: "api", about: "objects of the API server, in all shapes that we keep" },
    Target { name: "csi-addons-node", part: "heal", about: "CSIAddonsNode: whether a relay is believed" },
    Target { name: "csi-answers", part: "csi", about: "answers of CSI drivers, in both dialects" },
    Target { name: "event-story", part: "report", about: "the annotation on events by which a restart knows them" },
    Target { name: "journal", part: "roles", about: "the agent's files on its node" },
    Target { name: "kernel-log", part: "host", about: "records of /dev/kmsg" },
    Target { name: "mountinfo", part: "host", about: "/proc/PID/mountinfo" },
    Target { name: "push-body", part: "hub", about: "reports of external detectors" },
    Target { name: "recalled", part: "report", about: "events, claims and VolumeHealths that an earlier run wrote" },
    Target { name: "vol-data", part: "inventory", about: "the kubelet's vol_data.json" },
];

/// Feed mutated input to the parsers that read what others wrote
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Without a target, all of them run one after the other. An input that fails is kept in fuzz/corpus/TARGET, where \
                  the ordinary tests replay it: commit it with the correction.\n\n\
                  Exit codes: 0 nothing was found, 1 something was, 2 the command line is wrong."
)]
pub(crate) struct Args {
    /// Targets, by name
    #[arg(value_parser = clap::builder::PossibleValuesParser::new(TARGETS.iter().map(|target| clap::builder::PossibleValue::new(target.name).help(target.about))))]
    targets: Vec<String>,
    /// Minutes for each target
    #[arg(long, default_value_t = 1.0, value_name = "N", value_parser = minutes)]
    minutes: f64,
    /// Seed of the mutations. Default: a fresh one, which is printed
    #[arg(long, value_name = "SEED", value_parser = clap::value_parser!(u64).range(1..))]
    seed: Option<u64>,
}

fn minutes(text: &str) -> Result<f64, String> {
    let read = text.parse().ok().filter(|minutes| (0.01..=1440.0).contains(minutes));
    read.ok_or_else(|| "it must be a number from 0.01 to 1440".to_owned())
}

pub(crate) fn run(workspace: &Workspace, args: &Args) -> Result<()> {
    let chosen: Vec<&Target> = TARGETS
        .iter()
        .filter(|target| args.targets.is_empty() || args.targets.iter().any(|name| name == target.name))
        .collect();
    let limit = Duration::from_secs_f64(args.minutes * 60.0);
    let mut found = Vec::new();
    for target in chosen {
        if let Err(why) = target.run(workspace, limit, args.seed) {
            say::error(format_args!("{}: {why:#}", target.name));
            found.push(target.name);
        }
    }
    if !found.is_empty() {
        bail!("inputs that fail were found for: {}; they are kept in fuzz/corpus", found.join(", "));
    }
    Ok(())
}

impl Target {
    fn run(&self, workspace: &Workspace, limit: Duration, given: Option<u64>) -> Result<()> {
        let mut build = self.cargo(workspace, &["--no-run", "--quiet"]);
        build.stdin(Stdio::null());
        child::wait(build, BUILD).map_err(|why| anyhow!("its build {why}"))?;
        let current = workspace.target.join(format!("fuzz-{}.input", self.name));
        let mut test = self.cargo(workspace, &["--quiet"]);
        test.args(["--", "--exact", "--nocapture"]).arg(self.test(workspace)?);
        test.env(SECONDS, limit.as_secs().max(1).to_string()).env(CURRENT, &current).stdin(Stdio::null());
        test.envs(given.map(|given| (seed::VARIABLE, given.to_string())));
        let (start, before) = (Instant::now(), count(self.name)?);
        let outcome = child::wait(test, limit + MORE);
        if let Err(why) = outcome {
            // The process may have died of the input, or hang in it.
            let kept = if count(self.name)? > before { String::new() } else { self.keep(&current)? };
            bail!("after {} s the target {why}{kept}", start.elapsed().as_secs());
        }
        fs::remove_file(&current).with_context(|| format!("cannot remove {}", current.display()))
    }

    fn cargo(&self, workspace: &Workspace, flags: &[&str]) -> Command {
        let mut cargo = workspace::cargo();
        cargo.args(["test", &format!("--package=volmedic-{}", self.part), "--lib"]).args(flags);
        cargo.current_dir(&workspace.root).env("CARGO_TARGET_DIR", &workspace.target);
        cargo
    }

    /// The whole name of the test, which the harness lists.
    fn test(&self, workspace: &Workspace) -> Result<String> {
        let function = format!("fuzz_{}", self.name.replace('-', "_"));
        let mut list = self.cargo(workspace, &["--quiet"]);
        let output =
            list.args(["--", "--list"]).stdin(Stdio::null()).output().context("cargo did not start")?;
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let mut names = text.lines().filter_map(|line| line.strip_suffix(": test"));
        let found = names.rfind(|name| name.rsplit("::").next() == Some(&function));
        found.map(str::to_owned).with_context(|| format!("volmedic-{} has no test {function}", self.part))
    }

    /// Keeps the input of a process that could not keep it itself.
    fn keep(&self, current: &Path) -> Result<String> {
        let input = fs::read(current).with_context(|| format!("cannot read {}", current.display()))?;
        let path = corpus(self.name).join(name(&input));
        fs::write(&path, input).with_context(|| format!("cannot write {}", path.display()))?;
        Ok(format!("; its last input is kept as {}", path.display()))
    }
}

fn count(target: &str) -> Result<usize> {
    let folder = corpus(target);
    let entries = fs::read_dir(&folder).with_context(|| format!("cannot read {}", folder.display()))?;
    Ok(entries.count())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::sources;

    /// The table, the tests in the crates and the folders of the corpus are the same targets.
    #[test]
    fn every_target_has_a_test_and_a_corpus_and_the_other_way_round() {
        let workspace = Workspace::here().unwrap();
        let listed: BTreeSet<String> = TARGETS.iter().map(|target| target.name.to_owned()).collect();
        let folders = fs::read_dir(workspace.root.join("fuzz/corpus")).unwrap();
        let folders: BTreeSet<String> =
            folders.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        assert_eq!(folders, listed);
        let mut tests = BTreeSet::new();
        for source in sources::read(&workspace).unwrap().iter().filter(|source| source.is_rust()) {
            let Some(part) = source.path.strip_prefix("crates").ok().and_then(|path| path.iter().next())
            else {
                continue;
            };
            for rest in source.text.split("volmedic_testkit::fuzz(\"").skip(1) {
                let target = rest.split('"').next().unwrap().to_owned();
                let function = format!("fn fuzz_{}()", target.replace('-', "_"));
                assert!(source.text.contains(&function), "{function}");
                tests.insert((target, part.to_str().unwrap().to_owned()));
            }
        }
        let table = TARGETS.iter().map(|target| (target.name.to_owned(), target.part.to_owned()));
        assert_eq!(tests, table.collect());
    }
}
