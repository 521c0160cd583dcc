//! What has no safe wrapper elsewhere: loop device ioctls, attributes of mounts, a descriptor that changes its file,
//! and what a child does between fork and exec.
//!
//! All `unsafe` of this crate is here.

use std::io;
use std::mem::size_of;
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::process::CommandExt;
use std::process::Command;

use rustix::process::{Signal, set_parent_process_death_signal, setsid};

// Numbers of the kernel's loop and block interfaces.
const LOOP_CLR_FD: libc::c_ulong = 0x4C01;
const LOOP_SET_STATUS64: libc::c_ulong = 0x4C04;
const LOOP_GET_STATUS64: libc::c_ulong = 0x4C05;
const LOOP_SET_CAPACITY: libc::c_ulong = 0x4C07;
const LOOP_CONFIGURE: libc::c_ulong = 0x4C0A;
const LOOP_CTL_GET_FREE: libc::c_ulong = 0x4C82;
const BLKROSET: libc::c_ulong = 0x125D;
const BLKFLSBUF: libc::c_ulong = 0x1261;

/// `FS_IOC_SHUTDOWN`, which ext4 and xfs share.
const FS_SHUTDOWN: libc::c_ulong = 0x8004_587D;

const LO_FLAGS_READ_ONLY: u32 = 1;
/// Detach at the last close.
pub(crate) const LO_FLAGS_AUTOCLEAR: u32 = 4;

/// `struct loop_info64`.
#[repr(C)]
#[derive(Clone, Copy)]
struct Info {
    device: u64,
    inode: u64,
    rdevice: u64,
    offset: u64,
    size_limit: u64,
    number: u32,
    encrypt_type: u32,
    encrypt_key_size: u32,
    flags: u32,
    file_name: [u8; 64],
    crypt_name: [u8; 64],
    encrypt_key: [u8; 32],
    init: [u64; 2],
}

/// `struct loop_config`.
#[repr(C)]
struct Configuration {
    fd: u32,
    block_size: u32,
    info: Info,
    reserved: [u64; 8],
}

const _: () = assert!(size_of::<Info>() == 232 && size_of::<Configuration>() == 304);

const NOTHING: Info = Info {
    device: 0,
    inode: 0,
    rdevice: 0,
    offset: 0,
    size_limit: 0,
    number: 0,
    encrypt_type: 0,
    encrypt_key_size: 0,
    flags: 0,
    file_name: [0; 64],
    crypt_name: [0; 64],
    encrypt_key: [0; 32],
    init: [0; 2],
};

/// What a loop device is attached to: the device and inode of its backing file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Backing {
    pub(crate) major: u32,
    pub(crate) minor: u32,
    pub(crate) inode: u64,
}

/// The number of a loop device that was free a moment ago; another process may take it first.
pub(crate) fn loop_free_number(control: impl AsFd) -> io::Result<u32> {
    // SAFETY: the request takes no argument.
    let number = unsafe { libc::ioctl(control.as_fd().as_raw_fd(), LOOP_CTL_GET_FREE) };
    u32::try_from(number).map_err(|_| io::Error::last_os_error())
}

/// Attaches `image` to the loop device. `EBUSY` if it is taken.
pub(crate) fn loop_configure(device: impl AsFd, image: impl AsFd, readonly: bool) -> io::Result<()> {
    let configuration = Configuration {
        fd: u32::try_from(image.as_fd().as_raw_fd()).map_err(io::Error::other)?,
        block_size: 0,
        info: Info { flags: if readonly { LO_FLAGS_READ_ONLY } else { 0 }, ..NOTHING },
        reserved: [0; 8],
    };
    // SAFETY: the pointer is to a live `struct loop_config` of the kernel's layout, which the kernel only reads.
    check(unsafe { libc::ioctl(device.as_fd().as_raw_fd(), LOOP_CONFIGURE, &raw const configuration) })
}

/// `ENXIO` when the device is not attached.
pub(crate) fn loop_backing(device: impl AsFd) -> io::Result<Backing> {
    let mut info = NOTHING;
    // SAFETY: the pointer is to a live, writable `struct loop_info64` of the kernel's layout.
    check(unsafe { libc::ioctl(device.as_fd().as_raw_fd(), LOOP_GET_STATUS64, &raw mut info) })?;
    // The kernel's wide device encoding: 8 low bits of the minor, 12 bits of major, the rest of the minor.
    let major = (info.device >> 8) & 0xfff;
    let minor = (info.device & 0xff) | ((info.device >> 12) & 0xf_ff00);
    Ok(Backing {
        major: u32::try_from(major).map_err(io::Error::other)?,
        minor: u32::try_from(minor).map_err(io::Error::other)?,
        inode: info.inode,
    })
}

