//! The mount table, block devices and file system counters of this very machine.

use std::fs;
use std::path::{Path, PathBuf};

use rustix::mount::{MountFlags, UnmountFlags, mount, mount_bind, mount_remount, unmount};
use volmedic_host::DeviceNumber;
use volmedic_host::block::Sysfs;
use volmedic_host::mounts::Table;

use super::volume::{Loop, image};
use super::{Test, until};

pub(crate) const TESTS: &[Test] = &[
    ("names_with_odd_bytes_are_found_in_the_kernels_table", odd_names),
    ("a_path_as_long_as_the_kernel_lets_it_be_is_found", the_longest_path),
    ("the_topmost_of_real_stacked_mounts_is_found", stacked),
    ("a_mounted_ext4_shows_its_device_its_options_and_its_errors", ext4_shows_all),
];

/// A mount that is gone when dropped, with all that was mounted on top.
pub(crate) struct Mounted(pub(crate) PathBuf);

impl Mounted {
    pub(crate) fn tmpfs(target: PathBuf, source: &str) -> Self {
        mount(source, &target, "tmpfs", MountFlags::empty(), None).unwrap();
        Self(target)
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        unmount(&self.0, UnmountFlags::DETACH).unwrap();
    }
}

fn odd_names() {
    let folder = tempfile::tempdir().unwrap();
    for name in ["with space", "new\nline", "back\\slash", "tab\there", "hash#", "\\040", "ünï"] {
        let target = folder.path().join(name);
        fs::create_dir(&target).unwrap();
        let mounted = Mounted::tmpfs(target, "so ur\\ce");
        let table = Table::read().unwrap();
        assert_eq!(table.skipped(), 0);
        let found = table.at(&mounted.0).unwrap_or_else(|| panic!("{name:?} is not found"));
        assert_eq!((found.source(), found.fs_type()), ("so ur\\ce".as_ref(), "tmpfs".as_ref()));
        assert_eq!(table.under(folder.path()).count(), 1);
    }
}

fn the_longest_path() {
    let folder = tempfile::tempdir().unwrap();
    // Each of these bytes takes four in the kernel's table.
    let mut target = folder.path().to_path_buf();
    while let left = 4095 - target.as_os_str().len()
        && left > 1
    {
        target.push("\n".repeat((left - 1).min(250)));
    }
    assert_eq!(target.as_os_str().len(), 4095);
    fs::create_dir_all(&target).unwrap();
    let mounted = Mounted::tmpfs(target, "long");
    let table = Table::read().unwrap();
    assert_eq!(table.skipped(), 0);
    assert_eq!(table.at(&mounted.0).unwrap().target(), mounted.0);
}

fn stacked() {
    let folder = tempfile::tempdir().unwrap();
    let target = folder.path().join("m");
    fs::create_dir(&target).unwrap();
    let low = Mounted::tmpfs(target.clone(), "low");
    fs::create_dir(target.join("sub")).unwrap();
    let sub = Mounted::tmpfs(target.join("sub"), "sub");
    let source = |path: &Path| Table::read().unwrap().at(path).map(|mount| mount.source().to_owned());
    assert_eq!(source(&sub.0).unwrap(), "sub");
    let high = Mounted::tmpfs(target.clone(), "high");
    assert_eq!(source(&target).unwrap(), "high");
    assert_eq!(source(&sub.0), None, "hidden below the newer mount");
    assert_eq!(Table::read().unwrap().stacked(&target).count(), 2);
    drop(high);
    assert_eq!(source(&target).unwrap(), "low");
    drop(sub);
    drop(low);
    assert_eq!(source(&target), None);
}

fn ext4_shows_all() {
    let folder = tempfile::tempdir().unwrap();
    let image = image(folder.path(), "ext4");
    let device = Loop::attach(&image);
    let [staging, target] = ["staging", "target"].map(|name| folder.path().join(name));
    fs::create_dir(&staging).unwrap();
    fs::create_dir(&target).unwrap();
    mount(&device.0, &staging, "ext4", MountFlags::empty(), None).unwrap();
    let staged = Mounted(staging.clone());
    mount_bind(&staging, &target).unwrap();
    let bound = Mounted(target.clone());
    mount_remount(&target, MountFlags::BIND | MountFlags::RDONLY, "").unwrap();

    let table = Table::read().unwrap();
    let number = table.at(&staging).unwrap().device();
    assert_eq!(table.of_device(number).count(), 2);
    assert!(table.at(&target).unwrap().is_read_only() && !table.at(&staging).unwrap().is_read_only());

    let sysfs = Sysfs::default();
    let facts = sysfs.device(number).unwrap().unwrap();
    assert_eq!((facts.bytes, facts.read_only, facts.trouble()), (32 << 20, false, None));
    assert_eq!(format!("/dev/{}", facts.name), device.0);
    let backing = facts.backing.as_ref().unwrap();
    assert_eq!((backing.file.as_path(), backing.deleted), (image.as_path(), false));
    assert_eq!(sysfs.device_named(&facts.name).unwrap().unwrap(), facts);
    fs::remove_file(&image).unwrap();
    assert!(sysfs.device(number).unwrap().unwrap().backing.unwrap().deleted);

    assert_eq!(sysfs.ext4_errors(&facts.name).unwrap().unwrap().count, 0);
    fs::write(format!("/sys/fs/ext4/{}/trigger_fs_error", facts.name), "a test").unwrap();
    // The kernel counts a moment later.
    until("the error is counted", || sysfs.ext4_errors(&facts.name).unwrap().unwrap().count == 1);
    let errors = sysfs.ext4_errors(&facts.name).unwrap().unwrap();
    assert!(errors.last.unwrap().function.contains("trigger"), "the kernel says where");
    drop(bound);
    drop(staged);
    assert_eq!(Table::read().unwrap().of_device(number).count(), 0);
    assert_eq!(sysfs.device(DeviceNumber::new(7, 1_048_000)).unwrap(), None);
}
