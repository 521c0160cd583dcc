//! The health of a volume, found out in one place for every call that reports it.
//!
//! This is the check list of the csi-baremetal proposal. It knows nothing of this driver's records or services, but it
//! knows only this driver's kinds of backing: an image file behind a loop device, or a directory behind a FUSE mounter.
//! A volume on a real block device would be called a `ConfigError`, so other drivers cannot use it as it is. The driver
//! describes a volume with [`VolumeFacts`], reads the mount table once for as many volumes as it wants, and asks
//! [`Checks::look`]. The order is fixed: the driver's own
//! state, the backing, staging and targets in the mount table, the kernel's own counters, whether the volume
//! answers, the last file system check, and how full it is. Nothing found hides what comes after it.
//!
//! What must hold: only a helper process ever touches the volume, every wait has an end, one check per volume at a
//! time, and a file system check never runs while a caller waits for it.

mod backing;
mod checks;
mod dialect;
mod drive;
mod facts;
mod flight;
pub mod fsck;
mod fullness;
mod kernel;
mod mounted;
mod readable;
mod report;

pub use checks::{Checks, Depth, Settings};
pub use dialect::{to_volume_condition, to_volume_health};
pub use drive::{CsiStatus, DriveState, DriveStatus, Health, OperationalStatus, UnknownWord, Usage};
pub use facts::{Backing, LoopFacts, Place, VolumeFacts};
pub use report::{Finding, Measured, Report};
pub use volmedic_health::fullness::Thresholds;