/// Changes flags and size limit of an attached device. `ENXIO` when it is not attached.
pub(crate) fn loop_change(device: impl AsFd, change: impl FnOnce(&mut u32, &mut u64)) -> io::Result<()> {
    let device = device.as_fd().as_raw_fd();
    let mut info = NOTHING;
    // SAFETY: the pointer is to a live, writable `struct loop_info64` of the kernel's layout.
    check(unsafe { libc::ioctl(device, LOOP_GET_STATUS64, &raw mut info) })?;
    change(&mut info.flags, &mut info.size_limit);
    // SAFETY: the pointer is to a live `struct loop_info64` of the kernel's layout, which the kernel only reads.
    check(unsafe { libc::ioctl(device, LOOP_SET_STATUS64, &raw const info) })
}

/// Stops the file system of an open directory without writing anything back.
pub(crate) fn shut_down_filesystem(directory: impl AsFd) -> io::Result<()> {
    const NO_LOG_FLUSH: u32 = 2;
    let how = NO_LOG_FLUSH;
    // SAFETY: the pointer is to a live 32-bit number, which the kernel only reads.
    check(unsafe { libc::ioctl(directory.as_fd().as_raw_fd(), FS_SHUTDOWN, &raw const how) })
}

/// Makes the device as large as its image has become.
pub(crate) fn loop_set_capacity(device: impl AsFd) -> io::Result<()> {
    // SAFETY: the request takes no argument.
    check(unsafe { libc::ioctl(device.as_fd().as_raw_fd(), LOOP_SET_CAPACITY) })
}

/// Detaches; while the device is in use the kernel does it at the last close.
pub(crate) fn loop_clear(device: impl AsFd) -> io::Result<()> {
    // SAFETY: the request takes no argument.
    check(unsafe { libc::ioctl(device.as_fd().as_raw_fd(), LOOP_CLR_FD) })
}

pub(crate) fn block_set_readonly(device: impl AsFd, readonly: bool) -> io::Result<()> {
    let value = libc::c_int::from(readonly);
    // SAFETY: the pointer is to a live int, which the kernel only reads.
    check(unsafe { libc::ioctl(device.as_fd().as_raw_fd(), BLKROSET, &raw const value) })
}

/// Writes out and drops what the kernel cached of the device.
pub(crate) fn block_flush(device: impl AsFd) -> io::Result<()> {
    // SAFETY: the request takes no argument.
    check(unsafe { libc::ioctl(device.as_fd().as_raw_fd(), BLKFLSBUF) })
}

/// Makes a detached mount read-only; the file system behind it is not touched.
pub(crate) fn make_mount_readonly(tree: impl AsFd) -> io::Result<()> {
    change_mount(tree, libc::MOUNT_ATTR_RDONLY, 0)
}

/// Takes the read-only flag off a mount; whether the file system behind it is writable is another matter.
pub(crate) fn make_mount_writable(tree: impl AsFd) -> io::Result<()> {
    change_mount(tree, 0, libc::MOUNT_ATTR_RDONLY)
}

fn change_mount(tree: impl AsFd, set: u64, clear: u64) -> io::Result<()> {
    let attributes = libc::mount_attr { attr_set: set, attr_clr: clear, propagation: 0, userns_fd: 0 };
    // SAFETY: the path is an empty NUL-terminated string, and pointer and size describe a live `struct mount_attr`,
    // which the kernel only reads.
    let result = unsafe {
        libc::syscall(
            libc::SYS_mount_setattr,
            tree.as_fd().as_raw_fd(),
            c"".as_ptr(),
            libc::AT_EMPTY_PATH,
            &raw const attributes,
            size_of::<libc::mount_attr>(),
        )
    };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Makes the first descriptor another name of what the second one names, in one step. The owner of the first goes
/// on to use, and will close, what it names now.
pub(crate) fn replace_descriptor(old: impl AsFd, new: impl AsFd) -> io::Result<()> {
    // SAFETY: both descriptors are open for the length of the call. The number keeps its owner, who closes it once;
    // only the file behind it changes, which no owner of a plain descriptor may rely on at memory's cost.
    check(unsafe { libc::dup3(new.as_fd().as_raw_fd(), old.as_fd().as_raw_fd(), libc::O_CLOEXEC) })
}

/// The child is killed when the thread that starts it ends, thus also when the driver is killed.
pub(crate) fn dies_with_us(command: &mut Command) -> &mut Command {
    // SAFETY: the closure makes one system call and neither allocates nor takes locks.
    unsafe { command.pre_exec(|| Ok(set_parent_process_death_signal(Some(Signal::KILL))?)) }
}

/// As [`dies_with_us`], until the child says otherwise, and in a session of its own so that no terminal's or
/// supervisor's signal reaches it.
pub(crate) fn own_session(command: &mut Command) -> &mut Command {
    // SAFETY: the closure makes two system calls and neither allocates nor takes locks.
    unsafe {
        command.pre_exec(|| {
            setsid()?;
            Ok(set_parent_process_death_signal(Some(Signal::KILL))?)
        })
    }
}

fn check(result: libc::c_int) -> io::Result<()> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}
