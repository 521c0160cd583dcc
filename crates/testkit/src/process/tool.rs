//! Small programs that are run to their end, never past a deadline.

use std::ffi::OsStr;
use std::io::{self, Read};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use rustix::process::{Pid, Signal};

use super::{Lifetime, PAUSE, spawn};

/// What a program said and whether it succeeded.
#[derive(Debug)]
pub(crate) struct Finished {
    pub(crate) success: bool,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

/// Runs `command` to its end. Failing is an answer; not starting or not ending is an error.
pub(crate) fn run(mut command: Command, deadline: Duration) -> Result<Finished> {
    let shown = show(&command);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = spawn(command, Lifetime::Tied).with_context(|| format!("`{shown}` did not start"))?;
    let (stdout, stderr) = (gather(child.stdout.take()), gather(child.stderr.take()));
    let end = Instant::now() + deadline;
    let status = loop {
        if let Some(status) = child.try_wait().with_context(|| format!("cannot wait for `{shown}`"))? {
            break status;
        }
        if Instant::now() >= end {
            end_group(&mut child);
            bail!("`{shown}` did not end within {} s and was stopped", deadline.as_secs());
        }
        thread::sleep(PAUSE);
    };
    // What it started may hold its outputs open; what has come by then must do.
    let rest = Duration::from_secs(2);
    let stdout = stdout.recv_timeout(rest).unwrap_or_default();
    let stderr = stderr.recv_timeout(rest).unwrap_or_default();
    Ok(Finished { success: status.success(), stdout, stderr })
}

impl Finished {
    /// The standard output of a program that had to succeed.
    pub(crate) fn or_fail(self, what: &str) -> Result<String> {
        if self.success {
            return Ok(self.stdout);
        }
        let said = if self.stderr.trim().is_empty() { &self.stdout } else { &self.stderr };
        bail!("{what} failed: {}", said.trim())
    }
}

/// Kills a program and what it started. One that the kernel holds is not waited for.
pub(crate) fn end_group(child: &mut Child) {
    let _ = rustix::process::kill_process_group(Pid::from_child(child), Signal::KILL);
    let end = Instant::now() + Duration::from_secs(2);
    while matches!(child.try_wait(), Ok(None)) && Instant::now() < end {
        thread::sleep(PAUSE);
    }
}

fn gather(pipe: Option<impl Read + Send + 'static>) -> mpsc::Receiver<String> {
    let (sender, receiver) = mpsc::sync_channel(1);
    thread::spawn(move || {
        let mut bytes = Vec::new();
        if let Some(pipe) = pipe {
            let _ = io::BufReader::new(pipe).read_to_end(&mut bytes);
        }
        let _ = sender.send(String::from_utf8_lossy(&bytes).into_owned());
    });
    receiver
}

fn show(command: &Command) -> String {
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    words.map(OsStr::to_string_lossy).collect::<Vec<_>>().join(" ")
}
