//! Sends what is queued: a bounded number at a time and per second, again after a failure.

mod backoff;
mod bucket;
mod queue;
mod work;

use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tokio::sync::{Notify, watch};
use tokio::task::JoinHandle;
use tokio::time::sleep;

use crate::failure::Failure;
use crate::metrics::Reports;
use bucket::Pace;
pub(crate) use queue::Job;
use queue::Queue;
use work::Loop;

/// How much is sent concurrently and how much is kept.
#[derive(Debug, Clone)]
pub struct Limits {
    /// Requests a second, on average; up to three times as many while using up what was not sent in the last minute.
    pub qps: f64,
    /// Concurrent requests.
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
    Health,
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

    /// What it is, for the log.
    fn describe(job: &Self::Job) -> String;

    /// The server was away and is back; it may be another one, or set up otherwise.
    fn reconnected(&self);

    /// The server does not let us write there, and not only for a moment.
    fn forbidden(&self, outlet: Outlet);

    fn send(&self, job: &Self::Job, gate: &Gate) -> impl Future<Output = Outcome> + Send;
}

/// Every request passes here first.
#[derive(Debug)]
pub(crate) struct Gate(Mutex<Pace>);

impl Gate {
    pub(crate) async fn pass(&self) {
        let wait = self.0.lock().take(now());
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
    capacity: usize,
}

impl<C: Courier> fmt::Debug for Shared<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shared").field("backlog", &*self.backlog.borrow()).finish_non_exhaustive()
    }
}

struct Waiting<J> {
    queue: Queue<Parcel<J>>,
    flying: usize,
    /// Something had to go because the queue was full.
    overflowed: bool,
}

impl<C: Courier> Sender<C> {
    pub(crate) fn start(courier: Arc<C>, limits: &Limits, reports: Reports) -> Self {
        let Limits { qps, burst, in_flight, capacity } = limits.clone();
        let shared = Arc::new(Shared {
            courier,
            gate: Arc::new(Gate(Mutex::new(Pace::new(qps, burst, now())))),
            waiting: Mutex::new(Waiting { queue: Queue::new(capacity), flying: 0, overflowed: false }),
            woken: Notify::new(),
            backlog: watch::Sender::new(0),
            reports,
            in_flight: in_flight.max(1),
            capacity,
        });
        let task = tokio::spawn(Loop::new(shared.clone()).run());
        Self { shared, task }
    }

    /// Queues a job and returns immediately.
    pub(crate) fn push(&self, job: C::Job) {
        let lost = {
            let mut waiting = self.shared.waiting.lock();
            let lost = waiting.queue.push(Parcel { job, tries: 0, first: None });
            waiting.overflowed |= lost.is_some();
            self.shared.publish(&waiting);
            lost
        };
        if let Some(lost) = lost {
            self.shared.reports.count(C::outlet(&lost.job), Verdict::Overflow);
        }
        self.shared.woken.notify_one();
    }

    /// Sends a job past the queue and waits for what comes of it. Nothing is kept and nothing is tried again.
    pub(crate) async fn send_now(&self, job: &C::Job) -> Outcome {
        let outcome = self.shared.courier.send(job, &self.shared.gate).await;
        if let Outcome::Done(verdict) = &outcome {
            self.shared.reports.count(C::outlet(job), *verdict);
        }
        outcome
    }

    /// How much waits or is on the way.
    pub(crate) fn backlog(&self) -> usize {
        *self.shared.backlog.borrow()
    }

    /// Whether something was lost for want of room and there is room again; answers yes once.
    pub(crate) fn take_overflow(&self) -> bool {
        let mut waiting = self.shared.waiting.lock();
        let room = waiting.queue.len() + waiting.flying <= self.shared.capacity / 4;
        room && std::mem::take(&mut waiting.overflowed)
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

fn now() -> Instant {
    tokio::time::Instant::now().into_std()
}

#[cfg(test)]
mod tests;
