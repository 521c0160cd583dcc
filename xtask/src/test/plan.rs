//! The steps of a test run, in an order that fails early.

use std::fmt;
use std::time::Duration;

use anyhow::{Result, bail};
use xtask::workspace::{Dependency, Package, Workspace, tool_arguments};

use super::{machine, programs};

const TESTKIT: &str = "volmedic-testkit";
/// The test kit starts the release of Kubernetes that this variable names.
pub(super) const KUBERNETES: &str = "VOLMEDIC_KUBERNETES";

/// The programs whose tests are about a behaviour of the API server: admission policies, resource definitions, events,
/// server-side apply, watches, tokens. They are what `--kubernetes` runs unless parts are named.
const ON_API_SERVER: &[&str] = &[
    "heal/api",
    "inventory/api_server",
    "lease/election",
    "report/it",
    "testkit/control_plane",
    "volmedic/controller",
    "volmedic/doctor",
    "volmedic/heal",
    "volmedic/hub",
    "volmedic/push",
    "volmedic/status",
];

/// What is tested.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(super) struct Scope {
    /// Packages by their full names; none means all.
    pub(super) packages: Vec<String>,
    /// Test programs as `volmedic/hub`; none means all of the packages.
    pub(super) programs: Vec<String>,
    /// Without tests that start Kubernetes or are slow.
    pub(super) quick: bool,
    /// Another release of Kubernetes than the default one.
    pub(super) kubernetes: Option<String>,
}

impl Scope {
    /// What these words on the command line mean, each once.
    pub(super) fn of(
        workspace: &Workspace,
        words: &[String],
        quick: bool,
        kubernetes: Option<&str>,
    ) -> Result<Self> {
        let kubernetes = kubernetes.map(release).transpose()?;
        let mut scope = Self { quick, kubernetes, ..Self::default() };
        let usual: Vec<String> = match (words, &scope.kubernetes) {
            ([], Some(_)) => ON_API_SERVER.iter().map(|&name| name.to_owned()).collect(),
            _ => Vec::new(),
        };
        for word in words.iter().chain(&usual) {
            let (part, program) =
                word.split_once('/').map_or((word.as_str(), None), |(part, rest)| (part, Some(rest)));
            let package = workspace.find(part)?;
            if let Some(program) = program {
                let known: Vec<&str> = package.test_programs().collect();
                if !known.contains(&program) {
                    let known = known.join(", ");
                    bail!("`{part}` has no test program `{program}`; its test programs are: {known}");
                }
                scope.programs.push(format!("{}/{program}", package.room()));
            }
            if !scope.packages.contains(&package.name) {
                scope.packages.push(package.name.clone());
            }
        }
        Ok(scope)
    }

    /// What the programs of this run need to know.
    pub(super) fn variables(&self) -> impl Iterator<Item = (&'static str, String)> + '_ {
        self.kubernetes.iter().map(|release| (KUBERNETES, release.clone()))
    }

    fn is_whole(&self) -> bool {
        self.packages.is_empty()
    }

    pub(super) fn has(&self, package: &str) -> bool {
        self.is_whole() || self.packages.iter().any(|name| name == package)
    }

    /// As on the command line.
    pub(super) fn words(&self) -> Vec<&str> {
        let quick = self.quick.then_some("--quick");
        let kubernetes = self.kubernetes.as_deref().into_iter().flat_map(|release| ["--kubernetes", release]);
        let whole = self.packages.iter().filter(|name| {
            let short = name.strip_prefix("volmedic-").unwrap_or(name);
            !self.programs.iter().any(|program| program.split('/').next() == Some(short))
        });
        quick
            .into_iter()
            .chain(kubernetes)
            .chain(whole.map(String::as_str))
            .chain(self.programs.iter().map(String::as_str))
            .collect()
    }
}

/// A release as the test kit reads it. It knows which releases there are; this only refuses what cannot be one.
fn release(text: &str) -> Result<String> {
    let numbers = text.strip_prefix("v1.").unwrap_or_default();
    if numbers.is_empty() || !numbers.chars().all(|letter| letter.is_ascii_digit() || letter == '.') {
        bail!("`{text}` is not a Kubernetes release; write it as v1.33 or v1.33.0");
    }
    Ok(text.to_owned())
}

/// One step: what it is, how it is done, how to do it again alone, and how long it may take.
pub(super) struct Step {
    pub(super) name: &'static str,
    pub(super) about: String,
    pub(super) work: Work,
    pub(super) rerun: String,
    pub(super) deadline: Duration,
    /// Begins beside the others when this many steps are done, if it is not 0.
    pub(super) starts_after: usize,
}

impl Step {
    /// Has cargo compile a tool on its own instead of taking the one that the step `build` made.
    pub(super) fn compile_tool(&mut self) {
        if let Work::Child(line @ CommandLine { program: Program::Tools, .. }) = &mut self.work {
            line.program = Program::Cargo;
            line.arguments.splice(..1, tool_arguments(&line.arguments[0].clone()).map(str::to_owned));
        }
    }

