//! Volumes and snapshots: an index in memory, one directory and one small record each on disk.
//!
//! No call reads a directory or writes more than the record it changes, so cost does not grow with the number of
//! volumes. The process that serves the controller owns the shelves; a node-only process borrows them and reads the
//! one record it needs from disk each time.

mod disk;
mod nodes;
mod shelf;

use std::fs::File;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::thread::sleep;
use std::time::Duration;

use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;

use crate::config::Services;
use crate::error::{Error, Result};
use crate::record::{SnapshotRecord, VolumeRecord};
use crate::state_dir::{SNAPSHOT_RECORD, StateDir, VOLUME_RECORD};

pub(crate) use disk::{read_record, remove_tree, write_record};
pub(crate) use nodes::{Nodes, Version};
pub(crate) use shelf::Shelf;

const LOCK_ATTEMPTS: u32 = 20;
const LOCK_PAUSE: Duration = Duration::from_millis(50);

pub(crate) const VOLUME_PREFIX: &str = "vol-";
pub(crate) const SNAPSHOT_PREFIX: &str = "snap-";

/// Something that has a directory of its own with a record inside.
pub(crate) trait Shelved: serde::Serialize + serde::de::DeserializeOwned {
    const FILE: &'static str;
    const PREFIX: &'static str;
    fn id(&self) -> &str;
    fn name(&self) -> &str;
    fn bytes(&self) -> u64;
}

impl Shelved for VolumeRecord {
    const FILE: &'static str = VOLUME_RECORD;
    const PREFIX: &'static str = VOLUME_PREFIX;

    fn id(&self) -> &str {
        &self.id
    }

    fn name(&self) -> &str {
        &self.name
    }

    fn bytes(&self) -> u64 {
        self.bytes
    }
}

impl Shelved for SnapshotRecord {
    const FILE: &'static str = SNAPSHOT_RECORD;
    const PREFIX: &'static str = SNAPSHOT_PREFIX;

    fn id(&self) -> &str {
        &self.id
    }

    fn name(&self) -> &str {
        &self.name
    }

    fn bytes(&self) -> u64 {
        self.bytes
    }
}

#[derive(Debug)]
pub(crate) struct Store {
    pub(crate) state: StateDir,
    pub(crate) volumes: Shelf<VolumeRecord>,
    pub(crate) snapshots: Shelf<SnapshotRecord>,
    pub(crate) nodes: Nodes,
    /// Released by the kernel when the process ends, however it ends.
    _locks: Vec<File>,
}

impl Store {
    /// Opens the state directory, making it if need be. Fails while another process serves the same part of it.
    pub(crate) fn open(state: &StateDir, services: Services) -> Result<Self> {
        for directory in [state.volumes(), state.snapshots(), state.new_things(), state.trash()] {
            std::fs::create_dir_all(&directory).map_err(|error| Error::no_state_dir(&directory, &error))?;
        }
        let mut locks = Vec::new();
        for (serves, name) in [(services.controller, "controller"), (services.node, "node")] {
            if serves {
                locks.push(lock(&state.lock_file(name)).map_err(Error::io(format_args!(
                    "lock {}; is another driver running on this state directory?",
                    state.lock_file(name).display()
                )))?);
            }
        }
        let volumes = Shelf::open(state, state.volumes(), services.controller)?;
        Ok(Self {
            nodes: Nodes::open(state, services.node, volumes.ids_on_disk()?),
            snapshots: Shelf::open(state, state.snapshots(), services.controller)?,
            volumes,
            state: state.clone(),
            _locks: locks,
        })
    }

    pub(crate) fn volume(&self, id: &str) -> Result<Arc<VolumeRecord>> {
        self.volumes.get(id)?.ok_or_else(|| Error::NoVolume(id.to_owned()))
    }

    pub(crate) fn snapshot(&self, id: &str) -> Result<Arc<SnapshotRecord>> {
        self.snapshots.get(id)?.ok_or_else(|| Error::NoSnapshot(id.to_owned()))
    }
}

/// A driver that was killed a moment ago may not be gone altogether, so there are several attempts.
fn lock(path: &Path) -> io::Result<File> {
    let file = File::options().create(true).truncate(false).write(true).open(path)?;
    let mut locked = flock(&file, FlockOperation::NonBlockingLockExclusive);
    for _ in 0..LOCK_ATTEMPTS {
        if locked != Err(Errno::WOULDBLOCK) {
            break;
        }
        sleep(LOCK_PAUSE);
        locked = flock(&file, FlockOperation::NonBlockingLockExclusive);
    }
    locked?;
    Ok(file)
}

/// A new id: it cannot be guessed, so a late call for a deleted volume never meets its successor.
pub(crate) fn new_id(prefix: &str) -> Result<String> {
    let mut bytes = [0_u8; 16];
    rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty())
        .map_err(Error::io("get random bytes for an id"))?;
    Ok(format!("{prefix}{:032x}", u128::from_be_bytes(bytes)))
}
