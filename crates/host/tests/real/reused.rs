//! Helpers answer one question after the other, and keep nothing of one volume when they are asked about the next one.

use std::fs;
use std::io::{Read, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use volmedic_host::helper::{HelperError, Helpers, Limits, Question};

use super::mounter::{Listing, Mounter};
use super::volume::Volume;
use super::{PATIENCE, Test, until};

pub(crate) const TESTS: &[Test] = &[
    ("one_helper_answers_one_question_after_the_other_until_it_is_replaced", one_after_the_other),
    ("a_helper_outlives_the_threads_that_ask_it", outlives_threads),
    ("a_helper_that_waits_for_a_question_holds_nothing_of_a_volume", holds_nothing),
    ("a_helper_lets_go_of_a_volume_before_it_answers", lets_go_first),
    ("a_helper_that_has_hung_is_never_asked_again", hung),
    ("a_helper_that_died_while_it_waited_is_replaced", died),
    ("a_failure_of_one_volume_is_no_failure_of_the_next_one", failures),
    ("helpers_end_with_their_owner", end_with_their_owner),
];

fn helpers() -> Helpers {
    Helpers::new(Limits::default())
}

fn directory(path: &Path) -> Question {
    Question::Directory { path: path.into(), most: 10 }
}

fn look(helpers: &Helpers, path: &Path) {
    helpers.look("v", &directory(path), PATIENCE).unwrap();
}

/// The only helper, which waits for a question.
fn idle(helpers: &Helpers) -> u32 {
    match helpers.processes().as_slice() {
        [process] if process.key.is_none() => process.id,
        others => panic!("one helper that waits was expected: {others:?}"),
    }
}

fn one_after_the_other() {
    let helpers = helpers();
    look(&helpers, Path::new("/"));
    let first = idle(&helpers);
    for _ in 1..1000 {
        look(&helpers, Path::new("/"));
    }
    let counts = helpers.counts();
    assert_eq!((counts.started, counts.asked, counts.running), (1, 1000, 0));
    look(&helpers, Path::new("/"));
    assert_ne!(idle(&helpers), first, "after a thousand questions it is replaced");
    assert!(!Path::new(&format!("/proc/{first}")).exists(), "{first} was collected");
    assert_eq!(helpers.counts().started, 2);
}

/// The kernel kills a helper when the thread ends that started it.
fn outlives_threads() {
    let helpers = helpers();
    for _ in 0..50 {
        std::thread::scope(|scope| scope.spawn(|| look(&helpers, Path::new("/"))).join().unwrap());
    }
    assert_eq!(helpers.counts().started, 1);
}

fn holds_nothing() {
    let mut volume = Volume::new("ext4");
    let helpers = helpers();
    look(&helpers, &volume.path());
    let helper = idle(&helpers);
    let question = Question::Device { path: (&volume.device.0).into(), read: true };
    helpers.look("v", &question, PATIENCE).unwrap();
    helpers.file_size("v", &volume.folder.path().join("image"), PATIENCE).unwrap();
    helpers.host_directory("v", Path::new("/"), &volume.path(), 10, PATIENCE).unwrap();
    // Nor when it fails.
    helpers.file_size("v", &volume.path(), PATIENCE).unwrap_err();
    assert_eq!(idle(&helpers), helper);

    let proc = Path::new("/proc").join(helper.to_string());
    let mut open: Vec<String> = fs::read_dir(proc.join("fd"))
        .unwrap()
        .map(|entry| fs::read_link(entry.unwrap().path()).unwrap().to_string_lossy().into_owned())
        .collect();
    open.sort();
    open.dedup();
    assert!(open.len() == 3 && open.iter().all(|open| open.starts_with("pipe:")), "{open:?}");
    assert_eq!(fs::read_link(proc.join("cwd")).unwrap(), Path::new("/"));
    let maps = fs::read_to_string(proc.join("maps")).unwrap();
    assert!(!maps.contains(&*volume.path().to_string_lossy()), "{maps}");
    volume.unmount();
    assert_eq!(idle(&helpers), helper, "it was there while the volume was unmounted");
}

/// Both of its pipes are one here, which shows the order of what it writes.
fn lets_go_first() {
    let (mut said, both) = std::io::pipe().unwrap();
    let mut helper = Command::new("/proc/self/exe")
        .args(["__volmedic-helper", "serve"])
        .stdin(Stdio::piped())
        .stdout(both.try_clone().unwrap())
        .stderr(both)
        .spawn()
        .unwrap();
    let mut questions = helper.stdin.take().unwrap();
    for question in [["directory", "5", "/"], ["device", "1", "/dev/null"], ["file", "", "/no/such/file"]] {
        let question = question.join("\0");
        let length = u32::try_from(question.len()).unwrap();
        questions.write_all(&[&length.to_le_bytes(), question.as_bytes()].concat()).unwrap();
    }
    // Without more questions it ends.
    drop(questions);
    assert!(helper.wait().unwrap().success());
    let mut text = String::new();
    said.read_to_string(&mut text).unwrap();
    let lines: Vec<&str> = text.lines().collect();
    let answers: Vec<usize> = (0..lines.len()).filter(|at| !lines[*at].starts_with("> ")).collect();
    let [directory, device, file] = answers[..] else { panic!("three answers were expected: {text}") };
    let letting_go = "> letting go of the volume";
    assert_eq!((lines[0], lines[directory - 1]), ("> open", letting_go), "{text}");
    assert!(lines[directory].starts_with("= "), "{text}");
    assert_eq!(
        lines[device - 1..=device],
        [letting_go, format!("! stat {}", libc::ENOTBLK).as_str()],
        "{text}"
    );
    // It had opened nothing.
    assert_eq!(lines[file - 1..=file], ["> find", format!("! find {}", libc::ENOENT).as_str()], "{text}");
}

fn hung() {
    let frozen = Mounter::start(Listing::Short);
    let helpers = helpers();
    look(&helpers, frozen.path());
    let first = idle(&helpers);
    frozen.signal(Signal::STOP);
    let error = helpers.look("v", &directory(frozen.path()), Duration::from_millis(300)).unwrap_err();
    assert!(matches!(&error, HelperError::Hung { .. }), "{error}");
    helpers.look("other", &directory(Path::new("/")), PATIENCE).unwrap();
    let waiting = helpers.processes().into_iter().filter(|process| process.key.is_none());
    assert!(waiting.into_iter().all(|process| process.id != first), "{:?}", helpers.processes());
    until("it is collected", || helpers.counts().stuck == 0);
    assert!(!Path::new(&format!("/proc/{first}")).exists(), "{first} has ended");
}

fn died() {
    let helpers = helpers();
    look(&helpers, Path::new("/"));
    let first = idle(&helpers);
    kill_process(Pid::from_raw(first.cast_signed()).unwrap(), Signal::KILL).unwrap();
    until("it is dead", || {
        let stat = fs::read_to_string(format!("/proc/{first}/stat")).unwrap();
        stat.rsplit_once(") ").unwrap().1.starts_with('Z')
    });
    look(&helpers, Path::new("/"));
    assert_ne!(idle(&helpers), first);
    assert!(!Path::new(&format!("/proc/{first}")).exists(), "{first} was collected");
}

fn failures() {
    let helpers = helpers();
    let missing = directory(Path::new("/no/such/directory"));
    let too_long = directory(&Path::new("/").join("a/".repeat(20_000)));
    for _ in 0..3 {
        let error = helpers.look("v", &missing, PATIENCE).unwrap_err();
        assert_eq!(error.errno(), Some(libc::ENOENT), "{error}");
        let error = helpers.look("v", &too_long, PATIENCE).unwrap_err();
        assert_eq!(error.errno(), Some(libc::ENAMETOOLONG), "{error}");
        look(&helpers, Path::new("/"));
    }
    assert_eq!(helpers.counts().started, 1);
}

fn end_with_their_owner() {
    let helpers = helpers();
    look(&helpers, Path::new("/"));
    let helper = idle(&helpers);
    drop(helpers);
    until("it has ended", || !Path::new(&format!("/proc/{helper}")).exists());
}
