//! What a check finds: nothing in a healthy volume, and each injury by its name.

use std::fs;
use std::sync::Barrier;
use std::time::{Duration, Instant};

use rustix::mount::{MountFlags, UnmountFlags, mount, mount_bind, mount_remount, unmount};
use volmedic_driver::health::{Backing, Depth, Measured, Place};
use volmedic_host::mounts::Table;

use super::volume::{Volume, checks, look, run};
use super::{ALL, Test};

pub(crate) const TESTS: &[Test] = &[
    ("a_healthy_volume_has_a_usage_and_no_findings", ALL, healthy),
    ("unmounted_places_are_told_apart", ALL, unmounted),
    ("a_foreign_mount_over_the_target_is_told", ALL, covered),
    ("read_only_is_told_unless_intended", ALL, read_only),
    ("a_lost_image_is_told", ALL, lost_image),
    ("an_error_raised_in_the_kernel_is_told", &["ext4"], kernel_error),
    ("a_shut_down_file_system_is_told", &["ext4", "xfs"], shut_down),
    ("a_full_volume_is_told_until_well_below", &["ext4"], full),
    ("a_raw_block_target_is_measured_and_read", &["ext4"], raw_block),
    ("callers_share_one_look", &["ext4"], shared),
];

fn healthy(fs_type: &'static str) {
    let volume = Volume::new(fs_type);
    let checks = checks();
    let report = volume.look(&checks);
    assert_eq!((report.findings, report.blind), (vec![], None));
    let Some(Measured::FileSystem(usage)) = report.measured else { panic!("{:?}", report.measured) };
    assert!(usage.bytes.total > 0 && usage.bytes.total <= volume.bytes);
    let shallow = look(&checks, &volume.facts(), Depth::Shallow);
    assert_eq!((shallow.findings, shallow.measured), (vec![], None));
}

fn unmounted(fs_type: &'static str) {
    let volume = Volume::new(fs_type);
    let checks = checks();
    unmount(volume.target(), UnmountFlags::empty()).unwrap();
    assert_eq!(volume.found(&checks), ["Inaccessible/VolumeUnmounted"]);
    assert!(volume.messages(&checks).contains("the target path"), "{}", volume.messages(&checks));
    unmount(volume.staging(), UnmountFlags::empty()).unwrap();
    assert_eq!(volume.found(&checks), ["Inaccessible/VolumeUnmounted", "Inaccessible/VolumeUnmounted"]);
    mount(volume.device(), volume.staging(), fs_type, MountFlags::empty(), None).unwrap();
    mount_bind(volume.staging(), volume.target()).unwrap();
    assert!(volume.found(&checks).is_empty(), "mounted again, healthy again");
}

fn covered(fs_type: &'static str) {
    let volume = Volume::new(fs_type);
    let checks = checks();
    let foreign = volume.path("foreign");
    fs::create_dir(&foreign).unwrap();
    mount_bind(&foreign, volume.target()).unwrap();
    assert_eq!(volume.found(&checks), ["Inaccessible/WrongMount"]);
    let report = volume.look(&checks);
    assert!(report.measured.is_some(), "the volume is asked through its staging path instead");
    assert!(report.conditions_at(&[&volume.staging()]).is_empty(), "which is as it should be");
    unmount(volume.target(), UnmountFlags::empty()).unwrap();
    assert!(volume.found(&checks).is_empty());
}

fn read_only(fs_type: &'static str) {
    let volume = Volume::new(fs_type);
    let checks = checks();
    mount_remount(volume.staging(), MountFlags::RDONLY, "").unwrap();
    let found = volume.found(&checks);
    assert!(
        !found.is_empty() && found.iter().all(|found| found == "Inaccessible/ReadOnlyFilesystem"),
        "{found:?}"
    );
    let mut intended = volume.facts();
    intended.staging.as_mut().unwrap().read_only = true;
    intended.targets[0].read_only = true;
    assert_eq!(look(&checks, &intended, Depth::Deep).findings, []);
}

fn lost_image(fs_type: &'static str) {
    let volume = Volume::new(fs_type);
    let checks = checks();
    let image = fs::OpenOptions::new().write(true).open(volume.image()).unwrap();
    // What is cut off here was never written, so that the kernel has no reason to complain.
    image.set_len(volume.bytes - 4096).unwrap();
    assert_eq!(volume.found(&checks)[0], "DataLoss/BackingTruncated");
    image.set_len(volume.bytes).unwrap();
    let aside = volume.path("aside");
    fs::hard_link(volume.image(), &aside).unwrap();
    fs::remove_file(volume.image()).unwrap();
    assert_eq!(volume.found(&checks), ["Degraded/VolumeNotFound"], "deleted, but the loop device holds it");
    fs::rename(&aside, volume.image()).unwrap();
    run("losetup", &["--detach", &volume.device().display().to_string()]);
    assert_eq!(volume.found(&checks)[0], "Degraded/DiskRemoved", "in use, so only told to detach");
    for place in [volume.target(), volume.staging()] {
        unmount(place, UnmountFlags::empty()).unwrap();
    }
    assert_eq!(volume.found(&checks)[0], "Inaccessible/DiskRemoved");
    fs::remove_file(volume.image()).unwrap();
    assert_eq!(volume.found(&checks)[0], "Inaccessible/VolumeNotFound");
}

