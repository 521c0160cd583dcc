use std::os::unix::fs::symlink;

use super::*;

/// A sysfs in a folder: files with their text, links with where they lead.
fn sysfs(files: &[(&str, &str)], links: &[(&str, &str)]) -> (tempfile::TempDir, Sysfs) {
    let folder = tempfile::tempdir().unwrap();
    for (path, text) in files {
        let path = folder.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
    for (path, to) in links {
        let path = folder.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        symlink(folder.path().join(to), path).unwrap();
    }
    let sysfs = Sysfs::at(folder.path());
    (folder, sysfs)
}

#[test]
fn a_partition_has_its_own_size_and_its_disks_state() {
    let (_folder, sysfs) = sysfs(
        &[
            ("devices/h/sda/size", "1000\n"),
            ("devices/h/sda/device/state", "offline\n"),
            ("devices/h/sda/sda1/size", "100\n"),
            ("devices/h/sda/sda1/ro", "1\n"),
            ("devices/h/sda/sda1/dev", "8:1\n"),
            ("devices/h/sda/sda1/partition", "1\n"),
        ],
        &[("dev/block/8:1", "devices/h/sda/sda1"), ("class/block/sda1", "devices/h/sda/sda1")],
    );
    let device = sysfs.device(DeviceNumber::new(8, 1)).unwrap().unwrap();
    assert_eq!((device.name.as_str(), device.bytes, device.read_only), ("sda1", 51_200, true));
    assert_eq!(device.trouble(), Some("offline"));
    assert_eq!(sysfs.device_named("sda1").unwrap(), Some(device));
}

#[test]
fn multipath_counts_its_working_paths() {
    let (_folder, sysfs) = sysfs(
        &[
            ("devices/v/dm-0/size", "8\n"),
            ("devices/v/dm-0/slaves/sdb/x", ""),
            ("devices/v/dm-0/slaves/sdc/x", ""),
            ("class/block/sdb/device/state", "running\n"),
            ("class/block/sdc/device/state", "transport-offline\n"),
        ],
        &[("dev/block/253:0", "devices/v/dm-0")],
    );
    let device = sysfs.device(DeviceNumber::new(253, 0)).unwrap().unwrap();
    assert_eq!(device.paths.len(), 2);
    assert_eq!(device.working_paths(), Some(1));
    assert_eq!(device.trouble(), None, "the device itself has no state");
}

#[test]
fn an_nvme_subsystem_counts_its_controllers() {
    let (_folder, sysfs) = sysfs(
        &[
            ("devices/s/nvme-subsys0/nvme0n1/size", "8\n"),
            ("devices/s/nvme-subsys0/subsysnqn", "nqn\n"),
            ("devices/s/nvme-subsys0/nvme0/state", "live\n"),
            ("devices/s/nvme-subsys0/nvme1/state", "connecting\n"),
        ],
        &[
            ("dev/block/259:0", "devices/s/nvme-subsys0/nvme0n1"),
            ("devices/s/nvme-subsys0/nvme0n1/device", "devices/s/nvme-subsys0"),
        ],
    );
    let device = sysfs.device(DeviceNumber::new(259, 0)).unwrap().unwrap();
    assert_eq!((device.paths.len(), device.working_paths()), (2, Some(1)));
}

#[test]
fn the_file_under_a_loop_device_may_be_deleted() {
    for (text, file, deleted) in [
        ("/srv/a.img\n", "/srv/a.img", false),
        ("/no/such/a.img (deleted)\n", "/no/such/a.img", true),
        ("/srv/two\nlines\n", "/srv/two\nlines", false),
    ] {
        let (_folder, sysfs) = sysfs(
            &[("devices/v/loop3/size", "8\n"), ("devices/v/loop3/loop/backing_file", text)],
            &[("dev/block/7:3", "devices/v/loop3")],
        );
        let backing = sysfs.device(DeviceNumber::new(7, 3)).unwrap().unwrap().backing.unwrap();
        assert_eq!((backing.file.as_path(), backing.deleted), (Path::new(file), deleted));
    }
}

#[test]
fn a_device_that_is_not_there_is_none_and_a_name_cannot_leave_sysfs() {
    let (_folder, sysfs) = sysfs(&[("dev/block/x", "")], &[]);
    assert_eq!(sysfs.device(DeviceNumber::new(1, 1)).unwrap(), None);
    for name in ["", ".", "..", "../../etc", "loop77"] {
        assert_eq!(sysfs.device_named(name).unwrap(), None, "{name:?}");
    }
}
