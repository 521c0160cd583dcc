//! Mounting and unmounting, always on what is open or through an open directory, never along a followed link.

use std::io;
use std::path::Path;

use rustix::io::Errno;
use rustix::mount::{
    MountFlags, MoveMountFlags, OpenTreeFlags, UnmountFlags, mount, mount_remount, move_mount, open_tree,
    unmount,
};
use volmedic_host::mounts::{Mount, Table};

use crate::error::{Error, Result};
use crate::filesystem::Filesystem;
use crate::loops::LoopDevice;
use crate::paths::{Opened, Place};
use crate::sys;

/// The file system type that our userspace mounters show.
pub(crate) const FUSE_TYPE: &str = "fuse.volmedic";
/// Mounts stacked on one path are taken off one by one, at most this many.
const STACKED: usize = 16;

/// What should be mounted somewhere.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Expected<'a> {
    /// The file system on a loop device.
    Disk(LoopDevice),
    /// The node of a loop device.
    Node(LoopDevice),
    /// The mounter of a volume.
    Fuse(&'a str),
}

impl Expected<'_> {
    pub(crate) fn is(self, found: Mount<'_>) -> bool {
        match self {
            // btrfs has device numbers of its own, so the source is compared too.
            Self::Disk(device) => {
                found.device() == device.number() || found.source() == device.path().as_os_str()
            }
            Self::Node(device) => found.root() == Path::new(&format!("/loop{}", device.0)),
            Self::Fuse(volume) => found.fs_type() == FUSE_TYPE && found.source() == volume,
        }
    }
}

pub(crate) fn table() -> Result<Table> {
    Table::read().map_err(Error::io("read the mount table"))
}

/// Mount options that a request may carry. Others could name files and devices that are none of the volume's.
const FREE_OPTIONS: [&str; 26] = [
    "acl",
    "noacl",
    "user_xattr",
    "nouser_xattr",
    "barrier",
    "nobarrier",
    "discard",
    "nodiscard",
    "delalloc",
    "nodelalloc",
    "auto_da_alloc",
    "noauto_da_alloc",
    "errors=continue",
    "errors=remount-ro",
    "data=ordered",
    "data=writeback",
    "data=journal",
    "nouuid",
    "noquota",
    "inode64",
    "inode32",
    "largeio",
    "ssd",
    "nossd",
    "autodefrag",
    "noautodefrag",
];
/// These take a plain number or word.
const FREE_KEYS: [&str; 8] =
    ["commit", "stripe", "logbufs", "logbsize", "allocsize", "compress", "compress-force", "thread_pool"];

fn flag(option: &str) -> Option<MountFlags> {
    Some(match option {
        "ro" => MountFlags::RDONLY,
        "rw" | "defaults" | "relatime" | "async" | "exec" | "suid" | "dev" | "atime" => MountFlags::empty(),
        "noatime" => MountFlags::NOATIME,
        "nodiratime" => MountFlags::NODIRATIME,
        "nosuid" => MountFlags::NOSUID,
        "nodev" => MountFlags::NODEV,
        "noexec" => MountFlags::NOEXEC,
        "sync" => MountFlags::SYNCHRONOUS,
        "dirsync" => MountFlags::DIRSYNC,
        "lazytime" => MountFlags::LAZYTIME,
        "strictatime" => MountFlags::STRICTATIME,
        _ => return None,
    })
}

/// Whether every option of a request is one we pass on.
pub(crate) fn check_options(options: &[String]) -> Result<()> {
    for option in options {
        let keyed = option.split_once('=').is_some_and(|(key, value)| {
            FREE_KEYS.contains(&key)
                && !value.is_empty()
                && value.bytes().all(|b| b.is_ascii_alphanumeric() || b == b':')
        });
        if !(keyed || flag(option).is_some() || FREE_OPTIONS.contains(&option.as_str())) {
            let shown: String = option.chars().take(64).collect();
            return Err(Error::invalid(
                "mount_flags",
                format_args!("{shown:?} is not among the options passed on"),
            ));
        }
    }
    Ok(())
}

