//! A child process that ends: by itself, or at its deadline together with everything it started.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use crate::workspace;

use super::plan::CommandLine;

/// Runs cargo with the terminal as its own, so that what it and the tests print is seen as it comes.
///
/// It stays in our process group: an interrupt from the keyboard reaches it as it reaches us.
pub(super) fn run(line: &CommandLine, folder: &Path, deadline: Duration) -> Result<(), String> {
    let mut command = workspace::cargo();
    command
        .args(&line.arguments)
        .envs(line.variables.iter().copied())
        .current_dir(folder)
        .stdin(Stdio::null());
    wait(command, deadline)
}

/// Runs a command to its end. The error is what to say about it, without its name.
pub(crate) fn wait(mut command: Command, deadline: Duration) -> Result<(), String> {
    let mut child = command.spawn().map_err(|error| {
        format!("{} did not start: {error}; is it installed?", command.get_program().to_string_lossy())
    })?;
    let start = Instant::now();
    loop {
        match child.try_wait() {
            Ok(Some(status)) if status.success() => return Ok(()),
            Ok(Some(status)) => return Err(format!("ended with {status}; its output is above")),
            Ok(None) if start.elapsed() < deadline => std::thread::sleep(Duration::from_millis(50)),
            Ok(None) => break,
            Err(error) => return Err(format!("it cannot be waited for: {error}")),
        }
    }
    let names = stop_tree(child.id());
    // The child itself may stand outside of /proc's reach; its end is certain only now.
    let _ = child.kill();
    let _ = child.wait();
    Err(format!(
        "did not end within {} s and was stopped; still running were: {}. If it was only slow, give it more time \
         with --deadline",
        deadline.as_secs(),
        if names.is_empty() { "nobody knows".to_owned() } else { names.join(", ") },
    ))
}

/// Stops a process and all that came from it, and says what they were.
///
/// Each is halted before its children are looked up, so that nothing can start another process unseen.
fn stop_tree(root: u32) -> Vec<String> {
    let mut tree = BTreeSet::from([root]);
    signal(root, Signal::STOP);
    // Every round finds at least one process more, or is the last.
    loop {
        let found: Vec<u32> = parents()
            .into_iter()
            .filter(|(id, parent)| tree.contains(parent) && !tree.contains(id))
            .map(|(id, _)| id)
            .collect();
        if found.is_empty() {
            break;
        }
        for id in found {
            signal(id, Signal::STOP);
            tree.insert(id);
        }
    }
    let names = tree.iter().filter_map(|id| name(*id)).collect();
    for id in tree {
        signal(id, Signal::KILL);
    }
    names
}

fn signal(id: u32, signal: Signal) {
    if let Some(pid) = i32::try_from(id).ok().and_then(Pid::from_raw) {
        // Gone already is as good.
        let _ = kill_process(pid, signal);
    }
}

/// Every process and its parent.
fn parents() -> Vec<(u32, u32)> {
    let Ok(entries) = std::fs::read_dir("/proc") else { return Vec::new() };
    let ids = entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    ids.filter_map(|id| Some((id, parent_of(&std::fs::read_to_string(format!("/proc/{id}/stat")).ok()?)?)))
        .collect()
}

/// The fourth field of `/proc/<pid>/stat`. The second, a name in parentheses, may hold anything.
fn parent_of(stat: &str) -> Option<u32> {
    stat.rsplit_once(')')?.1.split_whitespace().nth(1)?.parse().ok()
}

/// The program's file name and its first arguments.
fn name(id: u32) -> Option<String> {
    let line = std::fs::read(format!("/proc/{id}/cmdline")).ok()?;
    let line = String::from_utf8_lossy(&line);
    let mut words = line.split('\0').filter(|word| !word.is_empty());
    let program = words.next()?.rsplit('/').next()?.to_owned();
    let arguments: Vec<&str> = words.take(2).collect();
    Some(format!("`{}`", [vec![program.as_str()], arguments].concat().join(" ")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", script]).stdin(Stdio::null());
        command
    }

    #[test]
    fn an_end_in_time_is_told_by_its_status() {
        assert_eq!(wait(shell("exit 0"), Duration::from_secs(20)), Ok(()));
        let error = wait(shell("exit 3"), Duration::from_secs(20)).unwrap_err();
        assert_eq!(error, "ended with exit status: 3; its output is above");
        let error = wait(Command::new("no-such-program"), Duration::from_secs(20)).unwrap_err();
        assert!(error.starts_with("no-such-program did not start: "), "{error}");
    }

    #[test]
    fn a_deadline_ends_the_whole_tree_and_names_it() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("grandchild");
        // The inner shell tells its id, then waits; so does the outer one.
        let script =
            format!("sh -c 'echo $$ > {0}.new; mv {0}.new {0}; sleep 61; true' & wait; true", file.display());
        let error = wait(shell(&script), Duration::from_secs(1)).unwrap_err();
        assert!(error.starts_with("did not end within 1 s and was stopped; still running were: "), "{error}");
        assert!(error.contains("`sleep 61`"), "{error}");

        let id: u32 = std::fs::read_to_string(&file).unwrap().trim().parse().unwrap();
        let end = Instant::now() + Duration::from_secs(10);
        // Killed and perhaps not yet collected by init: either is dead.
        let alive =
            || std::fs::read_to_string(format!("/proc/{id}/stat")).is_ok_and(|stat| !stat.contains(") Z "));
        while alive() {
            assert!(Instant::now() < end, "the grandchild {id} outlived its deadline");
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    #[test]
    fn a_parent_is_read_past_any_name() {
        assert_eq!(parent_of("12 (a) b) (c)) S 7 12 12"), Some(7));
        assert_eq!(parent_of("nonsense"), None);
        assert!(parents().contains(&(std::process::id(), std::os::unix::process::parent_id())));
    }
}
