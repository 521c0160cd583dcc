//! The test programs, several at a time: most of what they do is wait, for a kernel, an API server or a deadline.

use std::collections::VecDeque;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail};
use serde::Deserialize;
use xtask::workspace::{Workspace, cargo, once_only};
use xtask::{child, say};

use super::output::Tests;
use super::plan::Scope;

/// Maximum number of programs at a time. Each has a thread for every core besides.
const LANES: usize = 3;
/// For any one of them. Those that run the README's commands compile the program again, beside other tests.
const DEADLINE: Duration = Duration::from_hours(1);
/// To build those that are missing.
const BUILD: Duration = Duration::from_hours(1);
/// Only one of these runs at a time, since a machine has room for one kubelet.
const ALONE: &str = "cluster";
/// With this variable the test kit refuses to start a control plane.
const NO_CLUSTER: &str = "VOLMEDIC_NO_CLUSTER";

/// Left out of a quick run: these start a control plane, or take more than half a minute.
#[rustfmt::skip]
const NOT_QUICK: &[&str] = &[
    "heal/api", "inventory/api_server", "lease/election", "report/it", "sim/model", "testkit/cluster", "testkit/control_plane",
    "volmedic/agent", "volmedic/chart", "volmedic/cluster", "volmedic/controller", "volmedic/doctor", "volmedic/doors",
    "volmedic/gallery", "volmedic/heal", "volmedic/hub", "volmedic/page", "volmedic/push", "volmedic/readme",
    "volmedic/sanity", "volmedic/status",
];

/// Started first, the longest in front, so that the end of a run does not wait for one of them alone.
const LONGEST: &[&str] = &[
    "volmedic/readme",
    "volmedic/push",
    "volmedic/hub",
    "volmedic/controller",
    "volmedic/page",
    "volmedic/sanity",
    "volmedic/heal",
    "volmedic/agent",
    "volmedic/doors",
    "volmedic/gallery",
    "volmedic/demo",
    "csi/misbehaving",
    "proto/wire",
];

/// A program that holds tests.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Program {
    /// As cargo's own headlines name it: the crate and the target.
    pub(super) name: String,
    file: PathBuf,
    /// The folder of its crate, where cargo runs it.
    folder: PathBuf,
    alone: bool,
}

/// One run of a program.
#[derive(Debug)]
pub(super) struct Run {
    pub(super) program: String,
    pub(super) tests: Tests,
    /// What is wrong with the program as a whole, where something is.
    pub(super) failure: Option<String>,
    /// Everything it printed.
    pub(super) log: PathBuf,
    took: Duration,
}

#[cfg(test)]
impl Run {
    /// A made-up one.
    pub(super) fn of(program: &str, names: &[&str], failure: Option<&str>) -> Self {
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        Self {
            program: program.into(),
            tests: Tests { failed: names.len(), names, ..Tests::default() },
            failure: failure.map(str::to_owned),
            log: PathBuf::new(),
            took: Duration::ZERO,
        }
    }
}

/// What cargo says of something that it built.
#[derive(Debug, Deserialize)]
struct Message {
    reason: String,
    manifest_path: Option<PathBuf>,
    target: Option<Target>,
    profile: Option<Profile>,
    executable: Option<PathBuf>,
}

#[derive(Debug, Deserialize)]
struct Target {
    name: String,
    kind: Vec<String>,
}

#[derive(Debug, Deserialize)]
struct Profile {
    test: bool,
}

