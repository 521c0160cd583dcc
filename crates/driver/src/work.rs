//! Blocking work off the async threads: a limit for concurrent work, a deadline for the caller, and one operation
//! at a time per volume, in this process and between two that share a state directory.

use std::collections::HashSet;
use std::fs::File;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use rustix::fs::{FlockOperation, flock};
use tokio::sync::Semaphore;
use tokio::task::spawn_blocking;
use tokio::time::timeout;
use volmedic_panics::caught_now;

use crate::error::{Error, Result};
use crate::state_dir::{VolumeDir, is_id};
use crate::store::VOLUME_PREFIX;

/// Maximum number of concurrent operations. One stuck in the kernel keeps its place, so there are many.
pub(crate) const CONCURRENT: usize = 256;

#[derive(Clone, Debug)]
pub(crate) struct Workers {
    places: Arc<Semaphore>,
    patience: Duration,
}

impl Workers {
    pub(crate) fn new(patience: Duration) -> Self {
        Self { places: Arc::new(Semaphore::new(CONCURRENT)), patience }
    }

    pub(crate) fn are_idle(&self) -> bool {
        self.places.available_permits() == CONCURRENT
    }

    /// Runs `work` on a blocking thread. When the caller's patience ends the work goes on, and keeps its locks.
    pub(crate) async fn run<T: Send + 'static>(
        &self,
        what: &'static str,
        work: impl FnOnce() -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let place = Arc::clone(&self.places)
            .try_acquire_owned()
            .map_err(|_| Error::Overloaded { together: CONCURRENT })?;
        // Caught on its own thread: the caller may be gone by then.
        let task = spawn_blocking(move || {
            let _place = place;
            caught_now(work).unwrap_or_else(|panic| Err(Error::Bug(panic)))
        });
        let outcome = match timeout(self.patience, task).await {
            Ok(Ok(outcome)) => outcome,
            Ok(Err(ended)) => Err(Error::Bug(ended.to_string())),
            Err(_) => Err(Error::Deadline { what, after: self.patience }),
        };
        outcome.inspect_err(|error| tracing::info!(what, %error, "a call failed"))
    }
}

/// Who is at work, by key: the id of a volume or snapshot, or the name of one that is being made.
#[derive(Clone, Debug, Default)]
pub(crate) struct Locks(Arc<Mutex<HashSet<String>>>);

impl Locks {
    /// Takes the key, or says that it is taken.
    pub(crate) fn take(&self, key: &str) -> Result<KeyLock> {
        let mut taken = self.0.lock();
        if taken.insert(key.to_owned()) {
            Ok(KeyLock { locks: self.clone(), key: key.to_owned() })
        } else {
            Err(Error::Busy(key.to_owned()))
        }
    }

    /// Takes a volume, also against another process. The caller looks the volume up again afterwards.
    pub(crate) fn take_volume(&self, id: &str, directory: &VolumeDir) -> Result<VolumeLock> {
        if !is_id(VOLUME_PREFIX, id) {
            return Err(Error::NoVolume(id.to_owned()));
        }
        let key = self.take(id)?;
        let opened = File::open(directory.path()).map_err(|_| Error::NoVolume(id.to_owned()))?;
        flock(&opened, FlockOperation::NonBlockingLockExclusive).map_err(|_| Error::Busy(id.to_owned()))?;
        Ok(VolumeLock { directory: opened.into(), _key: key })
    }
}

#[derive(Debug)]
pub(crate) struct KeyLock {
    locks: Locks,
    key: String,
}

impl Drop for KeyLock {
    fn drop(&mut self) {
        self.locks.0.lock().remove(&self.key);
    }
}

#[derive(Debug)]
pub(crate) struct VolumeLock {
    directory: OwnedFd,
    _key: KeyLock,
}

impl Drop for VolumeLock {
    fn drop(&mut self) {
        // Closing is not enough: a child that is just being started shares the open file for a moment, and the lock
        // with it. The key is freed after this, so the next that gets it finds the directory free.
        if let Err(error) = flock(&self.directory, FlockOperation::Unlock) {
            tracing::warn!(%error, "a volume stays locked until its directory is closed everywhere");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_caller_gives_up_but_the_work_and_its_lock_go_on() {
        let workers = Workers::new(Duration::from_millis(20));
        let locks = Locks::default();
        let (finish, wait) = std::sync::mpsc::channel::<()>();
        let held = locks.take("vol-1").unwrap();
        let outcome = workers
            .run("staging", move || {
                let _held = held;
                wait.recv().map_err(|error| Error::Bug(error.to_string()))
            })
            .await;
        assert!(matches!(outcome, Err(Error::Deadline { .. })), "{outcome:?}");
        assert!(matches!(locks.take("vol-1"), Err(Error::Busy(_))));
        finish.send(()).unwrap();
        let deadline = std::time::Instant::now() + Duration::from_mins(2);
        while locks.take("vol-1").is_err() {
            assert!(std::time::Instant::now() < deadline, "the lock was never released");
            tokio::task::yield_now().await;
        }
    }

    #[tokio::test]
    async fn a_panic_is_an_error_and_frees_the_lock() {
        let workers = Workers::new(Duration::from_mins(2));
        let locks = Locks::default();
        let held = locks.take("vol-1").unwrap();
        let outcome = workers
            .run("staging", move || -> Result<()> {
                let _held = held;
                panic!("on purpose")
            })
            .await;
        assert!(matches!(outcome, Err(Error::Bug(_))), "{outcome:?}");
        locks.take("vol-1").unwrap();
    }
}