    fn with_variable(mut self, name: &'static str, value: &str) -> Self {
        if let Work::Child(line) = &mut self.work {
            line.variables.push((name, value.to_owned()));
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

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Program {
    Cargo,
    /// xtask-tools, as the step `build` made it: compiled on its own, with fewer features, half of its dependencies would
    /// be compiled twice.
    Tools,
}

/// Shown as a person would type it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct CommandLine {
    pub(super) program: Program,
    pub(super) variables: Vec<(&'static str, String)>,
    pub(super) arguments: Vec<String>,
}

impl CommandLine {
    pub(super) fn cargo(arguments: &[&str]) -> Self {
        let arguments = arguments.iter().map(|word| (*word).to_owned()).collect();
        Self { program: Program::Cargo, variables: Vec::new(), arguments }
    }
}

impl fmt::Display for CommandLine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (name, value) in &self.variables {
            write!(f, "{name}='{value}' ")?;
        }
        let program = match self.program {
            Program::Cargo => "cargo",
            Program::Tools => "cargo xtask",
        };
        write!(f, "{program} {}", self.arguments.join(" "))
    }
}

/// All steps for these parts, or for everything when there are none.
pub(super) fn steps(workspace: &Workspace, scope: &Scope) -> Vec<Step> {
    let names: Vec<&str> = scope.packages.iter().map(String::as_str).collect();
    // Nothing but tests depends on the release.
    let only_tests = scope.kubernetes.is_some();
    let mut steps = vec![machine::step(scope)];
    if !only_tests {
        steps.push(cargo(
            "format",
            "the code is formatted as rustfmt does it",
            "fmt",
            &names,
            &["--check"],
            5,
        ));
    }
    steps.push(cargo("build", "all test programs", "test", &names, &["--all-features", "--no-run"], 60));
    let built = steps.len();
    if scope.is_whole() {
        steps.push(tool("tidy", "the architecture and the house rules", &["tidy"], 30));
        let about = "licences, sources and banned crates";
        steps.push(tool("dependencies", about, &["dependencies"], 5));
        steps.push(tool("codegen", "generated files are up to date", &["codegen", "--check"], 60));
    }
    if !only_tests {
        let flags = ["--all-targets", "--all-features", "--", "--deny=warnings"];
        steps.push(cargo("clippy", "lints, with warnings denied", "clippy", &names, &flags, 45));
    }
    let clusters = |package: &Package| scope.has(&package.name) && starts_clusters(package);
    if !scope.quick && workspace.packages.iter().any(clusters) {
        let about = "Kubernetes, helm and the other Go programs that tests start, built once";
        let release = scope.kubernetes.iter().flat_map(|release| ["--version", release]);
        let words: Vec<&str> = ["cluster", "build"].into_iter().chain(release).collect();
        let mut build = tool("cluster", about, &words, 120);
        // Most of it is a separate build. The first step made sure that Go is installed.
        build.starts_after = built;
        steps.push(build);
    }
    if !scope.is_whole() {
        // The step `build` made the programs of some parts only.
        for step in &mut steps {
            step.compile_tool();
        }
    }
    let owned = scope.clone();
    steps.push(Step {
        name: "tests",
        about: "all test programs, several at a time".into(),
        rerun: [&[only("tests").as_str()], &scope.words()[..]].concat().join(" "),
        deadline: Duration::MAX,
        starts_after: 0,
        work: Work::Here(Box::new(move |workspace| programs::run(workspace, &owned))),
    });
    if scope.quick || only_tests {
        return steps;
    }
    let flags = ["--all-features", "--no-fail-fast", "--doc"];
    // Cargo refuses to look for them in a package without a library.
    let documented = |package: &&Package| names.contains(&package.name.as_str()) && package.has_library();
    let documented: Vec<&str> =
        workspace.packages.iter().filter(documented).map(|package| package.name.as_str()).collect();
    if scope.is_whole() || !documented.is_empty() {
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

/// How to run a step alone that is not a separate command.
pub(super) fn only(step: &str) -> String {
    format!("cargo xtask test --only {step}")
}

/// A step that is a task of xtask-tools.
fn tool(name: &'static str, about: &str, words: &[&str], minutes: u64) -> Step {
    let line = CommandLine { program: Program::Tools, ..CommandLine::cargo(words) };
    Step {
        name,
        about: about.into(),
        rerun: line.to_string(),
        work: Work::Child(line),
        deadline: Duration::from_mins(minutes),
        starts_after: 0,
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
        // rustfmt's subcommand has another flag for this.
        ([], "fmt") => arguments.push("--all".into()),
        ([], _) => arguments.push("--workspace".into()),
        (parts, _) => arguments.extend(parts.iter().map(|part| format!("--package={part}"))),
    }
    arguments.extend(flags.iter().map(|flag| (*flag).to_owned()));
    let line = CommandLine { program: Program::Cargo, variables: Vec::new(), arguments };
    let rerun = line.to_string();
    let deadline = Duration::from_mins(minutes);
    Step { name, about: about.into(), work: Work::Child(line), rerun, deadline, starts_after: 0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scope(words: &[&str], quick: bool) -> Result<Scope> {
        with_release(words, quick, None)
    }

    fn with_release(words: &[&str], quick: bool, release: Option<&str>) -> Result<Scope> {
        let words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
        Scope::of(&Workspace::here()?, &words, quick, release)
    }

    /// The names of the steps and how each is run alone.
    fn shown(words: &[&str], quick: bool) -> Vec<String> {
        let steps = steps(&Workspace::here().unwrap(), &scope(words, quick).unwrap());
        steps.iter().map(|step| format!("{}: {}", step.name, step.rerun)).collect()
    }

    #[test]
    fn parts_are_found_by_either_name_and_counted_once() {
        let found = scope(&["health", "volmedic-health", "volmedic/hub", "volmedic/push"], false).unwrap();
        assert_eq!(found.packages, ["volmedic-health", "volmedic"]);
        assert_eq!(found.programs, ["volmedic/hub", "volmedic/push"]);
        assert_eq!(found.words(), ["volmedic-health", "volmedic/hub", "volmedic/push"]);
        let error = scope(&["helth"], false).unwrap_err().to_string();
        assert!(error.starts_with("there is no part `helth`"), "{error}");
        let error = scope(&["volmedic/hbu"], false).unwrap_err().to_string();
        assert!(
            error.starts_with("`volmedic` has no test program `hbu`; its test programs are: "),
            "{error}"
        );
        assert!(error.contains("hub"), "{error}");
    }

    #[test]
    fn another_release_is_for_the_tests_on_the_api_server_unless_parts_are_named() {
        let usual = with_release(&[], false, Some("v1.30")).unwrap();
        assert_eq!(usual.programs, ON_API_SERVER);
        let named = with_release(&["volmedic/hub"], false, Some("v1.33.0")).unwrap();
        assert_eq!(named.words(), ["--kubernetes", "v1.33.0", "volmedic/hub"]);
        assert_eq!(named.variables().collect::<Vec<_>>(), [(KUBERNETES, "v1.33.0".to_owned())]);
        let steps = steps(&Workspace::here().unwrap(), &named);
        let names: Vec<_> = steps.iter().map(|step| step.name).collect();
        assert_eq!(names, ["machine", "build", "cluster", "tests"]);
        let cluster = steps.iter().find(|step| step.name == "cluster").unwrap();
        assert_eq!(cluster.rerun, "cargo xtask cluster build --version v1.33.0");
        for bad in ["1.30", "v1.", "v1.30-rc.1", "latest"] {
            let error = with_release(&[], false, Some(bad)).unwrap_err().to_string();
            assert!(error.starts_with(&format!("`{bad}` is not a Kubernetes release")), "{error}");
        }
    }

    #[test]
    fn everything_goes_from_quick_to_slow() {
        assert_eq!(
            shown(&[], false),
            [
                "machine: cargo xtask test --only machine",
                "format: cargo fmt --all --check",
                "build: cargo test --workspace --all-features --no-run",
                "tidy: cargo xtask tidy",
                "dependencies: cargo xtask dependencies",
                "codegen: cargo xtask codegen --check",
                "clippy: cargo clippy --workspace --all-targets --all-features -- --deny=warnings",
                "cluster: cargo xtask cluster build",
                "tests: cargo xtask test --only tests",
                "examples: cargo test --workspace --all-features --no-fail-fast --doc",
                "docs: RUSTDOCFLAGS='--deny=warnings' cargo doc --workspace --no-deps --all-features",
            ]
        );
    }

    #[test]
    fn a_quick_run_starts_no_cluster() {
        let names: Vec<String> =
            shown(&[], true).iter().map(|step| step.split(':').next().unwrap().to_owned()).collect();
        assert_eq!(
            names,
            ["machine", "format", "build", "tidy", "dependencies", "codegen", "clippy", "tests"]
        );
        assert_eq!(shown(&[], true)[7], "tests: cargo xtask test --only tests --quick");
    }

    #[test]
    fn a_part_leaves_the_rest_alone() {
        assert_eq!(
            shown(&["health", "xtask"], false),
            [
                "machine: cargo xtask test --only machine volmedic-health xtask",
                "format: cargo fmt --package=volmedic-health --package=xtask --check",
                "build: cargo test --package=volmedic-health --package=xtask --all-features --no-run",
                "clippy: cargo clippy --package=volmedic-health --package=xtask --all-targets --all-features -- \
                 --deny=warnings",
                "tests: cargo xtask test --only tests volmedic-health xtask",
                "examples: cargo test --package=volmedic-health --package=xtask --all-features --no-fail-fast --doc",
                "docs: RUSTDOCFLAGS='--deny=warnings' cargo doc --package=volmedic-health --package=xtask --no-deps \
                 --all-features",
            ]
        );
    }

    #[test]
    fn a_tool_is_taken_from_the_build_of_everything_and_compiled_for_some_parts() {
        let compiled = |words: &[&str]| {
            let steps = steps(&Workspace::here().unwrap(), &scope(words, false).unwrap());
            let cluster = steps.into_iter().find(|step| step.name == "cluster").unwrap();
            assert_eq!(cluster.rerun, "cargo xtask cluster build");
            matches!(cluster.work, Work::Child(CommandLine { program: Program::Cargo, .. }))
        };
        assert!(!compiled(&[]));
        assert!(compiled(&["testkit"]));
    }

    #[test]
    fn the_cluster_is_built_for_those_who_start_one() {
        let builds = |part: &str| shown(&[part], false).iter().any(|step| step.starts_with("cluster: "));
        assert!(builds("testkit"));
        assert!(!builds("health") && !builds("xtask"));
    }

    #[test]
    fn every_child_has_a_deadline() {
        for step in steps(&Workspace::here().unwrap(), &Scope::default()) {
            if let Work::Child(_) = step.work {
                assert!(step.deadline <= Duration::from_hours(2), "{}", step.name);
            }
        }
    }
}
