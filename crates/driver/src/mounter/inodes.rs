//! The files that the kernel remembers, and the ones that are open.
//!
//! A file is held by a descriptor that only names it. That keeps its inode number from being reused for as long as
//! the kernel may still ask about it, and makes every operation independent of paths and renames.
//!
//! The numbers are those of the files themselves, so a process that takes over a session finds what the kernel asks
//! about again: by searching the volume, and among the files that were deleted while open, which keep a name outside
//! of the volume for that reason until the kernel forgets them.

use std::collections::HashMap;
use std::fs::File;
use std::hash::Hash;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use fuser::{FileAttr, FileType, INodeNo};
use parking_lot::{Mutex, MutexGuard};
use rustix::fs::{Mode, OFlags, Stat, fstat, open, openat};
use rustix::io::{Errno, Result};

use super::deleted::Deleted;
use super::search::Search;
use super::times::system_time;

#[derive(Debug)]
pub(super) struct Inodes {
    device: u64,
    root: Arc<OwnedFd>,
    known: Mutex<HashMap<u64, Known>>,
    deleted: Deleted,
    /// Only in a session that was taken over: the kernel may ask about files that were not looked up here.
    search: Option<Search>,
}

#[derive(Debug)]
struct Known {
    file: Arc<OwnedFd>,
    /// How often the kernel was given it, and will forget it.
    lookups: u64,
}

impl Inodes {
    pub(super) fn open(root: &Path, deleted: Deleted, taken_over: bool) -> Result<Self> {
        let root = open(root, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
        let device = fstat(&root)?.st_dev;
        let search = taken_over.then(Search::default);
        let known = deleted
            .files()?
            .into_iter()
            .map(|(inode, file)| (inode, Known { file: Arc::new(file), lookups: 0 }));
        Ok(Self { device, root: Arc::new(root), known: Mutex::new(known.collect()), deleted, search })
    }

    /// Whether another process served this session before us.
    pub(super) fn are_inherited(&self) -> bool {
        self.search.is_some()
    }

    pub(super) fn get(&self, inode: INodeNo) -> Result<Arc<OwnedFd>> {
        if inode == INodeNo::ROOT {
            return Ok(Arc::clone(&self.root));
        }
        if let Some(known) = locked(&self.known).get(&inode.0) {
            return Ok(Arc::clone(&known.file));
        }
        let search = self.search.as_ref().ok_or(Errno::STALE)?;
        let file = search.find(&self.root, self.device, inode.0)?;
        let mut known = locked(&self.known);
        let entry = known.entry(inode.0).or_insert_with(|| Known { file: Arc::new(file), lookups: 0 });
        Ok(Arc::clone(&entry.file))
    }

    pub(super) fn stat(&self, inode: INodeNo) -> Result<(Stat, FileAttr)> {
        let stat = fstat(&*self.get(inode)?)?;
        let mut attributes = attributes(&stat, inode);
        if self.deleted.has(inode.0) {
            attributes.nlink = attributes.nlink.saturating_sub(1);
        }
        Ok((stat, attributes))
    }

    /// Looks a name up and remembers what it names, again for every time the kernel is given it.
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

    /// The kernel forgets all that it was given of a file together, so what a predecessor gave is part of the number, and
    /// more than was counted here is no mistake.
    pub(super) fn forget(&self, inode: INodeNo, lookups: u64) {
        let mut known = locked(&self.known);
        if let Some(entry) = known.get_mut(&inode.0) {
            entry.lookups = entry.lookups.saturating_sub(lookups);
            if entry.lookups == 0 {
                // Before its descriptor is closed: the number must not be reused while the name is there.
                self.deleted.drop(inode.0);
                known.remove(&inode.0);
            }
        }
    }

    /// A file got another name, or lost one of several.
    pub(super) fn moved(&self) {
        if let Some(search) = &self.search {
            search.moved();
        }
    }

    /// It kept a name in the volume after all.
    pub(super) fn forget_deleted(&self, inode: u64) {
        self.deleted.drop(inode);
    }

    /// The last name of a file is about to go. If it may be open, it gets one outside of the volume.
    pub(super) fn keep_deleted(&self, inode: u64) {
        if let Some(known) = locked(&self.known).get(&inode) {
            self.deleted.keep(inode, &known.file);
        }
    }
}

/// Things handed to the kernel under a number until it gives the number back.
#[derive(Debug)]
pub(super) struct Handles<T> {
    next: AtomicU64,
    open: Mutex<HashMap<u64, Arc<T>>>,
}

impl<T> Handles<T> {
    /// Numbers of one generation never meet those of another, which the kernel may still hold.
    pub(super) fn new(generation: u32) -> Self {
        Self { next: AtomicU64::new((u64::from(generation) << 40) + 1), open: Mutex::default() }
    }

    pub(super) fn put(&self, thing: T) -> u64 {
        let handle = self.next.fetch_add(1, Ordering::Relaxed);
        locked(&self.open).insert(handle, Arc::new(thing));
        handle
    }

    pub(super) fn get(&self, handle: u64) -> Result<Arc<T>> {
        locked(&self.open).get(&handle).cloned().ok_or(Errno::BADF)
    }

    /// Puts something back under a number that a predecessor gave. Of two concurrent calls, the first counts.
    pub(super) fn restore(&self, handle: u64, thing: T) -> Arc<T> {
        Arc::clone(locked(&self.open).entry(handle).or_insert_with(|| Arc::new(thing)))
    }

    pub(super) fn take(&self, handle: u64) -> Option<Arc<T>> {
        locked(&self.open).remove(&handle)
    }
}

/// An open file.
#[derive(Debug)]
pub(super) struct OpenFile {
    pub(super) file: File,
    pub(super) inode: u64,
}

/// How often each file is open.
#[derive(Debug, Default)]
pub(super) struct Opens(Mutex<HashMap<u64, u64>>);

impl Opens {
    pub(super) fn add(&self, inode: u64) {
        *locked(&self.0).entry(inode).or_default() += 1;
    }

    pub(super) fn remove(&self, inode: u64) {
        let mut opens = locked(&self.0);
        if let Some(count) = opens.get_mut(&inode) {
            *count -= 1;
            if *count == 0 {
                opens.remove(&inode);
            }
        }
    }

    pub(super) fn has(&self, inode: u64) -> bool {
        locked(&self.0).contains_key(&inode)
    }
}

pub(super) type Files = Handles<OpenFile>;
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

pub(super) fn locked<K: Hash + Eq, V>(map: &Mutex<HashMap<K, V>>) -> MutexGuard<'_, HashMap<K, V>> {
    map.lock()
}
