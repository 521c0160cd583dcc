//! Helpers that wait for their next question.
//!
//! Starting a process takes milliseconds of processor time, asking one that waits takes microseconds. So a helper that
//! has answered is kept for the next volume; one that has not is never used again.
//!
//! A helper dies with the thread that started it: that is how the kernel's parent death signal works. The threads that ask come and
//! go, so one thread that stays, the keeper, starts all of them. It also ends those that are not needed any more.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex, MutexGuard};

use super::process::Worker;

/// Number of idle helpers that are kept for [`IDLE_FOR`]. Healthy volumes answer within microseconds, so two are enough for
/// a thousand of them.
const MOST_IDLE: usize = 2;

/// Time after which an idle helper is ended.
const IDLE_FOR: Duration = Duration::from_mins(1);

/// The same for those above [`MOST_IDLE`], which slow volumes made necessary.
const SPARE_FOR: Duration = Duration::from_secs(1);

/// A helper that has answered so often is replaced, so that no leak could ever grow large.
const MOST_QUESTIONS: u32 = 1000;

/// Why there is no helper.
#[derive(Debug)]
pub(super) enum Unavailable {
    NotStarted(io::Error),
    /// None was free or started in time.
    Late,
}

/// The idle helpers, and the thread that starts all of them.
#[derive(Debug)]
pub(super) struct Pool {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    program: PathBuf,
    state: Mutex<State>,
    /// For those who wait for a helper: there is one, or none could be started.
    available: Condvar,
    /// For the keeper.
    wanted: Condvar,
}

#[derive(Debug)]
struct State {
    /// The last one is used first. So the first one has been idle for the longest time.
    idle: Vec<Idle>,
    /// One is to be started, or is being started. One at a time: mostly another one is free before that.
    is_wanted: bool,
    /// Why the last one could not be started, for one of those who wait.
    failed: Option<io::Error>,
    has_keeper: bool,
    /// When the keeper wakes up by itself.
    keeper_wakes: Instant,
    is_closed: bool,
    started: u64,
}

#[derive(Debug)]
struct Idle {
    worker: Worker,
    since: Instant,
}

impl Pool {
    pub(super) fn new(program: PathBuf) -> Self {
        let state = State {
            idle: Vec::new(),
            is_wanted: false,
            failed: None,
            has_keeper: false,
            keeper_wakes: Instant::now(),
            is_closed: false,
            started: 0,
        };
        let (available, wanted) = (Condvar::new(), Condvar::new());
        Self { shared: Arc::new(Shared { program, state: Mutex::new(state), available, wanted }) }
    }

    /// A helper that has nothing to do. Waits until another question is answered or a helper is started.
    pub(super) fn take(&self, patience: Duration) -> Result<Worker, Unavailable> {
        let end = Instant::now() + patience;
        let mut state = self.shared.state.lock();
        if !state.is_wanted {
            // That was for somebody who did not wait so long.
            state.failed = None;
        }
        loop {
            while let Some(Idle { mut worker, .. }) = state.idle.pop() {
                if worker.is_quiet() {
                    return Ok(worker);
                }
                // It has ended, or said something that was not asked.
                MutexGuard::unlocked(&mut state, || worker.end());
            }
            if let Some(error) = state.failed.take() {
                return Err(Unavailable::NotStarted(error));
            }
            if Instant::now() >= end {
                return Err(Unavailable::Late);
            }
            if !state.is_wanted {
                self.shared.want(&mut state).map_err(Unavailable::NotStarted)?;
            }
            self.shared.available.wait_until(&mut state, end);
        }
    }

    /// For the next question. Only one that has answered the last one exactly.
    pub(super) fn give_back(&self, worker: Worker) {
        if worker.asked() >= MOST_QUESTIONS {
            return worker.end();
        }
        let now = Instant::now();
        let mut state = self.shared.state.lock();
        state.idle.push(Idle { worker, since: now });
        self.shared.available.notify_one();
        if state.idle.len() > MOST_IDLE && state.keeper_wakes > now + SPARE_FOR {
            self.shared.wanted.notify_one();
        }
    }

    /// The process ids of those that wait for a question.
    pub(super) fn idle(&self) -> Vec<u32> {
        self.shared.state.lock().idle.iter().map(|idle| idle.worker.id()).collect()
    }

    /// How many processes were started.
    pub(super) fn started(&self) -> u64 {
        self.shared.state.lock().started
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        let idle = {
            let mut state = self.shared.state.lock();
            state.is_closed = true;
            self.shared.wanted.notify_one();
            std::mem::take(&mut state.idle)
        };
        for Idle { worker, .. } in idle {
            worker.end();
        }
    }
}

impl Shared {
    /// Makes the keeper start one more.
    fn want(self: &Arc<Self>, state: &mut State) -> io::Result<()> {
        if !state.has_keeper {
            let shared = Arc::clone(self);
            std::thread::Builder::new().name("helpers".to_owned()).spawn(move || shared.keep())?;
            state.has_keeper = true;
        }
        state.is_wanted = true;
        self.wanted.notify_one();
        Ok(())
    }

    /// What the keeper does until the pool is gone.
    fn keep(&self) {
        let mut state = self.state.lock();
        while !state.is_closed {
            if state.is_wanted {
                let started = MutexGuard::unlocked(&mut state, || Worker::start(&self.program));
                state.is_wanted = false;
                match started {
                    Ok(worker) => {
                        state.started += 1;
                        state.idle.push(Idle { worker, since: Instant::now() });
                    }
                    Err(error) => state.failed = Some(error),
                }
                self.available.notify_all();
            } else if let Some(worker) = state.take_unneeded(Instant::now()) {
                MutexGuard::unlocked(&mut state, || worker.end());
            } else {
                state.keeper_wakes = state.next_unneeded(Instant::now());
                let until = state.keeper_wakes;
                self.wanted.wait_until(&mut state, until);
            }
        }
        // One that was started meanwhile.
        let idle = std::mem::take(&mut state.idle);
        drop(state);
        for Idle { worker, .. } in idle {
            worker.end();
        }
    }
}

impl State {
    fn keeps_for(&self) -> Duration {
        if self.idle.len() > MOST_IDLE { SPARE_FOR } else { IDLE_FOR }
    }

    fn take_unneeded(&mut self, now: Instant) -> Option<Worker> {
        let longest = self.idle.first()?;
        let is_unneeded = now.saturating_duration_since(longest.since) >= self.keeps_for();
        is_unneeded.then(|| self.idle.remove(0).worker)
    }

    /// When to look for the next one.
    fn next_unneeded(&self, now: Instant) -> Instant {
        self.idle.first().map_or(now + IDLE_FOR, |longest| longest.since + self.keeps_for())
    }
}
