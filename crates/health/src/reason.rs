//! Why a volume is not healthy, in one CamelCase word that machines can act on.

use std::fmt;

use crate::{Class, Remedy, Status, sanitize};

/// A reason: one we know what to do about, or a driver's own word, sanitised.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Reason(Repr);

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum Repr {
    Known(WellKnown),
    Other(Box<str>),
}

impl Reason {
    /// Takes any text. A well-known spelling becomes the well-known reason, so equal words are equal reasons.
    pub fn new(text: &str) -> Self {
        let clean = sanitize::reason(text);
        Self(match WellKnown::from_name(&clean) {
            Some(known) => Repr::Known(known),
            None => Repr::Other(clean.into()),
        })
    }

    pub fn as_str(&self) -> &str {
        match &self.0 {
            Repr::Known(known) => known.name(),
            Repr::Other(text) => text,
        }
    }

    pub fn well_known(&self) -> Option<WellKnown> {
        match self.0 {
            Repr::Known(known) => Some(known),
            Repr::Other(_) => None,
        }
    }

    /// What would help, in the order in which it is tried. A driver's own word leaves only a person who reads the
    /// driver's documentation.
    pub fn remedies(&self) -> &'static [Remedy] {
        self.well_known().map_or(&[Remedy::AskOperator], WellKnown::remedies)
    }

    /// The first of them.
    pub fn remedy(&self) -> Remedy {
        self.remedies()[0]
    }

    /// Whether a healer may try something on its own.
    pub fn is_healable(&self) -> bool {
        self.remedies().iter().any(|remedy| remedy.is_automatic())
    }

    /// The next step for the person who reads this, as a sentence.
    pub fn advice(&self) -> &'static str {
        self.well_known().map_or(
            "Look the reason up in the storage driver's documentation and check the storage system.",
            WellKnown::advice,
        )
    }
}

impl From<WellKnown> for Reason {
    fn from(known: WellKnown) -> Self {
        Self(Repr::Known(known))
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Makes the enum, its list and its lookups from one table, so that a reason cannot exist in one of them only.
macro_rules! well_known {
    ($($name:ident, $status:ident, [$($remedy:ident),+], $meaning:literal, $advice:literal;)*) => {
        /// The reasons that Volmedic itself gives and knows a next step for.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub enum WellKnown {
            $(#[doc = $meaning] $name,)*
        }

        impl WellKnown {
            /// Every well-known reason, in the order the documentation lists them.
            pub const ALL: &'static [Self] = &[$(Self::$name,)*];

            pub fn name(self) -> &'static str {
                match self { $(Self::$name => stringify!($name),)* }
            }

            pub fn from_name(name: &str) -> Option<Self> {
                match name { $(stringify!($name) => Some(Self::$name),)* _ => None }
            }

            /// The status this reason usually comes with. Who saw it may know better.
            pub fn usual_status(self) -> Status {
                match self { $(Self::$name => Status::$status,)* }
            }

            /// What would help, in the order in which it is tried: the gentlest first.
            pub fn remedies(self) -> &'static [Remedy] {
                match self { $(Self::$name => &[$(Remedy::$remedy),+],)* }
            }

            /// What it means, as a sentence.
            pub fn meaning(self) -> &'static str {
                match self { $(Self::$name => $meaning,)* }
            }

            /// What to do next, as a sentence.
            pub fn advice(self) -> &'static str {
                match self { $(Self::$name => $advice,)* }
            }
        }
    };
}

