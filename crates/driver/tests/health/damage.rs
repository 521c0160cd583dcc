//! File system checks on real file systems: busy ones, damaged ones, and ones that the tool refuses.

use std::fs::{self, OpenOptions};
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rustix::mount::{UnmountFlags, unmount};
use volmedic_driver::health::fsck::{Job, Schedule, Tool, Verdict, check};

use super::volume::{Volume, checks_with};
use super::{ALL, Test};

pub(crate) const TESTS: &[Test] = &[
    ("a_volume_under_write_load_is_never_called_corrupt", ALL, under_load),
    ("a_resting_mounted_volume_is_never_called_corrupt", ALL, resting),
    ("a_damaged_superblock_is_corrupt_mounted_or_not", ALL, damaged_superblock),
    ("damaged_metadata_is_corrupt", ALL, damaged_metadata),
    ("a_tool_that_refuses_finds_nothing", ALL, refused),
    ("a_tool_past_its_deadline_is_stopped", &["ext4"], too_slow),
    ("checks_run_beside_the_calls_and_are_served_later", ALL, beside),
];

/// Shorter gaps than the default make the runs more alike, which makes a false alarm more likely, not less.
const QUICK: Schedule = Schedule {
    every: Some(Duration::from_hours(1)),
    runs: 3,
    gap: Duration::from_millis(200),
    deadline: Duration::from_mins(1),
};

fn checked(volume: &Volume, on: &Path, mounted: bool) -> Verdict {
    let tool = Tool::for_fs_type(volume.fs_type).unwrap();
    check(&Job { tool, on: on.to_path_buf(), mounted }, &QUICK, &|| false)
}

/// Makes, writes, renames and deletes files and directories until `stop` is set.
fn load(folder: &Path, stop: &AtomicBool) {
    let mut turn: u64 = 0;
    while !stop.load(Ordering::Relaxed) {
        // A small generator of our own: the load should differ from turn to turn, and be the same in every test run.
        turn = turn.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let place = folder.join(format!("d{}", turn >> 60));
        let _ = fs::create_dir(&place);
        let file = place.join(format!("f{}", turn >> 54 & 63));
        match turn >> 40 & 3 {
            0 => drop(fs::remove_file(file)),
            1 => drop(fs::rename(&file, folder.join(format!("r{}", turn >> 54 & 63)))),
            _ => {
                let size = usize::try_from(turn >> 48 & 0xffff).unwrap();
                let written = fs::File::create(file).and_then(|mut file| file.write_all(&vec![7; size]));
                // A full volume is part of the load.
                drop(written);
            }
        }
        if turn & 0x3ff == 1 {
            rustix::fs::sync();
        }
    }
}

fn under_load(fs_type: &'static str) {
    let volume = Volume::new(fs_type);
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| load(&volume.target(), &stop));
        let end = Instant::now() + Duration::from_secs(8);
        let mut verdicts = Vec::new();
        while Instant::now() < end {
            verdicts.push(checked(&volume, &volume.image(), true));
        }
        stop.store(true, Ordering::Relaxed);
        assert!(!verdicts.iter().any(|verdict| matches!(verdict, Verdict::Corrupt { .. })), "{verdicts:#?}");
        assert!(
            verdicts.iter().all(|verdict| matches!(verdict, Verdict::Clean | Verdict::Inconclusive { .. })),
            "{verdicts:#?}"
        );
    });
}

fn resting(fs_type: &'static str) {
    let volume = Volume::new(fs_type);
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| load(&volume.target(), &stop));
        std::thread::sleep(Duration::from_secs(1));
        stop.store(true, Ordering::Relaxed);
    });
    // Nothing moves now, so every run sees the same, half of it still in the journal only.
    for _ in 0..3 {
        let verdict = checked(&volume, &volume.image(), true);
        assert!(matches!(verdict, Verdict::Clean | Verdict::Inconclusive { .. }), "{verdict}");
    }
}

/// Where the first superblock is.
fn superblock(fs_type: &str) -> u64 {
    match fs_type {
        "ext4" => 1024,
        "xfs" => 0,
        _ => 64 << 10,
    }
}

fn overwrite(volume: &Volume, at: u64, bytes: usize) {
    let image = OpenOptions::new().write(true).open(volume.image()).unwrap();
    image.write_all_at(&vec![0xa5; bytes], at).unwrap();
    image.sync_all().unwrap();
}

