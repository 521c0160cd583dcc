//! Children that die with this process or outlive it, by choice; and signals that never hit a stranger.

use std::fs::{self, File};
use std::io;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Mutex, OnceLock, PoisonError, mpsc};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal};

mod identity;
mod sys;
mod tool;

pub(crate) use identity::{Identity, boot, every};
pub(crate) use tool::{Finished, end_group, run};

/// How often a wait looks again.
pub(crate) const PAUSE: Duration = Duration::from_millis(20);

/// How long a child lives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Lifetime {
    /// The kernel kills it when this process ends, however it ends.
    Tied,
    /// It stays when this process is gone.
    Detached,
}

/// Starts `command` in a process group of its own.
pub(crate) fn spawn(mut command: Command, lifetime: Lifetime) -> io::Result<Child> {
    match lifetime {
        Lifetime::Detached => {
            sys::lead_new_session(&mut command);
            command.spawn()
        }
        Lifetime::Tied => {
            command.process_group(0);
            sys::die_with_parent(&mut command);
            on_lasting_thread(command)
        }
    }
}

/// The kernel ties a child to the *thread* that started it, and test threads end early. So one thread, which lives
/// as long as the process, starts all tied children.
fn on_lasting_thread(command: Command) -> io::Result<Child> {
    type Order = (Command, mpsc::SyncSender<io::Result<Child>>);
    static ORDERS: OnceLock<Mutex<mpsc::SyncSender<Order>>> = OnceLock::new();
    let orders = ORDERS.get_or_init(|| {
        let (sender, receiver) = mpsc::sync_channel::<Order>(16);
        let serve = move || {
            for (mut command, answer) in receiver {
                // A caller that stopped waiting gets nothing; its child would be an orphan, so it is ended.
                if let Err(mpsc::SendError(Ok(mut child))) = answer.send(command.spawn()) {
                    let _ = child.kill();
                    let _ = child.wait();
                }
            }
        };
        // Without the thread the receiver is gone and every send below fails, which says enough.
        let _ = std::thread::Builder::new().name("child-starter".into()).spawn(serve);
        Mutex::new(sender)
    });
    let gone = || io::Error::other("the thread that starts children is not running");
    let (answer, result) = mpsc::sync_channel(1);
    let sender = orders.lock().unwrap_or_else(PoisonError::into_inner).clone();
    sender.send((command, answer)).map_err(|_| gone())?;
    result.recv().map_err(|_| gone())?
}

/// A running program with its log.
#[derive(Debug)]
pub(crate) struct Process {
    child: Child,
    identity: Identity,
}

impl Process {
    /// Starts `command` with both its outputs appended to `log`.
    pub(crate) fn start(mut command: Command, lifetime: Lifetime, log: &Path) -> io::Result<Self> {
        let file = File::options().create(true).append(true).open(log)?;
        command.stdin(Stdio::null()).stdout(file.try_clone()?).stderr(file);
        let child = spawn(command, lifetime)?;
        // Not yet waited for, so the entry is there even if the program has ended already.
        let identity = Identity::of(child.id()).ok_or_else(|| io::Error::other("it vanished from /proc"))?;
        Ok(Self { child, identity })
    }

    pub(crate) fn identity(&self) -> Identity {
        self.identity
    }

    /// How it ended, if it has.
    pub(crate) fn ended(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().ok().flatten()
    }

    /// Sends `signal` to the program and whatever it started in its process group.
    pub(crate) fn signal(&mut self, signal: Signal) -> io::Result<()> {
        if self.ended().is_some() {
            return Ok(());
        }
        // Not waited for yet, so the number still belongs to this child and its group.
        Ok(rustix::process::kill_process_group(Pid::from_child(&self.child), signal)?)
    }

    /// Asks it to end, and after `grace` makes it.
    pub(crate) fn stop(&mut self, grace: Duration) -> io::Result<()> {
        // A paused program acts on nothing before it goes on.
        self.signal(Signal::TERM)?;
        self.signal(Signal::CONT)?;
        if self.wait(grace).is_some() {
            return Ok(());
        }
        self.kill()
    }

    pub(crate) fn kill(&mut self) -> io::Result<()> {
        self.signal(Signal::KILL)?;
        match self.wait(Duration::from_secs(20)) {
            Some(_) => Ok(()),
            None => Err(io::Error::other("it is still there 20 s after SIGKILL, stuck in the kernel")),
        }
    }

    fn wait(&mut self, limit: Duration) -> Option<ExitStatus> {
        let end = Instant::now() + limit;
        loop {
            if let Some(status) = self.ended() {
                return Some(status);
            }
            if Instant::now() >= end {
                return None;
            }
            std::thread::sleep(PAUSE);
        }
    }
}

/// The last `lines` lines of a log, which may be large.
pub(crate) fn tail(log: &Path, lines: usize) -> String {
    // A long line here, a short one there: this holds as many as asked for, and never the whole of a huge log.
    let enough = (lines as u64).saturating_mul(1024).clamp(64 << 10, 64 << 20);
    let text = || -> io::Result<Vec<u8>> {
        use std::io::{Read, Seek, SeekFrom};
        let mut file = File::open(log)?;
        let size = file.metadata()?.len();
        file.seek(SeekFrom::Start(size.saturating_sub(enough)))?;
        let mut text = Vec::new();
        file.take(enough).read_to_end(&mut text)?;
        Ok(text)
    };
    let text = text().unwrap_or_default();
    let text = String::from_utf8_lossy(&text);
    let all: Vec<&str> = text.lines().collect();
    all[all.len().saturating_sub(lines)..].join("\n")
}

/// Whether a log says that an address was taken by somebody else.
pub(crate) fn says_port_is_busy(log: &Path) -> bool {
    fs::read(log).is_ok_and(|text| String::from_utf8_lossy(&text).contains("address already in use"))
}

#[cfg(test)]
mod tests;
