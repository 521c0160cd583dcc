//! The helper's side: ask the volume, let go of it, say how it went.

use std::cell::RefCell;
use std::ffi::OsString;
use std::io::Write;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::Path;
use std::rc::Rc;

use rustix::fs::{AtFlags, FileType, Mode, OFlags, RawDir, ResolveFlags, SeekFrom, Stat, StatxFlags};
use rustix::io::Errno;
use rustix::process::Signal;

use super::question::{Device, Directory, HostDirectory, LETTING_GO, MARK, SERVE, line, read_record};
use crate::DeviceNumber;
use crate::fs_errors::{COMPARE_STEP, MARK_STEP};
use crate::usage::Usage;

/// Becomes a helper if this process was started as one, and then does not return.
///
/// Call it first thing in `main`, before any thread, descriptor or argument parser.
pub fn run_if_asked() {
    let arguments: Vec<OsString> = std::env::args_os().take(8).collect();
    let [_, mark, rest @ ..] = arguments.as_slice() else { return };
    if mark.as_os_str() != MARK {
        return;
    }
    crate::sys::close_inherited();
    // If the parent dies, no other process would kill this one. More exactly: if the thread dies that started it.
    let _ = rustix::process::set_parent_process_death_signal(Some(Signal::KILL));
    let is_answered = match rest {
        [serve] if serve.as_os_str() == SERVE => serve_all(),
        [kind, detail, path] => match (kind.to_str(), detail.to_str()) {
            (Some(kind), Some(detail)) => reply(kind, detail, Path::new(path)),
            _ => false,
        },
        _ => false,
    };
    std::process::exit(if is_answered { 0 } else { 2 });
}

/// Answers one question after the other until there are no more; false when one made no sense.
fn serve_all() -> bool {
    let mut questions = std::io::stdin().lock();
    let mut buffer = Vec::new();
    while let Some((kind, detail, path)) = read_record(&mut questions, &mut buffer) {
        if !reply(kind, detail, path) {
            return false;
        }
    }
    true
}

/// Answers one question; false when it is unknown.
fn reply(kind: &str, detail: &str, path: &Path) -> bool {
    let held = Held::default();
    let Some(answer) = answer(kind, detail, path, &held) else { return false };
    // Closing may hang, too. Only who has let go of this volume is ready for the next one.
    held.let_go();
    let line = match answer {
        Ok(numbers) => line(&numbers),
        Err(Failure { step, errno }) => format!("! {step} {}\n", errno.raw_os_error()),
    };
    say(std::io::stdout(), &line);
    true
}

struct Failure {
    step: &'static str,
    errno: Errno,
}

/// What is open of the volume, until the answer is known.
#[derive(Default)]
struct Held(RefCell<Vec<Rc<OwnedFd>>>);

impl Held {
    /// Says what comes next, opens something, and keeps it open.
    fn open(
        &self,
        name: &'static str,
        open: impl FnOnce() -> Result<OwnedFd, Errno>,
    ) -> Result<Rc<OwnedFd>, Failure> {
        let opened = Rc::new(step(name, open)?);
        self.0.borrow_mut().push(Rc::clone(&opened));
        Ok(opened)
    }

    fn let_go(self) {
        let open = self.0.into_inner();
        if !open.is_empty() {
            begin(LETTING_GO);
            drop(open);
        }
    }
}

/// If the reader is gone, an error cannot be reported to anyone.
fn say(mut to: impl Write, line: &str) {
    let _ = to.write_all(line.as_bytes()).and_then(|()| to.flush());
}

/// Says what comes next. From here on it has the time of one call.
fn begin(name: &str) {
    say(std::io::stderr(), &format!("> {name}\n"));
}

/// Says what comes next, does it, and gives its error the step's name.
fn step<T>(name: &'static str, act: impl FnOnce() -> Result<T, Errno>) -> Result<T, Failure> {
    begin(name);
    act().map_err(|errno| Failure { step: name, errno })
}

