//! What is written down, as JSON. Unknown fields are ignored, so that an older driver can read a newer record.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::filesystem::Filesystem;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// An image file behind a loop device: a file system, or the raw device.
    Loop,
    /// A directory behind a userspace file system with a process of its own.
    Fuse,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Source {
    Snapshot(String),
    Volume(String),
}

/// A node to which the controller published the volume.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Attachment {
    pub readonly: bool,
    pub mode: i32,
    pub block: bool,
}

/// What a volume is. Written by the controller service only.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct VolumeRecord {
    pub id: String,
    pub name: String,
    pub bytes: u64,
    pub kind: Kind,
    pub filesystem: Filesystem,
    pub created: Timestamp,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<Source>,
    /// The content came from something smaller, so the file system must be grown when it is first mounted.
    #[serde(default)]
    pub grown_from_source: bool,
    #[serde(default)]
    pub attachments: BTreeMap<String, Attachment>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SnapshotRecord {
    pub id: String,
    pub name: String,
    pub source_volume: String,
    pub bytes: u64,
    pub filesystem: Filesystem,
    pub created: Timestamp,
}

/// What was done with a volume on this node. Written by the node service only, always before the thing is done.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeRecord {
    #[serde(default)]
    pub staged: Option<Staged>,
    /// By target path.
    #[serde(default)]
    pub published: BTreeMap<PathBuf, Published>,
    #[serde(default)]
    pub loop_device: Option<Attached>,
    /// Set while mkfs runs: the image was blank before, so whatever a killed mkfs left may be overwritten.
    #[serde(default)]
    pub formatting: bool,
}

impl NodeRecord {
    pub fn is_idle(&self) -> bool {
        self.staged.is_none() && self.published.is_empty() && self.loop_device.is_none()
    }

    /// Whether the volume was put at this path, as its staging directory or as a target.
    pub fn is_at(&self, path: &Path) -> bool {
        self.published.contains_key(path) || self.staged.as_ref().is_some_and(|staged| staged.path == path)
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Staged {
    pub path: PathBuf,
    pub access: Access,
    pub readonly: bool,
    pub mode: i32,
    /// False from the moment staging is planned until it is done.
    pub done: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Access {
    Block,
    Mount { options: Vec<String> },
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Published {
    pub block: bool,
    pub readonly: bool,
    pub mode: i32,
    pub done: bool,
}

/// A loop device, with the identity of the image it was attached to: numbers are reused, inodes distinguish them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Attached {
    pub number: u32,
    pub image_major: u32,
    pub image_minor: u32,
    pub image_inode: u64,
}

/// The process behind a volume of kind fuse. Written by that process itself, under its lock.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MounterRecord {
    pub pid: i32,
    /// In clock ticks since boot, so that a reused pid is not taken for the mounter.
    pub start_time: u64,
    pub mountpoint: PathBuf,
    /// The descriptor of its FUSE session, so that a driver can hold a copy of it.
    #[serde(default)]
    pub session: Option<i32>,
    /// How many processes have served the session before this one.
    #[serde(default)]
    pub generation: u32,
}
