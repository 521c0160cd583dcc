//! What happens to volumes on this node. Everything here blocks and runs on a worker thread.
//!
//! The rule for every step: write down what is about to be done, do it, write down that it is done. Repeating any
//! call after a crash then finds either nothing, or something it knows.

mod expand;
mod heal;
mod publish;
mod stage;

use std::path::Path;
use std::sync::Arc;

use volmedic_host::mounts::Mount;

pub(crate) use heal::Patient;

use crate::error::{Error, Result};
use crate::mount::Expected;
use crate::mounter::Mounters;
use crate::paths::{Place, Roots};
use crate::record::{Access, Kind, NodeRecord, VolumeRecord};
use crate::store::Store;
use crate::work::{Locks, VolumeLock};

#[derive(Debug)]
pub(crate) struct Node {
    pub(crate) store: Arc<Store>,
    pub(crate) roots: Roots,
    pub(crate) locks: Locks,
    pub(crate) mounters: Mounters,
}

impl Node {
    /// The volume and its record, for the one call that may change them now.
    fn take(&self, id: &str) -> Result<(VolumeLock, Arc<VolumeRecord>, NodeRecord)> {
        self.store.volume(id)?;
        let lock = self.locks.take_volume(id, &self.store.state.volume(id))?;
        // Again, under the lock: it may have been deleted or grown in between.
        Ok((lock, self.store.volume(id)?, self.store.nodes.get(id)?))
    }

    /// A volume inside of another would write into that, and one around another would hide it.
    fn check_apart(&self, field: &'static str, place: &Place) -> Result<()> {
        match self.store.nodes.nested_with(place.path()) {
            None => Ok(()),
            Some(other) => {
                let why = format_args!("it lies inside of, or around, a place of volume {other}").to_string();
                Err(Error::invalid(field, why))
            }
        }
    }

    fn write(&self, id: &str, record: &NodeRecord) -> Result<()> {
        self.store.nodes.put(id, record)
    }
}

/// What the mount table should show at the staging path; nothing for a raw block volume.
pub(crate) fn expected_at_staging<'a>(volume: &'a VolumeRecord, record: &NodeRecord) -> Option<Expected<'a>> {
    match (volume.kind, &record.staged.as_ref()?.access) {
        (Kind::Fuse, _) => Some(Expected::Fuse(&volume.id)),
        (Kind::Loop, Access::Mount { .. }) => {
            record.loop_device.map(|attached| Expected::Disk(attached.device()))
        }
        (Kind::Loop, Access::Block) => None,
    }
}

/// What the mount table should show at every target.
pub(crate) fn expected_at_target<'a>(volume: &'a VolumeRecord, record: &NodeRecord) -> Option<Expected<'a>> {
    match (volume.kind, &record.staged.as_ref()?.access) {
        (Kind::Loop, Access::Block) => record.loop_device.map(|attached| Expected::Node(attached.device())),
        _ => expected_at_staging(volume, record),
    }
}

/// Whether a mount of the volume may be taken off while a process is stuck in it. A mounter that hangs holds every process that
/// touched the volume, and only its end, at unstaging, sets them free; it writes through, so nothing is lost. A disk
/// is never let go like this: still in use somewhere, it could be attached and mounted a second time.
fn lets_go(volume: &VolumeRecord) -> bool {
    volume.kind == Kind::Fuse
}

/// Something that is not the volume is mounted where it should be.
pub(crate) fn occupied(volume: &str, path: &Path, found: Mount<'_>) -> Error {
    let (kind, source) = (found.fs_type().display(), found.source().display());
    Error::precondition(
        volume,
        format_args!(
            "{kind} from {source} is mounted at {}, which is not this volume; unmount it",
            path.display()
        ),
    )
}
