//! The userspace file system: a directory of the host, passed through, with a size of its own.

mod serve;

use std::ffi::OsStr;
use std::fs::File;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;

use fuser::{FileAttr, INodeNo, TimeOrNow};
use rustix::fs::{
    AtFlags, CWD, Dir, Gid, Mode, OFlags, RenameFlags, Stat, Timestamps, Uid, chmodat, chownat, fstat,
    ftruncate, linkat, mkdirat, mknodat, openat, readlinkat, renameat_with, statat, symlinkat, unlinkat,
    utimensat,
};
use rustix::io::{Errno, Result};

use super::accounts::Accounts;
use super::deleted::Deleted;
use super::inodes::{Directories, Entry, Files, Inodes, OpenFile, Opens, kind};
use super::times::timespec;
use crate::error::Error;
use crate::state_dir::VolumeDir;

#[derive(Debug)]
pub(super) struct Passthrough {
    inodes: Inodes,
    files: Files,
    opens: Opens,
    directories: Directories,
    accounts: Accounts,
}

/// Who asks; new files belong to them.
#[derive(Clone, Copy, Debug)]
struct Caller {
    uid: u32,
    gid: u32,
}

/// What is to change about a file.
#[derive(Debug)]
struct Changes {
    mode: Option<u32>,
    uid: Option<u32>,
    gid: Option<u32>,
    size: Option<u64>,
    atime: Option<TimeOrNow>,
    mtime: Option<TimeOrNow>,
    handle: Option<u64>,
}

impl Passthrough {
    /// `before` is how many processes have served the same session before this one.
    pub(super) fn open(directory: &VolumeDir, before: u32) -> crate::Result<Self> {
        let files = directory.files();
        let deleted = Deleted::open(&directory.deleted(), before > 0)?;
        // Modes arrive with the caller's mask applied already.
        rustix::process::umask(Mode::empty());
        Ok(Self {
            inodes: Inodes::open(&files, deleted, before > 0)
                .map_err(Error::io(format_args!("open {}", files.display())))?,
            files: Files::new(before),
            opens: Opens::default(),
            directories: Directories::new(before),
            accounts: Accounts::open(directory)?,
        })
    }

    fn lookup(&self, parent: INodeNo, name: &OsStr) -> Result<FileAttr> {
        self.inodes.look_up(&*self.inodes.get(parent)?, name)
    }

    fn change(&self, inode: INodeNo, changes: &Changes) -> Result<FileAttr> {
        let file = self.inodes.get(inode)?;
        if let Some(mode) = changes.mode {
            chmodat(CWD, by_descriptor(&*file), Mode::from_raw_mode(mode & 0o7777), AtFlags::empty())?;
        }
        if changes.uid.is_some() || changes.gid.is_some() {
            let (uid, gid) = (changes.uid.map(Uid::from_raw), changes.gid.map(Gid::from_raw));
            chownat(&*file, c"", uid, gid, AtFlags::EMPTY_PATH)?;
        }
        if let Some(size) = changes.size {
            let before = fstat(&*file)?;
            match changes.handle {
                Some(handle) => ftruncate(&self.file(inode, handle)?.file, size)?,
                None => ftruncate(reopen(&*file, OFlags::WRONLY)?, size)?,
            }
            self.accounts.changed(blocks(&before), blocks(&fstat(&*file)?));
        }
        if changes.atime.is_some() || changes.mtime.is_some() {
            let times = Timestamps {
                last_access: timespec(changes.atime),
                last_modification: timespec(changes.mtime),
            };
            utimensat(&*file, c"", &times, AtFlags::EMPTY_PATH)?;
        }
        Ok(self.inodes.stat(inode)?.1)
    }

    fn readlink(&self, inode: INodeNo) -> Result<Vec<u8>> {
        Ok(readlinkat(&*self.inodes.get(inode)?, c"", Vec::new())?.into_bytes())
    }

