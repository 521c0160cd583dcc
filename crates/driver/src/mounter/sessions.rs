//! Copies of the sessions of live mounters, held so that a mounter's death does not end its mounts.
//!
//! While a dead mounter's session is held, the users of the volume wait instead of getting errors. That is only better
//! if the volume will be healed, so copies are held only by a driver that can be asked to, and let go after a while: from
//! then on the volume fails as it would have without them.

use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::FileTypeExt;
use std::sync::{Arc, Weak};
use std::thread;
use std::time::{Duration, Instant};

use parking_lot::{Mutex, MutexGuard};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, PidfdGetfdFlags, pidfd_getfd, pidfd_open};

use super::process::is_alive;
use crate::record::MounterRecord;

/// How often to check whether a mounter died or its time is over.
const TICK: Duration = Duration::from_secs(1);
/// The device number of `/dev/fuse`.
const FUSE: (u32, u32) = (10, 229);

#[derive(Debug)]
pub(crate) struct Sessions {
    grace: Duration,
    held: Mutex<HashMap<String, Held>>,
}

#[derive(Debug)]
struct Held {
    device: OwnedFd,
    mounter: OwnedFd,
    dead_since: Option<Instant>,
}

impl Sessions {
    /// `grace` is how long a session is held after its mounter's death.
    pub(crate) fn start(grace: Duration) -> io::Result<Arc<Self>> {
        let sessions = Arc::new(Self { grace, held: Mutex::default() });
        let watched = Arc::downgrade(&sessions);
        thread::Builder::new()
            .name("sessions".to_owned())
            .stack_size(64 * 1024)
            .spawn(move || watch(&watched))?;
        Ok(sessions)
    }

    /// Holds a copy of a live mounter's session. Without it the volume works, but does not survive its mounter.
    pub(crate) fn hold(&self, volume: &str, mounter: &MounterRecord) {
        match copy(mounter) {
            Ok(held) => drop(self.held().insert(volume.to_owned(), held)),
            Err(error) => {
                self.let_go(volume);
                tracing::warn!(volume, %error, "the session could not be copied; its mounts will not survive its mounter");
            }
        }
    }

    /// A copy for the next mounter, if the session still has mounts.
    pub(crate) fn copy(&self, volume: &str) -> Option<OwnedFd> {
        let held = self.held();
        let device = &held.get(volume)?.device;
        if is_over(device) {
            return None;
        }
        device
            .try_clone()
            .inspect_err(|error| tracing::warn!(volume, %error, "a session cannot be copied"))
            .ok()
    }

    pub(crate) fn let_go(&self, volume: &str) {
        self.held().remove(volume);
    }

    fn held(&self) -> MutexGuard<'_, HashMap<String, Held>> {
        self.held.lock()
    }

    fn tick(&self) {
        self.held().retain(|volume, held| {
            if !is_dead(&held.mounter) {
                return true;
            }
            let since = *held.dead_since.get_or_insert_with(Instant::now);
            let stays = since.elapsed() < self.grace;
            if !stays {
                tracing::warn!(
                    volume,
                    "the volume was not healed in time; from now on requests to it fail instead of waiting"
                );
            }
            stays
        });
    }
}

/// Ends with the driver.
fn watch(sessions: &Weak<Sessions>) {
    while let Some(sessions) = sessions.upgrade() {
        sessions.tick();
        drop(sessions);
        thread::sleep(TICK);
    }
}

fn copy(record: &MounterRecord) -> io::Result<Held> {
    let descriptor = record.session.ok_or_else(|| io::Error::other("its mounter is of an older version"))?;
    let pid = Pid::from_raw(record.pid).ok_or_else(|| io::Error::other("its mounter has no process id"))?;
    let mounter = pidfd_open(pid, PidfdFlags::empty())?;
    // The pid could have been reused before it was pinned.
    if !is_alive(record) {
        return Err(io::Error::other("its mounter is dead"));
    }
    let device = pidfd_getfd(&mounter, descriptor, PidfdGetfdFlags::empty())?;
    let device = File::from(device);
    let found = device.metadata()?;
    let number = std::os::unix::fs::MetadataExt::rdev(&found);
    if !found.file_type().is_char_device() || (rustix::fs::major(number), rustix::fs::minor(number)) != FUSE {
        return Err(io::Error::other("what its mounter recorded is not a FUSE session"));
    }
    Ok(Held { device: device.into(), mounter, dead_since: None })
}

/// A session without mounts, or one that was aborted.
fn is_over(device: &impl AsFd) -> bool {
    now(device, PollFlags::empty()).intersects(PollFlags::ERR)
}

fn is_dead(process: &impl AsFd) -> bool {
    now(process, PollFlags::IN).intersects(PollFlags::IN | PollFlags::HUP)
}

fn now(descriptor: &impl AsFd, wanted: PollFlags) -> PollFlags {
    let mut asked = [PollFd::new(descriptor, wanted)];
    match poll(&mut asked, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })) {
        Ok(_) => asked[0].revents(),
        Err(_) => PollFlags::empty(),
    }
}
