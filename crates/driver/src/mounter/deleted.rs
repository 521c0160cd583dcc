//! Files that were deleted while they were open.
//!
//! Each keeps a name, its inode number, in a folder beside the volume until the kernel has forgotten it. Without one
//! the death of the mounter, which holds the last descriptor, would be the end of the data; and its number could go to
//! another file while the kernel still means this one.

use std::collections::HashSet;
use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;

use parking_lot::{Mutex, MutexGuard};
use rustix::fs::{AtFlags, Dir, Mode, OFlags, fstat, linkat, open, openat, unlinkat};
use rustix::io::Errno;

use crate::error::{Error, Result};
use crate::store::remove_tree;

#[derive(Debug)]
pub(super) struct Deleted {
    folder: OwnedFd,
    kept: Mutex<HashSet<u64>>,
}

impl Deleted {
    /// With a session that goes on, what was kept stays; with a new one it cannot be open.
    pub(super) fn open(folder: &Path, taken_over: bool) -> Result<Self> {
        let failed = |what: &str| format!("{what} the folder {} of deleted files", folder.display());
        if !taken_over {
            remove_tree(folder)?;
        }
        match fs::create_dir(folder) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
                return Err(Error::io(failed("make"))(error));
            }
            _ => {}
        }
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let folder = open(folder, flags, Mode::empty()).map_err(Error::io(failed("open")))?;
        Ok(Self { folder, kept: Mutex::default() })
    }

    /// What was kept before us, each under its number.
    pub(super) fn files(&self) -> rustix::io::Result<Vec<(u64, OwnedFd)>> {
        let mut found = Vec::new();
        for entry in Dir::read_from(&self.folder)? {
            let entry = entry?;
            let Some(inode) = entry.file_name().to_str().ok().and_then(|name| name.parse::<u64>().ok())
            else {
                continue;
            };
            let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            let file = openat(&self.folder, entry.file_name(), flags, Mode::empty())?;
            if fstat(&file)?.st_ino == inode {
                self.kept().insert(inode);
                found.push((inode, file));
            }
        }
        Ok(found)
    }

    pub(super) fn has(&self, inode: u64) -> bool {
        self.kept().contains(&inode)
    }

    /// Called before the last name goes. Where that is not possible the file is as safe as the mounter is.
    pub(super) fn keep(&self, inode: u64, file: &OwnedFd) {
        match linkat(file, c"", &self.folder, inode.to_string(), AtFlags::EMPTY_PATH) {
            Ok(()) | Err(Errno::EXIST) => drop(self.kept().insert(inode)),
            Err(error) => tracing::debug!(inode, %error, "a deleted file has no name to be found by"),
        }
    }

    /// Nobody can ask about it any more.
    pub(super) fn drop(&self, inode: u64) {
        if self.kept().remove(&inode)
            && let Err(error) = unlinkat(&self.folder, inode.to_string(), AtFlags::empty())
        {
            tracing::warn!(inode, %error, "a deleted file still takes space until the volume is staged again");
        }
    }

    fn kept(&self) -> MutexGuard<'_, HashSet<u64>> {
        self.kept.lock()
    }
}
