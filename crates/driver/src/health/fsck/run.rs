//! One run of a tool: started, listened to, ended.

use std::io::{self, Read};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use super::Job;
use super::judge::{self, Run};

/// How much of what a tool says is kept. Bad damage makes endless lists, and the first lines are what counts.
const KEPT: usize = 64 << 10;

/// How often to check whether a tool has ended.
const TICK: Duration = Duration::from_millis(20);

/// How long a killed tool may take to die before it is left behind.
const DYING: Duration = Duration::from_secs(2);

pub(super) fn run(job: &Job, deadline: Duration, stop: &dyn Fn() -> bool) -> Run {
    match start(job) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Run::ToolMissing,
        Err(error) => Run::Refused(format!("{} did not start: {error}", job.tool.program())),
        Ok((mut child, said)) => {
            let Some(status) = ended(&mut child, deadline, stop) else {
                let _ = child.kill();
                ended(&mut child, DYING, &|| false);
                return if stop() {
                    Run::Refused("the check was called off".to_owned())
                } else {
                    Run::TimedOut(deadline)
                };
            };
            let said = said.recv_timeout(DYING).unwrap_or_default();
            judge::read(job.tool, status.code(), &String::from_utf8_lossy(&said))
        }
    }
}

/// Waits, at most so long; false when asked to stop meanwhile.
pub(super) fn pause(time: Duration, stop: &dyn Fn() -> bool) -> bool {
    let end = Instant::now() + time;
    while Instant::now() < end {
        if stop() {
            return false;
        }
        std::thread::sleep(TICK.min(end.saturating_duration_since(Instant::now())));
    }
    !stop()
}

fn start(job: &Job) -> io::Result<(Child, mpsc::Receiver<Vec<u8>>)> {
    let (mut reader, writer) = io::pipe()?;
    let mut command = Command::new(job.tool.program());
    command
        .args(job.tool.arguments(&job.on))
        .arg(&job.on)
        // What the tools say is read here, so they must say it in the one language we know.
        .env("LC_ALL", "C")
        .current_dir("/")
        .stdin(Stdio::null())
        .stdout(writer.try_clone()?)
        .stderr(writer);
    let child = command.spawn()?;
    // The command holds the writing end; the reader would never see its end otherwise.
    drop(command);
    let (tell, said) = mpsc::sync_channel(1);
    std::thread::Builder::new().name("fsck-output".into()).spawn(move || {
        let mut kept = Vec::new();
        let mut piece = [0; 4096];
        // All is read so that the tool never waits for us, but only the beginning is kept.
        while let Ok(count @ 1..) = reader.read(&mut piece) {
            let room = KEPT.saturating_sub(kept.len()).min(count);
            kept.extend_from_slice(&piece[..room]);
        }
        let _ = tell.send(kept);
    })?;
    Ok((child, said))
}

fn ended(child: &mut Child, deadline: Duration, stop: &dyn Fn() -> bool) -> Option<ExitStatus> {
    let end = Instant::now() + deadline;
    loop {
        match child.try_wait() {
            Ok(Some(status)) => return Some(status),
            Ok(None) if Instant::now() < end && !stop() => std::thread::sleep(TICK),
            _ => return None,
        }
    }
}
