//! What the kernel reports by itself: errors of file systems, and its log.

use std::fs;
use std::os::unix::process::CommandExt;
use std::process::Command;

use tokio::time::timeout;
use volmedic_host::DeviceNumber;
use volmedic_host::fs_errors::{FsError, FsErrors, MarkError};
use volmedic_host::helper::{Helpers, Limits};
use volmedic_host::kernel_log::{Evidence, KernelLog, Start, since_boot};
use volmedic_host::mounts::Table;

use super::mounter::{Listing, Mounter};
use super::volume::{Volume, image};
use super::{PATIENCE, Test, block_on, until};

pub(crate) const TESTS: &[Test] = &[
    ("an_error_of_ext4_is_reported_with_its_device", an_error_of_ext4),
    ("a_mark_does_not_hold_its_volume", a_mark_does_not_hold_its_volume),
    ("xfs_and_btrfs_take_the_mark_and_fuse_does_not", who_takes_the_mark),
    ("a_mark_is_not_set_on_what_is_there_instead", what_is_there_instead),
    ("copies_of_one_file_system_are_reported_together", copies),
    ("the_kernels_words_about_a_volume_are_evidence", the_kernels_words),
    ("a_program_in_the_log_is_heard_but_is_no_evidence", a_program_in_the_log),
    ("without_the_privilege_each_is_off_by_name", without_the_privilege),
];

fn helpers() -> Helpers {
    Helpers::new(Limits::default())
}

fn mark(errors: &FsErrors, path: &std::path::Path) -> Result<(), MarkError> {
    let table = Table::read().unwrap();
    errors.mark(&helpers(), "v", table.at(path).unwrap(), PATIENCE)
}

async fn reported(errors: &FsErrors) -> Vec<FsError> {
    timeout(PATIENCE, errors.next()).await.expect("an error is reported").unwrap()
}

fn an_error_of_ext4() {
    let [hurt, healthy] = [(); 2].map(|()| Volume::new("ext4"));
    block_on(async {
        let errors = FsErrors::open().unwrap();
        for volume in [&hurt, &healthy] {
            mark(&errors, &volume.path()).unwrap();
        }
        let table = Table::read().unwrap();
        let mount = table.at(hurt.path()).unwrap();
        assert!(errors.is_marked(mount) && errors.is_settled(mount));
        assert_eq!(errors.marked(), 2);
        hurt.hurt("a test");
        let found = reported(&errors).await;
        assert_eq!(found, [FsError { devices: vec![hurt.number()], errno: libc::EUCLEAN, count: 1 }]);
        (0..3).for_each(|_| hurt.hurt("again"));
        // Together, or one after the other.
        let mut count = 0;
        while count < 3 {
            count += reported(&errors).await.iter().map(|error| error.count).sum::<u32>();
        }
        assert_eq!(count, 3);

        let unwanted = hurt.number();
        errors.keep(|device| device != unwanted);
        hurt.hurt("an event of a mark that was dropped");
        healthy.hurt("an event that is read");
        assert_eq!(reported(&errors).await[0].devices, [healthy.number()]);
        assert_eq!((errors.marked(), errors.overflows()), (1, 0));
    });
}

/// Whether any fanotify group of this process has a mark on the device.
fn has_mark(device: DeviceNumber) -> bool {
    let sdev = format!("sdev:{:x} ", device.major << 20 | device.minor);
    let files = fs::read_dir("/proc/self/fdinfo").unwrap().flatten();
    files.filter_map(|file| fs::read_to_string(file.path()).ok()).any(|text| text.contains(&sdev))
}

/// The kernel drops a mark with its file system; that is when it is unmounted in every mount namespace, of which other tests
/// have some.
fn until_unmarked(device: DeviceNumber) {
    until("the mark is gone with the file system", || !has_mark(device));
}

fn a_mark_does_not_hold_its_volume() {
    let mut volume = Volume::new("ext4");
    let number = volume.number();
    block_on(async {
        let errors = FsErrors::open().unwrap();
        mark(&errors, &volume.path()).unwrap();
        assert!(has_mark(number));
        volume.hurt("an event that was not read");
        volume.unmount();
        until_unmarked(number);
        // The device is free: another can take its place, and it is another file system to us.
        let again = tempfile::tempdir().unwrap();
        rustix::mount::mount(
            &volume.device.0,
            again.path(),
            "ext4",
            rustix::mount::MountFlags::empty(),
            None,
        )
        .unwrap();
        let again = super::mounts::Mounted(again.keep());
        errors.keep(|_| false);
        mark(&errors, &again.0).unwrap();
        assert!(has_mark(number));
        let path = again.0.clone();
        drop(again);
        fs::remove_dir(path).unwrap();
    });
    let file = volume.device.facts().backing.unwrap().file;
    drop(volume);
    assert!(!file.exists());
}

