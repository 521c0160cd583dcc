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
    assert_eq!((device.disk.as_str(), device.attachments.len()), ("sda", 0));
    assert_eq!(sysfs.device_named("sda1").unwrap(), Some(device));
}

#[test]
fn a_disk_says_what_it_hangs_on() {
    for (target, expected) in [
        ("pci0/ata3/host2/target2:0:0/2:0:0:0", "ata3 host2 2:0:0:0"),
        ("platform/host4/session1/target4:0:0/4:0:0:7", "host4 session1 4:0:0:7"),
        ("pci0/nvme/nvme3", "nvme3"),
        ("nvme-subsys0", ""),
        ("pci0000:00/virtio1", ""),
    ] {
        let (_folder, sysfs) = sysfs(
            &[("devices/sda/size", "8\n"), (&format!("devices/{target}/state"), "running\n")],
            &[("dev/block/8:0", "devices/sda"), ("devices/sda/device", &format!("devices/{target}"))],
        );
        let device = sysfs.device(DeviceNumber::new(8, 0)).unwrap().unwrap();
        assert_eq!(device.attachments.join(" "), expected);
        assert_eq!(device.names().count(), 2 + device.attachments.len());
        assert_eq!(device.state.as_deref(), Some("running"));
    }
}

#[test]
fn a_stack_is_walked_to_its_disks_and_circles_end() {
    let (_folder, sysfs) = sysfs(
        &[
            ("devices/dm-1/dev", "253:1\n"),
            ("devices/dm-1/dm/name", "data\n"),
            ("devices/dm-1/dm/uuid", "LVM-abc\n"),
            ("devices/dm-1/slaves/dm-0/x", ""),
            ("devices/dm-0/dev", "253:0\n"),
            ("devices/dm-0/dm/name", "mpatha\n"),
            ("devices/dm-0/dm/uuid", "mpath-36001\n"),
            ("devices/dm-0/dm/suspended", "1\n"),
            ("devices/dm-0/slaves/sdb/x", ""),
            ("devices/dm-0/slaves/sdc/x", ""),
            ("devices/dm-0/slaves/dm-1/x", ""),
            ("devices/sdb/dev", "8:16\n"),
            ("devices/sdb/device/state", "offline\n"),
        ],
        &[
            ("dev/block/253:1", "devices/dm-1"),
            ("dev/block/253:0", "devices/dm-0"),
            ("dev/block/8:16", "devices/sdb"),
            ("class/block/dm-1", "devices/dm-1"),
            ("class/block/dm-0", "devices/dm-0"),
            ("class/block/sdb", "devices/sdb"),
        ],
    );
    let stack = sysfs.stack(DeviceNumber::new(253, 1)).unwrap();
    let names: Vec<_> = stack.iter().map(|device| device.name.as_str()).collect();
    assert_eq!(names, ["dm-1", "dm-0", "sdb"], "sdc is gone");
    assert_eq!(stack.iter().map(Device::is_multipath).collect::<Vec<_>>(), [false, true, false]);
    let multipath = stack[1].mapper.as_ref().unwrap();
    assert_eq!((multipath.name.as_str(), multipath.suspended), ("mpatha", true));
    assert_eq!((stack[1].paths.len(), stack[1].working_paths()), (3, Some(0)));
    assert_eq!(stack[2].trouble(), Some("offline"));
    assert_eq!(sysfs.stack(DeviceNumber::new(9, 9)).unwrap(), []);
}

#[test]
fn requests_are_counted_wherever_the_kernel_counts_them() {
    let number = DeviceNumber::new(8, 0);
    for (stat, inflight, expected) in [
        (Some("5 0 0 0 6 0 0 0 2 0 0\n"), Some("       1        3\n"), Some((4, 11))),
        (Some("5 0 0 0 6 0 0 0 2 0 0\n"), None, Some((2, 11))),
        (Some("garbage\n"), Some("1 1\n"), None),
        (None, Some("1 1\n"), None),
    ] {
        let files = [("devices/sda/stat", stat), ("devices/sda/inflight", inflight)];
        let files: Vec<_> = files.into_iter().filter_map(|(path, text)| Some((path, text?))).collect();
        let (_folder, sysfs) = sysfs(&files, &[("dev/block/8:0", "devices/sda")]);
        let counts = sysfs.io_counts(number).unwrap().map(|counts| (counts.in_flight, counts.completed));
        assert_eq!(counts, expected, "{stat:?} {inflight:?}");
    }
}

#[test]
fn a_file_that_is_not_sysfs_is_cut() {
    let long = "9".repeat(1 << 20);
    let (_folder, sysfs) = sysfs(
        &[("devices/sda/size", &long), ("devices/sda/device/state", &long)],
        &[("dev/block/8:0", "devices/sda")],
    );
    let device = sysfs.device(DeviceNumber::new(8, 0)).unwrap().unwrap();
    assert_eq!((device.bytes, device.state.unwrap().len()), (0, 64 << 10));
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
            &[
                ("devices/v/loop3/size", "8\n"),
                ("devices/v/loop3/loop/backing_file", text),
                ("devices/v/loop3/loop/offset", "4096\n"),
            ],
            &[("dev/block/7:3", "devices/v/loop3")],
        );
        let backing = sysfs.device(DeviceNumber::new(7, 3)).unwrap().unwrap().backing.unwrap();
        assert_eq!((backing.file.as_path(), backing.deleted), (Path::new(file), deleted));
        assert_eq!(backing.offset, 4096);
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
