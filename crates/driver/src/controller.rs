//! What happens to volumes as a whole. Everything here blocks and runs on a worker thread.

mod snapshots;
pub(crate) mod volumes;

use std::path::PathBuf;
use std::sync::Arc;

use rustix::fs::statvfs;

use crate::config::Config;
use crate::error::{Error, Result};
use crate::filesystem::Filesystem;
use crate::record::{Kind, Source};
use crate::store::Store;
use crate::work::Locks;

#[derive(Debug)]
pub(crate) struct Controller {
    pub(crate) config: Arc<Config>,
    pub(crate) store: Arc<Store>,
    pub(crate) locks: Locks,
}

/// What a new volume or snapshot is filled from.
#[derive(Debug)]
struct Content {
    image: PathBuf,
    bytes: u64,
    filesystem: Filesystem,
}

impl Controller {
    /// Where content comes from. The caller holds the lock on it.
    fn content(&self, source: &Source) -> Result<Content> {
        match source {
            Source::Snapshot(id) => {
                let snapshot = self.store.snapshot(id)?;
                let image = self.store.state.snapshot_image(id);
                Ok(Content { image, bytes: snapshot.bytes, filesystem: snapshot.filesystem })
            }
            Source::Volume(id) => {
                let volume = self.store.volume(id)?;
                if volume.kind == Kind::Fuse {
                    return Err(Error::precondition(
                        id,
                        "volumes of kind fuse can be neither cloned nor snapshotted",
                    ));
                }
                // A copy of a device that is being written to would be a mix of moments.
                if !self.store.nodes.get(id)?.is_idle() {
                    return Err(Error::precondition(
                        id,
                        "it is in use, and only volumes at rest are copied; unstage it",
                    ));
                }
                let image = self.store.state.volume(id).image();
                Ok(Content { image, bytes: volume.bytes, filesystem: volume.filesystem })
            }
        }
    }

    /// Bytes that can still be promised.
    pub(crate) fn available(&self) -> Result<u64> {
        let root = self.store.state.root();
        let space = statvfs(root).map_err(Error::io(format_args!("see how full {} is", root.display())))?;
        let free = space.f_bavail.saturating_mul(space.f_frsize);
        Ok(match self.config.total_bytes {
            Some(total) => free.min(total.saturating_sub(self.store.volumes.bytes())),
            None => free,
        })
    }

    /// Images are sparse, so only an explicit total limits what is promised; the disk itself may be less.
    fn check_total(&self, more: u64) -> Result<()> {
        let Some(total) = self.config.total_bytes else { return Ok(()) };
        let promised = self.store.volumes.bytes();
        if promised.saturating_add(more) <= total {
            return Ok(());
        }
        Err(Error::Exhausted(format!("{promised} of {total} bytes are promised, and {more} more do not fit")))
    }
}