/// Runs all test programs in this scope, once.
pub(super) fn run(workspace: &Workspace, scope: &Scope) -> Result<()> {
    let programs = list(workspace, scope)?;
    let folder = logs(workspace, "tests")?;
    let started = Instant::now();
    let runs = run_all(&programs, &folder, scope);
    let failed: Vec<&Run> = runs.iter().filter(|run| run.failure.is_some()).collect();
    for run in &failed {
        let text = fs::read(&run.log).unwrap_or_default();
        say::line(format_args!("\n==== {}\n{}", run.program, String::from_utf8_lossy(&text).trim_end()));
    }
    for run in &runs {
        for line in &run.tests.not_run {
            say::line(format_args!("{}: {line}", run.program));
        }
    }
    let count = |of: fn(&Tests) -> usize| runs.iter().map(|run| of(&run.tests)).sum::<usize>();
    say::line(format_args!(
        "\n{} test programs in {:.0} s; what each printed is in {}\n{} passed, {} failed, {} skipped",
        runs.len(),
        started.elapsed().as_secs_f64(),
        folder.display(),
        count(|tests| tests.passed),
        count(|tests| tests.failed),
        count(|tests| tests.ignored + tests.not_run.len()),
    ));
    if failed.is_empty() {
        return Ok(());
    }
    let names: Vec<String> = failed.iter().map(|run| describe(run)).collect();
    bail!("{} of {} test programs failed:\n  {}", failed.len(), runs.len(), names.join("\n  "))
}

fn describe(run: &Run) -> String {
    let why = run.failure.as_deref().unwrap_or("passed");
    match run.tests.names.as_slice() {
        [] => format!("{}: {why}", run.program),
        names => format!("{}: {}", run.program, names.join(", ")),
    }
}

/// A folder in the target folder for what programs print. Emptied first.
pub(super) fn logs(workspace: &Workspace, name: &str) -> Result<PathBuf> {
    let folder = workspace.target.join("xtask").join(name);
    let cannot = || format!("cannot prepare {} for what the tests print", folder.display());
    if folder.exists() {
        fs::remove_dir_all(&folder).with_context(cannot)?;
    }
    fs::create_dir_all(&folder).with_context(cannot)?;
    Ok(folder)
}

/// Runs each program once and shows progress: a line when one begins, a line when it ends.
pub(super) fn run_all(programs: &[Program], folder: &Path, scope: &Scope) -> Vec<Run> {
    let count = programs.len();
    let begun = Mutex::new(0);
    in_lanes(programs.to_vec(), |program| {
        let number = {
            let mut begun = begun.lock().unwrap_or_else(PoisonError::into_inner);
            *begun += 1;
            *begun
        };
        say::line(format_args!("[{number}/{count}] {} runs", program.name));
        let log = folder.join(program.name.replace('/', "-")).with_extension("log");
        let run = perform(program, log, scope);
        let seconds = run.took.as_secs_f64();
        match &run.failure {
            None => say::line(format_args!(
                "passed  {} ({} tests, {seconds:.1} s)",
                run.program, run.tests.passed
            )),
            Some(_) => say::line(format_args!("FAILED  {} ({seconds:.1} s)", describe(&run))),
        }
        run
    })
}

/// Takes one after the other, in as many lanes as there are; one lane only for those that must be alone.
fn in_lanes<T: Send>(programs: Vec<Program>, perform: impl Fn(&Program) -> T + Sync) -> Vec<T> {
    let (alone, others): (VecDeque<_>, VecDeque<_>) = programs.into_iter().partition(|program| program.alone);
    let (alone, others) = (Mutex::new(alone), Mutex::new(others));
    let results = Mutex::new(Vec::new());
    let lane = |queues: &[&Mutex<VecDeque<Program>>]| {
        let next = |queue: &Mutex<VecDeque<Program>>| {
            queue.lock().unwrap_or_else(PoisonError::into_inner).pop_front()
        };
        while let Some(program) = queues.iter().find_map(|queue| next(queue)) {
            let result = perform(&program);
            results.lock().unwrap_or_else(PoisonError::into_inner).push(result);
        }
    };
    std::thread::scope(|scope| {
        scope.spawn(|| lane(&[&alone, &others]));
        for _ in 1..LANES {
            scope.spawn(|| lane(&[&others]));
        }
    });
    results.into_inner().unwrap_or_else(PoisonError::into_inner)
}

