//! Where things are on disk.
//!
//! ```text
//! <state>/controller.lock, node.lock     held by the process that serves that part
//! <state>/volumes/<id>/volume.json       what the volume is (controller writes)
//!                      node.json         what was done with it on this node (node writes)
//!                      drive.json        the state of the drive under it, if it is not healthy
//!                      disk.img          the backing of kind loop
//!                      files/            the backing of kind fuse
//!                      deleted/          files of kind fuse that were deleted while open, by inode number
//!                      mounter.json      the running mounter; mounter.log, mounter.quota, mounter.fault beside it
//! <state>/snapshots/<id>/snapshot.json, disk.img
//! <state>/new/                           half-made things, renamed into place when whole
//! <state>/trash/                         things being deleted
//! ```
//!
//! A volume appears and vanishes by one rename, so that a killed driver leaves only whole volumes in `volumes/`.

use std::path::{Path, PathBuf};

#[derive(Clone, Debug)]
pub struct StateDir(PathBuf);

impl StateDir {
    pub fn new(root: impl Into<PathBuf>) -> Self {
        Self(root.into())
    }

    pub fn root(&self) -> &Path {
        &self.0
    }

    pub fn volumes(&self) -> PathBuf {
        self.0.join("volumes")
    }

    pub fn snapshots(&self) -> PathBuf {
        self.0.join("snapshots")
    }

    pub fn new_things(&self) -> PathBuf {
        self.0.join("new")
    }

    pub fn trash(&self) -> PathBuf {
        self.0.join("trash")
    }

    pub fn lock_file(&self, service: &str) -> PathBuf {
        self.0.join(format!("{service}.lock"))
    }

    /// The directory of one volume. The id must have passed `is_id` or come from a record.
    pub fn volume(&self, id: &str) -> VolumeDir {
        VolumeDir(self.volumes().join(id))
    }

    pub fn snapshot_image(&self, id: &str) -> PathBuf {
        self.snapshots().join(id).join(IMAGE)
    }
}

pub(crate) const VOLUME_RECORD: &str = "volume.json";
pub(crate) const SNAPSHOT_RECORD: &str = "snapshot.json";
pub(crate) const NODE_RECORD: &str = "node.json";
pub(crate) const IMAGE: &str = "disk.img";
pub(crate) const FILES: &str = "files";

/// Paths inside of one volume's directory.
#[derive(Clone, Debug)]
pub struct VolumeDir(PathBuf);

impl VolumeDir {
    pub fn at(path: impl Into<PathBuf>) -> Self {
        Self(path.into())
    }

    pub fn path(&self) -> &Path {
        &self.0
    }

    pub fn record(&self) -> PathBuf {
        self.0.join(VOLUME_RECORD)
    }

    pub fn node_record(&self) -> PathBuf {
        self.0.join(NODE_RECORD)
    }

    /// What is believed of the drive under the volume; absent for one in good order.
    pub fn drive_state(&self) -> PathBuf {
        self.0.join("drive.json")
    }

    pub fn image(&self) -> PathBuf {
        self.0.join(IMAGE)
    }

    pub fn files(&self) -> PathBuf {
        self.0.join(FILES)
    }

    /// Files that were deleted while they were open.
    pub fn deleted(&self) -> PathBuf {
        self.0.join("deleted")
    }

    pub fn mounter_record(&self) -> PathBuf {
        self.0.join("mounter.json")
    }

    pub fn mounter_lock(&self) -> PathBuf {
        self.0.join("mounter.lock")
    }

    pub fn mounter_log(&self) -> PathBuf {
        self.0.join("mounter.log")
    }

    /// Bytes that the mounter may hold, as decimal text.
    pub fn mounter_quota(&self) -> PathBuf {
        self.0.join("mounter.quota")
    }

    /// When this file says `eio`, the mounter answers every request with that error.
    pub fn mounter_fault(&self) -> PathBuf {
        self.0.join("mounter.fault")
    }
}

/// Whether a string is an id that this driver could have made: the prefix and 32 hexadecimal digits. Nothing else
/// ever becomes part of a path.
pub(crate) fn is_id(prefix: &str, text: &str) -> bool {
    text.strip_prefix(prefix).is_some_and(|digits| {
        digits.len() == 32 && digits.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
    })
}

#[cfg(test)]
mod tests {
    use super::is_id;

    #[test]
    fn only_our_own_ids_become_paths() {
        let good = format!("vol-{}", "0123456789abcdef".repeat(2));
        assert!(is_id("vol-", &good));
        for bad in [
            "",
            "vol-",
            "../../etc",
            "vol-../../../../../../../etc/passwd0000",
            &good[..35],
            &good.to_uppercase(),
        ] {
            assert!(!is_id("vol-", bad), "{bad}");
        }
    }
}
