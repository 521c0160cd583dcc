//! Is the volume mounted where it should be, from the right device, and writable if it should be?

use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use volmedic_health::{Condition, Status, WellKnown};
use volmedic_host::mounts::{Mount, Table};

use super::Finding;
use super::facts::{Backing, Place, VolumeFacts};

/// What the mount table says of one volume.
#[derive(Debug)]
pub(super) struct Mounted {
    pub(super) findings: Vec<Finding>,
    /// A place where the volume really is, and through which it may be asked. Targets before staging.
    pub(super) reachable: Option<Place>,
}

/// Checks staging first, then at each target.
pub(super) fn check(facts: &VolumeFacts, table: &Table) -> Mounted {
    let mut findings = Vec::new();
    let mut good = Vec::new();
    let staging = facts.staging.iter().map(|place| (place, "staging path"));
    let targets = facts.targets.iter().map(|place| (place, "target path"));
    for (place, role) in staging.chain(targets) {
        match at(facts, place, role, table) {
            Ok(troubles) => {
                good.push(place);
                findings.extend(troubles.into_iter().map(|condition| Finding::at(place, condition)));
            }
            Err(condition) => findings.push(Finding::at(place, condition)),
        }
    }
    Mounted { findings, reachable: good.last().copied().cloned() }
}

/// `Err` when the volume is not there at all; else what else is wrong.
fn at(facts: &VolumeFacts, place: &Place, role: &str, table: &Table) -> Result<Vec<Condition>, Condition> {
    let path = place.path.display();
    let inaccessible =
        |reason: WellKnown, message: String| Condition::new(Status::Inaccessible, reason.into(), &message);
    let Some(mount) = table.at(&place.path) else {
        return Err(inaccessible(WellKnown::VolumeUnmounted, format!("the {role} {path} is not mounted")));
    };
    if let Err(expected) = is_right(facts, place, mount) {
        let source = mount.source().to_string_lossy();
        let message = format!("the {role} {path} shows {source} ({}) instead of {expected}", mount.device());
        return Err(inaccessible(WellKnown::WrongMount, message));
    }
    let mut found = Vec::new();
    if place.block {
        return Ok(found);
    }
    if mount.is_shut_down() {
        found.push(inaccessible(
            WellKnown::FilesystemShutdown,
            format!("the kernel shut down the file system at {path}"),
        ));
    }
    if !place.read_only && mount.is_read_only() {
        let options = if mount.options().has("ro") { mount.options() } else { mount.super_options() };
        let options = options.as_os_str().to_string_lossy();
        let message = format!("the {role} {path} was mounted for writing but is read-only ({options})");
        found.push(inaccessible(WellKnown::ReadOnlyFilesystem, message));
    }
    Ok(found)
}

