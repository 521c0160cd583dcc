//! What a helper finds out about volumes that work, fail, freeze and stall.

use std::fs;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use volmedic_host::helper::{Answer, Deadline, HelperError, Helpers, Limits, Question};

use super::mounter::{Listing, Mounter, SLOW};
use super::volume::Loop;
use super::{PATIENCE, Test, until};

pub(crate) const TESTS: &[Test] = &[
    ("a_directory_that_works_is_described", a_directory_that_works_is_described),
    ("a_link_is_not_followed", a_link_is_not_followed),
    (
        "a_link_in_place_of_a_device_or_an_image_is_not_followed",
        links_planted_in_place_of_a_device_or_an_image,
    ),
    ("a_dead_mounter_is_known_by_its_errno", a_dead_mounter_is_known_by_its_errno),
    ("a_frozen_mounter_hangs_its_helper_and_nobody_else", a_frozen_mounter_hangs_its_helper_and_nobody_else),
    ("a_helper_that_cannot_be_killed_is_left_and_collected_later", cannot_be_killed),
    ("a_volume_that_is_slow_but_answers_each_call_is_not_hung", slow_but_answers),
    ("an_endless_directory_ends", an_endless_directory_ends),
    ("a_helper_holds_no_inherited_descriptor", a_helper_holds_no_inherited_descriptor),
    ("only_a_block_device_is_opened_as_one", only_a_block_device_is_opened_as_one),
    ("a_helper_that_never_gets_there_says_nothing_about_the_volume", a_helper_that_never_gets_there),
    ("a_program_that_is_no_helper_is_not_an_unhealthy_volume", a_program_that_is_no_helper),
];

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
    let check = |most| {
        let question = Question::Directory { path: folder.path().into(), most };
        match helpers().look("v", &question, PATIENCE).unwrap() {
            Answer::Directory(found) => found,
            Answer::Device(_) => panic!("a directory was asked for"),
        }
    };
    assert_eq!((check(2).entries, check(2).more), (2, true));
    assert_eq!((check(3).entries, check(3).more), (3, false));
    assert_eq!((check(0).entries, check(0).more), (0, false));
    let stat = rustix::fs::stat(folder.path()).unwrap();
    assert_eq!(check(1).device, volmedic_host::DeviceNumber::from_raw(stat.st_dev));
    assert!(check(1).usage.bytes.total > 0);
}

fn a_link_is_not_followed() {
    let folder = tempfile::tempdir().unwrap();
    let link = folder.path().join("link");
    symlink("/etc", &link).unwrap();
    let error = helpers().look("v", &directory(&link), PATIENCE).unwrap_err();
    assert!(matches!(error.errno(), Some(libc::ENOTDIR | libc::ELOOP)), "{error}");
}

fn links_planted_in_place_of_a_device_or_an_image() {
    let folder = tempfile::tempdir().unwrap();
    let image = folder.path().join("image");
    fs::File::create(&image).unwrap().set_len(1 << 20).unwrap();
    let attached = Loop::attach(&image);
    let [to_device, to_image] = ["to-device", "to-image"].map(|name| folder.path().join(name));
    symlink(&attached.0, &to_device).unwrap();
    symlink(&image, &to_image).unwrap();
    let helpers = helpers();
    let question = Question::Device { path: to_device, read: true };
    let error = helpers.look("v", &question, PATIENCE).unwrap_err();
    assert_eq!(error.errno(), Some(libc::ENOTBLK), "{error}");
    assert_eq!(helpers.file_size("v", &image, PATIENCE).unwrap(), 1 << 20);
    let error = helpers.file_size("v", &to_image, PATIENCE).unwrap_err();
    assert_eq!(error.errno(), Some(libc::ENOTSUP), "{error}");
    let error = helpers.file_size("v", &folder.path().join("none"), PATIENCE).unwrap_err();
    assert_eq!(error.errno(), Some(libc::ENOENT), "{error}");
}

fn a_dead_mounter_is_known_by_its_errno() {
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
    let error = helpers.look("frozen", &directory(frozen.path()), SHORT).unwrap_err();
    assert!(matches!(&error, HelperError::Hung { .. }), "{error}");
    assert!(error.to_string().contains("did not come back within 0.3 s"), "{error}");
    // A frozen server had not taken the request, so the kernel let the helper die.
    until("the helper is collected", || helpers.counts().stuck == 0);
    std::thread::scope(|scope| {
        let stuck = scope.spawn(|| helpers.look("frozen", &directory(frozen.path()), PATIENCE));
        until("the check is under way", || helpers.counts().running == 1);
        let again = helpers.look("frozen", &directory(frozen.path()), PATIENCE).unwrap_err();
        assert!(matches!(again, HelperError::Busy { .. }), "one at a time: {again}");
        for _ in 0..5 {
            helpers.look("fine", &directory(fine.path()), PATIENCE).unwrap();
        }
        assert!(!stuck.is_finished(), "the others had their answers while this one waited");
        frozen.signal(Signal::CONT);
        stuck.join().unwrap().unwrap();
    });
    helpers.look("frozen", &directory(frozen.path()), PATIENCE).unwrap();
}

