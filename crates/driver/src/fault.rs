//! Real injuries to real volumes, each with how it is undone.
//!
//! They work on the state directory and the kernel, not through the driver, so a driver under test knows nothing of
//! them. What an injury needs to be undone is kept beside the volume and goes with it when the volume is deleted.
//! For tests and demonstrations: each of these does what its name says to the data in the volume.

use std::fmt;
use std::str::FromStr;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

pub(crate) mod hook;
mod mounts;
mod notes;
mod processes;
mod space;
mod storage;
mod victim;

use volmedic_panics::caught_now;

use crate::error::{Error, Result};
use crate::health::{CsiStatus, DriveState, DriveStatus, Health, OperationalStatus, Usage};
use crate::state_dir::StateDir;
use notes::Notes;
use victim::Victim;

/// The kinds of volume, as far as they can be hurt differently.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Ext4,
    Xfs,
    Btrfs,
    Block,
    Fuse,
}

impl Kind {
    pub const ALL: &'static [Self] = &[Self::Ext4, Self::Xfs, Self::Btrfs, Self::Block, Self::Fuse];

    pub fn name(self) -> &'static str {
        match self {
            Self::Ext4 => "ext4",
            Self::Xfs => "xfs",
            Self::Btrfs => "btrfs",
            Self::Block => "block",
            Self::Fuse => "fuse",
        }
    }
}

const IMAGES: &[Kind] = &[Kind::Ext4, Kind::Xfs, Kind::Btrfs, Kind::Block];
const DISKS: &[Kind] = &[Kind::Ext4, Kind::Xfs, Kind::Btrfs];
const MOUNTS: &[Kind] = &[Kind::Ext4, Kind::Xfs, Kind::Btrfs, Kind::Fuse];
const DRIVER: &[Kind] = &[];

/// Makes the enum and all that is known of each fault from one table, so that none is in one place only.
macro_rules! faults {
    ($($variant:ident, $name:literal, $kinds:expr, $what:literal, $undone:literal;)*) => {
        /// One way to hurt a volume, or the driver itself.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub enum Fault {
            $(#[doc = $what] $variant,)*
        }

        impl Fault {
            pub const ALL: &'static [Self] = &[$(Self::$variant,)*];

            pub fn name(self) -> &'static str {
                match self { $(Self::$variant => $name,)* }
            }

            /// What is done.
            pub fn what(self) -> &'static str {
                match self { $(Self::$variant => $what,)* }
            }

            /// What clearing it does.
            pub fn undone(self) -> &'static str {
                match self { $(Self::$variant => $undone,)* }
            }

            /// The kinds of volume it can be done to. None for what is done to the driver.
            pub fn kinds(self) -> &'static [Kind] {
                match self { $(Self::$variant => $kinds,)* }
            }
        }
    };
}

