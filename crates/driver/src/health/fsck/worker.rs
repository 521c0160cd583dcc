//! The one thread that checks, one volume after the other, and remembers what it found.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};
use volmedic_panics::caught_now;

use super::{Job, Schedule, Verdict, check};

/// More waiting volumes than this and new ones have to come again.
const LONGEST_QUEUE: usize = 16_384;

/// A verdict and when it was reached.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Checked {
    pub verdict: Verdict,
    pub at: Instant,
    pub took: Duration,
}

/// Checks file systems in the background.
#[derive(Debug)]
pub struct Fsck {
    schedule: Schedule,
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug, Default)]
struct Shared {
    state: Mutex<State>,
    wake: Condvar,
    stop: AtomicBool,
}

#[derive(Debug, Default)]
struct State {
    queue: VecDeque<String>,
    /// What waits or is being checked.
    jobs: HashMap<String, Job>,
    results: HashMap<String, Checked>,
}

impl Fsck {
    pub fn start(schedule: Schedule) -> std::io::Result<Self> {
        let shared = Arc::new(Shared::default());
        let thread = match schedule.every {
            None => None,
            Some(_) => {
                let shared = shared.clone();
                Some(std::thread::Builder::new().name("fsck".into()).spawn(move || shared.work(&schedule))?)
            }
        };
        Ok(Self { schedule, shared, thread })
    }

    /// Asks for a check unless the last one is recent enough or this one already waits. Never blocks.
    pub fn ask(&self, volume: &str, job: Job) {
        let Some(every) = self.schedule.every else { return };
        let mut state = self.shared.state.lock();
        let fresh = state.results.get(volume).is_some_and(|checked| checked.at.elapsed() < every);
        if fresh || state.jobs.contains_key(volume) || state.queue.len() >= LONGEST_QUEUE {
            return;
        }
        state.jobs.insert(volume.to_owned(), job);
        state.queue.push_back(volume.to_owned());
        self.shared.wake.notify_one();
    }

    /// The last verdict about a volume.
    pub fn last(&self, volume: &str) -> Option<Checked> {
        self.shared.state.lock().results.get(volume).cloned()
    }

    /// The volume is gone, or not mounted any more; what was found says nothing about it now.
    pub fn forget(&self, volume: &str) {
        let mut state = self.shared.state.lock();
        state.results.remove(volume);
        if state.jobs.remove(volume).is_some() {
            state.queue.retain(|waiting| waiting != volume);
        }
    }
}

impl Drop for Fsck {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::SeqCst);
        self.shared.wake.notify_all();
        // It reads the flag many times a second, also while a tool runs.
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl Shared {
    fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::SeqCst)
    }

    fn work(&self, schedule: &Schedule) {
        while let Some((volume, job)) = self.next() {
            let started = Instant::now();
            let checked =
                caught_now(|| check(&job, schedule, &|| self.is_stopped() || !self.is_wanted(&volume)));
            let verdict = checked.unwrap_or_else(|panic| {
                tracing::error!(volume, panic, "internal error (bug): a file system check panicked");
                Verdict::Refused {
                    why: format!("internal error (bug): the check panicked: {panic}; please report it"),
                }
            });
            let mut state = self.state.lock();
            // Forgotten meanwhile: the result is not needed.
            if state.jobs.remove(&volume).is_some() {
                state
                    .results
                    .insert(volume, Checked { verdict, at: Instant::now(), took: started.elapsed() });
            }
        }
    }

    fn is_wanted(&self, volume: &str) -> bool {
        self.state.lock().jobs.contains_key(volume)
    }

    fn next(&self) -> Option<(String, Job)> {
        let mut state = self.state.lock();
        loop {
            if self.is_stopped() {
                return None;
            }
            if let Some(volume) = state.queue.pop_front()
                && let Some(job) = state.jobs.get(&volume)
            {
                return Some((volume, job.clone()));
            }
            if state.queue.is_empty() {
                // Woken for each new volume; the long wait only guards against a lost wake-up.
                self.wake.wait_for(&mut state, Duration::from_mins(1));
            }
        }
    }
}
