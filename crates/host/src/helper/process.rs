//! The asking side: start a helper, listen until the deadline, and leave nothing behind that can be collected.

use std::io::{self, Read};
use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, pidfd_open};

use super::HelperError;
use super::question::{Ask, STARTING, last_step};

/// No answer is longer; what comes after is not read.
const LONGEST_ANSWER: usize = 4096;

/// How long a killed or finished helper may take to be gone before it counts as stuck.
const GRACE: Duration = Duration::from_millis(250);

/// How a helper ended, if it did.
pub(super) struct Ended<A> {
    pub(super) result: Result<A, HelperError>,
    /// It did not even die.
    pub(super) survivor: Option<Child>,
    /// Whether it got as far as the volume, so that it may be the volume that holds it.
    pub(super) reached: bool,
}

pub(super) fn ask<Q: Ask>(
    program: &Path,
    question: &Q,
    deadline: Duration,
) -> Result<Ended<Q::Answer>, HelperError> {
    let end = Instant::now() + deadline;
    let not_started = |source| HelperError::NotStarted { program: program.to_path_buf(), source };
    let mut child = Command::new(program)
        .args(question.arguments())
        .env_clear()
        // Ours may be inside of a volume.
        .current_dir("/")
        .stdin(question.stdin().map_err(not_started)?)
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .map_err(not_started)?;
    let heard = child.stdout.take().map(|mut pipe| listen(&mut pipe, end)).unwrap_or_default();
    let said = String::from_utf8_lossy(&heard.bytes).into_owned();
    let hung = |step: &str| HelperError::Hung {
        step: step.to_owned(),
        path: question.path().to_path_buf(),
        after: deadline,
    };
    let (result, gone) = match question.read_answer(&said) {
        // It has nothing more to do; but even ending can hang on a volume, and takes its time on a busy machine.
        Some(answer) => {
            let left = end.saturating_duration_since(Instant::now());
            let gone = gone_within(&mut child, left.max(GRACE)) || killed(&mut child);
            (if gone { answer } else { Err(hung("letting go of the volume")) }, gone)
        }
        // It closed its side without an answer, so it is ending; a kill makes sure.
        None if heard.to_the_end => {
            (Err(HelperError::Garbled { said: said.chars().take(200).collect() }), killed(&mut child))
        }
        None => (Err(hung(last_step(&said).unwrap_or(STARTING))), killed(&mut child)),
    };
    Ok(Ended { result, survivor: (!gone).then_some(child), reached: last_step(&said).is_some() })
}

fn killed(child: &mut Child) -> bool {
    let _ = child.kill();
    gone_within(child, GRACE)
}

#[derive(Default)]
struct Heard {
    bytes: Vec<u8>,
    /// The other side closed the pipe.
    to_the_end: bool,
}

/// Reads until the pipe is closed, the answer is too long, or the time is up.
fn listen(pipe: &mut (impl Read + AsFd), end: Instant) -> Heard {
    let mut heard = Heard::default();
    let mut piece = [0; 512];
    while heard.bytes.len() < LONGEST_ANSWER && readable(pipe.as_fd(), end) {
        match pipe.read(&mut piece) {
            Ok(0) => {
                heard.to_the_end = true;
                break;
            }
            Ok(count) => heard.bytes.extend_from_slice(&piece[..count]),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(_) => {
                heard.to_the_end = true;
                break;
            }
        }
    }
    // Whoever says too much has said it all.
    heard.to_the_end |= heard.bytes.len() >= LONGEST_ANSWER;
    heard
}

/// Waits until there is something to read or the end of the pipe; false when the time is up.
fn readable(descriptor: BorrowedFd<'_>, end: Instant) -> bool {
    loop {
        let left = end.saturating_duration_since(Instant::now());
        let timeout = Timespec::try_from(left).unwrap_or(Timespec { tv_sec: i64::MAX, tv_nsec: 0 });
        match poll(&mut [PollFd::from_borrowed_fd(descriptor, PollFlags::IN)], Some(&timeout)) {
            Ok(0) => return false,
            Err(rustix::io::Errno::INTR) if !left.is_zero() => {}
            Ok(_) => return true,
            Err(_) => return false,
        }
    }
}

/// Waits for the child's end, collects it, and says whether that worked.
fn gone_within(child: &mut Child, patience: Duration) -> bool {
    if let Ok(watch) = pidfd_open(Pid::from_child(child), PidfdFlags::empty()) {
        readable(watch.as_fd(), Instant::now() + patience);
    }
    !matches!(child.try_wait(), Ok(None))
}
