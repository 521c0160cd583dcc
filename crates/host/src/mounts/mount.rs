//! One mount, as a view into the table's text.

use std::ffi::OsStr;
use std::fmt;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use super::line::Record;
use crate::DeviceNumber;

/// One mount. Cheap to copy; the text belongs to the table.
#[derive(Clone, Copy)]
pub struct Mount<'t> {
    pub(super) text: &'t [u8],
    pub(super) record: &'t Record,
}

impl<'t> Mount<'t> {
    pub fn id(self) -> u32 {
        self.record.id
    }

    /// The mount this one sits on. Not always in the table: the root's parent is outside of it.
    pub fn parent(self) -> u32 {
        self.record.parent
    }

    pub fn device(self) -> DeviceNumber {
        self.record.device
    }

    /// Which directory (or file) of the file system is mounted here; `/` unless it is a bind mount or subvolume.
    pub fn root(self) -> &'t Path {
        path(self.record.root.of(self.text))
    }

    /// Whether what is mounted here has been deleted from its file system.
    pub fn root_is_deleted(self) -> bool {
        self.record.root.of(self.text).ends_with(b"//deleted")
    }

    pub fn target(self) -> &'t Path {
        path(self.record.target.of(self.text))
    }

    pub(super) fn target_bytes(self) -> &'t [u8] {
        self.record.target.of(self.text)
    }

    /// For FUSE with its subtype: `fuse.sshfs`.
    pub fn fs_type(self) -> &'t OsStr {
        OsStr::from_bytes(self.record.fs_type.of(self.text))
    }

    /// `/dev/loop3`, `server:/export`, or anything a mounter made up.
    pub fn source(self) -> &'t OsStr {
        OsStr::from_bytes(self.record.source.of(self.text))
    }

    /// The options of this mount alone: a read-only bind mount has `ro` here while the file system is writable.
    pub fn options(self) -> Options<'t> {
        Options(self.record.options.of(self.text))
    }

    /// The options of the file system, shared by all its mounts. An emergency shows here, not in [`options`].
    ///
    /// [`options`]: Mount::options
    pub fn super_options(self) -> Options<'t> {
        Options(self.record.super_options.of(self.text))
    }

    /// Propagation and the like: `shared:2`, `master:1`.
    pub fn optional(self) -> impl Iterator<Item = &'t OsStr> {
        let all = self.record.optional.of(self.text);
        all.split(|byte| *byte == b' ').filter(|field| !field.is_empty()).map(OsStr::from_bytes)
    }

    /// Whether this mount refuses writes, be it because of the mount or of the file system.
    ///
    /// `emergency_ro` counts: after an error newer kernels leave `rw` in place and refuse writes all the same.
    pub fn is_read_only(self) -> bool {
        self.options().has("ro") || self.super_options().has("ro") || self.super_options().has("emergency_ro")
    }

    /// Whether the file system was shut down: nothing more reaches its disk until it is mounted again.
    pub fn is_shut_down(self) -> bool {
        self.super_options().has("shutdown")
    }
}

fn path(bytes: &[u8]) -> &Path {
    Path::new(OsStr::from_bytes(bytes))
}

impl fmt::Debug for Mount<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Mount")
            .field("id", &self.id())
            .field("parent", &self.parent())
            .field("device", &self.device())
            .field("root", &self.root())
            .field("target", &self.target())
            .field("options", &self.options())
            .field("fs_type", &self.fs_type())
            .field("source", &self.source())
            .field("super_options", &self.super_options())
            .finish_non_exhaustive()
    }
}

/// A comma-divided list of options.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Options<'t>(&'t [u8]);

impl<'t> Options<'t> {
    pub fn iter(self) -> impl Iterator<Item = &'t OsStr> {
        self.0.split(|byte| *byte == b',').filter(|option| !option.is_empty()).map(OsStr::from_bytes)
    }

    /// Whether exactly this option is there; `errors=remount-ro` does not make it `ro`.
    pub fn has(self, option: &str) -> bool {
        self.iter().any(|present| present.as_bytes() == option.as_bytes())
    }

    /// What stands after `name=`, the last one if there are several, as the kernel would take it.
    pub fn value(self, name: &str) -> Option<&'t OsStr> {
        self.iter()
            .filter_map(|option| option.as_bytes().strip_prefix(name.as_bytes())?.strip_prefix(b"="))
            .last()
            .map(OsStr::from_bytes)
    }

    pub fn as_os_str(self) -> &'t OsStr {
        OsStr::from_bytes(self.0)
    }
}

impl fmt::Debug for Options<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.as_os_str().fmt(f)
    }
}
