//! The asking side: start a helper, listen until the deadline, and leave nothing behind that can be collected.

use std::io::{self, Read};
use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, pidfd_open};

use super::question::{Ask, STARTING, last_step};
use super::{Deadline, HelperError};

/// No answer is longer; what comes after is not read. Each call of a long directory is a line.
const LONGEST_ANSWER: usize = 64 << 10;

/// How long a killed or finished helper may take to be gone before it counts as stuck.
const GRACE: Duration = Duration::from_millis(250);

/// How a helper ended, if it did.
pub(super) struct Ended<A> {
    pub(super) result: Result<A, HelperError>,
    /// It did not even die.
    pub(super) survivor: Option<Child>,
    /// Whether it got as far as the volume, so that it may be the volume that holds it.
    pub(super) reached: bool,
    /// When its last call began.
    pub(super) last_call: Instant,
}

pub(super) fn ask<Q: Ask>(
    program: &Path,
    question: &Q,
    deadline: Deadline,
) -> Result<Ended<Q::Answer>, HelperError> {
    let began = Instant::now();
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
    let mut heard = Heard { bytes: Vec::new(), to_the_end: false, at: began };
    if let Some(mut pipe) = child.stdout.take() {
        heard.listen(&mut pipe, deadline.call, began + deadline.whole);
    }
    let is_hung = heard.at.elapsed() >= deadline.call;
    let said = String::from_utf8_lossy(&heard.bytes).into_owned();
    let hung = |step: &str| HelperError::Hung {
        step: step.to_owned(),
        path: question.path().to_path_buf(),
        after: deadline.call,
    };
    let slow = |step: &str| HelperError::Slow {
        step: step.to_owned(),
        path: question.path().to_path_buf(),
        after: deadline.whole,
        call: deadline.call,
    };
    let (result, gone) = match question.read_answer(&said) {
        // It has nothing more to do; but even ending can hang on a volume, and takes its time on a busy machine.
        Some(answer) => {
            let left = deadline.call.saturating_sub(heard.at.elapsed());
            let gone = gone_within(&mut child, left.max(GRACE)) || killed(&mut child);
            (if gone { answer } else { Err(hung("letting go of the volume")) }, gone)
        }
        // It closed its side without an answer, so it is ending; a kill makes sure.
        None if heard.to_the_end => {
            (Err(HelperError::Garbled { said: said.chars().take(200).collect() }), killed(&mut child))
        }
        None => {
            let step = last_step(&said);
            let error = match step {
                Some(step) if !is_hung => slow(step),
                _ => hung(step.unwrap_or(STARTING)),
            };
            (Err(error), killed(&mut child))
        }
    };
    let reached = last_step(&said).is_some();
    Ok(Ended { result, survivor: (!gone).then_some(child), reached, last_call: heard.at })
}

fn killed(child: &mut Child) -> bool {
    let _ = child.kill();
    gone_within(child, GRACE)
}

struct Heard {
    bytes: Vec<u8>,
    /// The other side closed the pipe.
    to_the_end: bool,
    /// When it last said something. It does so before each call.
    at: Instant,
}

impl Heard {
    /// Reads until the pipe is closed, the answer is too long, a call took longer than `call`, or `end` is reached.
    fn listen(&mut self, pipe: &mut (impl Read + AsFd), call: Duration, end: Instant) {
        let mut piece = [0; 512];
        while self.bytes.len() < LONGEST_ANSWER && readable(pipe.as_fd(), end.min(self.at + call)) {
            match pipe.read(&mut piece) {
                Ok(0) => {
                    self.to_the_end = true;
                    break;
                }
                Ok(count) => {
                    self.bytes.extend_from_slice(&piece[..count]);
                    self.at = Instant::now();
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => {
                    self.to_the_end = true;
                    break;
                }
            }
        }
        // A helper that says too much has said it all.
        self.to_the_end |= self.bytes.len() >= LONGEST_ANSWER;
    }
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
