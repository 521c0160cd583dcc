//! Other people's tools: run with a deadline, killed after it, and dead when the driver is.

use std::fs::File;
use std::io::{self, Read, Seek};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{MemfdFlags, memfd_create};
use rustix::process::{Pid, PidfdFlags, pidfd_open};

use crate::error::{Error, Result};
use crate::sys;

/// How much of a tool's last words go into an error.
const QUOTED: usize = 400;
/// How long a killed tool may take to die before it is left behind.
const DYING: Duration = Duration::from_secs(5);

/// Runs a tool to its end. Anything but exit code 0 is an error that quotes what the tool said.
pub(crate) fn run(tool: &'static str, arguments: &[&str], on: &Path, deadline: Duration) -> Result<()> {
    run_accepting(tool, arguments, on, deadline, &[0])
}

/// As [`run`], for tools that have more than one way to report success.
pub(crate) fn run_accepting(
    tool: &'static str,
    arguments: &[&str],
    on: &Path,
    deadline: Duration,
    good: &[i32],
) -> Result<()> {
    let failed = |why: String| Error::Tool { tool, on: on.display().to_string(), why };
    // The output goes to memory instead of a pipe: it need not be drained, so the tool cannot block on us.
    let mut said: File = memfd_create("tool-output", MemfdFlags::CLOEXEC)
        .map_err(|error| failed(format!("its output could not be kept: {error}")))?
        .into();
    let output = || said.try_clone().map(Stdio::from).map_err(|error| failed(error.to_string()));
    let mut command = Command::new(tool);
    command.args(arguments).arg(on).stdin(Stdio::null()).stdout(output()?).stderr(output()?);
    let mut child = sys::dies_with_us(&mut command).spawn().map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => failed("it is not installed; install its package".to_owned()),
        _ => failed(format!("it could not be started: {error}")),
    })?;
    let status = wait(&mut child, deadline).map_err(|error| failed(error.to_string()))?;
    match status {
        Some(status) if status.code().is_some_and(|code| good.contains(&code)) => Ok(()),
        Some(status) => Err(failed(format!("{status}: {}", last_words(&mut said)))),
        None => {
            end(&mut child);
            Err(failed(format!("it did not end within {} s and was killed", deadline.as_secs())))
        }
    }
}

/// Waits for a child, at most until the deadline. `None` when it is still running then.
pub(crate) fn wait(child: &mut Child, deadline: Duration) -> io::Result<Option<ExitStatus>> {
    let pid = Pid::from_child(child);
    let pidfd = pidfd_open(pid, PidfdFlags::empty())?;
    let end = Instant::now() + deadline;
    loop {
        let left = end.saturating_duration_since(Instant::now());
        let timeout = Timespec::try_from(left).map_err(io::Error::other)?;
        match poll(&mut [PollFd::new(&pidfd, PollFlags::IN)], Some(&timeout)) {
            Ok(0) => return child.try_wait(),
            Ok(_) => return child.wait().map(Some),
            Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

/// Kills and reaps. A child stuck in the kernel is left behind after a while: waiting longer would hang us too.
pub(crate) fn end(child: &mut Child) {
    if let Err(error) = child.kill() {
        tracing::warn!(pid = child.id(), %error, "a child could not be killed");
    }
    match wait(child, DYING) {
        Ok(Some(_)) => {}
        Ok(None) => tracing::warn!(pid = child.id(), "a killed child does not die; it is left behind"),
        Err(error) => tracing::warn!(pid = child.id(), %error, "a killed child could not be waited for"),
    }
}

fn last_words(said: &mut File) -> String {
    let mut text = Vec::new();
    let read = said.rewind().and_then(|()| said.take(64 * 1024).read_to_end(&mut text));
    if let Err(error) = read {
        return format!("(its output could not be read: {error})");
    }
    let text = String::from_utf8_lossy(&text);
    let words = text.split_whitespace().collect::<Vec<_>>().join(" ");
    let cut = words.char_indices().rev().nth(QUOTED - 1).map_or(0, |(at, _)| at);
    words[cut..].to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONG: Duration = Duration::from_mins(2);

    fn check(script: &str, deadline: Duration, expected: &str) {
        let outcome = run("sh", &["-c", script], Path::new("x"), deadline);
        let result = outcome.map_or_else(|error| error.to_string(), |()| "ok".to_owned());
        assert_eq!(result, expected);
    }

    #[test]
    fn outcomes_are_sentences() {
        check("exit 0", LONG, "ok");
        check("echo out; echo err >&2; exit 3", LONG, "sh failed on x: exit status: 3: out err");
        let short = Duration::from_millis(300);
        check("sleep 60", short, "sh failed on x: it did not end within 0 s and was killed");
        let missing = run("volmedic-no-such-tool", &[], Path::new("x"), LONG).unwrap_err();
        assert_eq!(
            missing.to_string(),
            "volmedic-no-such-tool failed on x: it is not installed; install its package"
        );
    }
}