fn who_takes_the_mark() {
    block_on(async {
        let errors = FsErrors::open().unwrap();
        for fs_type in ["xfs", "btrfs"] {
            let mut volume = Volume::new(fs_type);
            let number = volume.number();
            mark(&errors, &volume.path()).unwrap_or_else(|error| panic!("{fs_type}: {error}"));
            assert!(has_mark(number), "{fs_type}");
            volume.unmount();
            until_unmarked(number);
        }
        let mounter = Mounter::start(Listing::Short);
        let refused = mark(&errors, mounter.path()).unwrap_err();
        assert!(matches!(refused, MarkError::NotSupported { .. }), "{refused}");
        let table = Table::read().unwrap();
        let mount = table.at(mounter.path()).unwrap();
        assert!(errors.is_settled(mount) && !errors.is_marked(mount));
    });
}

fn what_is_there_instead() {
    let mut volume = Volume::new("ext4");
    block_on(async {
        let errors = FsErrors::open().unwrap();
        let table = Table::read().unwrap();
        let mount = table.at(volume.path()).unwrap();
        volume.unmount();
        let refused = errors.mark(&helpers(), "v", mount, PATIENCE).unwrap_err();
        assert!(matches!(refused, MarkError::Moved { .. }), "{refused}");
        assert_eq!(errors.marked(), 0);
    });
}

fn copies() {
    let [first, second] = [(); 2].map(|()| tempfile::tempdir().unwrap());
    let made = image(first.path(), "ext4");
    fs::copy(made, second.path().join("image")).unwrap();
    let [first, second] = [first, second].map(|folder| Volume::mount(folder, "ext4"));
    block_on(async {
        let errors = FsErrors::open().unwrap();
        mark(&errors, &first.path()).unwrap();
        mark(&errors, &second.path()).unwrap();
        second.hurt("one of two");
        let mut both = vec![first.number(), second.number()];
        both.sort_unstable();
        assert_eq!(reported(&errors).await[0].devices, both);
    });
}

fn the_kernels_words() {
    let volume = Volume::new("ext4");
    let device = volume.device.facts();
    let why = format!("volmedic-test-{}", std::process::id());
    block_on(async {
        let mut log = KernelLog::open(Start::Now).unwrap();
        let before = since_boot();
        volume.hurt(&why);
        let mut evidence = Evidence::default();
        let line = loop {
            for record in timeout(PATIENCE, log.next()).await.expect("the kernel says it").unwrap() {
                evidence.add(&record);
            }
            if let Some(line) = evidence.of(&device).iter().find(|line| line.text.contains(&why)) {
                break line.clone();
            }
        };
        assert!(line.text.starts_with(&format!("EXT4-fs error (device {})", device.name)), "{}", line.text);
        assert!(line.level <= 3 && line.since_boot.abs_diff(before) < PATIENCE, "{line:?} {before:?}");

        // Who comes later finds it, too.
        let mut later = KernelLog::open(Start::Oldest).unwrap();
        loop {
            let records = timeout(PATIENCE, later.next()).await.expect("the log is not empty").unwrap();
            if records.iter().any(|record| record.sequence == line.sequence && record.from_kernel) {
                break;
            }
        }
        assert_eq!(later.unreadable(), 0);
    });
}

fn a_program_in_the_log() {
    let text = format!("volmedic-test: I/O error, dev loop0, sector {}", std::process::id());
    block_on(async {
        let mut log = KernelLog::open(Start::Now).unwrap();
        fs::write("/dev/kmsg", format!("<3>{text}\n")).unwrap();
        loop {
            let records = timeout(PATIENCE, log.next()).await.expect("it is in the log").unwrap();
            let Some(record) = records.iter().find(|record| record.text == text) else { continue };
            assert!(!record.from_kernel && record.level == 3, "{record:?}");
            assert!(Evidence::default().add(record).is_empty());
            break;
        }
    });
}

const OFF: &str = "what-is-off-for-tests";

/// Prints which checks are off on this machine.
pub(crate) fn run_if_asked() {
    if std::env::args().nth(1).as_deref() != Some(OFF) {
        return;
    }
    let off = block_on(async {
        let log = KernelLog::open(Start::Now).err().map_or("on".to_owned(), |off| off.to_string());
        let errors = FsErrors::open().err().map_or("on".to_owned(), |off| off.to_string());
        [log, errors].join("\n")
    });
    std::io::Write::write_all(&mut std::io::stdout(), off.as_bytes()).unwrap();
    std::process::exit(0);
}

fn without_the_privilege() {
    let output = Command::new("/proc/self/exe").arg(OFF).uid(65534).gid(65534).output().unwrap();
    let said = String::from_utf8(output.stdout).unwrap();
    let lines: Vec<_> = said.lines().collect();
    let restricted = fs::read_to_string("/proc/sys/kernel/dmesg_restrict").unwrap().trim() == "1";
    if restricted {
        assert!(lines[0].contains("the kernel log is not read") && lines[0].contains("CAP_SYSLOG"), "{said}");
    }
    assert!(lines[1].contains("not permitted") && lines[1].contains("CAP_SYS_ADMIN"), "{said}");
    let missing = block_on(async { KernelLog::open_at("/dev/nothing".as_ref(), Start::Now).unwrap_err() });
    assert!(missing.to_string().contains("opening /dev/nothing failed: No such file"), "{missing}");
}
