//! The kernel's requests, handed to the file system and answered. Nothing is decided here, except that a volume set
//! to fail answers nothing else.

use std::ffi::OsStr;
use std::path::Path;
use std::time::{Duration, SystemTime};

use fuser::{
    BsdFileFlags, Errno, FileHandle, Filesystem, FopenFlags, Generation, INodeNo, LockOwner, OpenFlags,
    RenameFlags, ReplyAttr, ReplyCreate, ReplyData, ReplyDirectory, ReplyEmpty, ReplyEntry, ReplyLseek,
    ReplyOpen, ReplyStatfs, ReplyWrite, Request, TimeOrNow, WriteFlags,
};
use rustix::fs::{AtFlags, SeekFrom};

use super::{Caller, Changes, Passthrough};

/// How long the kernel may answer from memory. Short, so that an injected fault shows immediately.
const REMEMBERED: Duration = Duration::from_millis(100);
const BLOCK: u32 = 4096;

impl Passthrough {
    fn ask<T>(&self, ask: impl FnOnce() -> rustix::io::Result<T>) -> Result<T, Errno> {
        if self.accounts.fails() {
            return Err(Errno::EIO);
        }
        ask().map_err(|error| Errno::from_i32(error.raw_os_error()))
    }
}

fn caller(request: &Request) -> Caller {
    Caller { uid: request.uid(), gid: request.gid() }
}

fn entry(outcome: Result<fuser::FileAttr, Errno>, reply: ReplyEntry) {
    match outcome {
        Ok(attributes) => reply.entry(&REMEMBERED, &attributes, Generation(0)),
        Err(error) => reply.error(error),
    }
}

fn attributes(outcome: Result<fuser::FileAttr, Errno>, reply: ReplyAttr) {
    match outcome {
        Ok(attributes) => reply.attr(&REMEMBERED, &attributes),
        Err(error) => reply.error(error),
    }
}

fn empty(outcome: Result<(), Errno>, reply: ReplyEmpty) {
    match outcome {
        Ok(()) => reply.ok(),
        Err(error) => reply.error(error),
    }
}

fn opened(outcome: Result<u64, Errno>, reply: ReplyOpen) {
    match outcome {
        Ok(handle) => reply.opened(FileHandle(handle), FopenFlags::empty()),
        Err(error) => reply.error(error),
    }
}

impl Filesystem for Passthrough {
    fn lookup(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        entry(self.ask(|| self.lookup(parent, name)), reply);
    }

    fn forget(&self, _: &Request, inode: INodeNo, lookups: u64) {
        self.inodes.forget(inode, lookups);
    }

    fn getattr(&self, _: &Request, inode: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        attributes(self.ask(|| Ok(self.inodes.stat(inode)?.1)), reply);
    }

    fn setattr(
        &self,
        _: &Request,
        inode: INodeNo,
        mode: Option<u32>,
        uid: Option<u32>,
        gid: Option<u32>,
        size: Option<u64>,
        atime: Option<TimeOrNow>,
        mtime: Option<TimeOrNow>,
        _ctime: Option<SystemTime>,
        handle: Option<FileHandle>,
        _crtime: Option<SystemTime>,
        _chgtime: Option<SystemTime>,
        _bkuptime: Option<SystemTime>,
        _flags: Option<BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        let handle = handle.map(|handle| handle.0);
        let changes = Changes { mode, uid, gid, size, atime, mtime, handle };
        attributes(self.ask(|| self.change(inode, &changes)), reply);
    }

    fn readlink(&self, _: &Request, inode: INodeNo, reply: ReplyData) {
        match self.ask(|| self.readlink(inode)) {
            Ok(target) => reply.data(&target),
            Err(error) => reply.error(error),
        }
    }

    fn mknod(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        _umask: u32,
        _device: u32,
        reply: ReplyEntry,
    ) {
        entry(self.ask(|| self.mknod(caller(request), parent, name, mode)), reply);
    }

    fn mkdir(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        _umask: u32,
        reply: ReplyEntry,
    ) {
        entry(self.ask(|| self.mkdir(caller(request), parent, name, mode)), reply);
    }

    fn unlink(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        empty(self.ask(|| self.remove(parent, name, AtFlags::empty())), reply);
    }

    fn rmdir(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        empty(self.ask(|| self.remove(parent, name, AtFlags::REMOVEDIR)), reply);
    }

    fn symlink(&self, request: &Request, parent: INodeNo, name: &OsStr, target: &Path, reply: ReplyEntry) {
        entry(self.ask(|| self.symlink(caller(request), parent, name, target)), reply);
    }

    fn rename(
        &self,
        _: &Request,
        parent: INodeNo,
        name: &OsStr,
        new_parent: INodeNo,
        new_name: &OsStr,
        flags: RenameFlags,
        reply: ReplyEmpty,
    ) {
        empty(self.ask(|| self.rename((parent, name), (new_parent, new_name), flags.bits())), reply);
    }

    fn link(&self, _: &Request, inode: INodeNo, new_parent: INodeNo, new_name: &OsStr, reply: ReplyEntry) {
        entry(self.ask(|| self.link(inode, new_parent, new_name)), reply);
    }