    fn mknod(&self, caller: Caller, parent: INodeNo, name: &OsStr, mode: u32) -> Result<FileAttr> {
        let kind = rustix::fs::FileType::from_raw_mode(mode);
        if kind.is_block_device() || kind.is_char_device() {
            return Err(Errno::PERM);
        }
        self.make(caller, parent, name, |parent| {
            mknodat(parent, name, kind, Mode::from_raw_mode(mode & 0o7777), 0)
        })
    }

    fn mkdir(&self, caller: Caller, parent: INodeNo, name: &OsStr, mode: u32) -> Result<FileAttr> {
        self.make(caller, parent, name, |parent| mkdirat(parent, name, Mode::from_raw_mode(mode & 0o7777)))
    }

    fn symlink(&self, caller: Caller, parent: INodeNo, name: &OsStr, target: &Path) -> Result<FileAttr> {
        self.make(caller, parent, name, |parent| symlinkat(target, parent, name))
    }

    /// Makes something new and gives it to the caller; a set-group-id directory passes its group on instead.
    fn make(
        &self,
        caller: Caller,
        parent: INodeNo,
        name: &OsStr,
        make: impl FnOnce(&OwnedFd) -> Result<()>,
    ) -> Result<FileAttr> {
        self.need_file()?;
        let parent = self.inodes.get(parent)?;
        make(&parent)?;
        Self::give(caller, &parent, name)?;
        let attributes = self.inodes.look_up(&parent, name)?;
        self.accounts.changed(0, attributes.blocks);
        self.accounts.files_changed(1);
        Ok(attributes)
    }

    fn give(caller: Caller, parent: &OwnedFd, name: &OsStr) -> Result<()> {
        let inherits_group = fstat(parent)?.st_mode & libc::S_ISGID != 0;
        let gid = (!inherits_group).then(|| Gid::from_raw(caller.gid));
        chownat(parent, name, Some(Uid::from_raw(caller.uid)), gid, AtFlags::SYMLINK_NOFOLLOW)
    }

    fn create(
        &self,
        caller: Caller,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        flags: i32,
    ) -> Result<(FileAttr, u64)> {
        self.need_file()?;
        let parent = self.inodes.get(parent)?;
        let flags = usable(flags) | OFlags::CREATE;
        let existed = statat(&parent, name, AtFlags::SYMLINK_NOFOLLOW).is_ok();
        let file = openat(
            &parent,
            name,
            flags | OFlags::NOFOLLOW | OFlags::CLOEXEC,
            Mode::from_raw_mode(mode & 0o7777),
        )?;
        if !existed {
            Self::give(caller, &parent, name)?;
            self.accounts.files_changed(1);
        }
        let attributes = self.inodes.look_up(&parent, name)?;
        Ok((attributes, self.opened(attributes.ino, file.into())))
    }

    fn opened(&self, inode: INodeNo, file: File) -> u64 {
        self.opens.add(inode.0);
        self.files.put(OpenFile { file, inode: inode.0 })
    }

    /// What is open under a number. One that a predecessor gave is opened again; the kernel has checked what may be
    /// done with it, so all is opened that can be.
    fn file(&self, inode: INodeNo, handle: u64) -> Result<Arc<OpenFile>> {
        match self.files.get(handle) {
            Err(Errno::BADF) if self.inodes.are_inherited() => {
                let named = self.inodes.get(inode)?;
                let file = reopen(&*named, OFlags::RDWR).or_else(|_| reopen(&*named, OFlags::RDONLY))?;
                self.opens.add(inode.0);
                Ok(self.files.restore(handle, OpenFile { file, inode: inode.0 }))
            }
            found => found,
        }
    }

    fn close(&self, handle: u64) {
        if let Some(open) = self.files.take(handle) {
            self.opens.remove(open.inode);
        }
    }

    /// As [`Self::file`], for directories: listed again, in the order of the disk, which is the same while nothing in
    /// it changes.
    fn directory(&self, inode: INodeNo, handle: u64) -> Result<Arc<Vec<Entry>>> {
        match self.directories.get(handle) {
            Err(Errno::BADF) if self.inodes.are_inherited() => {
                Ok(self.directories.restore(handle, self.entries(inode)?))
            }
            found => found,
        }
    }

