//! Requests without an answer, as the kernel counts them.

use std::fs;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::Duration;

use rustix::mount::{MountFlags, mount};
use rustix::process::Signal;
use volmedic_host::DeviceNumber;
use volmedic_host::block::Sysfs;
use volmedic_host::fuse::Connections;
use volmedic_host::helper::{Helpers, Limits, Question};
use volmedic_host::mounts::Table;

use super::mounter::{IMAGE, Listing, Mounter};
use super::mounts::Mounted;
use super::volume::Loop;
use super::{PATIENCE, Test, until};

pub(crate) const TESTS: &[Test] = &[
    ("requests_that_a_fuse_server_does_not_answer_are_counted", a_fuse_server_that_does_not_answer),
    ("a_device_that_answers_nothing_differs_from_one_that_works", a_device_that_answers_nothing),
    ("a_loop_device_loses_its_file_in_several_ways", a_loop_device_loses_its_file),
];

fn helpers() -> Helpers {
    Helpers::new(Limits::default())
}

fn a_fuse_server_that_does_not_answer() {
    let folder = tempfile::tempdir().unwrap();
    assert!(Connections::open_at(folder.path()).is_err(), "not before fusectl is mounted");
    mount("none", folder.path(), "fusectl", MountFlags::empty(), None).unwrap();
    let control = Mounted(folder.path().to_path_buf());
    let connections = Connections::open_at(&control.0).unwrap();

    let mounter = Mounter::start(Listing::Short);
    let device = Table::read().unwrap().at(mounter.path()).unwrap().device();
    let waiting = || connections.waiting(device).unwrap();
    assert_eq!(waiting(), Some(0));
    mounter.signal(Signal::STOP);
    let helpers = helpers();
    let question = Question::Directory { path: mounter.path().into(), most: 1 };
    std::thread::scope(|scope| {
        let check = scope.spawn(|| helpers.look("v", &question, PATIENCE));
        until("a request waits", || waiting() > Some(0));
        mounter.signal(Signal::CONT);
        check.join().unwrap().unwrap();
    });
    until("no request waits", || waiting() == Some(0));
    drop(mounter);
    until("the connection is gone", || waiting().is_none());
}

/// A loop device whose file is on a FUSE file system: when its server freezes, so does the device.
struct Frail {
    device: Option<Loop>,
    mounter: Mounter,
}

impl Drop for Frail {
    fn drop(&mut self) {
        // A device cannot be detached while a request waits.
        self.mounter.signal(Signal::CONT);
        self.device = None;
    }
}

fn a_device_that_answers_nothing() {
    let mounter = Mounter::start(Listing::Short);
    let device = Some(Loop::attach_with(&mounter.path().join(IMAGE), &["--read-only"]));
    let frail = Frail { device, mounter };
    let device = frail.device.as_ref().unwrap();
    let number: DeviceNumber = device.facts().number;
    let sysfs = Sysfs::default();
    let counts = || sysfs.io_counts(number).unwrap().unwrap();
    let question = Question::Device { path: Path::new(&device.0).into(), read: true };
    let helpers = helpers();

    let before = counts();
    // Not where the helper reads: what was read once is remembered.
    let middle = fs::File::open(&device.0).unwrap().read_at(&mut [0; 4096], 8 << 20);
    assert_eq!(middle.unwrap(), 4096);
    let after = counts();
    assert!(after.completed > before.completed && !after.is_stalled_since(before), "{before:?} {after:?}");

    frail.mounter.signal(Signal::STOP);
    std::thread::scope(|scope| {
        let check = scope.spawn(|| helpers.look("v", &question, PATIENCE));
        until("a request is in flight", || counts().in_flight > 0);
        let first = counts();
        std::thread::sleep(Duration::from_millis(300));
        assert!(counts().is_stalled_since(first), "{first:?} {:?}", counts());
        frail.mounter.signal(Signal::CONT);
        check.join().unwrap().unwrap();
    });
    until("nothing is in flight", || counts().in_flight == 0);
}

fn a_loop_device_loses_its_file() {
    let folder = tempfile::tempdir().unwrap();
    let image = folder.path().join("image");
    let file = fs::File::create(&image).unwrap();
    file.set_len(3 << 20).unwrap();
    let device = Loop::attach_with(&image, &["--offset", "1048576"]);
    let backing = || device.facts().backing.unwrap();
    assert_eq!((device.facts().bytes, backing().offset), (2 << 20, 1 << 20));
    let needed = backing().offset + device.facts().bytes;
    let size = || helpers().file_size("v", &backing().file, PATIENCE).unwrap();
    assert_eq!(size(), needed);
    file.set_len(2 << 20).unwrap();
    assert!(size() < needed, "the end is lost");
    assert_eq!(device.facts().bytes, 2 << 20, "which the device does not know");
    fs::remove_file(&image).unwrap();
    assert!(backing().deleted);
    let number = device.facts().number;
    drop(device);
    let sysfs = Sysfs::default();
    // Another test may have it by now; then it has another file.
    until("it is detached", || {
        sysfs
            .device(number)
            .unwrap()
            .is_none_or(|found| found.backing.is_none_or(|backing| backing.file != image))
    });
}
