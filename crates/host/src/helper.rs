//! Disposable processes for calls into a volume that may never return.
//!
//! A broken volume can hold a process that accesses it, in a state that not even a kill ends. So this process never
//! accesses one: it starts itself again as a helper, asks it, waits until a deadline, and kills it after.
//! A helper that did not come back is itself the finding. One that does not die is left behind, counted, and
//! collected when the kernel lets go of it; until then no other helper is sent to the same volume. One that answered has
//! closed all that it had opened of the volume, and is asked about the next one.
//!
//! The program's `main` must call [`run_if_asked`] before anything else.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::process::Child;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

mod child;
mod pool;
mod process;
mod question;

pub use child::run_if_asked;
pub(crate) use question::Ask;
pub use question::{Answer, Device, Directory, HostDirectory, Question};

use pool::{Pool, Unavailable};
use process::{Ended, Left};
use question::{FileSize, InHost, STARTING};

/// How many helpers there may be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Maximum number that run concurrently. A check waits for a free one, but not past its own deadline.
    pub running: usize,
    /// Number left behind, because they did not die, from which on no new one is started.
    pub stuck: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self { running: 16, stuck: 256 }
    }
}

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub enum HelperError {
    /// The volume answered with an error. This is a finding about the volume.
    #[error("{step} failed on {path}: {}", std::io::Error::from_raw_os_error(*errno))]
    Failed { step: String, path: PathBuf, errno: i32 },
    /// The volume did not answer in time. This is a finding about the volume, unless the helper did not even get
    /// there: then the machine is too busy to start one.
    #[error("{step} on {path} did not come back within {}", seconds(*after))]
    Hung { step: String, path: PathBuf, after: Duration },
    /// Every call was answered, but all of them together took too long. This is a finding about the volume, which is
    /// slow and not hung.
    #[error(
        "the check of {path} did not end within {} although no call took {}; the last call was {step}",
        seconds(*after), seconds(*call)
    )]
    Slow { step: String, path: PathBuf, after: Duration, call: Duration },
    /// An earlier helper still cannot be killed, so none was started. This is a finding about the volume.
    #[error("an earlier check of {path} has not ended for {} and cannot be killed", seconds(*since))]
    StillHung { path: PathBuf, since: Duration },
    /// Another check of the same volume is under way. Says nothing about the volume.
    #[error("another check of {key} is under way; its result is the one to wait for")]
    Busy { key: String },
    /// Says nothing about the volume.
    #[error("all {limit} helpers were taken for {}; allow more of them or check less often", seconds(*waited))]
    Full { limit: usize, waited: Duration },
    /// Says nothing about the volume.
    #[error("{limit} helpers are stuck and no more are allowed; repair the volumes that hold them")]
    TooManyStuck { limit: usize },
    /// Our own failure, or the machine's.
    #[error("the helper {program} did not start: {source}; check process and memory limits")]
    NotStarted { program: PathBuf, source: std::io::Error },
    /// Our own failure: the helper ended without an answer or with one that makes no sense.
    #[error(
        "the helper gave no answer that makes sense: {said:?}; does its program call run_if_asked first?"
    )]
    Garbled { said: String },
}

impl HelperError {
    /// Whether this is something to hold against the volume, rather than against us.
    pub fn is_about_the_volume(&self) -> bool {
        matches!(self, Self::Failed { .. } | Self::Slow { .. }) || self.is_hang()
    }

    /// Whether the volume did not answer at all.
    pub fn is_hang(&self) -> bool {
        match self {
            Self::Hung { step, .. } => step != STARTING,
            _ => matches!(self, Self::StillHung { .. }),
        }
    }

    /// The volume's own error number.
    pub fn errno(&self) -> Option<i32> {
        match self {
            Self::Failed { errno, .. } => Some(*errno),
            _ => None,
        }
    }
}

/// How long a volume may take to answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Deadline {
    /// For each call. A call that takes longer is hung.
    pub call: Duration,
    /// For all calls of one question, so that a slow volume does not occupy a helper's place without a bound.
    pub whole: Duration,
}

/// A question is a handful of calls, and on a slow volume rarely more than one of them comes near its deadline.
impl From<Duration> for Deadline {
    fn from(call: Duration) -> Self {
        Self { call, whole: call.saturating_mul(3) }
    }
}

