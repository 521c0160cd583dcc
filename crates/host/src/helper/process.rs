//! The asking side: start a helper, ask it, listen until the deadline, and leave nothing behind that can be collected.

use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;
use std::process::{Child, ChildStderr, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, pidfd_open};

use super::question::{Ask, LETTING_GO, LONGEST_QUESTION, MARK, SERVE, STARTING, last_step};
use super::{Deadline, HelperError};

/// No answer, and no list of steps, is longer; what comes after is not read. Each call of a long directory is a step.
const LONGEST: usize = 64 << 10;

/// How long a killed or finished helper may take to be gone before it counts as stuck.
const GRACE: Duration = Duration::from_millis(250);

/// The steps are read this often while there is no answer. To wake up for each of them would cost more than the
/// question.
const TICK: Duration = Duration::from_millis(100);

/// How a question ended, and its helper.
pub(super) struct Ended<A> {
    pub(super) result: Result<A, HelperError>,
    pub(super) left: Left,
    /// Whether it got as far as the volume, so that it may be the volume that holds it.
    pub(super) reached: bool,
    /// When its last call began.
    pub(super) last_call: Instant,
}

/// What is left of a helper after a question.
pub(super) enum Left {
    /// It waits for the next one.
    Ready(Worker),
    Nothing,
    /// It did not even die.
    Survivor(Child),
}

impl Left {
    fn killed(mut child: Child) -> Self {
        if killed(&mut child) { Self::Nothing } else { Self::Survivor(child) }
    }
}

/// A helper that answers one question after the other.
#[derive(Debug)]
pub(super) struct Worker {
    child: Child,
    questions: ChildStdin,
    said: Said,
    asked: u32,
}

impl Worker {
    pub(super) fn start(program: &Path) -> io::Result<Self> {
        let mut child = command(program).arg(SERVE).stdin(Stdio::piped()).spawn()?;
        let questions = child.stdin.take();
        let said = Said::of(&mut child);
        match (questions, said) {
            (Some(questions), Ok(said)) => Ok(Self { child, questions, said, asked: 0 }),
            (_, said) => {
                killed(&mut child);
                Err(said.err().unwrap_or_else(no_pipe))
            }
        }
    }

    pub(super) fn id(&self) -> u32 {
        self.child.id()
    }

    /// How many questions it was asked.
    pub(super) fn asked(&self) -> u32 {
        self.asked
    }

    /// Whether it waits for a question and has said nothing since the last one.
    pub(super) fn is_quiet(&mut self) -> bool {
        let Said { answers, steps } = &self.said;
        let mut both =
            [answers.as_fd(), steps.as_fd()].map(|pipe| PollFd::from_borrowed_fd(pipe, PollFlags::IN));
        matches!(poll(&mut both, Some(&Timespec::default())), Ok(0))
    }

    pub(super) fn ask<Q: Ask>(mut self, question: &Q, deadline: Deadline) -> Ended<Q::Answer> {
        let mut heard = Heard::since_now();
        let record = question.record();
        if record.len() > LONGEST_QUESTION {
            // What the kernel would say.
            let path = question.path().to_path_buf();
            let failed = HelperError::Failed { step: "open".to_owned(), path, errno: libc::ENAMETOOLONG };
            return Ended {
                result: Err(failed),
                left: Left::Ready(self),
                reached: false,
                last_call: heard.at,
            };
        }
        self.asked += 1;
        // The pipe is empty and has room for it, so this does not wait.
        if self.questions.write_all(&record).is_ok() {
            heard.listen(&mut self.said, deadline);
        } else {
            heard.to_the_end = true;
        }
        let (result, left) = match heard.answer(question) {
            Some(answer) => (answer, Left::Ready(self)),
            None => (Err(heard.failure(question, deadline)), Left::killed(self.child)),
        };
        Ended { result, left, reached: heard.step().is_some(), last_call: heard.at }
    }

    /// Ends it. It is not at a volume, so the kill works.
    pub(super) fn end(mut self) {
        killed(&mut self.child);
    }
}

/// Asks a helper that gets something on its standard input, and ends after this question.
pub(super) fn ask_once<Q: Ask>(
    program: &Path,
    question: &Q,
    stdin: Stdio,
    deadline: Deadline,
) -> Result<Ended<Q::Answer>, HelperError> {
    let not_started = |source| HelperError::NotStarted { program: program.to_path_buf(), source };
    let mut heard = Heard::since_now();
    let mut child = command(program).args(question.arguments()).stdin(stdin).spawn().map_err(not_started)?;
    match Said::of(&mut child) {
        Ok(mut said) => heard.listen(&mut said, deadline),
        Err(error) => {
            killed(&mut child);
            return Err(not_started(error));
        }
    }
    let (result, left) = match heard.answer(question) {
        // It has nothing more to do; but even ending takes its time on a busy machine.
        Some(answer) => {
            let left = deadline.call.saturating_sub(heard.at.elapsed());
            if gone_within(&mut child, left.max(GRACE)) || killed(&mut child) {
                (answer, Left::Nothing)
            } else {
                (Err(hung(question, deadline, LETTING_GO)), Left::Survivor(child))
            }
        }
        None => (Err(heard.failure(question, deadline)), Left::killed(child)),
    };
    Ok(Ended { result, left, reached: heard.step().is_some(), last_call: heard.at })
}

