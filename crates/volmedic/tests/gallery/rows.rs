//! The rows: which fault on which kind of volume, and what is to be reported about it from where.

use std::path::PathBuf;

use volmedic_driver::fault::{Fault, Kind};

/// From where the agent looks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Eyes {
    /// Without the driver's socket.
    Host,
    /// Through the driver, with the health calls.
    Health,
    /// Through the driver, with the volume's condition.
    Older,
}

impl Eyes {
    /// As events have it.
    pub(crate) fn vantage(self) -> &'static str {
        match self {
            Self::Host => "host",
            Self::Health | Self::Older => "node",
        }
    }

    pub(crate) fn dialect(self) -> &'static str {
        match self {
            Self::Host => "both",
            Self::Health => "health",
            Self::Older => "legacy",
        }
    }
}

/// One fault on one kind of volume.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Row {
    pub(crate) fault: Fault,
    pub(crate) kind: Kind,
}

impl Row {
    pub(crate) fn all() -> impl Iterator<Item = Self> {
        let of = |fault: &'static Fault| fault.kinds().iter().map(|&kind| Self { fault: *fault, kind });
        Fault::ALL.iter().flat_map(of)
    }

    pub(crate) fn name(self) -> String {
        format!("{}-{}", self.fault, self.kind.name())
    }

    /// Nothing happens to the volume: the driver was given a state of the drive behind it.
    pub(crate) fn only_the_driver_knows(self) -> bool {
        matches!(
            self.fault,
            Fault::DriveBad
                | Fault::DriveSuspect
                | Fault::DriveUnknown
                | Fault::DriveMissing
                | Fault::VolumeFailed
                | Fault::ReleaseFailed
        )
    }

    /// The kernel has all of it in memory and reads it again only much later.
    pub(crate) fn only_a_check_finds_it(self) -> bool {
        matches!(self.fault, Fault::SuperblockCorrupted | Fault::MetadataCorrupted)
    }

    /// Clearing the fault takes the volume away and mounts it again.
    pub(crate) fn is_mounted_again(self) -> bool {
        use Fault as F;
        matches!(
            self.fault,
            F::DeviceLost | F::KernelError | F::Shutdown | F::MetadataCorrupted | F::MounterKilled
        )
    }

    /// What is reported about it, as status and reason.
    pub(crate) fn expected(self, eyes: Eyes) -> Option<String> {
        match eyes {
            Eyes::Host => self.by_the_host().map(str::to_owned),
            Eyes::Health => {
                let answer = self.answer(NODE_GET_VOLUME_HEALTH);
                Some(answer.split(", ").next().unwrap_or_default().to_owned())
            }
            Eyes::Older => Some("Degraded/VolumeConditionAbnormal".to_owned()),
        }
    }

    fn by_the_host(self) -> Option<&'static str> {
        use Fault as F;
        Some(match (self.fault, self.kind) {
            (F::DeviceDetached, Kind::Block) | (F::DeviceLost, _) => "Inaccessible/DiskRemoved",
            (F::ImageDeleted | F::DeviceDetached, _) => "Degraded/DiskRemoved",
            (F::ImageTruncated, _) => "DataLoss/DiskFailure",
            (F::TargetUnmounted, _) => "Inaccessible/VolumeUnmounted",
            (F::StagingUnmounted, _) => "Degraded/VolumeUnmounted",
            (F::WrongMount, _) => "Inaccessible/WrongMount",
            (F::ReadOnly, _) => "Inaccessible/ReadOnlyFilesystem",
            (F::KernelError, _) => "Degraded/FilesystemCorruption",
            (F::Shutdown, Kind::Ext4) => "Inaccessible/FilesystemShutdown",
            (F::Shutdown | F::MounterEio, _) => "Inaccessible/RWIOError",
            (F::Full, _) => "Degraded/OutOfCapacity",
            (F::NoInodes, _) => "Degraded/OutOfInodes",
            (F::MounterKilled, _) => "Inaccessible/MounterDead",
            (F::MounterFrozen, _) => "Inaccessible/IOHung",
            _ => return None,
        })
    }

    /// What the driver answers to a call, by the page of its faults, which has a test of its own.
    pub(crate) fn answer(self, column: usize) -> String {
        let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../docs/faults.md");
        let page = std::fs::read_to_string(path).unwrap();
        let row = format!("| `{}` | {} |", self.fault, self.kind.name());
        let row = page.lines().find(|line| line.starts_with(&row));
        let row = row.unwrap_or_else(|| panic!("docs/faults.md has no row for {}", self.name()));
        row.split('|').nth(column).unwrap().trim().to_owned()
    }
}

/// Columns of the page of faults.
pub(crate) const NODE_GET_VOLUME_HEALTH: usize = 5;
pub(crate) const LIST_VOLUMES: usize = 7;