faults! {
    ImageDeleted, "image-deleted", IMAGES,
        "The image file is deleted while the loop device holds it.", "The name is restored.";
    ImageTruncated, "image-truncated", IMAGES,
        "The last 4 MiB of the image are cut off.", "The cut bytes are restored.";
    DeviceDetached, "device-detached", IMAGES,
        "The loop device is detached; under a mount the kernel defers that to the last unmount.",
        "The detaching is called off, or the image attached again.";
    DeviceLost, "device-lost", IMAGES,
        "The loop device shrinks to one block, so all I/O beyond it fails.",
        "The device gets its size back, and the file system is mounted again.";
    TargetUnmounted, "target-unmounted", Kind::ALL,
        "Every target path is unmounted.", "The targets are bound again.";
    StagingUnmounted, "staging-unmounted", MOUNTS,
        "The staging path is unmounted; targets stay.", "The staging path is bound from a target.";
    WrongMount, "wrong-mount", Kind::ALL,
        "Something from the root disk is bind-mounted over every target.", "It is unmounted again.";
    ReadOnly, "read-only", MOUNTS,
        "The file system is remounted read-only.", "It is remounted for writing.";
    KernelError, "kernel-error", &[Kind::Ext4],
        "An ext4 error is raised in the kernel.", "The volume is unmounted, repaired with e2fsck and mounted again.";
    Shutdown, "shutdown", &[Kind::Ext4, Kind::Xfs],
        "The kernel shuts the file system down.", "The volume is unmounted and mounted again.";
    SuperblockCorrupted, "superblock-corrupted", DISKS,
        "The superblock on the image is overwritten.", "The old bytes are restored.";
    MetadataCorrupted, "metadata-corrupted", DISKS,
        "Group headers (ext4, xfs) or tree blocks (btrfs) on the image are overwritten.",
        "The old bytes are restored, and the file system is mounted again.";
    Full, "full", MOUNTS,
        "A file takes all free space.", "The file is deleted.";
    NoInodes, "no-inodes", &[Kind::Ext4],
        "Empty files take all free inodes.", "The files are deleted.";
    MounterKilled, "mounter-killed", &[Kind::Fuse],
        "The mounter process is killed.",
        "Unless a heal brought it back, the dead mounts are removed; staging and publishing again brings the volume back.";
    MounterFrozen, "mounter-frozen", &[Kind::Fuse],
        "The mounter process is stopped (SIGSTOP).", "It is continued.";
    MounterEio, "mounter-eio", &[Kind::Fuse],
        "The mounter answers every request with an I/O error.", "It answers properly again.";
    DriveBad, "drive-bad", Kind::ALL,
        "Drive health is set to BAD.", "The previous state is restored.";
    DriveSuspect, "drive-suspect", Kind::ALL,
        "Drive health is set to SUSPECT.", "The previous state is restored.";
    DriveUnknown, "drive-unknown", Kind::ALL,
        "Drive health is set to UNKNOWN.", "The previous state is restored.";
    DriveMissing, "drive-missing", Kind::ALL,
        "The drive goes OFFLINE and the volume MISSING.", "The previous state is restored.";
    VolumeFailed, "volume-failed", Kind::ALL,
        "CSI status is set to FAILED.", "The previous state is restored.";
    ReleaseFailed, "release-failed", Kind::ALL,
        "Usage is set to FAILED.", "The previous state is restored.";
    DriverFrozen, "driver-frozen", DRIVER,
        "The driver process is stopped (SIGSTOP).", "It is continued.";
    DriverKilled, "driver-killed", DRIVER,
        "The driver process is killed.", "Nothing; its supervisor starts it again.";
    DriverSlow, "driver-slow", DRIVER,
        "Every call is answered 5 s late.", "Calls are answered immediately again.";
    DriverErrors, "driver-errors", DRIVER,
        "Every call fails with UNAVAILABLE.", "Calls are served again.";
    InconsistentPages, "inconsistent-pages", DRIVER,
        "Pages of the health list alternately omit an entry and repeat it.",
        "Pages are whole again.";
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Fault {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        let found = Self::ALL.iter().copied().find(|fault| fault.name() == name);
        found.ok_or_else(|| format!("there is no fault {name:?}; `volmedic fault list` lists all"))
    }
}

impl Fault {
    pub fn is_of_the_driver(self) -> bool {
        self.kinds().is_empty()
    }

    /// What the driver would have written had it found this out about the drive.
    fn drive_state(self, mut state: DriveState) -> Option<DriveState> {
        match self {
            Self::DriveBad => state.health = Health::Bad,
            Self::DriveSuspect => state.health = Health::Suspect,
            Self::DriveUnknown => state.health = Health::Unknown,
            Self::DriveMissing => {
                state.drive_status = DriveStatus::Offline;
                state.operational_status = OperationalStatus::Missing;
            }
            Self::VolumeFailed => state.csi_status = CsiStatus::Failed,
            Self::ReleaseFailed => state.usage = Usage::Failed,
            _ => return None,
        }
        Some(state)
    }
}

/// Longer than any repair that clearing a fault may need.
const DEADLINE: Duration = Duration::from_mins(3);

/// The faults of one driver and its volumes.
#[derive(Debug, Clone)]
pub struct Faults {
    state: StateDir,
    deadline: Duration,
}

impl Faults {
    pub fn at(state: StateDir) -> Self {
        Self { state, deadline: DEADLINE }
    }

    /// How long one injury, or its undoing, may take. A volume that hangs holds every process that accesses it.
    #[must_use]
    pub fn with_deadline(self, deadline: Duration) -> Self {
        Self { deadline, ..self }
    }

    /// What is injected now, into a volume or, with none, into the driver.
    pub fn active(&self, volume: Option<&str>) -> Result<Vec<Fault>> {
        Ok(self.notes(volume)?.active())
    }

