//! Disks that this machine lacks: real mounts, with a sysfs that says what such a disk would say.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};
use volmedic_driver::fault::{Fault, Kind};
use volmedic_host::fuse::Connections;
use volmedic_host::helper::{Helpers, Limits};
use volmedic_host::mounts::Table;
use volmedic_probe::host::{Host, Settings};

use super::Test;
use super::eyes::{expected, look, messages, shown};
use super::stage::{Driver, PATIENCE, Volume};

pub(crate) const TESTS: &[Test] = &[
    ("states_of_scsi_and_nvme_disks_are_told", states),
    ("paths_of_a_multipath_disk_are_told", multipath),
    ("requests_that_nothing_answers_are_told_and_a_busy_disk_is_not", stalled),
    ("a_disk_that_is_gone_from_sysfs_is_told", gone),
    ("where_there_is_no_sysfs_no_disk_is_missing", no_sysfs),
    ("a_hang_is_told_with_the_requests_that_wait", waiting),
];

/// What takes long on a busy machine is not taken for a hang.
const PATIENT: Duration = Duration::from_secs(30);

struct Fake {
    folder: tempfile::TempDir,
    host: Host,
}

impl Fake {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        for name in ["dev/block", "class/block", "fs/ext4", "fs/fuse/connections"] {
            fs::create_dir_all(folder.path().join(name)).unwrap();
        }
        let host = Self::host(folder.path(), PATIENT);
        Self { folder, host }
    }

    fn host(sysfs: &Path, deadline: Duration) -> Host {
        let settings = Settings {
            sysfs: sysfs.into(),
            table_age: Duration::ZERO,
            stalled: Duration::from_millis(200),
            deadline,
            ..Settings::default()
        };
        Host::new(Arc::new(Helpers::new(Limits::default())), settings)
    }

    /// Says that the device of this volume is this disk, and where to say more about it.
    fn disk(&self, volume: &Volume<'_>, name: &str) -> PathBuf {
        let number = Table::read().unwrap().at(&volume.targets[0]).unwrap().device();
        let disk = self.named(name, &number.to_string());
        symlink(&disk, self.folder.path().join(format!("dev/block/{number}"))).unwrap();
        disk
    }

    fn named(&self, name: &str, number: &str) -> PathBuf {
        let disk = self.folder.path().join("devices").join(name);
        fs::create_dir_all(disk.join("device")).unwrap();
        fs::write(disk.join("size"), "262144\n").unwrap();
        fs::write(disk.join("dev"), format!("{number}\n")).unwrap();
        symlink(&disk, self.folder.path().join("class/block").join(name)).unwrap();
        disk
    }
}

fn say(disk: &Path, file: &str, word: &str) {
    fs::create_dir_all(disk.join(file).parent().unwrap()).unwrap();
    fs::write(disk.join(file), format!("{word}\n")).unwrap();
}

fn states() {
    let driver = Driver::start("both");
    let volume = Volume::new(&driver, Kind::Ext4);
    let fake = Fake::new();
    let disk = fake.disk(&volume, "sda");
    let wanted = expected(&volume, false);
    for (state, reported) in [
        ("running", "-"),
        ("offline", "Inaccessible/DiskFailure"),
        ("running", "-"),
        ("transport-offline", "Inaccessible/DiskFailure"),
        ("deleted", "Inaccessible/DiskRemoved"),
        ("blocked", "-"),
        ("live", "-"),
        ("dead", "Inaccessible/DiskFailure"),
    ] {
        say(&disk, "device/state", state);
        assert_eq!(shown(&look(&fake.host, &wanted).sight), reported, "{state}");
    }
}

fn multipath() {
    let driver = Driver::start("both");
    let volume = Volume::new(&driver, Kind::Ext4);
    let fake = Fake::new();
    let disk = fake.disk(&volume, "dm-0");
    say(&disk, "dm/name", "data");
    say(&disk, "dm/uuid", "mpath-3600a");
    let paths = [("sda", "8:0"), ("sdb", "8:16")].map(|(name, number)| {
        let path = fake.named(name, number);
        symlink(&path, fake.folder.path().join(format!("dev/block/{number}"))).unwrap();
        fs::create_dir_all(disk.join("slaves")).unwrap();
        symlink(&path, disk.join("slaves").join(name)).unwrap();
        path
    });
    let wanted = expected(&volume, false);
    for (states, reported) in [
        (["running", "running"], "-"),
        (["running", "offline"], "Degraded/DiskDegrading"),
        (["offline", "offline"], "Inaccessible/DiskFailure"),
        (["running", "running"], "-"),
    ] {
        for (path, state) in paths.iter().zip(states) {
            say(path, "device/state", state);
        }
        let seen = look(&fake.host, &wanted).sight;
        assert_eq!(shown(&seen), reported, "{}", messages(&seen));
    }
}