/// Mounts the file system of a device.
pub(crate) fn mount_disk(
    device: LoopDevice,
    at: &Opened,
    filesystem: Filesystem,
    options: &[String],
    readonly: bool,
) -> Result<()> {
    let mut flags = if readonly { MountFlags::RDONLY } else { MountFlags::empty() };
    let mut data: Vec<&str> = filesystem.own_options().to_vec();
    for option in options {
        match flag(option) {
            Some(more) => flags |= more,
            None => data.push(option),
        }
    }
    let data =
        std::ffi::CString::new(data.join(",")).map_err(|error| Error::invalid("mount_flags", error))?;
    mount(device.path(), at.path(), filesystem.name(), flags, Some(data.as_c_str()))
        .map_err(Error::io(format_args!("mount {} as {}", device.path().display(), filesystem.name())))
}

/// Makes a mounted file system writable again, with the flags it was mounted with.
pub(crate) fn remount_writable(at: &Opened, options: &[String], more: MountFlags) -> Result<()> {
    let mut flags = more;
    let mut data: Vec<&str> = Vec::new();
    for option in options {
        match flag(option) {
            Some(more) => flags |= more,
            None => data.push(option),
        }
    }
    let data =
        std::ffi::CString::new(data.join(",")).map_err(|error| Error::invalid("mount_flags", error))?;
    mount_remount(at.path(), flags - MountFlags::RDONLY, data.as_c_str())
        .map_err(Error::io("make the file system writable again; the kernel's log says why"))
}

/// Makes one mount writable, whatever the file system behind it is.
pub(crate) fn make_writable(at: &Opened) -> Result<()> {
    sys::make_mount_writable(at).map_err(Error::io("make the mount writable again"))
}

/// Binds one open thing onto another. A read-only bind is read-only before anyone can see it, and one that is not is
/// writable even if what it is made from is not.
pub(crate) fn bind(from: &Opened, to: &Opened, readonly: bool) -> Result<()> {
    let bind = || {
        let clone =
            OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC | OpenTreeFlags::AT_EMPTY_PATH;
        let tree = open_tree(from, c"", clone)?;
        if readonly {
            sys::make_mount_readonly(&tree)?;
        } else {
            sys::make_mount_writable(&tree)?;
        }
        let empty = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH | MoveMountFlags::MOVE_MOUNT_T_EMPTY_PATH;
        io::Result::Ok(move_mount(&tree, c"", to, c"", empty)?)
    };
    bind().map_err(Error::io("bind the volume to its target"))
}

/// Takes every mount off a path. With `lazily`, also those still in use.
pub(crate) fn unmount_all(place: &Place, lazily: bool) -> Result<()> {
    for _ in 0..STACKED {
        if table()?.at(place.path()).is_none() {
            return Ok(());
        }
        let (_parent, path) = place.through_parent()?;
        let flags = if lazily { UnmountFlags::DETACH } else { UnmountFlags::empty() };
        match unmount(path, flags | UnmountFlags::NOFOLLOW) {
            Ok(()) => {}
            Err(Errno::BUSY) => {
                let why =
                    format!("unmount {}: something still uses it; end that first", place.path().display());
                return Err(Error::io(why)(Errno::BUSY));
            }
            Err(error) => return Err(Error::io(format_args!("unmount {}", place.path().display()))(error)),
        }
    }
    Err(Error::io(format_args!(
        "unmount {}: more than {STACKED} mounts are stacked there",
        place.path().display()
    ))(Errno::BUSY))
}

#[cfg(test)]
mod tests {
    use super::check_options;

    #[test]
    fn options_that_name_other_things_are_refused() {
        for good in ["noatime", "ro", "commit=5", "compress=zstd:3", "discard", "data=ordered"] {
            check_options(&[good.to_owned()]).unwrap();
        }
        for bad in [
            "journal_path=/dev/sda",
            "device=/dev/sdb",
            "logdev=/dev/sdc",
            "commit=/x",
            "errors=panic",
            "x,y",
            "",
        ] {
            check_options(&[bad.to_owned()]).unwrap_err();
        }
    }
}
