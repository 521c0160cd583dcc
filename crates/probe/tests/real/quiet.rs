//! What must raise nothing, and what must be reported rightly all the same.

use std::fs;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use rustix::mount::{MountFlags, UnmountFlags, mount_bind, mount_remount, unmount};
use volmedic_driver::fault::{Fault, Kind};
use volmedic_health::Sight;
use volmedic_host::helper::{Helpers, Limits};
use volmedic_host::kernel_log::{Evidence, KernelLog, Line, Start};
use volmedic_probe::host::{Baseline, Expected, Host, Key, Mode, Settings, Target};

use super::Test;
use super::eyes::{expected, host, host_within, look, messages, settle, shown};
use super::stage::{Driver, PATIENCE, Volume};

pub(crate) const TESTS: &[Test] = &[
    ("read_only_by_intent_raises_nothing", read_only_by_intent),
    ("a_short_unmount_raises_nothing_and_a_lasting_one_is_told_within_two_seconds", short_unmount),
    ("each_pod_of_a_shared_volume_is_named", shared),
    ("a_busy_volume_raises_nothing", busy),
    ("a_dead_disk_is_accessed_less_and_less_often", dead_disk),
    ("a_volume_at_the_edge_of_full_raises_nothing_twice", edge),
    ("a_restart_keeps_what_was_compared_with", restart),
    ("errors_of_the_kernel_come_with_its_words", words),
    ("a_hung_volume_holds_up_nobody_else", hung),
    ("a_change_of_the_mount_table_is_noticed_however_old_a_table_may_be", noticed),
    ("a_directory_deleted_behind_its_mount_is_told", deleted),
    ("hostile_paths_are_looked_at_and_told_harmlessly", hostile),
];

fn read_only_by_intent() {
    let driver = Driver::start("both");
    for kind in [Kind::Ext4, Kind::Fuse] {
        let volume = Volume::published(&driver, kind, 1, true);
        let (host, wanted) = (host(), expected(&volume, true));
        assert_eq!(shown(&look(&host, &wanted).sight), "-");
        // The same volume, if its pod may write, is not as it should be.
        let writes = expected(&volume, false);
        let seen = look(&host, &writes).sight;
        assert_eq!(shown(&seen), "Inaccessible/ReadOnlyFilesystem");
        assert!(messages(&seen).contains("of pod shop/web-0 is read-only"), "{}", messages(&seen));
    }
}

fn short_unmount() {
    let driver = Driver::start("both");
    let volume = Volume::new(&driver, Kind::Ext4);
    let (host, wanted) = (host(), expected(&volume, false));
    assert_eq!(shown(&look(&host, &wanted).sight), "-");
    let target = &volume.targets[0];
    unmount(target, UnmountFlags::empty()).unwrap();
    let first = host.look(&wanted);
    assert!(first.again.is_some_and(|pause| pause <= Duration::from_secs(1)), "{first:?}");
    assert_eq!(
        shown(&first.sight),
        "-",
        "asked at its staging path it is well, and the rest is not believed yet"
    );
    mount_bind(&volume.staging, target).unwrap();
    let second = host.look(&wanted);
    assert_eq!((shown(&second.sight).as_str(), second.again), ("-", None));

    unmount(target, UnmountFlags::empty()).unwrap();
    let seen = look(&host, &wanted);
    assert_eq!(shown(&seen.sight), "Inaccessible/VolumeUnmounted");
    mount_bind(&volume.staging, target).unwrap();
    assert_eq!(shown(&look(&host, &wanted).sight), "-");
}

fn shared() {
    let driver = Driver::start("both");
    let volume = Volume::published(&driver, Kind::Ext4, 3, false);
    let (host, wanted) = (host(), expected(&volume, false));
    assert_eq!(shown(&look(&host, &wanted).sight), "-");
    for target in &volume.targets[1..] {
        unmount(target, UnmountFlags::empty()).unwrap();
    }
    let seen = look(&host, &wanted);
    assert_eq!(shown(&seen.sight), "Inaccessible/VolumeUnmounted");
    let words = messages(&seen.sight);
    assert!(!words.contains("web-0") && words.contains("web-1") && words.contains("web-2"), "{words}");
    assert!(seen.usage.is_some(), "it is still asked where it is");
}

