//! What is injected, and what is needed to undo it: one folder per fault.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use super::Fault;
use crate::error::{Error, Result};
use crate::store::remove_tree;

/// Beside a volume's records, or the driver's.
pub(crate) const FOLDER: &str = "faults";

#[derive(Debug)]
pub(super) struct Notes(PathBuf);

/// The folder of one fault.
#[derive(Debug)]
pub(super) struct Note(PathBuf);

impl Notes {
    pub(super) fn at(folder: PathBuf) -> Self {
        Self(folder)
    }

    pub(super) fn has(&self, fault: Fault) -> bool {
        self.0.join(fault.name()).is_dir()
    }

    pub(super) fn active(&self) -> Vec<Fault> {
        Fault::ALL.iter().copied().filter(|fault| self.has(*fault)).collect()
    }

    /// On disk before anything is hurt, so that a killed injector leaves what undoing needs.
    pub(super) fn open(&self, fault: Fault) -> Result<Note> {
        let folder = self.0.join(fault.name());
        fs::create_dir_all(&folder).map_err(Error::io(format_args!("make {}", folder.display())))?;
        Ok(Note(folder))
    }
}

impl Note {
    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    pub(super) fn keep(&self, name: &str, bytes: &[u8]) -> Result<()> {
        let path = self.path(name);
        let write = || -> io::Result<()> {
            fs::write(&path, bytes)?;
            File::open(&path)?.sync_all()
        };
        write().map_err(Error::io(format_args!("keep what was there in {}", path.display())))
    }

    /// What was kept under names that are numbers, such as offsets.
    pub(super) fn kept(&self) -> Result<Vec<(u64, Vec<u8>)>> {
        let list = || -> io::Result<Vec<(u64, Vec<u8>)>> {
            let mut kept = Vec::new();
            for entry in fs::read_dir(&self.0)? {
                let entry = entry?;
                let offset = entry.file_name().to_str().and_then(|name| name.parse().ok());
                if let Some(offset) = offset {
                    kept.push((offset, fs::read(entry.path())?));
                }
            }
            Ok(kept)
        };
        list().map_err(Error::io(format_args!("read what was kept in {}", self.0.display())))
    }

    /// Forgets it. A note that cannot be removed only shows a fault that is gone.
    pub(super) fn close(self) {
        if let Err(error) = remove_tree(&self.0) {
            tracing::warn!(%error, "the note of a fault stays behind");
        }
        // Only an empty folder goes.
        let _ = self.0.parent().map(Path::to_path_buf).map(fs::remove_dir);
    }
}
