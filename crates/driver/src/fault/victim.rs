//! The volume that is hurt, as its records describe it.

use std::path::{Path, PathBuf};

use super::Kind;
use crate::error::{Error, Result};
use crate::filesystem::Filesystem;
use crate::loops::LoopDevice;
use crate::record::{self, Access, NodeRecord, Published, Staged, VolumeRecord};
use crate::state_dir::{StateDir, VolumeDir, is_id};
use crate::store::{VOLUME_PREFIX, read_record};

#[derive(Debug)]
pub(super) struct Victim {
    pub(super) id: String,
    pub(super) kind: Kind,
    pub(super) directory: VolumeDir,
    pub(super) state_root: PathBuf,
    pub(super) volume: VolumeRecord,
    pub(super) node: NodeRecord,
}

impl Victim {
    /// The volume's own folder, which must exist.
    pub(super) fn folder(state: &StateDir, id: &str) -> Result<PathBuf> {
        let folder = state.volume(id).path().to_owned();
        if !is_id(VOLUME_PREFIX, id) || !folder.is_dir() {
            return Err(Error::NoVolume(id.to_owned()));
        }
        Ok(folder)
    }

    pub(super) fn load(state: &StateDir, id: &str) -> Result<Self> {
        Self::folder(state, id)?;
        let directory = state.volume(id);
        let volume: VolumeRecord =
            read_record(&directory.record())?.ok_or_else(|| Error::NoVolume(id.to_owned()))?;
        let node: NodeRecord = read_record(&directory.node_record())?.unwrap_or_default();
        let block = node.staged.as_ref().is_some_and(|staged| staged.access == Access::Block);
        let kind = match (volume.kind, block, volume.filesystem) {
            (record::Kind::Fuse, ..) => Kind::Fuse,
            (record::Kind::Loop, true, _) => Kind::Block,
            (record::Kind::Loop, false, Filesystem::Ext4) => Kind::Ext4,
            (record::Kind::Loop, false, Filesystem::Xfs) => Kind::Xfs,
            (record::Kind::Loop, false, Filesystem::Btrfs) => Kind::Btrfs,
        };
        Ok(Self { id: id.to_owned(), kind, directory, state_root: state.root().to_owned(), volume, node })
    }

    pub(super) fn staged(&self) -> Result<&Staged> {
        let staged = self.node.staged.as_ref().filter(|staged| staged.done);
        staged.ok_or_else(|| {
            Error::precondition(&self.id, "it is not staged; this can only be done to a staged volume")
        })
    }

    pub(super) fn staging(&self) -> Result<&Path> {
        Ok(&self.staged()?.path)
    }

    /// Every finished publication; at least one.
    pub(super) fn targets(&self) -> Result<Vec<(&Path, &Published)>> {
        let all = self.node.published.iter().filter(|(_, published)| published.done);
        let all: Vec<_> = all.map(|(path, published)| (path.as_path(), published)).collect();
        if all.is_empty() {
            return Err(Error::precondition(
                &self.id,
                "it is not published; this can only be done to a published volume",
            ));
        }
        Ok(all)
    }

    pub(super) fn device(&self) -> Result<LoopDevice> {
        self.attached().map(record::Attached::device)
    }

    pub(super) fn attached(&self) -> Result<record::Attached> {
        let attached = self.node.loop_device;
        attached.ok_or_else(|| Error::precondition(&self.id, "it has no loop device; stage it first"))
    }

    pub(super) fn io<E: Into<std::io::Error>>(&self, what: &str) -> impl FnOnce(E) -> Error {
        Error::io(format!("{what} of volume {}", self.id))
    }
}