    fn open(&self, _: &Request, inode: INodeNo, flags: OpenFlags, reply: ReplyOpen) {
        opened(self.ask(|| self.open_file(inode, flags.0)), reply);
    }

    fn read(
        &self,
        _: &Request,
        inode: INodeNo,
        handle: FileHandle,
        offset: u64,
        size: u32,
        _flags: OpenFlags,
        _owner: Option<LockOwner>,
        reply: ReplyData,
    ) {
        match self.ask(|| self.read(inode, handle.0, offset, size)) {
            Ok(data) => reply.data(&data),
            Err(error) => reply.error(error),
        }
    }

    fn write(
        &self,
        _: &Request,
        inode: INodeNo,
        handle: FileHandle,
        offset: u64,
        data: &[u8],
        _write_flags: WriteFlags,
        _flags: OpenFlags,
        _owner: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        match self.ask(|| self.write(inode, handle.0, offset, data)) {
            Ok(written) => reply.written(written),
            Err(error) => reply.error(error),
        }
    }

    fn flush(&self, _: &Request, _: INodeNo, _: FileHandle, _: LockOwner, reply: ReplyEmpty) {
        empty(self.ask(|| Ok(())), reply);
    }

    fn release(
        &self,
        _: &Request,
        _inode: INodeNo,
        handle: FileHandle,
        _flags: OpenFlags,
        _owner: Option<LockOwner>,
        _flush: bool,
        reply: ReplyEmpty,
    ) {
        self.close(handle.0);
        reply.ok();
    }

    fn fsync(&self, _: &Request, inode: INodeNo, handle: FileHandle, data_only: bool, reply: ReplyEmpty) {
        empty(self.ask(|| self.sync(inode, handle.0, data_only)), reply);
    }

    fn opendir(&self, _: &Request, inode: INodeNo, _flags: OpenFlags, reply: ReplyOpen) {
        opened(self.ask(|| self.open_directory(inode)), reply);
    }

    fn readdir(
        &self,
        _: &Request,
        inode: INodeNo,
        handle: FileHandle,
        offset: u64,
        mut reply: ReplyDirectory,
    ) {
        let entries = match self.ask(|| self.directory(inode, handle.0)) {
            Ok(entries) => entries,
            Err(error) => return reply.error(error),
        };
        let start = usize::try_from(offset).unwrap_or(usize::MAX);
        for (at, entry) in entries.iter().enumerate().skip(start) {
            if reply.add(entry.inode, at as u64 + 1, entry.kind, &entry.name) {
                break;
            }
        }
        reply.ok();
    }

    fn releasedir(&self, _: &Request, _: INodeNo, handle: FileHandle, _: OpenFlags, reply: ReplyEmpty) {
        self.directories.take(handle.0);
        reply.ok();
    }

    fn fsyncdir(&self, _: &Request, inode: INodeNo, _: FileHandle, _data_only: bool, reply: ReplyEmpty) {
        empty(self.ask(|| self.sync_directory(inode)), reply);
    }

    fn statfs(&self, _: &Request, _: INodeNo, reply: ReplyStatfs) {
        if self.accounts.fails() {
            return reply.error(Errno::EIO);
        }
        let quota = self.accounts.quota();
        let total = quota / u64::from(BLOCK);
        let free = total.saturating_sub(self.accounts.used().div_ceil(u64::from(BLOCK)));
        let files = self.accounts.file_quota();
        let free_files = files.saturating_sub(self.accounts.files());
        reply.statfs(total, free, free, files, free_files, BLOCK, 255, BLOCK);
    }

    fn create(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        _umask: u32,
        flags: i32,
        reply: ReplyCreate,
    ) {
        match self.ask(|| self.create(caller(request), parent, name, mode, flags)) {
            Ok((attributes, handle)) => {
                reply.created(
                    &REMEMBERED,
                    &attributes,
                    Generation(0),
                    FileHandle(handle),
                    FopenFlags::empty(),
                );
            }
            Err(error) => reply.error(error),
        }
    }

    fn fallocate(
        &self,
        _: &Request,
        inode: INodeNo,
        handle: FileHandle,
        offset: u64,
        length: u64,
        mode: i32,
        reply: ReplyEmpty,
    ) {
        empty(self.ask(|| self.allocate(inode, handle.0, offset, length, mode)), reply);
    }

    fn lseek(
        &self,
        _: &Request,
        inode: INodeNo,
        handle: FileHandle,
        offset: i64,
        whence: i32,
        reply: ReplyLseek,
    ) {
        let found = self.ask(|| {
            let open = self.file(inode, handle.0)?;
            let offset = u64::try_from(offset).map_err(|_| rustix::io::Errno::INVAL)?;
            let from = match whence {
                libc::SEEK_DATA => SeekFrom::Data(offset),
                libc::SEEK_HOLE => SeekFrom::Hole(offset),
                _ => return Err(rustix::io::Errno::INVAL),
            };
            i64::try_from(rustix::fs::seek(&open.file, from)?).map_err(|_| rustix::io::Errno::OVERFLOW)
        });
        match found {
            Ok(offset) => reply.offset(offset),
            Err(error) => reply.error(error),
        }
    }
}
