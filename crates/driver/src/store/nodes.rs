//! What was done with volumes on this node, one record each beside the volume's own.

use std::collections::HashMap;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use parking_lot::Mutex;

use super::disk::{read_record, sync_dir, write_record};
use crate::error::{Error, Result};
use crate::record::NodeRecord;
use crate::state_dir::{StateDir, is_id};

/// Which writing of a record this is: each is a new file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Version {
    inode: u64,
    changed: (i64, i64),
}

#[derive(Debug)]
pub(crate) struct Nodes {
    state: StateDir,
    /// `None` when another process serves the node. A volume whose record is broken has `None` instead of one.
    known: Option<Mutex<HashMap<String, Option<NodeRecord>>>>,
}

impl Nodes {
    pub(crate) fn open(state: &StateDir, owned: bool, volumes: Vec<String>) -> Self {
        let nodes = Self { state: state.clone(), known: None };
        if !owned {
            return nodes;
        }
        let mut known = HashMap::new();
        for id in volumes {
            match nodes.load(&id) {
                Ok(Some(record)) => drop(known.insert(id, Some(record))),
                Ok(None) => {}
                // Not known to be idle, so nothing is done with it until it is repaired; the others go on.
                Err(error) => {
                    tracing::error!(volume = id, %error, "a broken record keeps a volume from being used");
                    known.insert(id, None);
                }
            }
        }
        Self { known: Some(Mutex::new(known)), ..nodes }
    }

    /// Nothing was done with a volume that has no record.
    pub(crate) fn get(&self, id: &str) -> Result<NodeRecord> {
        if let Some(known) = &self.known {
            match known.lock().get(id) {
                Some(Some(record)) => return Ok(record.clone()),
                None => return Ok(NodeRecord::default()),
                // Broken when it was read; perhaps it has been repaired.
                Some(None) => {}
            }
        }
        Ok(self.load(id)?.unwrap_or_default())
    }

    /// Changes with each change of the record, in whatever process. `None` when there is none.
    pub(crate) fn version(&self, id: &str) -> Option<Version> {
        let file = fs::symlink_metadata(self.state.volume(id).node_record()).ok()?;
        Some(Version { inode: file.ino(), changed: (file.ctime(), file.ctime_nsec()) })
    }

    /// A volume that was put at a place inside of this one, or around it.
    pub(crate) fn nested_with(&self, path: &Path) -> Option<String> {
        let known = self.known.as_ref()?.lock();
        let nested = |other: &Path| other != path && (other.starts_with(path) || path.starts_with(other));
        let found = known.iter().find(|(_, record)| {
            record.as_ref().is_some_and(|record| {
                let staged = record.staged.iter().map(|staged| staged.path.as_path());
                staged.chain(record.published.keys().map(PathBuf::as_path)).any(nested)
            })
        });
        found.map(|(id, _)| id.clone())
    }

    /// Writes a record down; one that says nothing is removed instead.
    pub(crate) fn put(&self, id: &str, record: &NodeRecord) -> Result<()> {
        let directory = self.state.volume(id);
        if *record == NodeRecord::default() {
            match fs::remove_file(directory.node_record()).and_then(|()| sync_dir(directory.path())) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => {
                    return Err(Error::io(format_args!("remove {}", directory.node_record().display()))(
                        error,
                    ));
                }
                _ => {}
            }
        } else {
            write_record(&directory.node_record(), record)?;
        }
        if let Some(known) = &self.known {
            let mut known = known.lock();
            if *record == NodeRecord::default() {
                known.remove(id);
            } else {
                known.insert(id.to_owned(), Some(record.clone()));
            }
        }
        Ok(())
    }

    /// The volume is going away, and its record with it.
    pub(crate) fn forget(&self, id: &str) {
        if let Some(known) = &self.known {
            known.lock().remove(id);
        }
    }

    fn load(&self, id: &str) -> Result<Option<NodeRecord>> {
        if is_id(super::VOLUME_PREFIX, id) {
            read_record(&self.state.volume(id).node_record())
        } else {
            Ok(None)
        }
    }
}