fn perform(program: &Program, log: PathBuf, scope: &Scope) -> Run {
    let start = Instant::now();
    let failure = execute(program, &log, scope).err();
    let text = fs::read(&log).unwrap_or_default();
    let tests = Tests::read(&String::from_utf8_lossy(&text));
    Run { program: program.name.clone(), tests, failure, log, took: start.elapsed() }
}

fn execute(program: &Program, log: &Path, scope: &Scope) -> Result<(), String> {
    let cannot = |error: std::io::Error| format!("its output cannot be kept in {}: {error}", log.display());
    let file = File::create(log).map_err(cannot)?;
    let copy = file.try_clone().map_err(cannot)?;
    let mut command = Command::new(&program.file);
    command
        .current_dir(&program.folder)
        .env("CARGO_MANIFEST_DIR", &program.folder)
        .envs(once_only())
        .envs(scope.variables())
        .stdin(Stdio::null())
        .stdout(file)
        .stderr(copy);
    if scope.quick {
        command.env(NO_CLUSTER, "1");
    }
    child::wait(command, DEADLINE)
}

/// The programs in this scope. Builds those that are missing.
pub(super) fn list(workspace: &Workspace, scope: &Scope) -> Result<Vec<Program>> {
    let folder = tempfile::tempdir().context("cannot make a folder for cargo's messages")?;
    let messages = folder.path().join("messages");
    let mut command = cargo();
    command.args(["test", "--no-run", "--all-features", "--message-format=json-render-diagnostics"]);
    match scope.packages.as_slice() {
        [] => command.arg("--workspace"),
        packages => command.args(packages.iter().map(|package| format!("--package={package}"))),
    };
    command.current_dir(&workspace.root).stdin(Stdio::null()).stdout(File::create(&messages)?);
    child::wait(command, BUILD).map_err(|why| anyhow!("cargo cannot build the tests: {why}"))?;
    let mut programs = read(&fs::read_to_string(&messages).context("cargo's messages cannot be read")?)?;
    programs.retain(|program| is_wanted(&program.name, scope));
    if programs.is_empty() {
        bail!("cargo built no test program for this; something is wrong with how it is called");
    }
    programs.sort_by_cached_key(|program| (rank(&program.name), program.name.clone()));
    Ok(programs)
}

/// Its position in the order of starting.
fn rank(program: &str) -> usize {
    LONGEST.iter().position(|name| *name == program).unwrap_or(LONGEST.len())
}

fn is_wanted(program: &str, scope: &Scope) -> bool {
    let named = |wanted: &String| wanted == program;
    let whole = |package: &String| {
        let room = package.strip_prefix("volmedic-").unwrap_or(package);
        !scope.programs.iter().any(|program| program.split('/').next() == Some(room))
            && program.split('/').next() == Some(room)
    };
    let in_scope =
        scope.programs.is_empty() || scope.programs.iter().any(named) || scope.packages.iter().any(whole);
    in_scope && !(scope.quick && NOT_QUICK.contains(&program))
}

