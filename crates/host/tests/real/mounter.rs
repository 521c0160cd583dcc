//! A FUSE server in a process of its own, with a way to misbehave.

use std::ffi::OsStr;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, UNIX_EPOCH};

use fuser::{
    Config, Errno, FileAttr, FileHandle, FileType, Filesystem, FopenFlags, Generation, INodeNo, LockOwner,
    MountOption, OpenFlags, ReplyAttr, ReplyData, ReplyDirectory, ReplyEntry, ReplyOpen, ReplyStatfs,
    Request, Session,
};
use rustix::mount::UnmountFlags;
use rustix::process::{Pid, Signal, kill_process};

const MARK: &str = "mounter-for-tests";

/// How a mounter behaves when its directory is listed.
#[derive(Clone, Copy)]
pub(crate) enum Listing {
    /// Two entries.
    Short,
    /// Always one more entry.
    Endless,
    /// Takes the request and never answers: the asker cannot even be killed.
    Never,
    /// Takes the request and answers only once [`Mounter::release`] was called.
    Held,
    /// Answers every request, not only this one, after [`SLOW`].
    Slow,
}

/// How long a slow mounter takes for each request.
pub(crate) const SLOW: Duration = Duration::from_millis(1500);

/// A mounted FUSE file system. Gone, with its process, when dropped.
pub(crate) struct Mounter {
    child: Child,
    folder: tempfile::TempDir,
    control: tempfile::TempDir,
}

/// Beside what is listed there is one file of this name, with this many bytes.
pub(crate) const IMAGE: &str = "image";
const IMAGE_BYTES: u64 = 16 << 20;

impl Mounter {
    pub(crate) fn start(listing: Listing) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let control = tempfile::tempdir().unwrap();
        let mut child = Command::new("/proc/self/exe")
            .args([MARK, &(listing as u8).to_string()])
            .args([folder.path(), control.path()])
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        assert_eq!(line, "mounted\n");
        Self { child, folder, control }
    }

    pub(crate) fn path(&self) -> &Path {
        self.folder.path()
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
        if signal == Signal::STOP {
            let pid = i32::try_from(self.child.id()).unwrap();
            assert!(volmedic_host::process::wait_until_stopped(pid, super::PATIENCE));
        }
    }

    pub(crate) fn release(&self) {
        std::fs::write(self.control.path().join("release"), "").unwrap();
    }

    /// Kills the server; the mount stays, and nothing answers it.
    pub(crate) fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

impl Drop for Mounter {
    fn drop(&mut self) {
        self.kill();
        // Without its server the unmount cannot wait for anything.
        rustix::mount::unmount(self.folder.path(), UnmountFlags::DETACH).unwrap();
    }
}

pub(crate) fn run_if_asked() {
    let arguments: Vec<_> = std::env::args_os().collect();
    let [_, mark, listing, target, control] = arguments.as_slice() else { return };
    if mark != MARK {
        return;
    }
    let _ = rustix::process::set_parent_process_death_signal(Some(Signal::KILL));
    let listing = match listing.to_str().unwrap() {
        "0" => Listing::Short,
        "1" => Listing::Endless,
        "2" => Listing::Never,
        "3" => Listing::Held,
        _ => Listing::Slow,
    };
    let server = Server { listing, release: Path::new(control).join("release") };
    let mut config = Config::default();
    config.mount_options = vec![MountOption::FSName("volmedic-test".into())];
    let session = Session::new(server, Path::new(target), &config).unwrap();
    std::io::stdout().write_all(b"mounted\n").unwrap();
    session.run().unwrap();
    std::process::exit(0);
}

struct Server {
    listing: Listing,
    release: PathBuf,
}

/// Nothing is cached, so that every check reaches the server.
const TTL: Duration = Duration::ZERO;

const IMAGE_NODE: INodeNo = INodeNo(2);

fn attributes(node: INodeNo) -> FileAttr {
    let is_image = node == IMAGE_NODE;
    FileAttr {
        ino: node,
        size: if is_image { IMAGE_BYTES } else { 0 },
        blocks: 0,
        atime: UNIX_EPOCH,
        mtime: UNIX_EPOCH,
        ctime: UNIX_EPOCH,
        crtime: UNIX_EPOCH,
        kind: if is_image { FileType::RegularFile } else { FileType::Directory },
        perm: 0o755,
        nlink: 2,
        uid: 0,
        gid: 0,
        rdev: 0,
        flags: 0,
        blksize: 512,
    }
}

impl Server {
    fn take_time(&self) {
        if matches!(self.listing, Listing::Slow) {
            std::thread::sleep(SLOW);
        }
    }
}

impl Filesystem for Server {
    fn opendir(&self, _: &Request, _: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        self.take_time();
        reply.opened(FileHandle(0), FopenFlags::empty());
    }

    fn statfs(&self, _: &Request, _: INodeNo, reply: ReplyStatfs) {
        self.take_time();
        reply.statfs(0, 0, 0, 0, 0, 512, 255, 0);
    }

    fn lookup(&self, _: &Request, _: INodeNo, name: &OsStr, reply: ReplyEntry) {
        if name == IMAGE {
            reply.entry(&TTL, &attributes(IMAGE_NODE), Generation(0));
        } else {
            reply.error(Errno::ENOENT);
        }
    }

    fn getattr(&self, _: &Request, node: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        self.take_time();
        reply.attr(&TTL, &attributes(node));
    }

    fn read(
        &self,
        _: &Request,
        _: INodeNo,
        _: FileHandle,
        offset: u64,
        size: u32,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyData,
    ) {
        let left = usize::try_from(IMAGE_BYTES.saturating_sub(offset)).unwrap();
        reply.data(&vec![0; left.min(size as usize)]);
    }

    fn readdir(&self, _: &Request, _: INodeNo, _: FileHandle, offset: u64, mut reply: ReplyDirectory) {
        self.take_time();
        let last = match self.listing {
            Listing::Short | Listing::Slow => 2,
            Listing::Endless => u64::MAX,
            Listing::Never => loop {
                std::thread::park();
            },
            Listing::Held => {
                while !self.release.exists() {
                    std::thread::sleep(Duration::from_millis(5));
                }
                2
            }
        };
        let mut next = offset + 1;
        while next <= last
            && !reply.add(INodeNo(next + 1), next, FileType::RegularFile, format!("entry-{next}"))
        {
            next += 1;
        }
        reply.ok();
    }
}