well_known! {
    VolumeNotFound, Inaccessible, [AskOperator],
        "The storage system no longer knows the volume.",
        "Check on the storage system whether the volume was deleted; restore it from a snapshot or backup.";
    OutOfCapacity, Degraded, [Expand, FreeSpace],
        "The volume or its file system is full, or nearly so.",
        "Free space in the volume or expand the claim.";
    OutOfInodes, Degraded, [FreeSpace],
        "The file system can take no more files although it may have free bytes.",
        "Delete files that are not needed; many small files need a file system made with more inodes.";
    DiskFailure, Inaccessible, [ReplaceHardware],
        "The disk under the volume has failed.",
        "Move the workload to a replica or restore from backup, then replace the disk.";
    DiskRemoved, Inaccessible, [ReplaceHardware],
        "The disk under the volume is not there any more.",
        "Put the disk back or reconnect it; if it was taken out for good, restore from backup.";
    ConfigError, Inaccessible, [AskOperator],
        "The storage system is configured so that the volume cannot be served.",
        "Compare the storage system's configuration with the StorageClass and the driver's secrets.";
    NetworkError, Inaccessible, [Wait],
        "The storage system cannot be reached over the network.",
        "Check the network between this place and the storage system; the volume comes back with it.";
    DiskDegrading, Degraded, [ReplaceHardware],
        "The disk still works, but shows signs of failing.",
        "Plan its replacement and make sure there is a recent backup.";
    VolumeUnmounted, Inaccessible, [NodeHealer, RecreatePods],
        "The volume is not mounted where the pod expects it.",
        "Let the node plugin mount it again, or recreate the pod; restarting a container does not remount.";
    WrongMount, Inaccessible, [RecreatePods],
        "Something else is mounted where the volume should be, so writes go to the wrong place.",
        "Stop the pod now, recreate it, and look for data that landed on the wrong disk.";
    RWIOError, Degraded, [AskOperator],
        "Reads or writes on the volume fail with I/O errors.",
        "Read the node's kernel log for the device, check disk and cables, and make sure there is a backup.";
    ReadOnlyFilesystem, Inaccessible, [RecreatePods],
        "The file system went read-only although it was mounted for writing.",
        "Find the first error in the kernel log, fix its cause, then recreate the pod so that the volume is mounted again.";
    FilesystemCorruption, Degraded, [AskOperator],
        "The file system's own structures are damaged.",
        "Stop the workload, take a copy of the volume, then let a person repair the file system offline.";
    FilesystemShutdown, Inaccessible, [RecreatePods],
        "The kernel shut the file system down after an error it could not live with.",
        "Read the kernel log for the cause, fix it, then recreate the pod so that the volume is mounted again.";
    MounterDead, Inaccessible, [NodeHealer, RecreatePods],
        "The userspace process that serves the mount is gone.",
        "Let the node plugin restart it; if the mount does not come back, recreate the pods that use it.";
    IOHung, Inaccessible, [NodeHealer],
        "A call to the volume did not come back in time.",
        "Check the storage system and the mounter process; pods may be stuck until it answers.";
    SlowIO, Degraded, [AskOperator],
        "The volume answers, but far slower than it should.",
        "Check the load and the health of the storage system, its network and the disk under the volume.";
    StaleHandle, Inaccessible, [RecreatePods],
        "The server no longer knows the file handle of the mount.",
        "Make sure the server exports the volume, then recreate the pods that use it.";
    NotMounted, Inaccessible, [AskOperator],
        "A pod waits for the volume, and the volume is not mounted on the pod's node.",
        "Read the pod's events, such as FailedMount; then check the storage system, its network and the mount options.";
    AttachFailed, Inaccessible, [AskOperator],
        "The volume cannot be attached to the node of its pod.",
        "Read the error of the VolumeAttachment and the log of the driver's external-attacher.";
    AttachedElsewhere, Inaccessible, [AskOperator],
        "The volume is still attached to another node, so that it cannot be attached to the node of its pod.",
        "Check the other node; only when it is surely off may the volume be detached from it, for example with the taint out-of-service.";
    DetachFailed, Degraded, [AskOperator],
        "The volume cannot be detached from a node.",
        "Read the error of the VolumeAttachment; until it is detached, the volume may not be usable on another node.";
    ProvisioningFailed, Inaccessible, [AskOperator],
        "The claim has waited for its volume for minutes.",
        "Read the claim's events, such as ProvisioningFailed; then check the driver's external-provisioner and the StorageClass.";
    ResizeFailed, Degraded, [AskOperator],
        "The volume does not get the size that the claim asks for.",
        "Read the claim's conditions and events; then check the driver's external-resizer and the room of the storage system.";
    UnmountStuck, Degraded, [AskOperator],
        "Pods that used the volume should be gone, and the volume is not unmounted from their node.",
        "Read the kubelet's log on that node; look for processes that use the volume and for calls to it that hang.";
    DriverNotRegistered, Inaccessible, [AskOperator],
        "The volume's CSI driver is not registered on the node of its pod.",
        "Check that the driver's node plugin runs on that node.";
    NodeDown, Inaccessible, [FenceNode, AskOperator],
        "The node that uses the volume does not answer the cluster.",
        "Check the node; only when it is surely off may its volumes be moved to another one.";
    VolumeConditionAbnormal, Degraded, [AskOperator],
        "The driver calls the volume abnormal in the older CSI dialect, which has no reasons.",
        "Read the driver's message and check the storage system.";
}