/// Writes, syncs and renames until it is stopped.
fn load(folder: &Path, stop: &AtomicBool) {
    let block = vec![7; 1 << 20];
    let file = fs::File::create(folder.join("load")).unwrap();
    let mut turn = 0;
    while !stop.load(Ordering::Relaxed) {
        file.write_all_at(&block, turn % 32 * (1 << 20)).unwrap();
        file.sync_all().unwrap();
        fs::write(folder.join(format!("small-{}", turn % 8)), &block[..100]).unwrap();
        turn += 1;
    }
}

fn busy() {
    let driver = Driver::start("both");
    let volumes = [Kind::Ext4, Kind::Btrfs, Kind::Fuse].map(|kind| Volume::new(&driver, kind));
    let host = host();
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for volume in &volumes {
            scope.spawn(|| load(&volume.targets[0], &stop));
        }
        let end = Instant::now() + Duration::from_secs(4);
        let mut wrong = Vec::new();
        while Instant::now() < end {
            for volume in &volumes {
                let seen = host.look(&expected(volume, false)).sight;
                if matches!(seen, Sight::Adverse(_)) {
                    wrong.push(messages(&seen));
                }
            }
        }
        stop.store(true, Ordering::Relaxed);
        assert!(wrong.is_empty(), "{wrong:#?}");
    });
    for volume in &volumes {
        settle(&host, &expected(volume, false), "after the load", |seen| seen == "-");
    }
}

fn dead_disk() {
    let driver = Driver::start("both");
    let volume = Volume::new(&driver, Kind::Block);
    let (host, wanted) = (host(), expected(&volume, false));
    assert_eq!(shown(&look(&host, &wanted).sight), "-");
    driver.faults().inject(Fault::ImageTruncated, Some(&volume.id)).unwrap();
    let failing = |seen: &str| seen.contains("Inaccessible/RWIOError");
    settle(&host, &wanted, "its disk fails", failing);
    let before = host.helpers().counts().asked;
    let looks = 60;
    for _ in 0..looks {
        let seen = look(&host, &wanted).sight;
        assert!(failing(&shown(&seen)), "{}", messages(&seen));
    }
    // One question of each look asks for the size of the image, on another disk.
    let accesses = host.helpers().counts().asked - before - looks;
    assert!(accesses <= 10, "{accesses} of {looks} checks accessed the dead disk");
    driver.faults().clear(Fault::ImageTruncated, Some(&volume.id)).unwrap();
    settle(&host, &wanted, "its disk works again", |seen| seen == "-");
}

fn edge() {
    let driver = Driver::start("both");
    let volume = Volume::new(&driver, Kind::Ext4);
    let (host, wanted) = (host(), expected(&volume, false));
    let free = look(&host, &wanted).usage.unwrap().bytes.unwrap();
    let reachable = free.used.unwrap() + free.available.unwrap();
    let filler = fs::File::create(volume.targets[0].join("filler")).unwrap();
    let fill = |percent: u64| {
        filler.set_len(0).unwrap();
        let bytes = reachable / 100 * percent - free.used.unwrap();
        rustix::fs::fallocate(&filler, rustix::fs::FallocateFlags::empty(), 0, bytes).unwrap();
        shown(&look(&host, &wanted).sight)
    };
    let reported: Vec<String> = [95, 97, 99, 97, 96, 94, 97].into_iter().map(fill).collect();
    let full = "Degraded/OutOfCapacity";
    assert_eq!(reported, ["-", "-", full, full, full, "-", "-"]);
}

fn restart() {
    let driver = Driver::start("both");
    let volume = Volume::new(&driver, Kind::Ext4);
    let wanted = expected(&volume, false);
    let before = host();
    assert_eq!(shown(&look(&before, &wanted).sight), "-");
    driver.faults().inject(Fault::KernelError, Some(&volume.id)).unwrap();
    settle(&before, &wanted, "an error in the kernel", |seen| seen.contains("FilesystemCorruption"));

    // As a file would keep it.
    let kept: Vec<(Key, Baseline)> = before.baselines();
    let text = serde_json::to_string(&kept[0].1).unwrap();
    let baseline: Baseline = serde_json::from_str(&text).unwrap();
    assert_eq!(baseline, kept[0].1);
    let after = host();
    after.recall([(kept[0].0.clone(), baseline)]);
    let seen = look(&after, &wanted).sight;
    assert!(messages(&seen).contains("went from 0 to 1"), "{}", messages(&seen));

    // One that never saw the counter at 0 does not say so.
    let stranger = host();
    let seen = look(&stranger, &wanted).sight;
    assert_eq!(shown(&seen), "Degraded/FilesystemCorruption");
    assert!(
        messages(&seen).contains("recorded 1 error before this agent first checked it"),
        "{}",
        messages(&seen)
    );
    assert!(!messages(&seen).contains("went from"), "{}", messages(&seen));

    // Something else was mounted there while nobody looked.
    driver.faults().clear(Fault::KernelError, Some(&volume.id)).unwrap();
    settle(&after, &wanted, "after the repair", |seen| seen == "-");
    let third = host();
    third.recall(after.baselines());
    driver.faults().inject(Fault::WrongMount, Some(&volume.id)).unwrap();
    assert_eq!(shown(&look(&third, &wanted).sight), "Inaccessible/WrongMount");
    driver.faults().clear(Fault::WrongMount, Some(&volume.id)).unwrap();
    third.keep(|_| false);
    assert!(third.baselines().is_empty());
}

