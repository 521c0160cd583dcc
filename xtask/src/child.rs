//! A child process that ends: by itself, or at its deadline together with everything it started.

use std::collections::BTreeSet;
use std::process::{Child, Command};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

/// Runs a command to its end. The error says what happened to it, without its name.
pub fn wait(command: Command, deadline: Duration) -> Result<(), String> {
    Running::start(command)?.wait(deadline)
}

/// A process that was started and is waited for, or stopped, later.
///
/// It stays in our process group: an interrupt from the keyboard reaches it as it reaches us.
#[derive(Debug)]
pub struct Running {
    child: Child,
    start: Instant,
}

impl Running {
    /// Starts it with the terminal as its own, so that its output is seen as it comes.
    pub fn start(mut command: Command) -> Result<Self, String> {
        let child = command.spawn().map_err(|error| {
            format!("{} did not start: {error}; is it installed?", command.get_program().to_string_lossy())
        })?;
        Ok(Self { child, start: Instant::now() })
    }

    /// Waits for its end, until `deadline` after its start.
    pub fn wait(mut self, deadline: Duration) -> Result<(), String> {
        loop {
            match self.child.try_wait() {
                Ok(Some(status)) if status.success() => return Ok(()),
                Ok(Some(status)) => return Err(format!("ended with {status}; its output is above")),
                Ok(None) if self.start.elapsed() < deadline => std::thread::sleep(Duration::from_millis(50)),
                Ok(None) => break,
                Err(error) => return Err(format!("it cannot be waited for: {error}")),
            }
        }
        let names = self.stop();
        Err(format!(
            "did not end within {} s and was stopped; still running were: {}. If it was only slow, give it more time \
             with --deadline",
            deadline.as_secs(),
            if names.is_empty() { "unknown processes".to_owned() } else { names.join(", ") },
        ))
    }

    /// Stops it and everything it started, and returns what they were.
    pub fn stop(mut self) -> Vec<String> {
        let names = stop_tree(self.child.id());
        // The child itself may be missing in /proc; only after this is it certain that it has ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
        names
    }
}

/// Stops a process and all that came from it, and says what they were.
///
/// Each process is stopped before its children are listed, so that none can start another process unnoticed.
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
        // It may have ended already.
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
    use std::process::Stdio;

    use super::*;

    fn shell(script: &str) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", script]).stdin(Stdio::null());
        command
    }

    #[test]
    fn an_end_in_time_is_reported_by_its_status() {
        assert_eq!(wait(shell("exit 0"), Duration::from_mins(2)), Ok(()));
        let error = wait(shell("exit 3"), Duration::from_mins(2)).unwrap_err();
        assert_eq!(error, "ended with exit status: 3; its output is above");
        let error = wait(Command::new("no-such-program"), Duration::from_mins(2)).unwrap_err();
        assert!(error.starts_with("no-such-program did not start: "), "{error}");
    }

    #[test]
    fn a_deadline_ends_the_whole_tree_and_names_it() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("grandchild");
        // The inner shell writes its id and waits; so does the outer one.
        let script =
            format!("sh -c 'echo $$ > {0}.new; mv {0}.new {0}; sleep 61; true' & wait; true", file.display());
        let running = Running::start(shell(&script)).unwrap();
        let end = Instant::now() + Duration::from_mins(2);
        let until = |what: &str, fact: &dyn Fn() -> bool| {
            while !fact() {
                assert!(Instant::now() < end, "{what}");
                std::thread::sleep(Duration::from_millis(10));
            }
        };
        let sleeps = || {
            let sleeps = |(id, _): &(u32, u32)| name(*id).as_deref() == Some("`sleep 61`");
            file.exists() && parents().iter().any(sleeps)
        };
        until("the grandchild does not sleep", &sleeps);
        let error = running.wait(Duration::ZERO).unwrap_err();
        assert!(error.starts_with("did not end within 0 s and was stopped; still running were: "), "{error}");
        assert!(error.contains("`sleep 61`"), "{error}");

        let id: u32 = std::fs::read_to_string(&file).unwrap().trim().parse().unwrap();
        // Killed and perhaps not yet collected by init: either is dead.
        let dead =
            || !std::fs::read_to_string(format!("/proc/{id}/stat")).is_ok_and(|stat| !stat.contains(") Z "));
        until("the grandchild outlived its deadline", &dead);
    }

    #[test]
    fn a_parent_is_read_past_any_name() {
        assert_eq!(parent_of("12 (a) b) (c)) S 7 12 12"), Some(7));
        assert_eq!(parent_of("nonsense"), None);
        assert!(parents().contains(&(std::process::id(), std::os::unix::process::parent_id())));
    }
}