/// `None` for an unknown question.
fn answer(kind: &str, detail: &str, path: &Path, held: &Held) -> Option<Result<Vec<u64>, Failure>> {
    Some(match kind {
        "directory" => directory(path, detail.parse().ok()?, held).map(|found| found.numbers()),
        "host-directory" => {
            let (most, root) = detail.split_once(' ')?;
            let most = most.parse().ok()?;
            host_directory(Path::new(root), path, most, held).map(|found| found.numbers())
        }
        "device" => device(path, detail == "1", held).map(|found| found.numbers()),
        "file" => file_size(path, held).map(|bytes| vec![bytes]),
        "mark" => mark(path, detail.parse().ok()?, held).map(|fsid| vec![fsid]),
        _ => return None,
    })
}

const COMMON: OFlags = OFlags::CLOEXEC.union(OFlags::NOFOLLOW).union(OFlags::NONBLOCK);

fn directory(path: &Path, most: u32, held: &Held) -> Result<Directory, Failure> {
    let folder = held.open("open", || open_directory(path))?;
    let stat = step("stat", || rustix::fs::fstat(&folder))?;
    contents(&folder, &stat, most)
}

fn contents(folder: &OwnedFd, stat: &Stat, most: u32) -> Result<Directory, Failure> {
    let space = step("statfs", || rustix::fs::fstatvfs(folder))?;
    let (entries, more) = if most == 0 { (0, false) } else { count_entries(folder, most)? };
    Ok(Directory { device: DeviceNumber::from_raw(stat.st_dev), usage: Usage::from(&space), entries, more })
}

/// A directory of the host, by its path below the host's root directory. Absolute links lead to where they lead on the
/// host.
fn host_directory(root: &Path, path: &Path, most: u32, held: &Held) -> Result<HostDirectory, Failure> {
    let base = OFlags::CLOEXEC | OFlags::PATH | OFlags::DIRECTORY;
    let root = held.open("open", || rustix::fs::open(root, base, Mode::empty()))?;
    let folder = held.open("open", || open_in(&root, path))?;
    let stat = step("stat", || rustix::fs::fstat(&folder))?;
    let mount = step("stat", || mount_of(&folder))?;
    let directory = contents(&folder, &stat, most)?;
    Ok(HostDirectory { directory, inode: stat.st_ino, mount })
}

fn open_in(root: &OwnedFd, path: &Path) -> Result<OwnedFd, Errno> {
    let flags = OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::RDONLY | OFlags::DIRECTORY;
    let open = |flags| rustix::fs::openat2(root, path, flags, Mode::empty(), ResolveFlags::IN_ROOT);
    match open(flags | OFlags::NOATIME) {
        Err(Errno::PERM) => open(flags),
        other => other,
    }
}

/// Zero if the kernel does not know.
fn mount_of(folder: &OwnedFd) -> Result<u64, Errno> {
    let stat = rustix::fs::statx(folder, c"", AtFlags::EMPTY_PATH, StatxFlags::MNT_ID)?;
    let is_known = StatxFlags::from_bits_retain(stat.stx_mask).contains(StatxFlags::MNT_ID);
    Ok(if is_known { stat.stx_mnt_id } else { 0 })
}

/// Opens without leaving an access time behind: a check must not write.
fn open_directory(path: &Path) -> Result<OwnedFd, Errno> {
    let flags = COMMON | OFlags::RDONLY | OFlags::DIRECTORY;
    match rustix::fs::open(path, flags | OFlags::NOATIME, Mode::empty()) {
        // Only the owner and root may ask for that.
        Err(Errno::PERM) => rustix::fs::open(path, flags, Mode::empty()),
        other => other,
    }
}