fn command(program: &Path) -> Command {
    let mut command = Command::new(program);
    command
        .arg(MARK)
        .env_clear()
        // Ours may be inside of a volume.
        .current_dir("/")
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    command
}

fn killed(child: &mut Child) -> bool {
    let _ = child.kill();
    gone_within(child, GRACE)
}

fn hung<Q: Ask>(question: &Q, deadline: Deadline, step: &str) -> HelperError {
    HelperError::Hung { step: step.to_owned(), path: question.path().to_path_buf(), after: deadline.call }
}

/// What a helper writes: answers, and the steps on the way to them.
#[derive(Debug)]
struct Said {
    answers: ChildStdout,
    steps: ChildStderr,
}

impl Said {
    fn of(child: &mut Child) -> io::Result<Self> {
        let (Some(answers), Some(steps)) = (child.stdout.take(), child.stderr.take()) else {
            return Err(no_pipe());
        };
        // This end only: the steps are read when there is time for them, and there may be none.
        rustix::io::ioctl_fionbio(&steps, true)?;
        Ok(Self { answers, steps })
    }
}

fn no_pipe() -> io::Error {
    io::Error::other("it has no pipes")
}

/// What was heard of a helper since it was asked.
struct Heard {
    answer: Vec<u8>,
    steps: Vec<u8>,
    /// The other side closed its pipes, or said too much.
    to_the_end: bool,
    /// When it was last heard of: it says so before each call.
    at: Instant,
}

impl Heard {
    fn since_now() -> Self {
        Self { answer: Vec::new(), steps: Vec::new(), to_the_end: false, at: Instant::now() }
    }

    /// Reads until there is an answer, the pipes are closed, too much was said, or a deadline has passed.
    fn listen(&mut self, said: &mut Said, deadline: Deadline) {
        let end = self.at + deadline.whole;
        loop {
            let tick = end.min(self.at + deadline.call).min(Instant::now() + TICK);
            let is_more = readable(said.answers.as_fd(), tick);
            if is_more {
                self.read_answer(&mut said.answers);
            }
            // Those of an answer were written before it.
            self.read_steps(&mut said.steps);
            self.to_the_end |= self.answer.len() >= LONGEST || self.steps.len() >= LONGEST;
            if self.to_the_end || self.answer.contains(&b'\n') {
                return;
            }
            if !is_more && Instant::now() >= end.min(self.at + deadline.call) {
                return;
            }
        }
    }

    fn read_answer(&mut self, answers: &mut ChildStdout) {
        let mut piece = [0; 512];
        match answers.read(&mut piece) {
            Ok(0) => self.to_the_end = true,
            Ok(count) => {
                self.answer.extend_from_slice(&piece[..count]);
                self.at = Instant::now();
            }
            Err(error) => self.to_the_end |= error.kind() != io::ErrorKind::Interrupted,
        }
    }

    /// All that are there.
    fn read_steps(&mut self, steps: &mut ChildStderr) {
        let mut piece = [0; 1024];
        while self.steps.len() < LONGEST {
            // At the end of this pipe the other one ends, too; an error means that there are none yet.
            let Ok(count) = steps.read(&mut piece) else { return };
            self.steps.extend_from_slice(&piece[..count]);
            if count > 0 {
                self.at = Instant::now();
            }
            if count < piece.len() {
                return;
            }
        }
    }

    fn step(&self) -> Option<&str> {
        last_step(&self.steps)
    }

    /// Its answer, if it is complete and nothing follows it.
    fn answer<Q: Ask>(&self, question: &Q) -> Option<Result<Q::Answer, HelperError>> {
        question.read_answer(std::str::from_utf8(&self.answer).ok()?)
    }

    /// Why there is none.
    fn failure<Q: Ask>(&self, question: &Q, deadline: Deadline) -> HelperError {
        if self.to_the_end || self.answer.contains(&b'\n') {
            let said = String::from_utf8_lossy(&self.answer).chars().take(200).collect();
            return HelperError::Garbled { said };
        }
        match self.step() {
            Some(step) if self.at.elapsed() < deadline.call => HelperError::Slow {
                step: step.to_owned(),
                path: question.path().to_path_buf(),
                after: deadline.whole,
                call: deadline.call,
            },
            step => hung(question, deadline, step.unwrap_or(STARTING)),
        }
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
