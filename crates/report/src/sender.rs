//! Sends what is queued: so many at a time, so many a second, again after a failure.

mod backoff;
mod bucket;
mod queue;

use std::collections::HashMap;
use std::fmt;
use std::future::Future;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::{Notify, watch};
use tokio::task::{Id, JoinError, JoinHandle, JoinSet};
use tokio::time::{sleep, sleep_until};

use crate::failure::Failure;
use crate::metrics::Reports;
use backoff::Backoff;
use bucket::Pace;
pub(crate) use queue::Job;
use queue::Queue;

/// A job that the API server keeps failing on while it takes others is given up after so many tries and so long.
const TRIES: u32 = 12;
const PATIENCE: Duration = Duration::from_mins(10);
/// So many failures in a row are worth a line in the log.
const WORTH_TELLING: u32 = 3;

/// How much is sent at once and how much is kept.
#[derive(Debug, Clone)]
pub struct Limits {
    /// Requests a second, on average over the last 20 s; up to three times as many while making up for quiet ones.
    pub qps: f64,
    /// Requests at once.
    pub burst: f64,
    /// Requests that wait for their answer at the same time.
    pub in_flight: usize,
    /// Reports that wait to be sent; the least important goes when it is full.
    pub capacity: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self { qps: 50.0, burst: 100.0, in_flight: 16, capacity: 10_000 }
    }
}

/// Where a report goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Outlet {
    Event,
    Status,
}

/// What became of a report.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Verdict {
    Sent,
    /// The server had it already.
    Already,
    /// What it is about, or its namespace, is gone.
    Gone,
    /// We may not write it.
    Forbidden,
    /// The server will not take it as it is.
    Refused,
    /// The server has no place for it.
    Unsupported,
    /// Somebody else keeps overwriting it.
    Contested,
    /// Too much waited to be sent.
    Overflow,
    /// The server failed on it, and on it only, for too long.
    GaveUp,
    /// It failed and is tried again.
    Retried,
}

/// What one try came to.
#[derive(Debug)]
pub(crate) enum Outcome {
    Done(Verdict),
    Failed(Failure),
}

/// Brings one job to the API server.
pub(crate) trait Courier: Send + Sync + 'static {
    type Job: Job + Send + Sync + fmt::Debug + 'static;

    fn outlet(job: &Self::Job) -> Outlet;

    fn send(&self, job: &Self::Job, gate: &Gate) -> impl Future<Output = Outcome> + Send;
}

/// Every request passes here first.
#[derive(Debug)]
pub(crate) struct Gate(Mutex<Pace>);

impl Gate {
    pub(crate) async fn pass(&self) {
        let wait = lock(&self.0).take(now());
        if !wait.is_zero() {
            sleep(wait).await;
        }
    }
}

/// A job with its history of failures.
#[derive(Debug)]
struct Parcel<J> {
    job: J,
    tries: u32,
    /// When the server first failed on it, and how much it had taken of others by then.
    first: Option<(Instant, u64)>,
}

impl<J: Job> Job for Parcel<J> {
    fn object(&self) -> &Arc<str> {
        self.job.object()
    }

    fn is_same_story(&self, other: &Self) -> bool {
        self.job.is_same_story(&other.job)
    }

    fn absorb(&mut self, newer: Self) {
        self.job.absorb(newer.job);
    }

    fn is_minor(&self) -> bool {
        self.job.is_minor()
    }
}

/// The queue and the task that empties it. Dropping it ends the task and forgets what waits.
#[derive(Debug)]
pub(crate) struct Sender<C: Courier> {
    shared: Arc<Shared<C>>,
    task: JoinHandle<()>,
}

struct Shared<C: Courier> {
    courier: Arc<C>,
    gate: Arc<Gate>,
    waiting: Mutex<Waiting<C::Job>>,
    woken: Notify,
    /// How much waits or is on the way.
    backlog: watch::Sender<usize>,
    reports: Reports,
    in_flight: usize,
}