/// Reads the kernel's log, and goes on until the line is there; the reader belongs to the agent, so this is its stand-in.
fn read_log(driver: &Driver, evidence: &Mutex<Evidence>, until: impl Fn(&Evidence) -> bool) {
    driver.runtime.block_on(async {
        let mut log = KernelLog::open(Start::Oldest).unwrap();
        let end = Instant::now() + PATIENCE;
        loop {
            // A reader that has read everything waits in vain.
            let more = tokio::time::timeout(Duration::from_millis(200), log.next()).await;
            if let Ok(records) = more {
                records.unwrap().iter().for_each(|record| drop(evidence.lock().add(record)));
            } else if until(&evidence.lock()) {
                return;
            }
            assert!(Instant::now() < end, "the kernel's line did not come");
        }
    });
}

fn words() {
    let driver = Driver::start("both");
    let volume = Volume::new(&driver, Kind::Ext4);
    let evidence = Arc::new(Mutex::new(Evidence::default()));
    let helpers = Arc::new(Helpers::new(Limits::default()));
    let settings = Settings { deadline: Duration::from_secs(30), ..Settings::default() };
    let host = Host::new(helpers, settings).with_evidence(Ok(Arc::clone(&evidence)));
    let wanted = expected(&volume, false);
    // What it said of other devices by the same name is known before the first look.
    read_log(&driver, &evidence, |_| true);
    assert_eq!(shown(&look(&host, &wanted).sight), "-");
    let number = host.table().unwrap().at(&volume.targets[0]).unwrap().device();
    let device = volmedic_host::block::Sysfs::default().device(number).unwrap().unwrap();
    let last = evidence.lock().of(&device).last().map_or(0, |line| line.sequence);
    driver.faults().inject(Fault::KernelError, Some(&volume.id)).unwrap();
    let is_it = |line: &Line| line.sequence > last && line.text.contains("volmedic fault");
    read_log(&driver, &evidence, |log| log.of(&device).iter().any(|line| is_it(line)));
    let seen = settle(&host, &wanted, "an error in the kernel", |seen| seen.contains("FilesystemCorruption"));
    let reported = messages(&seen.sight);
    assert!(reported.contains("the kernel said: EXT4-fs error (device loop"), "{reported}");
    driver.faults().clear(Fault::KernelError, Some(&volume.id)).unwrap();
}

fn hung() {
    let driver = Driver::start("both");
    let frozen = Volume::new(&driver, Kind::Fuse);
    let fine = Volume::new(&driver, Kind::Ext4);
    let host = host_within(Duration::from_secs(10));
    let [of_frozen, of_fine] = [&frozen, &fine].map(|volume| expected(volume, false));
    for wanted in [&of_frozen, &of_fine] {
        assert_eq!(shown(&look(&host, wanted).sight), "-");
    }
    driver.faults().inject(Fault::MounterFrozen, Some(&frozen.id)).unwrap();
    std::thread::scope(|scope| {
        let stuck = scope.spawn(|| look(&host, &of_frozen));
        let end = Instant::now() + PATIENCE;
        while host.helpers().counts().running == 0 {
            assert!(Instant::now() < end, "the frozen volume is not checked");
            std::thread::yield_now();
        }
        let meanwhile = host.look(&of_frozen).sight;
        assert!(shown(&meanwhile).contains("another probe"), "{meanwhile:?}");
        assert_eq!(shown(&look(&host, &of_fine).sight), "-");
        let seen = stuck.join().unwrap();
        assert_eq!(shown(&seen.sight), "Inaccessible/IOHung");
        assert!(messages(&seen.sight).contains("did not come back within 10 s"), "{}", messages(&seen.sight));
    });
    driver.faults().clear(Fault::MounterFrozen, Some(&frozen.id)).unwrap();
    settle(&host, &of_frozen, "after the hang", |seen| seen == "-");
}

