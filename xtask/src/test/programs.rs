//! The test programs, several at a time: most of what they do is wait, for a kernel, an API server or a deadline.

use std::collections::VecDeque;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail};
use serde::Deserialize;

use super::child;
use crate::say;
use crate::workspace::{Workspace, cargo};

/// So many at once. Each has a thread for every core besides.
const LANES: usize = 3;
/// For any one of them.
const DEADLINE: Duration = Duration::from_mins(30);
/// To list them, once they are built.
const LIST: Duration = Duration::from_mins(45);
/// Of these there can be one at a time, since a machine has room for one kubelet.
const ALONE: &str = "cluster";

/// A program that holds tests.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Program {
    /// As cargo's own headlines name it: the crate and the target.
    name: String,
    file: PathBuf,
    /// The folder of its crate, where cargo runs it.
    folder: PathBuf,
    alone: bool,
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

/// Runs all test programs of these packages, or of the workspace where there are none.
pub(super) fn run(workspace: &Workspace, parts: &[String]) -> Result<()> {
    let programs = list(workspace, parts)?;
    let count = programs.len();
    let folder = tempfile::tempdir().context("cannot make a folder for what the tests say")?;
    let started = Instant::now();
    let failed = in_lanes(programs, |program| {
        let said = folder.path().join(program.name.replace('/', "-"));
        let began = Instant::now();
        let outcome = perform(program, &said);
        // In one piece, however many run at once.
        let text = std::fs::read(&said).map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
        let took = began.elapsed().as_secs_f64();
        say::line(format_args!("\n{} ({took:.1} s)\n{}", program.name, text.unwrap_or_default().trim_end()));
        outcome
    });
    say::line(format_args!("\n{count} test programs in {:.0} s", started.elapsed().as_secs_f64()));
    if failed.is_empty() {
        return Ok(());
    }
    let failed: Vec<String> =
        failed.iter().map(|(program, why)| format!("{}: {why}", program.name)).collect();
    bail!("{} of {count} test programs failed:\n  {}", failed.len(), failed.join("\n  "))
}

/// Takes one after the other, in as many lanes as there are; one lane only for those that must be alone.
fn in_lanes(
    programs: Vec<Program>,
    perform: impl Fn(&Program) -> Result<(), String> + Sync,
) -> Vec<(Program, String)> {
    let (alone, others): (VecDeque<_>, VecDeque<_>) = programs.into_iter().partition(|program| program.alone);
    let (alone, others) = (Mutex::new(alone), Mutex::new(others));
    let failed = Mutex::new(Vec::new());
    let lane = |queues: &[&Mutex<VecDeque<Program>>]| {
        let next = |queue: &Mutex<VecDeque<Program>>| {
            queue.lock().unwrap_or_else(PoisonError::into_inner).pop_front()
        };
        while let Some(program) = queues.iter().find_map(|queue| next(queue)) {
            if let Err(why) = perform(&program) {
                failed.lock().unwrap_or_else(PoisonError::into_inner).push((program, why));
            }
        }
    };
    std::thread::scope(|scope| {
        scope.spawn(|| lane(&[&alone, &others]));
        for _ in 1..LANES {
            scope.spawn(|| lane(&[&others]));
        }
    });
    failed.into_inner().unwrap_or_else(PoisonError::into_inner)
}

fn perform(program: &Program, said: &Path) -> Result<(), String> {
    let file = File::create(said).map_err(|error| format!("its output cannot be kept: {error}"))?;
    let copy = file.try_clone().map_err(|error| format!("its output cannot be kept: {error}"))?;
    let mut command = Command::new(&program.file);
    command
        .current_dir(&program.folder)
        .env("CARGO_MANIFEST_DIR", &program.folder)
        .stdin(Stdio::null())
        .stdout(file)
        .stderr(copy);
    child::wait(command, DEADLINE)
}

/// What cargo built for these packages. Builds what is missing.
fn list(workspace: &Workspace, parts: &[String]) -> Result<Vec<Program>> {
    let folder = tempfile::tempdir().context("cannot make a folder for what cargo says")?;
    let said = folder.path().join("messages");
    let mut command = cargo();
    command.args([
        "test",
        "--no-run",
        "--all-features",
        "--message-format=json-render-diagnostics",
        "--quiet",
    ]);
    match parts {
        [] => command.arg("--workspace"),
        parts => command.args(parts.iter().map(|part| format!("--package={part}"))),
    };
    command.current_dir(&workspace.root).stdin(Stdio::null()).stdout(File::create(&said)?);
    child::wait(command, LIST).map_err(|why| anyhow!("cargo cannot build the tests: {why}"))?;
    let mut programs = read(&std::fs::read_to_string(&said).context("what cargo built cannot be read")?)?;
    if programs.is_empty() {
        bail!("cargo built no test program at all; something is wrong with how it is asked");
    }
    programs.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(programs)
}

fn read(messages: &str) -> Result<Vec<Program>> {
    let mut programs = Vec::new();
    for line in messages.lines().filter(|line| line.starts_with('{')) {
        let message: Message = serde_json::from_str(line).context("cargo says what we cannot read")?;
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
        programs.push(Program {
            name: if is_own { format!("{room}/{}", target.name) } else { room },
            file,
            folder: folder.to_owned(),
            alone: is_own && target.name == ALONE,
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
            artifact("test", "cluster", true, r#""/t/cluster-1""#),
            artifact("bin", "x", false, r#""/t/x""#),
            artifact("lib", "x", false, "null"),
            r#"{"reason":"build-finished","success":true}"#.to_owned(),
        ];
        let found = read(&messages.join("\n")).unwrap();
        let found: Vec<_> = found.iter().map(|program| (program.name.as_str(), program.alone)).collect();
        assert_eq!(found, [("x", false), ("x/cluster", true)]);
        assert!(read("{}").is_err(), "no reason");
    }

    #[test]
    fn all_are_run_once_and_those_that_must_be_alone_one_by_one() {
        let programs: Vec<Program> = (0..20).map(|n| program(&n.to_string(), n % 4 == 0)).collect();
        let (ran, alone) = (Mutex::new(Vec::new()), Mutex::new(()));
        let failed = in_lanes(programs, |program| {
            let _only = program.alone.then(|| alone.try_lock().expect("two at once"));
            std::thread::sleep(Duration::from_millis(2));
            ran.lock().unwrap().push(program.name.clone());
            if program.name == "7" { Err("no".into()) } else { Ok(()) }
        });
        let mut ran = ran.into_inner().unwrap();
        ran.sort_by_key(|name| name.parse::<u32>().unwrap());
        assert_eq!(ran, (0..20).map(|n| n.to_string()).collect::<Vec<_>>());
        assert_eq!(failed, [(program("7", false), "no".to_owned())]);
    }
}