fn seconds(duration: Duration) -> String {
    format!("{:.1} s", duration.as_secs_f64())
}

/// What the helpers have been up to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counts {
    /// At a volume.
    pub running: usize,
    /// Waiting for a question.
    pub idle: usize,
    /// Left behind and not yet dead.
    pub stuck: usize,
    /// Processes, since the start.
    pub started: u64,
    /// Questions for which there was a place, since the start.
    pub asked: u64,
    /// Over their deadline, since the start.
    pub hung: u64,
    /// Ever left behind, since the start.
    pub abandoned: u64,
}

/// A helper that is there now. Its command line does not show where it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Process {
    pub id: u32,
    /// The volume that it is at, or stuck at; `None` if it waits for a question.
    pub key: Option<Box<str>>,
}

/// The helpers of this process. Calls block; from an async task they go through a blocking thread.
#[derive(Debug)]
pub struct Helpers {
    program: PathBuf,
    limits: Limits,
    pool: Pool,
    state: Mutex<State>,
    freed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    /// The volumes that are being asked, and the process that is at it, once there is one.
    running: HashMap<Box<str>, Option<u32>>,
    stuck: Vec<Stuck>,
    counts: Counts,
}

#[derive(Debug)]
struct Stuck {
    key: Box<str>,
    /// When the call that it is at began, and from when on that call counts as hung.
    since: Instant,
    hung_from: Instant,
    /// Whether it got as far as the volume.
    reached: bool,
    child: Child,
}

impl Helpers {
    /// Helpers that are this very program.
    pub fn new(limits: Limits) -> Self {
        Self::with_program("/proc/self/exe", limits)
    }

    /// Helpers that are another program whose `main` calls [`run_if_asked`].
    pub fn with_program(program: impl Into<PathBuf>, limits: Limits) -> Self {
        let program = program.into();
        let pool = Pool::new(program.clone());
        Self { program, limits, pool, state: Mutex::default(), freed: Condvar::new() }
    }

    /// Asks, and waits no longer than the deadline of one call for a free place, as long for a helper, the whole deadline
    /// for the answer, and a moment for the helper to die. `key` names the volume: at most one helper is at it.
    pub fn look(
        &self,
        key: &str,
        question: &Question,
        deadline: impl Into<Deadline>,
    ) -> Result<Answer, HelperError> {
        self.send(key, question, deadline.into())
    }

    /// How large the file under a loop device is, without opening it; `key` and `deadline` as in [`look`].
    ///
    /// [`look`]: Self::look
    pub fn file_size(&self, key: &str, file: &Path, deadline: Duration) -> Result<u64, HelperError> {
        self.send(key, &FileSize(file), deadline.into())
    }

    /// The same as a [`Question::Directory`] of a directory of the host, whose root directory this process has at `root`.
    /// Links in `path` are followed, and none leads out of `root`; `key` and `deadline` as in [`look`].
    ///
    /// [`look`]: Self::look
    pub fn host_directory(
        &self,
        key: &str,
        root: &Path,
        path: &Path,
        most: u32,
        deadline: Duration,
    ) -> Result<HostDirectory, HelperError> {
        self.send(key, &InHost { root, path, most }, deadline.into())
    }

    pub(crate) fn send<Q: Ask>(
        &self,
        key: &str,
        question: &Q,
        deadline: Deadline,
    ) -> Result<Q::Answer, HelperError> {
        let place = self.take_place(key, question.path(), deadline.call)?;
        let Ended { result, left, reached, last_call } = self.ask(&place, question, deadline)?;
        let survivor = match left {
            Left::Ready(worker) => {
                self.pool.give_back(worker);
                None
            }
            Left::Nothing => None,
            Left::Survivor(child) => Some(child),
        };
        let mut state = self.state.lock();
        state.counts.hung += u64::from(matches!(result, Err(HelperError::Hung { .. })));
        if let Some(child) = survivor {
            state.counts.abandoned += 1;
            let hung_from = last_call + deadline.call;
            state.stuck.push(Stuck { key: key.into(), since: last_call, hung_from, reached, child });
        }
        result
    }