impl WellKnown {
    /// The first remedy.
    pub fn remedy(self) -> Remedy {
        self.remedies()[0]
    }

    /// Whether a new mount of the volume would not help while this is so, because its cause is below the mount: the
    /// backend, the disk, the network, the node. A call that hangs counts: the pods of such a volume do not end, and the
    /// next ones would hang too.
    pub fn prevents_new_mount(self) -> bool {
        match self {
            Self::VolumeNotFound
            | Self::DiskFailure
            | Self::DiskRemoved
            | Self::ConfigError
            | Self::NetworkError
            | Self::RWIOError
            | Self::FilesystemCorruption
            | Self::IOHung
            | Self::NotMounted
            | Self::AttachFailed
            | Self::AttachedElsewhere
            | Self::DetachFailed
            | Self::ProvisioningFailed
            | Self::UnmountStuck
            | Self::DriverNotRegistered
            | Self::NodeDown => true,
            Self::OutOfCapacity
            | Self::OutOfInodes
            | Self::DiskDegrading
            | Self::VolumeUnmounted
            | Self::WrongMount
            | Self::ReadOnlyFilesystem
            | Self::FilesystemShutdown
            | Self::MounterDead
            | Self::SlowIO
            | Self::ResizeFailed
            | Self::StaleHandle
            | Self::VolumeConditionAbnormal => false,
        }
    }

    /// Whether only the hub finds it: an agent reports a volume that is not mounted as not probed.
    pub fn is_found_by_hub(self) -> bool {
        matches!(
            self,
            Self::NotMounted | Self::AttachedElsewhere | Self::DriverNotRegistered | Self::UnmountStuck
        )
    }

    /// The condition type of the first proposals for this reason; its name is their error code.
    pub fn class(self) -> Class {
        self.usual_status().class()
    }
}

impl fmt::Display for WellKnown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_is_found_again_and_needs_no_sanitising() {
        for &known in WellKnown::ALL {
            assert_eq!(WellKnown::from_name(known.name()), Some(known));
            assert_eq!(sanitize::reason(known.name()), known.name());
        }
    }

    #[test]
    fn the_common_error_codes_of_the_first_proposal_are_all_known() {
        let codes = "VolumeNotFound OutOfCapacity DiskFailure DiskRemoved ConfigError NetworkError DiskDegrading \
                     VolumeUnmounted RWIOError FilesystemCorruption NodeDown";
        for code in codes.split_whitespace() {
            assert!(WellKnown::from_name(code).is_some(), "{code}");
        }
    }

    #[test]
    fn no_reason_claims_lost_data_by_itself() {
        for known in WellKnown::ALL {
            assert_ne!(known.usual_status(), Status::DataLoss, "{known}: only who saw the loss may say so");
        }
    }

    #[test]
    fn what_a_new_mount_helps_against_does_not_prevent_it() {
        for known in WellKnown::ALL {
            let helped = known.remedies().contains(&Remedy::RecreatePods);
            assert!(!(helped && known.prevents_new_mount()), "{known}");
        }
    }

    #[test]
    fn gentler_remedies_come_first_and_none_twice() {
        for known in WellKnown::ALL {
            assert!(known.remedies().is_sorted_by(|first, next| first < next), "{known}");
        }
    }

    #[test]
    fn sentences_are_sentences() {
        for known in WellKnown::ALL {
            for text in [known.meaning(), known.advice()] {
                assert!(
                    text.ends_with('.') && text.starts_with(|c: char| c.is_uppercase()),
                    "{known}: {text}"
                );
            }
        }
    }
}
