//! Is that which the volume is made of still there?

use std::fs;
use std::io;
use std::path::Path;

use volmedic_health::{Condition, Reason, Status, WellKnown};
use volmedic_host::block::{Device, Sysfs};

use super::facts::{Backing, LoopFacts, VolumeFacts};

/// Checks the backing. The state directory is the driver's own disk, not a volume, so this needs no helper.
pub(super) fn check(facts: &VolumeFacts, sysfs: &Sysfs) -> Vec<Condition> {
    match &facts.backing {
        Backing::Image { file, device, .. } => {
            let attached = device.map(|device| (device, sysfs.device(device.device())));
            let mut found = Vec::new();
            let held = matches!(&attached, Some((_, Ok(Some(device)))) if is_behind(device, file));
            found.extend(image(file, facts.bytes, held));
            if let Some((device, seen)) = &attached {
                found.extend(loop_device(*device, seen.as_ref(), file, facts.bytes));
            }
            found
        }
        Backing::Folder { folder, mounter_dead, .. } => {
            let gone = fs::symlink_metadata(folder).err().map(|error| gone(folder, &error, false));
            gone.into_iter().chain(mounter_dead.then(dead_mounter)).collect()
        }
    }
}

fn dead_mounter() -> Condition {
    let message = "the process that serves the volume is gone; processes that use it wait or get errors until it is healed";
    Condition::new(Status::Inaccessible, WellKnown::MounterDead.into(), message)
}

fn image(file: &Path, bytes: u64, held: bool) -> Option<Condition> {
    match fs::symlink_metadata(file) {
        Err(error) => Some(gone(file, &error, held)),
        Ok(seen) if !seen.is_file() => Some(Condition::new(
            Status::Inaccessible,
            WellKnown::ConfigError.into(),
            &format!("{} should be the volume's image but is not a regular file", file.display()),
        )),
        // What was beyond the end is lost; a longer image is only odd.
        Ok(seen) if seen.len() < bytes => Some(Condition::new(
            Status::DataLoss,
            Reason::new("BackingTruncated"),
            &format!(
                "the image {} has {} of {bytes} bytes; what was beyond is lost",
                file.display(),
                seen.len()
            ),
        )),
        Ok(_) => None,
    }
}

fn gone(path: &Path, error: &io::Error, held: bool) -> Condition {
    let path = path.display();
    match (error.kind(), held) {
        (io::ErrorKind::NotFound, true) => Condition::new(
            Status::Degraded,
            WellKnown::VolumeNotFound.into(),
            &format!(
                "{path} was deleted; the loop device still holds the data, which is lost when it is detached: copy it now"
            ),
        ),
        (io::ErrorKind::NotFound, false) => Condition::new(
            Status::Inaccessible,
            WellKnown::VolumeNotFound.into(),
            &format!("{path}, which held the volume's data, is gone"),
        ),
        _ => Condition::new(
            Status::Inaccessible,
            WellKnown::DiskFailure.into(),
            &format!("searching for {path} failed: {error}"),
        ),
    }
}

fn loop_device(
    device: LoopFacts,
    seen: Result<&Option<Device>, &io::Error>,
    file: &Path,
    bytes: u64,
) -> Option<Condition> {
    let name = device.name();
    let removed = |what: &str| {
        Some(Condition::new(
            Status::Inaccessible,
            WellKnown::DiskRemoved.into(),
            &format!("the loop device {name} {what}"),
        ))
    };
    match seen {
        Ok(None) => removed("does not exist any more"),
        Ok(Some(seen)) if seen.backing.is_none() => removed("is detached from its image"),
        Ok(Some(seen)) if !is_behind(seen, file) => removed("is attached to another file now"),
        Ok(Some(seen)) if seen.bytes < bytes => removed(&format!("has only {} of {bytes} bytes", seen.bytes)),
        Ok(Some(seen)) if seen.detaches_when_unused => Some(Condition::new(
            Status::Degraded,
            WellKnown::DiskRemoved.into(),
            &format!(
                "the loop device {name} is marked for detaching and detaches when its last user closes it"
            ),
        )),
        // Sysfs not answering is our trouble, not the volume's.
        Ok(Some(_)) | Err(_) => None,
    }
}

/// The kernel names the file by its full path, whatever links we came through.
fn is_behind(device: &Device, file: &Path) -> bool {
    let Some(backing) = &device.backing else { return false };
    if backing.file == file {
        return true;
    }
    let real_folder = file.parent().and_then(|folder| fs::canonicalize(folder).ok());
    real_folder.zip(file.file_name()).is_some_and(|(folder, name)| backing.file == folder.join(name))
}