/// The kernel reports each change of the mount table, so how long a table is used otherwise does not matter.
fn noticed() {
    let folder = tempfile::tempdir().unwrap();
    let target = folder.path().canonicalize().unwrap();
    let settings =
        Settings { table_age: Duration::from_hours(1), confirm: Duration::ZERO, ..Settings::default() };
    let host = Host::new(Arc::new(Helpers::new(Limits::default())), settings);
    let wanted = Expected {
        driver: "kubernetes.io/local-volume".into(),
        handle: "pv-2".into(),
        mode: Mode::Filesystem,
        staging: None,
        targets: vec![Target {
            path: target.clone(),
            read_only: false,
            pod: "shop/web-0".into(),
            parts: Vec::new(),
        }],
    };
    for _ in 0..3 {
        rustix::mount::mount("none", &target, "tmpfs", MountFlags::empty(), c"size=1m").unwrap();
        settle(&host, &wanted, "it is mounted", |seen| seen == "-");
        mount_remount(&target, MountFlags::BIND | MountFlags::RDONLY, "").unwrap();
        settle(&host, &wanted, "it is read-only", |seen| seen == "Inaccessible/ReadOnlyFilesystem");
        unmount(&target, UnmountFlags::DETACH).unwrap();
        settle(&host, &wanted, "it is not mounted", |seen| seen == "Inaccessible/VolumeUnmounted");
        host.keep(|_| false);
    }
}

/// A volume that is only a directory of the host, as local volumes are.
fn deleted() {
    let folder = tempfile::tempdir().unwrap();
    let [data, target] = ["data", "target"].map(|name| folder.path().canonicalize().unwrap().join(name));
    for place in [&data, &target] {
        fs::create_dir(place).unwrap();
    }
    mount_bind(&data, &target).unwrap();
    let wanted = Expected {
        driver: "kubernetes.io/local-volume".into(),
        handle: "pv-1".into(),
        mode: Mode::Filesystem,
        staging: None,
        targets: vec![Target {
            path: target.clone(),
            read_only: false,
            pod: "shop/web-0".into(),
            parts: Vec::new(),
        }],
    };
    let host = host();
    let before = look(&host, &wanted).sight;
    fs::remove_dir(&data).unwrap();
    let after = look(&host, &wanted).sight;
    unmount(&target, UnmountFlags::DETACH).unwrap();
    // The disk of this machine may be as full as it likes.
    assert!(!shown(&before).contains("Inaccessible"), "{}", messages(&before));
    assert!(shown(&after).contains("Inaccessible/VolumeNotFound"), "{}", messages(&after));
}

fn hostile() {
    let driver = Driver::start("both");
    let volume = Volume::new(&driver, Kind::Ext4);
    // A place with everything that mountinfo escapes, and a link beside it that leads out.
    let odd = driver.root().join("od\nd \\040 \u{1b}[2J\u{202e}");
    fs::create_dir(&odd).unwrap();
    mount_bind(&volume.staging, &odd).unwrap();
    let link = driver.root().join("link");
    std::os::unix::fs::symlink("/etc", &link).unwrap();
    let (host, mut wanted) = (host(), expected(&volume, false));
    wanted.targets[0].path.clone_from(&odd);
    wanted.targets[0].pod = "evil\n/\u{1b}[31mpod".repeat(100).into();
    assert_eq!(shown(&look(&host, &wanted).sight), "-");
    unmount(&odd, UnmountFlags::empty()).unwrap();
    let seen = look(&host, &wanted).sight;
    assert_eq!(shown(&seen), "Inaccessible/VolumeUnmounted");
    let reported = messages(&seen);
    assert!(!reported.contains(char::is_control) && !reported.contains('\u{202e}'), "{reported:?}");
    assert!(
        reported.contains("what is written there goes to"),
        "the end of the sentence survives: {reported}"
    );

    wanted.targets[0].path = link;
    let seen = look(&host, &wanted).sight;
    assert_eq!(shown(&seen), "Inaccessible/VolumeUnmounted", "a link is not where a volume is");
}
