//! Reads what the kubelet set up for a pod: which directories there are, and its notes about them.
//!
//! Nothing in here opens a volume. Volumes are found by the names in the directory above them, and whatever is opened
//! below the base directories must neither be a link nor lie beyond a mount: a mount that hangs cannot be entered.

use std::ffi::OsStr;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::{FileType, Mode as Bits, OFlags, ResolveFlags, fstat, open, openat, openat2};
use rustix::io::Errno;

use super::{
    CSI, CSI_PLUGIN, DEVICES, GLOBAL_MOUNT, Layout, VOL_DATA, VOLUMES, VolData, component, hash, vol_data,
};
use crate::node::volume::Mode;

/// A directory of the kubelet with more entries than this is no directory of the kubelet. What is beyond is not seen.
const MOST_ENTRIES: usize = 4096;
/// Volumes of the pod's own making: no storage is behind them that could be unhealthy.
const LOCAL: &[&str] = &[
    "kubernetes.io~configmap",
    "kubernetes.io~downward-api",
    "kubernetes.io~empty-dir",
    "kubernetes.io~git-repo",
    "kubernetes.io~host-path",
    "kubernetes.io~projected",
    "kubernetes.io~secret",
];

/// A volume that the kubelet has set up for a pod, or is about to.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Dir {
    /// As in the path, with `~` for `/`. None for CSI.
    plugin: Option<Box<str>>,
    /// The name of the PersistentVolume, or of the volume in the pod.
    pub(crate) name: Arc<str>,
    pub(crate) mode: Mode,
}

impl Dir {
    pub(crate) fn new(plugin: &str, name: &str, mode: Mode) -> Self {
        Self { plugin: (plugin != CSI).then(|| plugin.into()), name: name.into(), mode }
    }

    pub(crate) fn is_csi(&self) -> bool {
        self.plugin.is_none()
    }

    pub(crate) fn plugin(&self) -> &str {
        self.plugin.as_deref().unwrap_or(CSI)
    }
}

/// What was found about one volume of a pod.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Found {
    pub(crate) dir: Dir,
    /// For CSI only: the kubelet's note, or a sentence saying why there is none.
    pub(crate) note: Option<Result<VolData, Box<str>>>,
    pub(crate) staging: Staging,
}

/// Which of the kubelet's places for staging the volume has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Staging {
    None,
    /// By driver and handle.
    Hashed,
    /// By the name of the PersistentVolume, before version 1.24.
    Named,
    Block,
}

/// The kubelet's directories, held open while some pods are read.
#[derive(Debug)]
pub(crate) struct Reader<'a> {
    layout: &'a Layout,
    /// None on a node that never had a pod.
    pods: Option<OwnedFd>,
    /// None on a node that never had a CSI volume.
    csi: Option<OwnedFd>,
}

impl<'a> Reader<'a> {
    pub(crate) fn open(layout: &'a Layout) -> io::Result<Self> {
        // Only this one has to be there. It may be a link, and so may whatever leads to it.
        let root = open(layout.root(), folder(), Bits::empty())?;
        let base = |name: &str| match openat(&root, name, folder(), Bits::empty()) {
            Ok(base) => Ok(Some(base)),
            Err(Errno::NOENT) => Ok(None),
            Err(why) => Err(why),
        };
        Ok(Self { layout, pods: base(super::PODS)?, csi: base(CSI_PLUGIN)? })
    }

    /// What is set up for a pod, in order. Empty if the pod has no directory.
    pub(crate) fn pod(&self, uid: &str) -> io::Result<Vec<Found>> {
        let Some(pods) = &self.pods else { return Ok(Vec::new()) };
        component(uid).map_err(|why| io::Error::new(io::ErrorKind::InvalidInput, why))?;
        let mut dirs = Vec::new();
        for (kind, mode) in [(VOLUMES, Mode::Filesystem), (DEVICES, Mode::Block)] {
            for plugin in names(pods.as_fd(), &[uid, kind])? {
                if LOCAL.contains(&&*plugin) {
                    continue;
                }
                for name in names(pods.as_fd(), &[uid, kind, &plugin])? {
                    dirs.push(Dir::new(&plugin, &name, mode));
                }
            }
        }
        dirs.sort_unstable();
        Ok(dirs.into_iter().map(|dir| self.about(uid, dir)).collect())
    }