/// Looks until a helper is stuck and cannot be killed. On a busy machine the first may have been killed before it even
/// reached its volume. Answers with the step at which the last one hung.
pub(crate) fn until_stuck(check: impl Fn() -> Result<Answer, HelperError>) -> String {
    let mut at = String::new();
    until("the helper is stuck", || match check().unwrap_err() {
        HelperError::StillHung { .. } => true,
        HelperError::Hung { step, .. } => {
            at = step;
            false
        }
        error => panic!("{error}"),
    });
    at
}

fn cannot_be_killed() {
    let mut stalled = Mounter::start(Listing::Never);
    let fine = Mounter::start(Listing::Short);
    let helpers = helpers();
    let step = until_stuck(|| helpers.look("stalled", &directory(stalled.path()), SHORT));
    assert_eq!(step, "readdir");
    let counts = helpers.counts();
    assert_eq!((counts.stuck, counts.running), (1, 0));
    assert!(counts.abandoned >= 1 && counts.hung >= counts.abandoned, "{counts:?}");

    let again = helpers.look("stalled", &directory(stalled.path()), PATIENCE).unwrap_err();
    assert!(matches!(again, HelperError::StillHung { .. }) && again.is_hang(), "{again}");
    assert_eq!(helpers.counts().asked, counts.asked, "no second helper was sent after the first");
    helpers.look("fine", &directory(fine.path()), PATIENCE).unwrap();

    stalled.kill();
    until("the helper is collected", || helpers.counts().stuck == 0);
    let dead = helpers.look("stalled", &directory(stalled.path()), PATIENCE).unwrap_err();
    assert_eq!(dead.errno(), Some(libc::ENOTCONN), "{dead}");
}

fn slow_but_answers() {
    let slow = Mounter::start(Listing::Slow);
    let helpers = helpers();
    let (began, call) = (Instant::now(), SLOW * 3);
    let answer = helpers.look("v", &directory(slow.path()), call).unwrap();
    assert!(matches!(answer, Answer::Directory(found) if found.entries == 2), "{answer:?}");
    assert!(began.elapsed() > call, "all calls together took longer than one may");
    // Even where there is no time for all of them, none of them hangs.
    let deadline = Deadline { call: PATIENCE, whole: SLOW * 2 };
    let error = helpers.look("v", &directory(slow.path()), deadline).unwrap_err();
    assert!(matches!(&error, HelperError::Slow { .. }) && !error.is_hang(), "{error}");
    assert!(error.is_about_the_volume());
    // A killed helper is gone when its last call was answered; until then it is at work, and not hung either.
    until("the volume answers again", || match helpers.look("v", &directory(slow.path()), PATIENCE) {
        Ok(_) => true,
        Err(HelperError::Busy { .. }) => false,
        Err(error) => panic!("{error}"),
    });
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
            let helper = helpers_at(&helpers, "frozen").first().copied();
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

/// The processes that are at this volume.
pub(crate) fn helpers_at(helpers: &Helpers, key: &str) -> Vec<u32> {
    let processes = helpers.processes().into_iter();
    processes.filter(|process| process.key.as_deref() == Some(key)).map(|process| process.id).collect()
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

fn a_helper_that_never_gets_there() {
    // Takes any arguments, says nothing, and stays.
    let program = tempfile::NamedTempFile::new().unwrap().into_temp_path();
    fs::write(&program, "#!/bin/sh\nexec sleep 60\n").unwrap();
    fs::set_permissions(&program, fs::Permissions::from_mode(0o700)).unwrap();
    let helpers = Helpers::with_program(&*program, Limits::default());
    let check = || helpers.look("v", &directory(Path::new("/")), SHORT).unwrap_err();
    let mut error = check();
    // A process that was just forked elsewhere may still have the file open, and then it cannot be run.
    until("the program is started", || {
        let started = !matches!(error, HelperError::NotStarted { .. });
        if !started {
            error = check();
        }
        started
    });
    assert!(matches!(&error, HelperError::Hung { .. }), "{error}");
    assert!(!error.is_about_the_volume() && !error.is_hang(), "the volume was not even asked: {error}");
    until("it is collected", || helpers.counts().stuck == 0);
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