fn stalled() {
    let driver = Driver::start("both");
    let volume = Volume::new(&driver, Kind::Ext4);
    let fake = Fake::new();
    let disk = fake.disk(&volume, "sda");
    let wanted = expected(&volume, false);
    let requests = |completed: u64, in_flight: u64| {
        say(&disk, "stat", &format!("{completed} 0 0 0 0 0 0 0 {in_flight} 0 0"));
        // Longer than a stall must last.
        std::thread::sleep(Duration::from_millis(250));
        shown(&look(&fake.host, &wanted).sight)
    };
    assert_eq!(requests(1, 0), "-");
    assert_eq!([requests(5, 30), requests(9, 31), requests(10, 32)], ["-"; 3], "busy, but it works");
    assert_eq!(requests(10, 32), "Inaccessible/IOHung");
    assert_eq!(requests(11, 32), "-");
    // A pause by its own word, which lasts.
    say(&disk, "device/state", "blocked");
    assert_eq!(requests(11, 0), "-");
    assert_eq!(requests(11, 0), "Inaccessible/IOHung");
    say(&disk, "device/state", "running");
    assert_eq!(requests(11, 0), "-");
}

fn gone() {
    let driver = Driver::start("both");
    let volume = Volume::new(&driver, Kind::Ext4);
    let fake = Fake::new();
    let disk = fake.disk(&volume, "sda");
    let wanted = expected(&volume, false);
    assert_eq!(shown(&look(&fake.host, &wanted).sight), "-");
    say(&disk, "size", "1");
    assert_eq!(shown(&look(&fake.host, &wanted).sight), "Inaccessible/DiskRemoved");
    fs::remove_dir_all(&disk).unwrap();
    let seen = look(&fake.host, &wanted).sight;
    assert_eq!(shown(&seen), "Inaccessible/DiskRemoved");
    assert!(messages(&seen).contains("does not exist any more"), "{}", messages(&seen));
}

fn no_sysfs() {
    let driver = Driver::start("both");
    let empty = tempfile::tempdir().unwrap();
    let host = Fake::host(empty.path(), PATIENT);
    for kind in [Kind::Ext4, Kind::Btrfs, Kind::Block] {
        let volume = Volume::new(&driver, kind);
        let looked = look(&host, &expected(&volume, false));
        assert_eq!(shown(&looked.sight), "-", "{}", kind.name());
        assert!(looked.usage.is_some());
    }
}

/// A mount that goes with its test.
struct Mounted(PathBuf);

impl Drop for Mounted {
    fn drop(&mut self) {
        unmount(&self.0, UnmountFlags::DETACH).unwrap();
    }
}

fn waiting() {
    let driver = Driver::start("both");
    let volume = Volume::new(&driver, Kind::Fuse);
    let fake = Fake::new();
    let connections = fake.folder.path().join("fs/fuse/connections");
    mount("fusectl", &connections, "fusectl", MountFlags::empty(), None).unwrap();
    let mounted = Mounted(connections);
    let requests = Connections::open_at(&mounted.0).unwrap();
    let host = Fake::host(fake.folder.path(), Duration::from_secs(5));
    let wanted = expected(&volume, false);
    assert_eq!(shown(&look(&host, &wanted).sight), "-");
    driver.faults().inject(Fault::MounterFrozen, Some(&volume.id)).unwrap();
    // A user of the volume, who waits. What the helper itself asked for is gone with it.
    let mut user = Command::new("ls").arg(&volume.targets[0]).stdout(Stdio::null()).spawn().unwrap();
    let device = Table::read().unwrap().at(&volume.targets[0]).unwrap().device();
    let end = Instant::now() + PATIENCE;
    while requests.waiting(device).unwrap() == Some(0) {
        assert!(Instant::now() < end, "the user of the volume asks for nothing");
        std::thread::sleep(Duration::from_millis(10));
    }
    let seen = look(&host, &wanted).sight;
    assert_eq!(shown(&seen), "Inaccessible/IOHung");
    assert!(messages(&seen).contains("wait for its FUSE server"), "{}", messages(&seen));
    driver.faults().clear(Fault::MounterFrozen, Some(&volume.id)).unwrap();
    assert!(user.wait().unwrap().success());
}