    /// Hurts the volume, or the driver. What is there already is not done twice.
    pub fn inject(&self, fault: Fault, volume: Option<&str>) -> Result<()> {
        let notes = self.notes(volume)?;
        if notes.has(fault) {
            return Ok(());
        }
        let victim = self.victim(fault, volume)?;
        let note = notes.open(fault)?;
        let state = self.state.clone();
        self.in_time(format!("injecting {fault}"), move || {
            let done = match &victim {
                None => processes::hurt_driver(fault, &state),
                Some(victim) => hurt(fault, victim, &note),
            };
            // Half done is undone as far as it went.
            done.inspect_err(|_| {
                if let Some(victim) = &victim
                    && let Err(error) = heal(fault, victim, &note)
                {
                    tracing::debug!(%error, "what was begun could not be undone");
                }
                note.close();
            })
        })
    }

    /// Undoes it.
    pub fn clear(&self, fault: Fault, volume: Option<&str>) -> Result<()> {
        let notes = self.notes(volume)?;
        if !notes.has(fault) {
            let who = volume.unwrap_or("the driver");
            return Err(Error::invalid(
                "fault",
                format_args!("{fault} is not injected into {who}; nothing to clear"),
            ));
        }
        let note = notes.open(fault)?;
        let victim = self.victim(fault, volume)?;
        let state = self.state.clone();
        self.in_time(format!("clearing {fault}"), move || {
            match &victim {
                None => processes::heal_driver(fault, &state)?,
                Some(victim) => heal(fault, victim, &note)?,
            }
            note.close();
            Ok(())
        })
    }

    /// A thread that waits for a volume that hangs is left behind, with the note of the fault: it may yet come to pass.
    fn in_time(&self, what: String, work: impl FnOnce() -> Result<()> + Send + 'static) -> Result<()> {
        let (done, outcome) = mpsc::channel();
        let spawned = thread::Builder::new().name("fault".to_owned()).spawn(move || {
            // Nobody listens any more when it took too long.
            let _ = done.send(caught_now(work).unwrap_or_else(|panic| Err(Error::Bug(panic))));
        });
        spawned.map_err(Error::io("start a thread"))?;
        outcome.recv_timeout(self.deadline).unwrap_or_else(|error| match error {
            mpsc::RecvTimeoutError::Timeout => Err(Error::Hung { what, after: self.deadline }),
            mpsc::RecvTimeoutError::Disconnected => Err(Error::Bug(format!("{what} ended without a result"))),
        })
    }

    fn notes(&self, volume: Option<&str>) -> Result<Notes> {
        Ok(match volume {
            None => Notes::at(self.state.root().join(notes::FOLDER)),
            Some(id) => Notes::at(Victim::folder(&self.state, id)?.join(notes::FOLDER)),
        })
    }

    fn victim(&self, fault: Fault, volume: Option<&str>) -> Result<Option<Victim>> {
        match (fault.is_of_the_driver(), volume) {
            (true, None) => Ok(None),
            (true, Some(_)) => {
                Err(Error::invalid("volume", format_args!("{fault} is done to the driver, not to a volume")))
            }
            (false, None) => {
                Err(Error::invalid("volume", format_args!("{fault} is done to a volume; name one")))
            }
            (false, Some(id)) => {
                let victim = Victim::load(&self.state, id)?;
                if !fault.kinds().contains(&victim.kind) {
                    let why =
                        format_args!("{fault} cannot be done to a volume of kind {}", victim.kind.name())
                            .to_string();
                    return Err(Error::invalid("fault", why));
                }
                Ok(Some(victim))
            }
        }
    }
}