fn kernel_error(fs_type: &'static str) {
    let volume = Volume::new(fs_type);
    let checks = checks();
    fs::write(format!("/sys/fs/ext4/loop{}/trigger_fs_error", volume.number), "a test").unwrap();
    // The kernel counts it a moment later.
    let deadline = Instant::now() + Duration::from_mins(1);
    let mut found = volume.found(&checks);
    while !found.contains(&"Degraded/FilesystemCorruption".to_owned()) {
        assert!(Instant::now() < deadline, "{found:?}");
        std::thread::sleep(Duration::from_millis(20));
        found = volume.found(&checks);
    }
    assert!(volume.messages(&checks).contains("counted 1 ext4 errors"), "{}", volume.messages(&checks));
}

fn shut_down(fs_type: &'static str) {
    let volume = Volume::new(fs_type);
    let checks = checks();
    run("xfs_io", &["-x", "-c", "shutdown", &volume.staging().display().to_string()]);
    let found = volume.found(&checks);
    let expected =
        if fs_type == "ext4" { "Inaccessible/FilesystemShutdown" } else { "Inaccessible/RWIOError" };
    assert!(
        found.contains(&expected.to_owned()),
        "{found:?}\n{}",
        fs::read_to_string("/proc/self/mountinfo").unwrap()
    );
}

fn full(fs_type: &'static str) {
    let volume = Volume::new(fs_type);
    let checks = checks();
    let Some(Measured::FileSystem(usage)) = volume.look(&checks).measured else { panic!("no usage") };
    let filler = fs::File::create(volume.target().join("filler")).unwrap();
    let fill = |bytes: u64| {
        filler.set_len(0).unwrap();
        rustix::fs::fallocate(&filler, rustix::fs::FallocateFlags::empty(), 0, bytes).unwrap();
        volume.found(&checks)
    };
    assert_eq!(fill(usage.bytes.available / 100 * 97), ["Degraded/OutOfCapacity"]);
    assert_eq!(fill(usage.bytes.available / 100 * 92), ["Degraded/OutOfCapacity"], "not well below");
    assert!(fill(usage.bytes.available / 100 * 80).is_empty());
    assert!(fill(usage.bytes.available / 100 * 92).is_empty(), "not yet full again");
}

fn raw_block(fs_type: &'static str) {
    let volume = Volume::new(fs_type);
    let checks = checks();
    let node = volume.path("node");
    fs::write(&node, "").unwrap();
    mount_bind(volume.device(), &node).unwrap();
    let mut facts = volume.facts();
    let file = volume.image();
    facts.backing = Backing::Image { file, device: Some(volume.loop_facts()), fs_type: None };
    facts.staging = None;
    facts.targets = vec![Place { path: node.clone(), read_only: false, block: true }];
    let look = || look(&checks, &facts, Depth::Deep);
    let report = look();
    assert_eq!(report.findings, []);
    assert_eq!(report.measured, Some(Measured::Block { bytes: volume.bytes }));
    unmount(&node, UnmountFlags::empty()).unwrap();
    assert_eq!(look().findings[0].condition.to_string(), "Inaccessible/VolumeUnmounted");
}

fn shared(fs_type: &'static str) {
    let volume = Volume::new(fs_type);
    let checks = checks();
    let (as_of, table) = (Instant::now(), Table::read().unwrap());
    let facts = volume.facts();
    // On a busy machine one may be done before the next begins, but not every time.
    for _ in 0..50 {
        let before = checks.helpers().counts().asked;
        let together = Barrier::new(8);
        let look = || {
            together.wait();
            checks.look(&facts, &table, as_of, Depth::Deep, || unreachable!("none is older"))
        };
        let reports: Vec<_> = std::thread::scope(|scope| {
            let looks: Vec<_> = (0..8).map(|_| scope.spawn(look)).collect();
            looks.into_iter().map(|look| look.join().unwrap()).collect()
        });
        assert!(
            reports.iter().all(|report| report.findings.is_empty() && report.blind.is_none()),
            "{reports:?}"
        );
        if checks.helpers().counts().asked - before < 8 {
            return;
        }
    }
    panic!("fifty times eight callers had a helper each");
}
