//! What a helper finds out about volumes that work, fail, freeze and stall.

use std::fs;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use volmedic_host::helper::{Answer, HelperError, Helpers, Limits, Question};

use super::mounter::{Listing, Mounter};
use super::{Test, until};

pub(crate) const TESTS: &[Test] = &[
    ("a_directory_that_works_is_described", a_directory_that_works_is_described),
    ("a_link_is_not_followed", a_link_is_not_followed),
    ("a_dead_mounter_is_told_by_its_errno", a_dead_mounter_is_told_by_its_errno),
    ("a_frozen_mounter_hangs_its_helper_and_nobody_else", a_frozen_mounter_hangs_its_helper_and_nobody_else),
    ("a_helper_that_cannot_be_killed_is_left_and_collected_later", cannot_be_killed),
    ("an_endless_directory_ends", an_endless_directory_ends),
    ("a_helper_holds_no_inherited_descriptor", a_helper_holds_no_inherited_descriptor),
    ("only_a_block_device_is_opened_as_one", only_a_block_device_is_opened_as_one),
    ("a_program_that_is_no_helper_is_told_from_a_sick_volume", a_program_that_is_no_helper),
];

const PATIENCE: Duration = Duration::from_secs(10);
const SHORT: Duration = Duration::from_millis(300);

fn helpers() -> Helpers {
    Helpers::new(Limits::default())
}

fn directory(path: &Path) -> Question {
    Question::Directory { path: path.into(), most: 10 }
}

fn a_directory_that_works_is_described() {
    let folder = tempfile::tempdir().unwrap();
    for name in ["a", "b", "c"] {
        fs::write(folder.path().join(name), "x").unwrap();
    }
    let look = |most| {
        let question = Question::Directory { path: folder.path().into(), most };
        match helpers().look("v", &question, PATIENCE).unwrap() {
            Answer::Directory(found) => found,
            Answer::Device(_) => panic!("a directory was asked for"),
        }
    };
    assert_eq!((look(2).entries, look(2).more), (2, true));
    assert_eq!((look(3).entries, look(3).more), (3, false));
    assert_eq!((look(0).entries, look(0).more), (0, false));
    let stat = rustix::fs::stat(folder.path()).unwrap();
    assert_eq!(look(1).device, volmedic_host::DeviceNumber::from_raw(stat.st_dev));
    assert!(look(1).usage.bytes.total > 0);
}

fn a_link_is_not_followed() {
    let folder = tempfile::tempdir().unwrap();
    let link = folder.path().join("link");
    symlink("/etc", &link).unwrap();
    let error = helpers().look("v", &directory(&link), PATIENCE).unwrap_err();
    assert!(matches!(error.errno(), Some(libc::ENOTDIR | libc::ELOOP)), "{error}");
}

fn a_dead_mounter_is_told_by_its_errno() {
    let mut mounter = Mounter::start(Listing::Short);
    let helpers = helpers();
    assert!(helpers.look("v", &directory(mounter.path()), PATIENCE).is_ok());
    mounter.kill();
    let error = helpers.look("v", &directory(mounter.path()), PATIENCE).unwrap_err();
    assert_eq!(error.errno(), Some(libc::ENOTCONN), "{error}");
    assert!(error.is_about_the_volume() && !error.is_hang());
}

fn a_frozen_mounter_hangs_its_helper_and_nobody_else() {
    let frozen = Mounter::start(Listing::Short);
    let fine = Mounter::start(Listing::Short);
    frozen.signal(Signal::STOP);
    let helpers = helpers();
    std::thread::scope(|scope| {
        let stuck = scope.spawn(|| {
            let asked = Instant::now();
            (helpers.look("frozen", &directory(frozen.path()), Duration::from_secs(1)), asked.elapsed())
        });
        until("the first look is under way", || helpers.counts().running == 1);
        let again = helpers.look("frozen", &directory(frozen.path()), PATIENCE).unwrap_err();
        assert!(matches!(again, HelperError::Busy { .. }), "one at a time: {again}");
        for _ in 0..5 {
            helpers.look("fine", &directory(fine.path()), PATIENCE).unwrap();
        }
        assert!(!stuck.is_finished(), "the others had their answers while this one waited");
        let (result, took) = stuck.join().unwrap();
        let error = result.unwrap_err();
        assert!(error.is_hang() && error.to_string().contains("did not come back within 1.0 s"), "{error}");
        assert!(took < Duration::from_secs(3), "{took:?}");
    });
    // A frozen server had not taken the request, so the kernel let the helper die.
    assert_eq!(helpers.counts().stuck, 0);
    frozen.signal(Signal::CONT);
    helpers.look("frozen", &directory(frozen.path()), PATIENCE).unwrap();
}

