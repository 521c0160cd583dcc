//! What the checks need to know of a volume from its driver: where it should be, and what should be behind it.

use std::path::PathBuf;

use volmedic_host::DeviceNumber;

use super::DriveState;

/// One volume, as its driver knows it. Nothing in here was looked up on the host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VolumeFacts {
    /// The volume handle.
    pub id: String,
    pub drive: DriveState,
    /// The size that was promised.
    pub bytes: u64,
    pub backing: Backing,
    /// Where it is staged, if it is. Raw block volumes are attached rather than mounted there: leave it out.
    pub staging: Option<Place>,
    /// Where it is published.
    pub targets: Vec<Place>,
}

/// What the volume is made of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Backing {
    /// An image file, behind a loop device while it is staged.
    Image {
        file: PathBuf,
        /// The loop device it should be behind, if any.
        device: Option<LoopFacts>,
        /// Which file system is on it; none on a raw block volume, or when it is not known yet.
        fs_type: Option<&'static str>,
    },
    /// A directory, served by a FUSE mounter while it is staged.
    Folder {
        folder: PathBuf,
        /// What the mounter calls its mount, if it is known: the source in the mount table.
        source: Option<String>,
        /// Whether the driver searched for the mounter's process and found none. Its mounts may then keep a caller
        /// waiting, so they are not accessed.
        mounter_dead: bool,
    },
}

/// A loop device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LoopFacts {
    /// The number in its name.
    pub number: u32,
}

impl LoopFacts {
    const MAJOR: u32 = 7;

    pub fn name(self) -> String {
        format!("loop{}", self.number)
    }

    pub fn device(self) -> DeviceNumber {
        DeviceNumber::new(Self::MAJOR, self.number)
    }
}

/// Where a volume should be mounted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    pub path: PathBuf,
    /// It was asked for read-only, so finding it so is no problem.
    pub read_only: bool,
    /// The device node itself is here, not a file system.
    pub block: bool,
}