    fn remove(&self, parent: INodeNo, name: &OsStr, flags: AtFlags) -> Result<()> {
        let parent = self.inodes.get(parent)?;
        let before = statat(&parent, name, AtFlags::SYMLINK_NOFOLLOW)?;
        self.losing_a_name(&before);
        unlinkat(&parent, name, flags).inspect_err(|_| self.inodes.forget_deleted(before.st_ino))?;
        self.gone(&before);
        Ok(())
    }

    /// A name of this file is about to be removed. A session that was taken over has files open that it knows nothing
    /// of yet.
    fn losing_a_name(&self, before: &Stat) {
        let is_directory = rustix::fs::FileType::from_raw_mode(before.st_mode).is_dir();
        if before.st_nlink > 1 && !is_directory {
            self.inodes.moved();
        } else if !is_directory && (self.opens.has(before.st_ino) || self.inodes.are_inherited()) {
            self.inodes.keep_deleted(before.st_ino);
        }
    }

    /// A name of this file was removed; with its last one goes what it held.
    fn gone(&self, before: &Stat) {
        if before.st_nlink <= 1 || rustix::fs::FileType::from_raw_mode(before.st_mode).is_dir() {
            self.accounts.changed(blocks(before), 0);
        }
        self.accounts.files_changed(-1);
    }

    fn rename(&self, from: (INodeNo, &OsStr), to: (INodeNo, &OsStr), flags: u32) -> Result<()> {
        let (from_parent, to_parent) = (self.inodes.get(from.0)?, self.inodes.get(to.0)?);
        let flags = RenameFlags::from_bits(flags).ok_or(Errno::INVAL)?;
        let replaced = statat(&to_parent, to.1, AtFlags::SYMLINK_NOFOLLOW).ok();
        let replaced = replaced
            .filter(|_| !flags.intersects(RenameFlags::EXCHANGE | RenameFlags::NOREPLACE))
            // Two names of one file: renaming the one to the other changes nothing.
            .filter(|replaced| {
                statat(&from_parent, from.1, AtFlags::SYMLINK_NOFOLLOW)
                    .is_ok_and(|source| source.st_ino != replaced.st_ino)
            });
        if let Some(replaced) = &replaced {
            self.losing_a_name(replaced);
        }
        renameat_with(&from_parent, from.1, &to_parent, to.1, flags).inspect_err(|_| {
            if let Some(replaced) = &replaced {
                self.inodes.forget_deleted(replaced.st_ino);
            }
        })?;
        self.inodes.moved();
        if let Some(replaced) = replaced {
            self.gone(&replaced);
        }
        Ok(())
    }

    fn link(&self, inode: INodeNo, parent: INodeNo, name: &OsStr) -> Result<FileAttr> {
        let parent = self.inodes.get(parent)?;
        linkat(&*self.inodes.get(inode)?, c"", &parent, name, AtFlags::EMPTY_PATH)?;
        self.accounts.files_changed(1);
        self.inodes.look_up(&parent, name)
    }

    fn open_file(&self, inode: INodeNo, flags: i32) -> Result<u64> {
        let file = self.inodes.get(inode)?;
        let before = fstat(&*file)?;
        let opened = reopen(&*file, usable(flags))?;
        self.accounts.changed(blocks(&before), blocks(&fstat(&opened)?));
        Ok(self.opened(inode, opened))
    }

    fn read(&self, inode: INodeNo, handle: u64, offset: u64, size: u32) -> Result<Vec<u8>> {
        let open = self.file(inode, handle)?;
        let file = &open.file;
        let mut data = vec![0; usize::try_from(size).map_err(|_| Errno::INVAL)?];
        let mut filled = 0;
        while filled < data.len() {
            match file.read_at(&mut data[filled..], offset + filled as u64) {
                Ok(0) => break,
                Ok(count) => filled += count,
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                Err(error) => return Err(Errno::from_io_error(&error).unwrap_or(Errno::IO)),
            }
        }
        data.truncate(filled);
        Ok(data)
    }

