//! The steps of a test run, in an order that fails early.

use std::fmt;
use std::time::Duration;

use anyhow::Result;
use volmedic_testkit::kubernetes;

use crate::workspace::{Dependency, Package, Workspace};
use crate::{codegen, tidy};

use super::{machine, programs};

const TESTKIT: &str = "volmedic-testkit";

/// One step: what it is, how it is done, how to do it again alone, and how long it may take.
pub(super) struct Step {
    pub(super) name: &'static str,
    pub(super) about: String,
    pub(super) work: Work,
    pub(super) rerun: String,
    pub(super) deadline: Duration,
}

impl Step {
    fn with_variable(mut self, name: &'static str, value: &'static str) -> Self {
        if let Work::Child(line) = &mut self.work {
            line.variables.push((name, value));
            self.rerun = line.to_string();
        }
        self
    }
}

pub(super) enum Work {
    /// Done by this program. Such work bounds its own time.
    Here(Box<Task>),
    Child(CommandLine),
}

pub(super) type Task = dyn Fn(&Workspace) -> Result<()>;

/// A cargo command. Shown as a person would type it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct CommandLine {
    pub(super) variables: Vec<(&'static str, &'static str)>,
    pub(super) arguments: Vec<String>,
}

impl fmt::Display for CommandLine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (name, value) in &self.variables {
            write!(f, "{name}='{value}' ")?;
        }
        write!(f, "cargo {}", self.arguments.join(" "))
    }
}

/// All steps for these parts, or for everything when there are none.
pub(super) fn steps(workspace: &Workspace, parts: &[&Package]) -> Vec<Step> {
    let whole = parts.is_empty();
    let names: Vec<&str> = parts.iter().map(|part| part.name.as_str()).collect();
    let mut steps = vec![machine::step(&names)];
    steps.push(cargo("format", "the code looks as rustfmt writes it", "fmt", &names, &["--check"], 5));
    if whole {
        steps.push(here("tidy", "the architecture and the house rules", "cargo xtask tidy", tidy::run));
        let check = |workspace: &Workspace| codegen::run(workspace, true);
        steps.push(here("codegen", "generated files are up to date", "cargo xtask codegen --check", check));
    }
    let flags = ["--all-targets", "--all-features", "--", "--deny=warnings"];
    steps.push(cargo("clippy", "lints, with warnings denied", "clippy", &names, &flags, 45));
    let wanted = |package: &&Package| whole || names.contains(&package.name.as_str());
    if workspace.packages.iter().filter(wanted).any(starts_clusters) {
        let about = "the Kubernetes programs that tests start, built once";
        let build = |_: &Workspace| kubernetes::program(kubernetes::Version::DEFAULT).map(drop);
        steps.push(here("cluster", about, &only("cluster"), build));
    }
    steps.push(cargo("build", "all test programs", "test", &names, &["--all-features", "--no-run"], 60));
    let owned: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
    steps.push(Step {
        name: "tests",
        about: "all test programs, several at a time".into(),
        rerun: [&[only("tests").as_str()], &names[..]].concat().join(" "),
        deadline: Duration::MAX,
        work: Work::Here(Box::new(move |workspace| programs::run(workspace, &owned))),
    });
    let flags = ["--all-features", "--no-fail-fast", "--doc"];
    // Cargo refuses to look for them in a package without a library.
    let documented: Vec<&str> =
        parts.iter().filter(|part| part.has_library()).map(|part| part.name.as_str()).collect();
    if whole || !documented.is_empty() {
        steps.push(cargo("examples", "the examples in the documentation", "test", &documented, &flags, 30));
    }
    let about = "the documentation builds without warnings";
    let docs = cargo("docs", about, "doc", &names, &["--no-deps", "--all-features"], 45);
    steps.push(docs.with_variable("RUSTDOCFLAGS", "--deny=warnings"));
    steps
}

