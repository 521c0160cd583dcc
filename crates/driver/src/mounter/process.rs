//! The driver's side: starting a mounter, finding it again, ending it.

use std::fs::{self, OpenOptions};
use std::io::{self, PipeReader, Read};
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

use crate::command::end;
use crate::error::{Error, Result};
use crate::mount::{Expected, table, unmount_all};
use crate::node::occupied;
use crate::paths::Place;
use crate::record::{MounterRecord, VolumeRecord};
use crate::state_dir::{StateDir, VolumeDir};
use crate::store::read_record;
use crate::sys;

use super::sessions::Sessions;

/// From start to a mounted file system. Counting what the volume holds is part of it.
const START: Duration = Duration::from_mins(1);
/// From unmounting to its end, before it is killed; and again from there.
const STOP: Duration = Duration::from_secs(5);

#[derive(Clone, Debug)]
pub(crate) struct Mounters {
    program: PathBuf,
    state: StateDir,
    /// Copies of the sessions of live mounters, where a heal may be requested.
    sessions: Option<Arc<Sessions>>,
}

/// How a volume got a live mounter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Revived {
    /// The one it has serves it.
    NotNeeded,
    /// A new one goes on with the session: every mount and open file is as before.
    HandedOver,
    /// A new one has a new session, mounted at the staging path only.
    NewSession,
}

/// What a new mounter begins with.
enum Begin<'a> {
    /// It mounts here.
    Mount(&'a Place),
    /// It serves the mounts of this session, the first of which is here.
    GoOn(&'a Place, OwnedFd),
}

impl Mounters {
    pub(crate) fn new(program: PathBuf, state: StateDir, sessions: Option<Arc<Sessions>>) -> Self {
        Self { program, state, sessions }
    }

    /// The volume is mounted at the place by a live mounter when this returns. A live mounter that does not answer is
    /// replaced only if the caller says that it is `stuck`.
    pub(crate) fn ensure(
        &self,
        volume: &VolumeRecord,
        place: &Place,
        readonly: bool,
        stuck: bool,
    ) -> Result<Revived> {
        let directory = self.state.volume(&volume.id);
        let alive = find(&directory)?.is_some() && !stuck;
        let mounted = match table()?.at(place.path()) {
            None => false,
            Some(found) if Expected::Fuse(&volume.id).is(found) => true,
            Some(found) => return Err(occupied(&volume.id, place.path(), found)),
        };
        if alive && mounted {
            return Ok(Revived::NotNeeded);
        }
        let session = self.sessions.as_ref().and_then(|sessions| sessions.copy(&volume.id));
        if mounted && let Some(session) = session {
            stop(&directory)?;
            self.set_quota(volume)?;
            self.start(volume, &directory, Begin::GoOn(place, session), readonly)?;
            return Ok(Revived::HandedOver);
        }
        self.let_go(&volume.id);
        if mounted {
            // Its mounter is gone, so nothing can be written back any more.
            unmount_all(place, true)?;
        }
        stop(&directory)?;
        self.set_quota(volume)?;
        self.start(volume, &directory, Begin::Mount(place), readonly)?;
        Ok(Revived::NewSession)
    }

    /// Whether a live process serves the volume.
    pub(crate) fn has(&self, volume: &str) -> Result<bool> {
        Ok(find(&self.state.volume(volume))?.is_some())
    }

    /// Holds a copy of the session of a mounter that is there already.
    pub(crate) fn hold(&self, volume: &str) {
        let Some(sessions) = &self.sessions else { return };
        match find(&self.state.volume(volume)) {
            Ok(Some(mounter)) => sessions.hold(volume, &mounter),
            Ok(None) => sessions.let_go(volume),
            Err(error) => tracing::warn!(volume, %error, "its mounter cannot be found"),
        }
    }

    /// The volume is on its way out; from now on its mounts end with its mounter.
    pub(crate) fn let_go(&self, volume: &str) {
        if let Some(sessions) = &self.sessions {
            sessions.let_go(volume);
        }
    }

    /// Sets how much the volume may hold; the mounter reads it now or when it starts.
    pub(crate) fn set_quota(&self, volume: &VolumeRecord) -> Result<()> {
        let path = self.state.volume(&volume.id).mounter_quota();
        let temporary = path.with_extension("quota.tmp");
        fs::write(&temporary, volume.bytes.to_string())
            .and_then(|()| fs::rename(&temporary, &path))
            .map_err(Error::io(format_args!("write {}", path.display())))
    }

    fn start(
        &self,
        volume: &VolumeRecord,
        directory: &VolumeDir,
        begin: Begin<'_>,
        readonly: bool,
    ) -> Result<()> {
        let (place, input, goes_on) = match begin {
            // The mountpoint itself, open: no path can be swapped under it.
            Begin::Mount(place) => (place, place.open_directory()?.into_fd(), false),
            Begin::GoOn(place, session) => (place, session, true),
        };
        let failed = |why: String| Error::Tool { tool: "the mounter", on: volume.id.clone(), why };
        let log = OpenOptions::new()
            .create(true)
            .write(true)
            .truncate(true)
            .open(directory.mounter_log())
            .map_err(Error::io(format_args!("open {}", directory.mounter_log().display())))?;
        let (ready, ready_writer) = io::pipe().map_err(Error::io("make a pipe"))?;
        let mut command = Command::new(&self.program);
        command
            .arg("mounter")
            .arg("--volume")
            .arg(&volume.id)
            .arg("--volume-dir")
            .arg(directory.path())
            .arg("--mountpoint")
            .arg(place.path())
            .arg("--parent")
            .arg(std::process::id().to_string())
            .args(readonly.then_some("--readonly"))
            .args(goes_on.then_some("--take-over"))
            .current_dir("/")
            .stdin(Stdio::from(input))
            .stdout(ready_writer)
            .stderr(log);
        let mut child = sys::own_session(&mut command)
            .spawn()
            .map_err(|error| failed(format!("{} could not be started: {error}", self.program.display())))?;
        // Closes our ends of what the child has, so that its death is the end of the pipe.
        drop(command);
        match wait_for_ready(ready, START) {
            Ok(true) => {
                reap_later(child);
                self.hold(&volume.id);
                Ok(())
            }
            Ok(false) => {
                end(&mut child);
                let log = fs::read_to_string(directory.mounter_log()).unwrap_or_default();
                let log = log.lines().last().unwrap_or("it said nothing").to_owned();
                Err(failed(format!(
                    "it did not get ready within {} s or ended early: {log}",
                    START.as_secs()
                )))
            }
            Err(error) => {
                end(&mut child);
                Err(failed(error.to_string()))
            }
        }
    }
}

/// Waits for a mounter whose mount is gone, and kills it if it does not end by itself.
pub(crate) fn stop(directory: &VolumeDir) -> Result<()> {
    let Some(record) = find(directory)? else { return Ok(()) };
    let failed = |error: Errno| Error::io(format_args!("end the mounter with pid {}", record.pid))(error);
    let Some(pid) = Pid::from_raw(record.pid) else { return Ok(()) };
    let pidfd = match pidfd_open(pid, PidfdFlags::empty()) {
        Ok(pidfd) => pidfd,
        Err(Errno::SRCH) => return Ok(()),
        Err(error) => return Err(failed(error)),
    };
    // The pid could have been reused before it was pinned.
    if !is_alive(&record) {
        return Ok(());
    }
    let mounted = table()?.iter().any(|mount| mount.target() == record.mountpoint);
    if !mounted && readable(&pidfd, STOP).map_err(failed)? {
        return Ok(());
    }
    match pidfd_send_signal(&pidfd, Signal::KILL) {
        Ok(()) | Err(Errno::SRCH) => {}
        Err(error) => return Err(failed(error)),
    }
    if readable(&pidfd, STOP).map_err(failed)? {
        return Ok(());
    }
    let why = format!("pid {} was killed but does not die; something in the kernel holds it", record.pid);
    Err(Error::Tool { tool: "the mounter", on: directory.path().display().to_string(), why })
}

/// The live mounter of a volume.
pub fn find(directory: &VolumeDir) -> Result<Option<MounterRecord>> {
    Ok(read_record::<MounterRecord>(&directory.mounter_record())?.filter(is_alive))
}

/// Whether the very process that wrote the record is still there and not just waiting to be reaped.
pub fn is_alive(record: &MounterRecord) -> bool {
    start_time(record.pid) == Some(record.start_time)
}

/// When a process was started, in ticks since boot; `None` for one that is dead.
pub(crate) fn start_time(pid: i32) -> Option<u64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name is in parentheses and may itself contain anything.
    let mut fields = stat.get(stat.rfind(')')? + 1..)?.split_ascii_whitespace();
    let state = fields.next()?;
    if matches!(state, "Z" | "X") {
        return None;
    }
    // The state is field 3, the start time field 22.
    fields.nth(18)?.parse().ok()
}

