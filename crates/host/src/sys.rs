//! The one place where the kernel is called without a safe wrapper.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};
use std::ptr;

use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// Closes every descriptor but standard input, output and error. Failure is ignored: a kernel older than 5.9 has
/// no such call, and our own descriptors are all closed on exec anyway.
pub(crate) fn close_inherited() {
    // SAFETY: called first thing in a freshly started helper, before anything in this process could own a
    // descriptor above standard error.
    unsafe {
        libc::close_range(3, libc::c_uint::MAX, 0);
    }
}

/// A group that receives errors of file systems. Its events name the file system and open nothing.
pub(crate) fn fanotify_group() -> io::Result<OwnedFd> {
    // A mark for every volume must fit. Asking for that also fails immediately without the privilege that marks need.
    let flags = libc::FAN_CLASS_NOTIF
        | libc::FAN_REPORT_FID
        | libc::FAN_UNLIMITED_MARKS
        | libc::FAN_CLOEXEC
        | libc::FAN_NONBLOCK;
    // SAFETY: takes two numbers; what comes back is a new descriptor or an error.
    let raw = unsafe { libc::fanotify_init(flags, 0) };
    if raw < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: just made, and it has no other owner.
    Ok(unsafe { OwnedFd::from_raw_fd(raw) })
}

/// Makes the group hear about errors of the whole file system that `folder` is on.
pub(crate) fn mark_errors(group: impl AsFd, folder: impl AsFd) -> io::Result<()> {
    let flags = libc::FAN_MARK_ADD | libc::FAN_MARK_FILESYSTEM;
    let (group, folder) = (group.as_fd().as_raw_fd(), folder.as_fd().as_raw_fd());
    // SAFETY: both descriptors are borrowed for the whole call, and no path means the folder itself.
    match unsafe { libc::fanotify_mark(group, flags, libc::FAN_FS_ERROR, folder, ptr::null()) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Lets the runtime watch a file that the kernel can wait for.
pub(crate) fn watched(file: File, interest: Interest) -> io::Result<AsyncFd<File>> {
    // SAFETY: a file owns its descriptor and keeps it until it is dropped; no code here ever puts another file in
    // its place.
    unsafe { AsyncFd::register_with_interest(file, interest) }.map_err(Into::into)
}