    fn write(&self, inode: INodeNo, handle: u64, offset: u64, data: &[u8]) -> Result<u32> {
        let open = self.file(inode, handle)?;
        let file = &open.file;
        let before = fstat(file)?;
        let end = offset.saturating_add(data.len() as u64);
        let beyond = end.saturating_sub(u64::try_from(before.st_size).unwrap_or(0));
        self.need_room(beyond.min(data.len() as u64))?;
        let written = file.write_all_at(data, offset);
        self.accounts.changed(blocks(&before), blocks(&fstat(file)?));
        written.map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))?;
        u32::try_from(data.len()).map_err(|_| Errno::INVAL)
    }

    fn allocate(&self, inode: INodeNo, handle: u64, offset: u64, length: u64, mode: i32) -> Result<()> {
        let open = self.file(inode, handle)?;
        let file = &open.file;
        let mode = rustix::fs::FallocateFlags::from_bits(mode.cast_unsigned()).ok_or(Errno::OPNOTSUPP)?;
        let before = fstat(file)?;
        if !mode.contains(rustix::fs::FallocateFlags::PUNCH_HOLE) {
            let beyond = offset.saturating_add(length).saturating_sub(blocks(&before) * 512);
            self.need_room(beyond.min(length))?;
        }
        rustix::fs::fallocate(file, mode, offset, length)?;
        self.accounts.changed(blocks(&before), blocks(&fstat(file)?));
        Ok(())
    }

    fn sync(&self, inode: INodeNo, handle: u64, data_only: bool) -> Result<()> {
        let open = self.file(inode, handle)?;
        let file = &open.file;
        let synced = if data_only { file.sync_data() } else { file.sync_all() };
        synced.map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))
    }

    fn open_directory(&self, inode: INodeNo) -> Result<u64> {
        Ok(self.directories.put(self.entries(inode)?))
    }

    fn entries(&self, inode: INodeNo) -> Result<Vec<Entry>> {
        let directory = self.inodes.get(inode)?;
        let opened =
            openat(&*directory, c".", OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
        let mut entries = Vec::new();
        for entry in Dir::new(opened)? {
            let entry = entry?;
            let name = std::os::unix::ffi::OsStrExt::from_bytes(entry.file_name().to_bytes());
            let name: &OsStr = name;
            let inode = if name == "." { inode } else { INodeNo(entry.ino()) };
            entries.push(Entry { inode, kind: kind(entry.file_type()), name: name.to_owned() });
        }
        Ok(entries)
    }

    fn sync_directory(&self, inode: INodeNo) -> Result<()> {
        let directory = self.inodes.get(inode)?;
        let opened =
            openat(&*directory, c".", OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
        rustix::fs::fsync(opened)
    }

    /// Room for one more file.
    fn need_file(&self) -> Result<()> {
        self.need_room(4096)?;
        if self.accounts.files() < self.accounts.file_quota() { Ok(()) } else { Err(Errno::NOSPC) }
    }

    fn need_room(&self, bytes: u64) -> Result<()> {
        if bytes == 0 || self.accounts.has_room_for(bytes) { Ok(()) } else { Err(Errno::NOSPC) }
    }
}

/// The flags of an open that are ours to pass on; the kernel sees to appending and to following links.
fn usable(flags: i32) -> OFlags {
    let kept = OFlags::RWMODE | OFlags::TRUNC | OFlags::EXCL | OFlags::SYNC | OFlags::DSYNC;
    OFlags::from_bits_truncate(flags.cast_unsigned()) & kept
}

fn by_descriptor(file: impl AsFd) -> String {
    format!("/proc/self/fd/{}", file.as_fd().as_raw_fd())
}

/// Opens for use what a descriptor names.
fn reopen(file: impl AsFd, flags: OFlags) -> Result<File> {
    let flags = (flags - OFlags::EXCL) | OFlags::CLOEXEC;
    Ok(openat(CWD, by_descriptor(file), flags, Mode::empty())?.into())
}

fn blocks(stat: &Stat) -> u64 {
    u64::try_from(stat.st_blocks).unwrap_or(0)
}