/// Whether the tests of this package start a real control plane.
pub(super) fn starts_clusters(package: &Package) -> bool {
    let uses = |dependency: &Dependency| dependency.for_tests_only() && dependency.name == TESTKIT;
    package.name == TESTKIT || package.dependencies.iter().any(uses)
}

/// How to run a step alone that is no command of its own.
pub(super) fn only(step: &str) -> String {
    format!("cargo xtask test --only {step}")
}

fn here(name: &'static str, about: &str, rerun: &str, work: fn(&Workspace) -> Result<()>) -> Step {
    Step {
        name,
        about: about.into(),
        work: Work::Here(Box::new(work)),
        rerun: rerun.into(),
        deadline: Duration::MAX,
    }
}

fn cargo(
    name: &'static str,
    about: &str,
    command: &str,
    parts: &[&str],
    flags: &[&str],
    minutes: u64,
) -> Step {
    let mut arguments = vec![command.to_owned()];
    match (parts, command) {
        // rustfmt's subcommand has a word of its own for this.
        ([], "fmt") => arguments.push("--all".into()),
        ([], _) => arguments.push("--workspace".into()),
        (parts, _) => arguments.extend(parts.iter().map(|part| format!("--package={part}"))),
    }
    arguments.extend(flags.iter().map(|flag| (*flag).to_owned()));
    let line = CommandLine { variables: Vec::new(), arguments };
    let rerun = line.to_string();
    Step { name, about: about.into(), work: Work::Child(line), rerun, deadline: Duration::from_mins(minutes) }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The names of the steps and how each is run alone.
    fn shown(parts: &[&str]) -> Vec<String> {
        let workspace = Workspace::here().unwrap();
        let parts: Vec<&Package> = parts.iter().map(|part| workspace.find(part).unwrap()).collect();
        steps(&workspace, &parts).iter().map(|step| format!("{}: {}", step.name, step.rerun)).collect()
    }

    #[test]
    fn everything_goes_from_quick_to_slow() {
        assert_eq!(
            shown(&[]),
            [
                "machine: cargo xtask test --only machine",
                "format: cargo fmt --all --check",
                "tidy: cargo xtask tidy",
                "codegen: cargo xtask codegen --check",
                "clippy: cargo clippy --workspace --all-targets --all-features -- --deny=warnings",
                "cluster: cargo xtask test --only cluster",
                "build: cargo test --workspace --all-features --no-run",
                "tests: cargo xtask test --only tests",
                "examples: cargo test --workspace --all-features --no-fail-fast --doc",
                "docs: RUSTDOCFLAGS='--deny=warnings' cargo doc --workspace --no-deps --all-features",
            ]
        );
    }

    #[test]
    fn a_part_leaves_the_rest_alone() {
        assert_eq!(
            shown(&["health", "xtask"]),
            [
                "machine: cargo xtask test --only machine volmedic-health xtask",
                "format: cargo fmt --package=volmedic-health --package=xtask --check",
                "clippy: cargo clippy --package=volmedic-health --package=xtask --all-targets --all-features -- \
                 --deny=warnings",
                "build: cargo test --package=volmedic-health --package=xtask --all-features --no-run",
                "tests: cargo xtask test --only tests volmedic-health xtask",
                "examples: cargo test --package=volmedic-health --all-features --no-fail-fast --doc",
                "docs: RUSTDOCFLAGS='--deny=warnings' cargo doc --package=volmedic-health --package=xtask --no-deps \
                 --all-features",
            ]
        );
    }

    #[test]
    fn the_cluster_is_built_for_those_who_start_one() {
        let builds = |part: &str| shown(&[part]).iter().any(|step| step.starts_with("cluster: "));
        assert!(builds("testkit"));
        assert!(!builds("health") && !builds("xtask"));
    }

    #[test]
    fn every_child_has_a_deadline() {
        for step in steps(&Workspace::here().unwrap(), &[]) {
            if let Work::Child(_) = step.work {
                assert!(step.deadline <= Duration::from_hours(2), "{}", step.name);
            }
        }
    }
}
