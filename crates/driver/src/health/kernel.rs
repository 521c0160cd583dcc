//! What the kernel has counted against the volume's file system.

use std::io;

use volmedic_health::{Condition, Status, WellKnown};
use volmedic_host::block::Sysfs;

use super::facts::{Backing, VolumeFacts};

/// These volumes are ours from the first format on, so any error ever counted on one is news about that one.
pub(super) fn check(facts: &VolumeFacts, sysfs: &Sysfs) -> io::Result<Vec<Condition>> {
    let Backing::Image { device: Some(device), fs_type: Some(fs_type), .. } = &facts.backing else {
        return Ok(Vec::new());
    };
    let name = device.name();
    let degraded =
        |reason: WellKnown, message: String| Condition::new(Status::Degraded, reason.into(), &message);
    let mut found = Vec::new();
    match *fs_type {
        "ext4" => {
            if let Some(errors) = sysfs.ext4_errors(&name)?.filter(|errors| errors.count > 0) {
                let last = errors.last.map_or(String::new(), |last| {
                    format!(", the last in {} at line {}", last.function, last.line)
                });
                let message = format!(
                    "the kernel counted {} ext4 errors on {name} since it was last checked{last}",
                    errors.count
                );
                found.push(degraded(WellKnown::FilesystemCorruption, message));
            }
        }
        "btrfs" => {
            if let Some(errors) = sysfs.btrfs_errors(&name)? {
                let damaged = errors.corruption.saturating_add(errors.generation);
                if damaged > 0 {
                    let message = format!("btrfs counted {damaged} blocks with wrong content on {name}");
                    found.push(degraded(WellKnown::FilesystemCorruption, message));
                }
                let failed = errors.total().saturating_sub(damaged);
                if failed > 0 {
                    found.push(degraded(
                        WellKnown::RWIOError,
                        format!("btrfs counted {failed} failed reads, writes or flushes on {name}"),
                    ));
                }
            }
        }
        _ => {}
    }
    Ok(found)
}