    fn about(&self, uid: &str, dir: Dir) -> Found {
        if !dir.is_csi() {
            return Found { dir, note: None, staging: Staging::None };
        }
        let note = match (dir.mode, &self.pods, &self.csi) {
            (Mode::Filesystem, Some(pods), _) => {
                read(pods.as_fd(), &[uid, VOLUMES, CSI, &dir.name, VOL_DATA])
            }
            (Mode::Block, _, Some(csi)) => read(csi.as_fd(), &[DEVICES, &dir.name, "data", VOL_DATA]),
            _ => Err(Errno::NOENT.into()),
        };
        let note = note
            .map_err(|why| why.to_string())
            .and_then(|text| VolData::parse(&text, &dir.name).map_err(|why| why.to_string()))
            .map_err(|why| {
                let path = match dir.mode {
                    Mode::Filesystem => self.layout.vol_data(uid, &dir.name),
                    Mode::Block => self.layout.block_vol_data(&dir.name),
                };
                let path = path.map(|path| path.display().to_string()).unwrap_or_default();
                format!("the kubelet's note {path:?} cannot be used: {why}").into()
            });
        let staging = match dir.mode {
            Mode::Filesystem => note.as_ref().map_or(Staging::None, |note| self.staging(&dir.name, note)),
            Mode::Block => Staging::Block,
        };
        Found { dir, note: Some(note), staging }
    }

    /// The staging directory that is there: that of newer kubelets or that of older ones. Inline volumes have none.
    fn staging(&self, volume: &str, note: &VolData) -> Staging {
        let Some(csi) = self.csi.as_ref().filter(|_| !note.is_inline()) else { return Staging::None };
        let staged = |parts: &[&str]| {
            names(csi.as_fd(), parts).is_ok_and(|names| names.iter().any(|name| **name == *GLOBAL_MOUNT))
        };
        if staged(&[&note.driver, &hash(&note.handle)]) {
            Staging::Hashed
        } else if staged(&["pv", volume]) {
            Staging::Named
        } else {
            Staging::None
        }
    }
}

fn folder() -> OFlags {
    OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC | OFlags::NONBLOCK
}

/// The names in a directory. None if it is not there. Names that are no text belong to nobody we know.
fn names(base: BorrowedFd<'_>, parts: &[&str]) -> io::Result<Vec<Box<str>>> {
    let directory = match open_below(base, parts, folder()) {
        Ok(directory) => directory,
        Err(Errno::NOENT) => return Ok(Vec::new()),
        Err(why) => return Err(why.into()),
    };
    let mut names = Vec::new();
    for entry in rustix::fs::Dir::new(directory)?.take(MOST_ENTRIES) {
        let entry = entry?;
        let name = OsStr::from_bytes(entry.file_name().to_bytes());
        if let Some(name) = name.to_str().filter(|name| !matches!(*name, "." | "..")) {
            names.push(name.into());
        }
    }
    names.sort_unstable();
    Ok(names)
}

/// A file's content, and a byte more than it may have if it is longer.
fn read(base: BorrowedFd<'_>, parts: &[&str]) -> io::Result<Vec<u8>> {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
    let file = open_below(base, parts, flags)?;
    if FileType::from_raw_mode(fstat(&file)?.st_mode) != FileType::RegularFile {
        return Err(io::Error::other("it is not a regular file"));
    }
    let mut text = Vec::new();
    let limit = u64::try_from(vol_data::LONGEST_NOTE).unwrap_or(u64::MAX);
    io::Read::read_to_end(&mut io::Read::take(std::fs::File::from(file), limit + 1), &mut text)?;
    Ok(text)
}

/// Opens what is below a directory by these names, following no link and entering no other file system.
pub(super) fn open_below(base: BorrowedFd<'_>, parts: &[&str], flags: OFlags) -> rustix::io::Result<OwnedFd> {
    if parts.iter().any(|part| component(part).is_err()) {
        return Err(Errno::INVAL);
    }
    let path: PathBuf = parts.iter().collect();
    let flags = flags | OFlags::NOFOLLOW;
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_XDEV;
    match openat2(base, &path, flags, Bits::empty(), resolve) {
        Err(Errno::NOSYS) => walk(base, &path, flags),
        opened => opened,
    }
}

/// The same, step by step, on kernels before 5.6. They have no flag to stop at mounts.
pub(super) fn walk(base: BorrowedFd<'_>, path: &Path, flags: OFlags) -> rustix::io::Result<OwnedFd> {
    let step = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let mut at = openat(base, ".", step, Bits::empty())?;
    for folder in path.parent().into_iter().flat_map(Path::components) {
        at = openat(&at, folder.as_os_str(), step, Bits::empty())?;
    }
    openat(&at, path.file_name().unwrap_or_else(|| OsStr::new(".")), flags, Bits::empty())
}
