//! Waits for changes of the mount table.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::time::{Instant, sleep_until};

/// Minimum time between two wake-ups. A node that starts a hundred pods mounts a thousand times, and reading the table has
/// its cost. The first change is reported immediately.
const APART: Duration = Duration::from_millis(100);

/// Wakes its owner whenever something was mounted, unmounted or remounted.
///
/// What changed is not reported: the owner reads the [`Table`](super::Table), which has everything that happened before the
/// wake-up. Later changes wake the owner again, so a slow owner misses nothing. An emergency inside a file system is no
/// change of the table and causes no wake-up.
#[derive(Debug)]
pub struct Watch {
    file: AsyncFd<File>,
    path: PathBuf,
    /// When the last change was reported.
    reported: Option<Instant>,
}

impl Watch {
    /// Over the mounts that this process sees. Needs a tokio runtime with I/O and time.
    pub fn new() -> io::Result<Self> {
        Self::at("/proc/self/mountinfo")
    }

    /// Over the mounts that another process sees, wherever in the tree its `mountinfo` is.
    pub fn at(mountinfo: impl AsRef<Path>) -> io::Result<Self> {
        let path = mountinfo.as_ref().to_path_buf();
        // Opening it marks the point from which changes count.
        let file = File::open(&path).and_then(|file| crate::sys::watched(file, Interest::PRIORITY));
        match file {
            Ok(file) => Ok(Self { file, path, reported: None }),
            Err(error) => Err(named(&path, &error)),
        }
    }

    /// Waits for a change after the last one reported, or after this watch began. May be dropped and called again.
    pub async fn changed(&mut self) -> io::Result<()> {
        self.ready().await?;
        if let Some(reported) = self.reported {
            sleep_until(reported + APART).await;
        }
        // Taken only now, so that changes since then are reported with it. Nothing is awaited after that, so no change is
        // lost when this is dropped.
        let mut ready =
            self.file.ready(Interest::PRIORITY).await.map_err(|error| named(&self.path, &error))?;
        ready.clear_ready();
        self.reported = Some(Instant::now());
        Ok(())
    }

    async fn ready(&self) -> io::Result<()> {
        self.file.ready(Interest::PRIORITY).await.map(drop).map_err(|error| named(&self.path, &error))
    }
}

fn named(path: &Path, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("watching {} failed: {error}", path.display()))
}