/// Each call for more entries is a step of its own: a directory that is slow but answers is not hung.
fn count_entries(folder: &OwnedFd, most: u32) -> Result<(u32, bool), Failure> {
    const STEP: &str = "readdir";
    let mut buffer = [MaybeUninit::uninit(); 8 << 10];
    let mut entries = RawDir::new(folder, &mut buffer);
    let mut count = 0;
    loop {
        if entries.is_buffer_empty() {
            begin(STEP);
        }
        let Some(entry) = entries.next() else { return Ok((count, false)) };
        let entry = entry.map_err(|errno| Failure { step: STEP, errno })?;
        if matches!(entry.file_name().to_bytes(), b"." | b"..") {
            continue;
        }
        if count == most {
            return Ok((count, true));
        }
        count += 1;
    }
}

fn device(path: &Path, read: bool, held: &Held) -> Result<Device, Failure> {
    // First only a handle to the node, so that nothing but a block device is ever opened.
    let node = held.open("find", || rustix::fs::open(path, COMMON | OFlags::PATH, Mode::empty()))?;
    let stat = step("stat", || rustix::fs::fstat(&node))?;
    if FileType::from_raw_mode(stat.st_mode) != FileType::BlockDevice {
        return Err(Failure { step: "stat", errno: Errno::NOTBLK });
    }
    let handle = format!("/proc/self/fd/{}", node.as_raw_fd());
    let flags = OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::RDONLY;
    let opened =
        held.open("open", || match rustix::fs::open(&handle, flags | OFlags::DIRECT, Mode::empty()) {
            Err(Errno::INVAL) => rustix::fs::open(&handle, flags, Mode::empty()),
            other => other,
        })?;
    let bytes = step("size", || rustix::fs::seek(&opened, SeekFrom::End(0)))?;
    if read && bytes > 0 {
        for offset in [0, last_block(bytes)] {
            step("read", || read_block(&opened, offset))?;
        }
    }
    Ok(Device { number: DeviceNumber::from_raw(stat.st_rdev), bytes })
}

/// Only the inode is asked; the file is not opened.
fn file_size(path: &Path, held: &Held) -> Result<u64, Failure> {
    let file = held.open("find", || rustix::fs::open(path, COMMON | OFlags::PATH, Mode::empty()))?;
    let stat = step("stat", || rustix::fs::fstat(&file))?;
    // The size of a link or a device node says nothing.
    if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
        return Err(Failure { step: "stat", errno: Errno::NOTSUP });
    }
    Ok(u64::try_from(stat.st_size).unwrap_or(0))
}

/// Makes the group on standard input hear about the file system at `path`, and gives that file system's id.
fn mark(path: &Path, expected: DeviceNumber, held: &Held) -> Result<u64, Failure> {
    let folder = held.open("open", || open_directory(path))?;
    let stat = step("stat", || rustix::fs::fstat(&folder))?;
    let found = DeviceNumber::from_raw(stat.st_dev);
    // Each subvolume of btrfs has a number of its own, so there only the kind of number can be compared.
    let is_expected = found == expected || (found.is_anonymous() && expected.is_anonymous());
    step(COMPARE_STEP, || if is_expected { Ok(()) } else { Err(Errno::XDEV) })?;
    let id = step("statfs", || rustix::fs::fstatvfs(&folder))?.f_fsid;
    step(MARK_STEP, || {
        let marked = crate::sys::mark_errors(std::io::stdin(), &folder);
        marked.map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))
    })?;
    Ok(id)
}

const BLOCK: usize = 4096;

/// Reading past the cache wants memory at a block's boundary.
#[repr(align(4096))]
struct Block([u8; BLOCK]);

fn last_block(bytes: u64) -> u64 {
    let block = BLOCK as u64;
    bytes.saturating_sub(block) / block * block
}

fn read_block(device: impl AsFd, offset: u64) -> Result<(), Errno> {
    let mut block = Block([0; BLOCK]);
    match rustix::io::pread(&device, &mut block.0[..], offset)? {
        0 => Err(Errno::IO),
        _ => Ok(()),
    }
}