fn take_down(volume: &Volume) {
    for place in [volume.target(), volume.staging()] {
        unmount(place, UnmountFlags::empty()).unwrap();
    }
}

fn damaged_superblock(fs_type: &'static str) {
    let volume = Volume::new(fs_type);
    rustix::fs::sync();
    overwrite(&volume, superblock(fs_type), 512);
    let verdict = checked(&volume, &volume.image(), true);
    assert!(matches!(verdict, Verdict::Corrupt { .. }), "mounted: {verdict}");
    // Unmounting writes a good superblock from memory, so the damage is done again.
    take_down(&volume);
    overwrite(&volume, superblock(fs_type), 512);
    let verdict = checked(&volume, &volume.image(), false);
    assert!(matches!(verdict, Verdict::Corrupt { .. }), "unmounted: {verdict}");
}

fn damaged_metadata(fs_type: &'static str) {
    let volume = Volume::new(fs_type);
    for name in 0..200 {
        fs::create_dir(volume.target().join(name.to_string())).unwrap();
    }
    take_down(&volume);
    assert_eq!(checked(&volume, &volume.image(), false), Verdict::Clean);
    match fs_type {
        // The group descriptors, after the superblock's block.
        "ext4" => overwrite(&volume, 2048, 1024),
        // The header of the first group's free space.
        "xfs" => overwrite(&volume, 512, 512),
        // Every copy of every tree block that carries the root tree's bytes would be hard to find; a stretch of
        // the metadata area is not.
        _ => {
            let end = 96 << 20;
            (30 << 20..end).step_by(1 << 20).for_each(|at| overwrite(&volume, at, 256 << 10));
        }
    }
    let verdict = checked(&volume, &volume.image(), false);
    assert!(matches!(verdict, Verdict::Corrupt { .. }), "{verdict}");
}

fn refused(fs_type: &'static str) {
    let volume = Volume::new(fs_type);
    let verdict = checked(&volume, Path::new("/no/such/image"), false);
    assert!(matches!(verdict, Verdict::Refused { .. }), "{verdict}");
    if fs_type == "xfs" {
        let verdict = checked(&volume, &volume.device(), true);
        assert!(
            matches!(&verdict, Verdict::Refused { why } if why.contains("couldn't initialize")),
            "{verdict}"
        );
    }
}

fn too_slow(fs_type: &'static str) {
    let volume = Volume::new(fs_type);
    // Opening a pipe that nobody writes to waits for ever.
    let pipe = volume.path("pipe");
    rustix::fs::mknodat(rustix::fs::CWD, &pipe, rustix::fs::FileType::Fifo, 0o600.into(), 0).unwrap();
    let job = Job { tool: Tool::for_fs_type(fs_type).unwrap(), on: pipe, mounted: false };
    let after = Duration::from_millis(300);
    let asked = Instant::now();
    let verdict = check(&job, &Schedule { deadline: after, ..QUICK }, &|| false);
    assert_eq!(verdict, Verdict::TimedOut { after });
    let verdict = check(&job, &QUICK, &|| asked.elapsed() > Duration::from_millis(600));
    // Otherwise it would have timed out, too.
    assert!(matches!(&verdict, Verdict::Refused { why } if why.contains("called off")), "{verdict}");
}

fn beside(fs_type: &'static str) {
    let volume = Volume::new(fs_type);
    // So long that a check which waited for the verdict would have it.
    let checks = checks_with(Schedule { gap: Duration::from_secs(5), ..QUICK });
    rustix::fs::sync();
    overwrite(&volume, superblock(fs_type), 512);
    assert_eq!(volume.look(&checks).checked, None, "nothing known yet, and nobody waits for it");
    let end = Instant::now() + Duration::from_mins(3);
    while volume.look(&checks).checked.is_none() {
        assert!(Instant::now() < end, "no verdict within three minutes");
        std::thread::sleep(Duration::from_millis(100));
    }
    assert_eq!(volume.found(&checks), ["Degraded/FilesystemCorruption"]);
    let message = volume.messages(&checks);
    assert!(message.contains("damaged") && message.contains("min ago"), "{message}");
    checks.forget(&volume.facts().id);
}
