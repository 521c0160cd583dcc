//! The files that the kernel remembers, and the ones that are open.
//!
//! A file is held by a descriptor that only names it. That keeps its inode number from being reused for as long as
//! the kernel may still ask about it, and makes every operation independent of paths and renames.

use std::collections::HashMap;
use std::fs::File;
use std::hash::Hash;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use fuser::{FileAttr, FileType, INodeNo};
use rustix::fs::{Mode, OFlags, Stat, fstat, open, openat};
use rustix::io::{Errno, Result};

use super::times::system_time;

#[derive(Debug)]
pub(super) struct Inodes {
    device: u64,
    root: Arc<OwnedFd>,
    known: Mutex<HashMap<u64, Known>>,
}

#[derive(Debug)]
struct Known {
    file: Arc<OwnedFd>,
    /// How often the kernel was told of it, and will forget it.
    lookups: u64,
}

impl Inodes {
    pub(super) fn open(root: &std::path::Path) -> Result<Self> {
        let root = open(root, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
        let device = fstat(&root)?.st_dev;
        Ok(Self { device, root: Arc::new(root), known: Mutex::default() })
    }

    pub(super) fn get(&self, inode: INodeNo) -> Result<Arc<OwnedFd>> {
        if inode == INodeNo::ROOT {
            return Ok(Arc::clone(&self.root));
        }
        locked(&self.known).get(&inode.0).map(|known| Arc::clone(&known.file)).ok_or(Errno::STALE)
    }

    pub(super) fn stat(&self, inode: INodeNo) -> Result<(Stat, FileAttr)> {
        let stat = fstat(&*self.get(inode)?)?;
        Ok((stat, attributes(&stat, inode)))
    }

    /// Looks a name up and remembers what it names, once more for every time the kernel is told.
    pub(super) fn look_up(&self, parent: &OwnedFd, name: &std::ffi::OsStr) -> Result<FileAttr> {
        let file = openat(parent, name, OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty())?;
        let stat = fstat(&file)?;
        // Something mounted inside of the backing directory is not part of the volume; 1 is the root's number.
        if stat.st_dev != self.device || stat.st_ino == INodeNo::ROOT.0 {
            return Err(Errno::XDEV);
        }
        let mut known = locked(&self.known);
        let entry = known.entry(stat.st_ino).or_insert_with(|| Known { file: Arc::new(file), lookups: 0 });
        entry.lookups += 1;
        Ok(attributes(&stat, INodeNo(stat.st_ino)))
    }

    pub(super) fn forget(&self, inode: INodeNo, lookups: u64) {
        let mut known = locked(&self.known);
        if let Some(entry) = known.get_mut(&inode.0) {
            entry.lookups = entry.lookups.saturating_sub(lookups);
            if entry.lookups == 0 {
                known.remove(&inode.0);
            }
        }
    }
}

/// Things handed to the kernel under a number until it gives the number back.
#[derive(Debug)]
pub(super) struct Handles<T> {
    next: AtomicU64,
    open: Mutex<HashMap<u64, Arc<T>>>,
}

impl<T> Default for Handles<T> {
    fn default() -> Self {
        Self { next: AtomicU64::new(1), open: Mutex::default() }
    }
}

impl<T> Handles<T> {
    pub(super) fn put(&self, thing: T) -> u64 {
        let handle = self.next.fetch_add(1, Ordering::Relaxed);
        locked(&self.open).insert(handle, Arc::new(thing));
        handle
    }

    pub(super) fn get(&self, handle: u64) -> Result<Arc<T>> {
        locked(&self.open).get(&handle).cloned().ok_or(Errno::BADF)
    }

    pub(super) fn take(&self, handle: u64) {
        locked(&self.open).remove(&handle);
    }
}

pub(super) type Files = Handles<File>;
pub(super) type Directories = Handles<Vec<Entry>>;

/// One entry of a directory, as it was when the directory was opened.
#[derive(Debug)]
pub(super) struct Entry {
    pub(super) inode: INodeNo,
    pub(super) kind: FileType,
    pub(super) name: std::ffi::OsString,
}

pub(super) fn kind(kind: rustix::fs::FileType) -> FileType {
    use rustix::fs::FileType as Found;
    match kind {
        Found::Directory => FileType::Directory,
        Found::Symlink => FileType::Symlink,
        Found::Fifo => FileType::NamedPipe,
        Found::Socket => FileType::Socket,
        Found::CharacterDevice => FileType::CharDevice,
        Found::BlockDevice => FileType::BlockDevice,
        Found::RegularFile | Found::Unknown => FileType::RegularFile,
    }
}

fn attributes(stat: &Stat, inode: INodeNo) -> FileAttr {
    FileAttr {
        ino: inode,
        size: u64::try_from(stat.st_size).unwrap_or(0),
        blocks: u64::try_from(stat.st_blocks).unwrap_or(0),
        atime: system_time(stat.st_atime, stat.st_atime_nsec),
        mtime: system_time(stat.st_mtime, stat.st_mtime_nsec),
        ctime: system_time(stat.st_ctime, stat.st_ctime_nsec),
        crtime: std::time::SystemTime::UNIX_EPOCH,
        kind: kind(rustix::fs::FileType::from_raw_mode(stat.st_mode)),
        perm: u16::try_from(stat.st_mode & 0o7777).unwrap_or(0),
        nlink: u32::try_from(stat.st_nlink).unwrap_or(u32::MAX),
        uid: stat.st_uid,
        gid: stat.st_gid,
        rdev: u32::try_from(stat.st_rdev).unwrap_or(0),
        blksize: 4096,
        flags: 0,
    }
}

fn locked<K: Hash + Eq, V>(map: &Mutex<HashMap<K, V>>) -> MutexGuard<'_, HashMap<K, V>> {
    map.lock().unwrap_or_else(PoisonError::into_inner)
}