fn read(messages: &str) -> Result<Vec<Program>> {
    let mut programs = Vec::new();
    for line in messages.lines().filter(|line| line.starts_with('{')) {
        let message: Message = serde_json::from_str(line).context("cargo printed an unknown message")?;
        let (Some(file), Some(manifest), Some(target)) =
            (message.executable, message.manifest_path, message.target)
        else {
            continue;
        };
        let is_test = message.profile.is_some_and(|profile| profile.test);
        let Some(folder) = manifest.parent() else { continue };
        if message.reason != "compiler-artifact" || !is_test {
            continue;
        }
        let room = folder.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let is_own = target.kind.iter().any(|kind| kind == "test");
        let name = match (is_own, target.kind.iter().any(|kind| kind == "bin")) {
            (true, _) => format!("{room}/{}", target.name),
            // A package may have unit tests in its library and in its program.
            (false, true) if target.name == room => format!("{room}-program"),
            (false, _) => room,
        };
        programs.push(Program {
            alone: is_own && target.name == ALONE,
            name,
            file,
            folder: folder.to_owned(),
        });
    }
    Ok(programs)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn program(name: &str, alone: bool) -> Program {
        Program { name: name.into(), file: "true".into(), folder: "/".into(), alone }
    }

    #[test]
    fn what_cargo_built_for_tests_and_nothing_else() {
        let artifact = |kind: &str, name: &str, test: bool, executable: &str| {
            format!(
                r#"{{"reason":"compiler-artifact","manifest_path":"/w/crates/x/Cargo.toml","target":{{"name":"{name}","kind":["{kind}"]}},"profile":{{"test":{test}}},"executable":{executable}}}"#
            )
        };
        let messages = [
            artifact("lib", "x", true, r#""/t/x-1""#),
            artifact("bin", "x", true, r#""/t/x-2""#),
            artifact("test", "cluster", true, r#""/t/cluster-1""#),
            artifact("bin", "x", false, r#""/t/x""#),
            artifact("lib", "x", false, "null"),
            r#"{"reason":"build-finished","success":true}"#.to_owned(),
        ];
        let found = read(&messages.join("\n")).unwrap();
        let found: Vec<_> = found.iter().map(|program| (program.name.as_str(), program.alone)).collect();
        assert_eq!(found, [("x", false), ("x-program", false), ("x/cluster", true)]);
        assert!(read("{}").is_err(), "no reason");
    }

    #[test]
    fn a_scope_takes_whole_crates_single_programs_and_in_a_hurry_the_quick_ones() {
        let scope = |packages: &[&str], programs: &[&str], quick: bool| Scope {
            packages: packages.iter().map(|name| (*name).to_owned()).collect(),
            programs: programs.iter().map(|name| (*name).to_owned()).collect(),
            quick,
            kubernetes: None,
        };
        let of = |scope: &Scope| {
            let all = ["health", "health/properties", "volmedic", "volmedic/hub", "volmedic/watch"];
            all.into_iter().filter(|name| is_wanted(name, scope)).collect::<Vec<_>>()
        };
        assert_eq!(of(&scope(&[], &[], false)).len(), 5);
        assert_eq!(of(&scope(&[], &[], true)), ["health", "health/properties", "volmedic", "volmedic/watch"]);
        let one = scope(&["volmedic-health", "volmedic"], &["volmedic/hub"], false);
        assert_eq!(of(&one), ["health", "health/properties", "volmedic/hub"]);
    }

    #[test]
    fn the_programs_that_are_named_here_exist() {
        let workspace = Workspace::here().unwrap();
        for name in NOT_QUICK.iter().chain(LONGEST) {
            let (room, target) = name.split_once('/').unwrap();
            let package = workspace.find(room).unwrap();
            assert!(package.test_programs().any(|known| known == target), "{name}");
        }
    }

    #[test]
    fn all_are_run_once_and_those_that_must_be_alone_one_by_one() {
        let programs: Vec<Program> = (0..20).map(|n| program(&n.to_string(), n % 4 == 0)).collect();
        let alone = Mutex::new(());
        let mut ran = in_lanes(programs, |program| {
            let _only = program.alone.then(|| alone.try_lock().expect("two at a time"));
            std::thread::yield_now();
            program.name.clone()
        });
        ran.sort_by_key(|name| name.parse::<u32>().unwrap());
        assert_eq!(ran, (0..20).map(|n| n.to_string()).collect::<Vec<_>>());
    }

    #[test]
    fn a_program_that_fails_is_described_by_its_tests_or_by_its_end() {
        let run = |names: &[&str]| Run::of("x/y", names, Some("ended with signal 9"));
        assert_eq!(describe(&run(&[])), "x/y: ended with signal 9");
        assert_eq!(describe(&run(&["a", "b"])), "x/y: a, b");
    }
}