/// Whether this mount is of the volume; if not, of what it should be.
fn is_right(facts: &VolumeFacts, place: &Place, mount: Mount<'_>) -> Result<(), String> {
    match &facts.backing {
        Backing::Folder { source, .. } => {
            let fs_type = mount.fs_type().as_bytes();
            let is_fuse = fs_type == b"fuse" || fs_type.starts_with(b"fuse.");
            let is_ours = source.as_ref().is_none_or(|source| mount.source() == source.as_str());
            if is_fuse && is_ours { Ok(()) } else { Err("the volume's FUSE mount".to_owned()) }
        }
        // Nothing is known about what should be there.
        Backing::Image { device: None, .. } => Ok(()),
        Backing::Image { device: Some(device), .. } => {
            let node = PathBuf::from(format!("/dev/{}", device.name()));
            let expected = || Err(format!("{} ({})", node.display(), device.device()));
            if place.block {
                // A node bound onto a file: the mount is of /dev, its root is the node.
                let root = mount.root().file_name();
                return if root == node.file_name() { Ok(()) } else { expected() };
            }
            // btrfs has a number of its own and only names its device.
            let by_name = mount.device().is_anonymous() && Path::new(mount.source()) == node;
            if mount.device() == device.device() || by_name { Ok(()) } else { expected() }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::health::DriveState;
    use crate::health::facts::LoopFacts;

    const ROOT: &str = "1 0 254:0 / / rw - ext4 /dev/vda rw\n";

    fn facts(fs_type: &'static str, read_only: bool) -> VolumeFacts {
        let place = |path: &str| Place { path: path.into(), read_only, block: false };
        VolumeFacts {
            id: "v".into(),
            drive: DriveState::default(),
            bytes: 1,
            backing: Backing::Image {
                file: "/i".into(),
                device: Some(LoopFacts { number: 3 }),
                fs_type: Some(fs_type),
            },
            staging: Some(place("/s")),
            targets: vec![place("/t")],
        }
    }

    fn check_facts(facts: &VolumeFacts, mounts: &str, expected: &[&str]) {
        let table = Table::parse(format!("{ROOT}{mounts}").into_bytes());
        let found = check(facts, &table);
        let shown: Vec<String> = found
            .findings
            .iter()
            .map(|found| format!("{} {}", found.place.as_ref().unwrap().display(), found.condition))
            .collect();
        assert_eq!(shown, expected, "{mounts}");
    }

    #[test]
    fn both_places_are_checked_each_for_itself() {
        let good = "2 1 7:3 / /s rw - ext4 /dev/loop3 rw\n3 1 7:3 / /t rw - ext4 /dev/loop3 rw\n";
        check_facts(&facts("ext4", false), good, &[]);
        check_facts(
            &facts("ext4", false),
            "",
            &["/s Inaccessible/VolumeUnmounted", "/t Inaccessible/VolumeUnmounted"],
        );
        check_facts(
            &facts("ext4", false),
            &good[good.find('\n').unwrap() + 1..],
            &["/s Inaccessible/VolumeUnmounted"],
        );
        let over = format!("{good}4 3 254:0 /etc /t rw - ext4 /dev/vda rw\n");
        check_facts(&facts("ext4", false), &over, &["/t Inaccessible/WrongMount"]);
    }

    #[test]
    fn btrfs_is_known_by_the_name_of_its_device() {
        let mounts = "2 1 0:50 / /s rw - btrfs /dev/loop3 rw\n3 1 0:50 / /t rw - btrfs /dev/loop4 rw\n";
        check_facts(&facts("btrfs", false), mounts, &["/t Inaccessible/WrongMount"]);
    }

    #[test]
    fn read_only_counts_unless_it_was_asked_for() {
        let emergency = "2 1 7:3 / /s rw - ext4 /dev/loop3 rw,emergency_ro\n3 1 7:3 / /t ro - ext4 /dev/loop3 rw,shutdown\n";
        check_facts(
            &facts("ext4", false),
            emergency,
            &[
                "/s Inaccessible/ReadOnlyFilesystem",
                "/t Inaccessible/FilesystemShutdown",
                "/t Inaccessible/ReadOnlyFilesystem",
            ],
        );
        check_facts(&facts("ext4", true), emergency, &["/t Inaccessible/FilesystemShutdown"]);
    }

    #[test]
    fn a_block_target_is_a_bound_device_node() {
        let mut block = facts("ext4", false);
        block.staging = None;
        block.targets[0].block = true;
        check_facts(&block, "2 1 0:5 /loop3 /t rw - devtmpfs devtmpfs rw\n", &[]);
        check_facts(&block, "2 1 0:5 /loop4 /t rw - devtmpfs devtmpfs rw\n", &["/t Inaccessible/WrongMount"]);
    }

    #[test]
    fn a_fuse_volume_must_be_a_fuse_mount() {
        let mut fuse = facts("ext4", false);
        fuse.backing = Backing::Folder { folder: "/f".into(), source: Some("x".into()), mounter_dead: false };
        fuse.staging = None;
        check_facts(&fuse, "2 1 0:51 / /t rw - fuse.volmedic x rw\n", &[]);
        for wrong in ["fusectl x", "fuse.volmedic y"] {
            check_facts(&fuse, &format!("2 1 0:51 / /t rw - {wrong} rw\n"), &["/t Inaccessible/WrongMount"]);
        }
    }

    #[test]
    fn the_volume_is_asked_through_a_place_where_it_is() {
        let reachable = |mounts: &str| {
            let table = Table::parse(format!("{ROOT}{mounts}").into_bytes());
            check(&facts("ext4", false), &table).reachable.map(|place| place.path)
        };
        let (staged, bound) =
            ("2 1 7:3 / /s rw - ext4 /dev/loop3 rw\n", "3 1 7:3 / /t rw - ext4 /dev/loop3 rw\n");
        assert_eq!(reachable(&format!("{staged}{bound}")), Some("/t".into()));
        assert_eq!(reachable(staged), Some("/s".into()));
        assert_eq!(reachable(""), None);
    }
}
