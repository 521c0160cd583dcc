//! What `/proc` says about other processes.

use std::fs;
use std::thread::sleep;
use std::time::{Duration, Instant};

/// Waits until every thread of a process has stopped, or is gone; answers whether that came true in time.
///
/// A stop signal goes to one thread, and the others run on until that one gets its turn: on a busy machine long enough
/// to answer a request or two.
pub fn wait_until_stopped(pid: i32, limit: Duration) -> bool {
    let end = Instant::now() + limit;
    while !is_stopped(pid) {
        if Instant::now() >= end {
            return false;
        }
        sleep(Duration::from_millis(1));
    }
    true
}

fn is_stopped(pid: i32) -> bool {
    let Ok(threads) = fs::read_dir(format!("/proc/{pid}/task")) else { return true };
    threads.flatten().all(|thread| {
        let stat = fs::read_to_string(thread.path().join("stat")).unwrap_or_default();
        // The name before the state is in brackets and may hold anything, brackets included.
        let state = stat.rsplit_once(')').and_then(|(_, rest)| rest.trim_start().chars().next());
        matches!(state, None | Some('T' | 't' | 'Z' | 'X'))
    })
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    #[test]
    fn a_process_that_runs_is_not_stopped_and_one_that_was_stopped_is() {
        let mut child = Command::new("sleep").arg("60").spawn().unwrap();
        let pid = i32::try_from(child.id()).unwrap();
        assert!(!wait_until_stopped(pid, Duration::from_millis(20)));
        rustix::process::kill_process(
            rustix::process::Pid::from_child(&child),
            rustix::process::Signal::STOP,
        )
        .unwrap();
        assert!(wait_until_stopped(pid, Duration::from_mins(1)));
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(wait_until_stopped(pid, Duration::ZERO), "who is gone does nothing any more");
    }
}