fn cannot_be_killed() {
    let mut stalled = Mounter::start(Listing::Never);
    let fine = Mounter::start(Listing::Short);
    let helpers = helpers();
    let error = helpers.look("stalled", &directory(stalled.path()), SHORT).unwrap_err();
    assert!(matches!(&error, HelperError::Hung { step, .. } if step == "readdir"), "{error}");
    let counts = helpers.counts();
    assert_eq!((counts.stuck, counts.abandoned, counts.running), (1, 1, 0));

    let asked = Instant::now();
    let again = helpers.look("stalled", &directory(stalled.path()), PATIENCE).unwrap_err();
    assert!(matches!(again, HelperError::StillHung { .. }) && again.is_hang(), "{again}");
    assert!(asked.elapsed() < Duration::from_secs(1), "no second helper was sent after the first");
    helpers.look("fine", &directory(fine.path()), PATIENCE).unwrap();

    stalled.kill();
    until("the helper is collected", || helpers.counts().stuck == 0);
    let dead = helpers.look("stalled", &directory(stalled.path()), PATIENCE).unwrap_err();
    assert_eq!(dead.errno(), Some(libc::ENOTCONN), "{dead}");
}

fn an_endless_directory_ends() {
    let endless = Mounter::start(Listing::Endless);
    let question = Question::Directory { path: endless.path().into(), most: 5000 };
    let answer = helpers().look("v", &question, PATIENCE).unwrap();
    assert!(matches!(answer, Answer::Directory(found) if found.entries == 5000 && found.more), "{answer:?}");
}

fn a_helper_holds_no_inherited_descriptor() {
    let frozen = Mounter::start(Listing::Short);
    frozen.signal(Signal::STOP);
    // A pipe that every child inherits.
    let (reader, _writer) = rustix::pipe::pipe().unwrap();
    let pipe = fs::read_link(format!("/proc/self/fd/{}", reader.as_raw_fd())).unwrap();
    let helpers = helpers();
    std::thread::scope(|scope| {
        let stuck = scope.spawn(|| helpers.look("frozen", &directory(frozen.path()), PATIENCE));
        until("the helper is there without the pipe", || {
            let helper = children().into_iter().find(|child| is_helper_at(*child, frozen.path()));
            let open = helper.and_then(|helper| fs::read_dir(format!("/proc/{helper}/fd")).ok());
            open.is_some_and(|mut open| {
                !open.any(|link| link.and_then(|link| fs::read_link(link.path())).is_ok_and(|to| to == pipe))
            })
        });
        assert!(!stuck.is_finished());
        frozen.signal(Signal::CONT);
        stuck.join().unwrap().unwrap();
    });
}

fn children() -> Vec<u32> {
    let tasks = fs::read_dir("/proc/self/task").unwrap();
    let lists = tasks.filter_map(|task| fs::read_to_string(task.ok()?.path().join("children")).ok());
    lists
        .flat_map(|list| list.split_whitespace().filter_map(|id| id.parse().ok()).collect::<Vec<_>>())
        .collect()
}

fn is_helper_at(process: u32, path: &Path) -> bool {
    let line = fs::read(format!("/proc/{process}/cmdline")).unwrap_or_default();
    let arguments: Vec<&[u8]> = line.split(|byte| *byte == 0).collect();
    arguments.contains(&&b"__volmedic-helper"[..]) && arguments.contains(&path.as_os_str().as_bytes())
}

fn only_a_block_device_is_opened_as_one() {
    let image = tempfile::NamedTempFile::new().unwrap();
    image.as_file().set_len(1 << 20).unwrap();
    let device = |path: &Path| Question::Device { path: path.into(), read: true };
    let error = helpers().look("v", &device(image.path()), PATIENCE).unwrap_err();
    assert_eq!(error.errno(), Some(libc::ENOTBLK), "{error}");

    let attached = Loop::attach(image.path());
    let answer = helpers().look("v", &device(Path::new(&attached.0)), PATIENCE).unwrap();
    assert!(
        matches!(&answer, Answer::Device(found) if found.bytes == 1 << 20 && found.number.major == 7),
        "{answer:?}"
    );
    // The device keeps its size, but behind it there is nothing to read any more.
    image.as_file().set_len(0).unwrap();
    let error = helpers().look("v", &device(Path::new(&attached.0)), PATIENCE).unwrap_err();
    assert_eq!(error.errno(), Some(libc::EIO), "{error}");
}

/// A loop device, detached when dropped.
pub(crate) struct Loop(pub(crate) String);

impl Loop {
    pub(crate) fn attach(image: &Path) -> Self {
        let output = Command::new("losetup").args(["--find", "--show"]).arg(image).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        Self(String::from_utf8(output.stdout).unwrap().trim().to_owned())
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        assert!(Command::new("losetup").args(["--detach", &self.0]).status().unwrap().success());
    }
}

fn a_program_that_is_no_helper() {
    let question = directory(Path::new("/"));
    let ask = |program: &str| {
        Helpers::with_program(program, Limits::default()).look("v", &question, PATIENCE).unwrap_err()
    };
    for error in [ask("/bin/true"), ask("/bin/echo")] {
        assert!(matches!(error, HelperError::Garbled { .. }) && !error.is_about_the_volume(), "{error}");
    }
    let missing = ask("/no/such/program");
    assert!(matches!(missing, HelperError::NotStarted { .. }) && !missing.is_about_the_volume(), "{missing}");
}
