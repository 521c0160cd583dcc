//! What a volume on this host should be like. A caller that asks for a check says so; nothing in here was looked up.

use std::path::PathBuf;
use std::sync::Arc;

/// One volume, and where it should be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Expected {
    pub driver: Arc<str>,
    pub handle: Arc<str>,
    pub mode: Mode,
    /// Where it would be staged. It need not be: many drivers publish without staging. Of a directory of the host it is
    /// the path of the directory, as the host has it.
    pub staging: Option<PathBuf>,
    /// Only the places that a pod uses now: not those still being set up or already going away.
    pub targets: Vec<Target>,
}

/// How a volume is given to its pods.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    Filesystem,
    /// The targets are device nodes (not links to them).
    Block,
    /// A directory of the host, which the container runtime binds into containers. Nothing is mounted for it on the host,
    /// and the targets are only names for its uses.
    Directory,
}

/// A place where a pod uses the volume.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Target {
    pub path: PathBuf,
    /// It was asked for read-only, so finding it so is no problem.
    pub read_only: bool,
    /// Which pod, for messages: `namespace/name`.
    pub pod: Box<str>,
    /// The bind mounts of parts of it (`subPath`) that containers of the pod were given.
    pub parts: Vec<PathBuf>,
}

impl Expected {
    pub(super) fn key(&self) -> Key {
        Key { driver: self.driver.clone(), handle: self.handle.clone() }
    }
}

/// What a volume is remembered by.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key {
    pub driver: Arc<str>,
    pub handle: Arc<str>,
}
