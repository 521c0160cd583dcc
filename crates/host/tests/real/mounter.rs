//! A FUSE server in a process of its own, with a way to misbehave.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, UNIX_EPOCH};

use fuser::{
    Config, FileAttr, FileHandle, FileType, Filesystem, INodeNo, MountOption, ReplyAttr, ReplyDirectory,
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
}

/// A mounted FUSE file system. Gone, with its process, when dropped.
pub(crate) struct Mounter {
    child: Child,
    folder: tempfile::TempDir,
}

impl Mounter {
    pub(crate) fn start(listing: Listing) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let mut child = Command::new("/proc/self/exe")
            .args([MARK, &(listing as u8).to_string()])
            .arg(folder.path())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        assert_eq!(line, "mounted\n");
        Self { child, folder }
    }

    pub(crate) fn path(&self) -> &Path {
        self.folder.path()
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
        if signal == Signal::STOP {
            let pid = i32::try_from(self.child.id()).unwrap();
            assert!(volmedic_host::process::wait_until_stopped(pid, Duration::from_secs(10)));
        }
    }

    /// Kills the server; the mount stays, and nobody answers it.
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
    let [_, mark, listing, target] = arguments.as_slice() else { return };
    if mark != MARK {
        return;
    }
    let _ = rustix::process::set_parent_process_death_signal(Some(Signal::KILL));
    let listing = match listing.to_str().unwrap() {
        "0" => Listing::Short,
        "1" => Listing::Endless,
        _ => Listing::Never,
    };
    let mut config = Config::default();
    config.mount_options = vec![MountOption::FSName("volmedic-test".into())];
    let session = Session::new(Server(listing), Path::new(target), &config).unwrap();
    std::io::stdout().write_all(b"mounted\n").unwrap();
    session.run().unwrap();
    std::process::exit(0);
}

struct Server(Listing);

/// Nothing is cached, so that every look reaches the server.
const TTL: Duration = Duration::ZERO;

impl Filesystem for Server {
    fn getattr(&self, _: &Request, _: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        let root = FileAttr {
            ino: INodeNo::ROOT,
            size: 0,
            blocks: 0,
            atime: UNIX_EPOCH,
            mtime: UNIX_EPOCH,
            ctime: UNIX_EPOCH,
            crtime: UNIX_EPOCH,
            kind: FileType::Directory,
            perm: 0o755,
            nlink: 2,
            uid: 0,
            gid: 0,
            rdev: 0,
            flags: 0,
            blksize: 512,
        };
        reply.attr(&TTL, &root);
    }

    fn readdir(&self, _: &Request, _: INodeNo, _: FileHandle, offset: u64, mut reply: ReplyDirectory) {
        let last = match self.0 {
            Listing::Short => 2,
            Listing::Endless => u64::MAX,
            Listing::Never => loop {
                std::thread::park();
            },
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