impl<C: Courier> fmt::Debug for Shared<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shared").field("backlog", &*self.backlog.borrow()).finish_non_exhaustive()
    }
}

struct Waiting<J> {
    queue: Queue<Parcel<J>>,
    flying: usize,
}

impl<C: Courier> Sender<C> {
    pub(crate) fn start(courier: Arc<C>, limits: &Limits, reports: Reports) -> Self {
        let Limits { qps, burst, in_flight, capacity } = limits.clone();
        let shared = Arc::new(Shared {
            courier,
            gate: Arc::new(Gate(Mutex::new(Pace::new(qps, burst, now())))),
            waiting: Mutex::new(Waiting { queue: Queue::new(capacity), flying: 0 }),
            woken: Notify::new(),
            backlog: watch::Sender::new(0),
            reports,
            in_flight: in_flight.max(1),
        });
        let task = tokio::spawn(Loop::new(shared.clone()).run());
        Self { shared, task }
    }

    /// Queues a job and returns at once.
    pub(crate) fn push(&self, job: C::Job) {
        let lost = {
            let mut waiting = lock(&self.shared.waiting);
            let lost = waiting.queue.push(Parcel { job, tries: 0, first: None });
            self.shared.publish(&waiting);
            lost
        };
        if let Some(lost) = lost {
            self.shared.reports.count(C::outlet(&lost.job), Verdict::Overflow);
        }
        self.shared.woken.notify_one();
    }

    /// How much waits or is on the way.
    pub(crate) fn backlog(&self) -> usize {
        *self.shared.backlog.borrow()
    }

    /// Waits until all is sent, but no longer than `limit`; answers how much is left.
    pub(crate) async fn flush(&self, limit: Duration) -> usize {
        let mut backlog = self.shared.backlog.subscribe();
        let _ = tokio::time::timeout(limit, backlog.wait_for(|left| *left == 0)).await;
        self.backlog()
    }
}

impl<C: Courier> Drop for Sender<C> {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl<C: Courier> Shared<C> {
    fn publish(&self, waiting: &Waiting<C::Job>) {
        let backlog = waiting.queue.len() + waiting.flying;
        self.backlog.send_replace(backlog);
        self.reports.queued(backlog);
    }
}

type Flight<J> = (Parcel<J>, Outcome);

/// The task's own state.
struct Loop<C: Courier> {
    shared: Arc<Shared<C>>,
    flying: JoinSet<Flight<C::Job>>,
    objects: HashMap<Id, Arc<str>>,
    backoff: Backoff,
    /// Failures in a row, of whatever job: the server is in trouble, not the job.
    failures: u32,
    pause: Option<Instant>,
    successes: u64,
    told: bool,
}

impl<C: Courier> Loop<C> {
    fn new(shared: Arc<Shared<C>>) -> Self {
        Self {
            shared,
            flying: JoinSet::new(),
            objects: HashMap::new(),
            backoff: Backoff::default(),
            failures: 0,
            pause: None,
            successes: 0,
            told: false,
        }
    }

    async fn run(mut self) {
        loop {
            let wake = self.launch();
            tokio::select! {
                Some(landed) = self.flying.join_next_with_id() => self.land(landed),
                () = self.shared.woken.notified() => {}
                () = sleep_until(wake.unwrap_or_else(now).into()), if wake.is_some() => {}
            }
        }
    }

    /// Sends what may be sent now; answers when to look again if nothing else happens.
    fn launch(&mut self) -> Option<Instant> {
        let now = now();
        // While the server is in trouble, one at a time finds out whether it still is.
        let room = if self.failures > 0 { 1 } else { self.shared.in_flight };
        let shared = self.shared.clone();
        let mut waiting = lock(&shared.waiting);
        if let Some(until) = self.pause.filter(|until| *until > now) {
            return (waiting.queue.len() > 0).then_some(until);
        }
        while self.flying.len() < room {
            let Some(parcel) = waiting.queue.pop(now) else { break };
            let object = parcel.object().clone();
            let (courier, gate) = (shared.courier.clone(), shared.gate.clone());
            let task = self.flying.spawn(async move {
                let outcome = courier.send(&parcel.job, &gate).await;
                (parcel, outcome)
            });
            self.objects.insert(task.id(), object);
            waiting.flying += 1;
        }
        shared.publish(&waiting);
        // With no room, the next landing looks again anyway.
        if waiting.queue.has_ready() { None } else { waiting.queue.next_wake() }
    }