/// Reads until the mounter says that it is ready. `false` when it ended or the time is over.
fn wait_for_ready(mut pipe: PipeReader, deadline: Duration) -> io::Result<bool> {
    if !readable(&pipe, deadline)? {
        return Ok(false);
    }
    let mut byte = [0];
    Ok(pipe.read(&mut byte)? == 1)
}

fn readable(descriptor: &impl std::os::fd::AsFd, deadline: Duration) -> Result<bool, Errno> {
    let end = Instant::now() + deadline;
    loop {
        let left = end.saturating_duration_since(Instant::now());
        let timeout = Timespec::try_from(left).map_err(|_| Errno::INVAL)?;
        match poll(&mut [PollFd::new(descriptor, PollFlags::IN)], Some(&timeout)) {
            Ok(ready) => return Ok(ready > 0),
            Err(Errno::INTR) => {}
            Err(error) => return Err(error),
        }
    }
}

/// A mounter may live for months; a small thread waits so that it leaves no zombie.
fn reap_later(mut child: Child) {
    let reaper = thread::Builder::new().name("reaper".to_owned()).stack_size(64 * 1024);
    let spawned = reaper.spawn(move || match child.wait() {
        Ok(status) => tracing::info!(pid = child.id(), %status, "a mounter ended"),
        Err(error) => tracing::warn!(pid = child.id(), %error, "a mounter could not be waited for"),
    });
    if let Err(error) = spawned {
        tracing::warn!(%error, "no thread to wait for a mounter; it will stay as a zombie when it ends");
    }
}