fn hurt(fault: Fault, victim: &Victim, note: &notes::Note) -> Result<()> {
    match fault {
        Fault::ImageDeleted => storage::delete_image(victim, note),
        Fault::ImageTruncated => storage::truncate_image(victim, note),
        Fault::DeviceDetached => storage::detach(victim),
        Fault::DeviceLost => storage::shrink(victim),
        Fault::SuperblockCorrupted => storage::overwrite_superblock(victim, note),
        Fault::MetadataCorrupted => storage::overwrite_metadata(victim, note),
        Fault::TargetUnmounted => mounts::unmount_targets(victim),
        Fault::StagingUnmounted => mounts::unmount_staging(victim),
        Fault::WrongMount => mounts::cover_targets(victim, note),
        Fault::ReadOnly => mounts::remount(victim, true),
        Fault::KernelError => mounts::raise_ext4_error(victim),
        Fault::Shutdown => mounts::shut_down(victim),
        Fault::Full => space::fill(victim),
        Fault::NoInodes => space::take_inodes(victim),
        Fault::MounterKilled | Fault::MounterFrozen | Fault::MounterEio => {
            processes::hurt_mounter(fault, victim)
        }
        Fault::DriveBad
        | Fault::DriveSuspect
        | Fault::DriveUnknown
        | Fault::DriveMissing
        | Fault::VolumeFailed
        | Fault::ReleaseFailed => storage::set_drive_state(fault, victim, note),
        Fault::DriverFrozen
        | Fault::DriverKilled
        | Fault::DriverSlow
        | Fault::DriverErrors
        | Fault::InconsistentPages => Err(Error::Bug(format!("{fault} is not done to volumes"))),
    }
}

fn heal(fault: Fault, victim: &Victim, note: &notes::Note) -> Result<()> {
    match fault {
        Fault::ImageDeleted => storage::restore_image(victim, note),
        Fault::ImageTruncated => storage::restore_tail(victim, note),
        Fault::DeviceDetached => storage::attach_again(victim),
        Fault::DeviceLost => storage::restore_size(victim),
        Fault::SuperblockCorrupted => storage::restore_bytes(victim, note),
        Fault::MetadataCorrupted => storage::restore_metadata(victim, note),
        Fault::TargetUnmounted => mounts::bind_targets(victim),
        Fault::StagingUnmounted => mounts::bind_staging(victim),
        Fault::WrongMount => mounts::uncover_targets(victim),
        Fault::ReadOnly => mounts::remount(victim, false),
        Fault::KernelError => mounts::repair_ext4(victim),
        Fault::Shutdown => mounts::mount_again(victim),
        Fault::Full => space::empty(victim),
        Fault::NoInodes => space::give_inodes_back(victim),
        Fault::MounterKilled | Fault::MounterFrozen | Fault::MounterEio => {
            processes::heal_mounter(fault, victim)
        }
        Fault::DriveBad
        | Fault::DriveSuspect
        | Fault::DriveUnknown
        | Fault::DriveMissing
        | Fault::VolumeFailed
        | Fault::ReleaseFailed => storage::restore_drive_state(victim, note),
        Fault::DriverFrozen
        | Fault::DriverKilled
        | Fault::DriverSlow
        | Fault::DriverErrors
        | Fault::InconsistentPages => Err(Error::Bug(format!("{fault} is not done to volumes"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_fault_is_found_by_its_name_and_says_what_it_does() {
        for &fault in Fault::ALL {
            assert_eq!(fault.name().parse(), Ok(fault));
            assert!(fault.what().ends_with('.') && fault.undone().ends_with('.'), "{fault}");
        }
        assert!("no-such".parse::<Fault>().unwrap_err().contains("volmedic fault list"));
    }

    #[test]
    fn who_is_to_be_hurt_must_fit_the_fault() {
        let state = tempfile::tempdir().unwrap();
        let faults = Faults::at(StateDir::new(state.path()));
        let error = |outcome: Result<()>| outcome.unwrap_err().to_string();
        assert!(error(faults.inject(Fault::Full, None)).contains("name one"));
        assert!(error(faults.inject(Fault::Full, Some("../../etc"))).contains("does not exist"));
        assert!(error(faults.clear(Fault::DriverSlow, None)).contains("nothing to clear"));
        assert_eq!(faults.active(None).unwrap(), []);
    }

    #[test]
    fn faults_of_the_driver_are_files_that_come_and_go() {
        let state = tempfile::tempdir().unwrap();
        let faults = Faults::at(StateDir::new(state.path()));
        faults.inject(Fault::DriverErrors, None).unwrap();
        faults.inject(Fault::DriverErrors, None).unwrap();
        assert_eq!(faults.active(None).unwrap(), [Fault::DriverErrors]);
        faults.clear(Fault::DriverErrors, None).unwrap();
        assert_eq!(faults.active(None).unwrap(), []);
    }
}