    fn land(&mut self, landed: Result<(Id, Flight<C::Job>), JoinError>) {
        let shared = self.shared.clone();
        let mut waiting = lock(&shared.waiting);
        waiting.flying -= 1;
        match landed {
            Ok((id, (parcel, outcome))) => {
                self.objects.remove(&id);
                self.settle(&mut waiting.queue, parcel, outcome);
            }
            Err(broken) => {
                // A bug of ours; its object must not wait for it for ever.
                tracing::error!("a report broke off: {broken}");
                if let Some(object) = self.objects.remove(&broken.id()) {
                    waiting.queue.done(&object);
                }
            }
        }
        shared.publish(&waiting);
    }

    fn settle(&mut self, queue: &mut Queue<Parcel<C::Job>>, mut parcel: Parcel<C::Job>, outcome: Outcome) {
        let outlet = C::outlet(&parcel.job);
        let (after, why, blamed) = match outcome {
            Outcome::Done(verdict) => return self.done(queue, &parcel, verdict),
            Outcome::Failed(failure) => match failure {
                Failure::Gone => return self.done(queue, &parcel, Verdict::Gone),
                Failure::Forbidden(why) => {
                    self.shared.reports.forbidden(outlet, &why);
                    return self.done(queue, &parcel, Verdict::Forbidden);
                }
                Failure::Refused(why) => {
                    tracing::warn!("the API server refuses a report on {}: {why}; dropped", parcel.object());
                    return self.done(queue, &parcel, Verdict::Refused);
                }
                Failure::Away(why) => (None, why, false),
                Failure::Busy { after, why } => (after, why, after.is_none()),
                // Couriers settle these by themselves; one that gives up on it comes back later.
                Failure::Exists | Failure::Conflict => (None, "it changes too fast".to_owned(), true),
                Failure::Owned(why) => (None, why, true),
            },
        };
        let now = now();
        if blamed {
            parcel.tries = parcel.tries.saturating_add(1);
            let (since, successes) = *parcel.first.get_or_insert((now, self.successes));
            let waited = now.saturating_duration_since(since) >= PATIENCE;
            if parcel.tries >= TRIES && waited && self.successes > successes {
                tracing::warn!(
                    "giving a report on {} up after {} tries: {why}",
                    parcel.object(),
                    parcel.tries
                );
                return self.done(queue, &parcel, Verdict::GaveUp);
            }
        }
        self.shared.reports.count(outlet, Verdict::Retried);
        if self.pause.is_none_or(|until| until <= now) {
            self.failures = self.failures.saturating_add(1);
            let wait = self.backoff.after(self.failures).max(after.unwrap_or_default());
            self.pause = Some(now + wait);
        }
        if self.failures >= WORTH_TELLING && !self.told {
            self.told = true;
            tracing::warn!("cannot report to the API server: {why}; {} wait", queue.len() + 1);
        }
        let again = now + self.backoff.after(parcel.tries.max(1)).max(after.unwrap_or_default());
        queue.put_back(parcel, again);
    }

    fn done(&mut self, queue: &mut Queue<Parcel<C::Job>>, parcel: &Parcel<C::Job>, verdict: Verdict) {
        self.shared.reports.count(C::outlet(&parcel.job), verdict);
        queue.done(parcel.object());
        if verdict != Verdict::GaveUp {
            self.successes += 1;
            self.failures = 0;
            self.pause = None;
            if std::mem::take(&mut self.told) {
                tracing::info!("reports reach the API server again; {} wait", queue.len());
            }
        }
    }
}

fn now() -> Instant {
    tokio::time::Instant::now().into_std()
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests;