    /// Asks a helper that waits for a question, or one of its own if the question comes with more than words.
    fn ask<Q: Ask>(
        &self,
        place: &Place<'_>,
        question: &Q,
        deadline: Deadline,
    ) -> Result<Ended<Q::Answer>, HelperError> {
        let not_started = |source| HelperError::NotStarted { program: self.program.clone(), source };
        if let Some(stdin) = question.stdin().map_err(not_started)? {
            self.state.lock().counts.started += 1;
            return process::ask_once(&self.program, question, stdin, deadline);
        }
        let asked = Instant::now();
        match self.pool.take(deadline.call) {
            Ok(worker) => {
                place.is_at(worker.id());
                Ok(worker.ask(question, deadline))
            }
            Err(Unavailable::NotStarted(source)) => Err(not_started(source)),
            Err(Unavailable::Late) => {
                let (step, path) = (STARTING.to_owned(), question.path().to_path_buf());
                let result = Err(HelperError::Hung { step, path, after: deadline.call });
                Ok(Ended { result, left: Left::Nothing, reached: false, last_call: asked })
            }
        }
    }

    /// Collects what has died since and says how things stand.
    pub fn counts(&self) -> Counts {
        let (idle, of_pool) = (self.pool.idle().len(), self.pool.started());
        let mut state = self.state.lock();
        state.reap();
        let started = state.counts.started + of_pool;
        Counts { running: state.running.len(), idle, stuck: state.stuck.len(), started, ..state.counts }
    }

    /// The processes that are there now, and where. What holds one is in `/proc/<id>/stack`.
    /// Those that are only started for one question are not among them.
    pub fn processes(&self) -> Vec<Process> {
        let idle = self.pool.idle().into_iter().map(|id| Process { id, key: None });
        let state = self.state.lock();
        let running = state.running.iter().filter_map(|(key, id)| Some((key, (*id)?)));
        let stuck = state.stuck.iter().map(|stuck| (&stuck.key, stuck.child.id()));
        let busy = running.chain(stuck).map(|(key, id)| Process { id, key: Some(key.clone()) });
        idle.chain(busy).collect()
    }

    fn take_place(&self, key: &str, path: &Path, deadline: Duration) -> Result<Place<'_>, HelperError> {
        let asked = Instant::now();
        let mut state = self.state.lock();
        loop {
            state.reap();
            let is_hung =
                |stuck: &&Stuck| stuck.reached && *stuck.key == *key && stuck.hung_from <= Instant::now();
            if let Some(stuck) = state.stuck.iter().find(is_hung) {
                return Err(HelperError::StillHung {
                    path: path.to_path_buf(),
                    since: stuck.since.elapsed(),
                });
            }
            // One that was killed before it reached the volume, or before its call was hung, is still under way.
            if state.running.contains_key(key) || state.stuck.iter().any(|stuck| *stuck.key == *key) {
                return Err(HelperError::Busy { key: key.to_owned() });
            }
            if state.stuck.len() >= self.limits.stuck {
                return Err(HelperError::TooManyStuck { limit: self.limits.stuck });
            }
            if state.running.len() < self.limits.running {
                state.running.insert(key.into(), None);
                state.counts.asked += 1;
                return Ok(Place { helpers: self, key: key.into() });
            }
            let left = deadline.saturating_sub(asked.elapsed());
            if left.is_zero() {
                return Err(HelperError::Full { limit: self.limits.running, waited: asked.elapsed() });
            }
            self.freed.wait_for(&mut state, left);
        }
    }
}

impl State {
    fn reap(&mut self) {
        // A child that cannot be waited for is not ours any more, so it is let go, too.
        self.stuck.retain_mut(|stuck| matches!(stuck.child.try_wait(), Ok(None)));
    }
}

/// A place among the running helpers, given back when dropped.
struct Place<'h> {
    helpers: &'h Helpers,
    key: Box<str>,
}

impl Place<'_> {
    fn is_at(&self, process: u32) {
        if let Some(at) = self.helpers.state.lock().running.get_mut(&self.key) {
            *at = Some(process);
        }
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        self.helpers.state.lock().running.remove(&self.key);
        self.helpers.freed.notify_one();
    }
}
