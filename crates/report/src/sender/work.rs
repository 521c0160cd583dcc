//! The task that empties the queue.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::task::{Id, JoinSet};
use tokio::time::sleep_until;
use volmedic_panics::caught;

use super::backoff::Backoff;
use super::queue::{Job, Queue};
use super::{Courier, Outcome, Outlet, Parcel, Shared, Verdict, now};
use crate::failure::Failure;

/// A job that the API server keeps failing on while it takes others is given up after this number of attempts and this time.
const TRIES: u32 = 12;
const PATIENCE: Duration = Duration::from_mins(10);
const TELL_EVERY: Duration = Duration::from_mins(1);
/// An API server that just started has not read the rights yet and forbids everything. Only what is forbidden for longer
/// than this is really forbidden.
const FORBIDDEN_AFTER: Duration = Duration::from_secs(20);
/// How many failures a report that is forbidden waits for like: two to four seconds.
const FORBIDDEN_WAIT: u32 = 5;
/// Failures in a row after which there is a line in the log.
const WORTH_A_LINE: u32 = 3;

type Flight<J> = (Parcel<J>, Outcome);

/// The task's own state.
pub(super) struct Loop<C: Courier> {
    shared: Arc<Shared<C>>,
    /// With the message of a panic in place of a result.
    flying: JoinSet<Result<Flight<C::Job>, String>>,
    objects: HashMap<Id, Arc<str>>,
    backoff: Backoff,
    /// Failures in a row, of whatever job: the server is in trouble, not the job.
    failures: u32,
    pause: Option<Instant>,
    successes: u64,
    reported: bool,
    /// There was no answer at all lately.
    away: bool,
    reported_refusal: Option<Instant>,
    /// Since when nothing but refusals came from an outlet.
    forbidden: HashMap<Outlet, Instant>,
}

impl<C: Courier> Loop<C> {
    pub(super) fn new(shared: Arc<Shared<C>>) -> Self {
        Self {
            shared,
            flying: JoinSet::new(),
            objects: HashMap::new(),
            backoff: Backoff::default(),
            failures: 0,
            pause: None,
            successes: 0,
            reported: false,
            away: false,
            reported_refusal: None,
            forbidden: HashMap::new(),
        }
    }

    pub(super) async fn run(mut self) {
        loop {
            let wake = self.launch();
            tokio::select! {
                Some(Ok((task, landed))) = self.flying.join_next_with_id() => self.land(task, landed),
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
        let mut waiting = shared.waiting.lock();
        if let Some(until) = self.pause.filter(|until| *until > now) {
            return (waiting.queue.len() > 0).then_some(until);
        }
        while self.flying.len() < room {
            let Some(parcel) = waiting.queue.pop(now) else { break };
            let object = parcel.object().clone();
            let (courier, gate) = (shared.courier.clone(), shared.gate.clone());
            let task = self.flying.spawn(caught(async move {
                let outcome = courier.send(&parcel.job, &gate).await;
                (parcel, outcome)
            }));
            self.objects.insert(task.id(), object);
            waiting.flying += 1;
        }
        shared.publish(&waiting);
        // With no room, the next landing looks again anyway; a sleeper that is due by then would only keep us spinning.
        if self.flying.len() < room { waiting.queue.next_wake() } else { None }
    }

    fn land(&mut self, task: Id, landed: Result<Flight<C::Job>, String>) {
        let shared = self.shared.clone();
        let mut waiting = shared.waiting.lock();
        waiting.flying -= 1;
        let object = self.objects.remove(&task);
        match landed {
            Ok((parcel, outcome)) => self.settle(&mut waiting.queue, parcel, outcome),
            Err(panic) => {
                tracing::error!(panic, "internal error (bug): sending a report panicked; the report is lost");
                // Later reports on its object must not wait for it.
                if let Some(object) = object {
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
                    let since = *self.forbidden.entry(outlet).or_insert_with(now);
                    if now().saturating_duration_since(since) >= FORBIDDEN_AFTER {
                        self.shared.reports.forbidden(outlet, &why);
                        self.shared.courier.forbidden(outlet);
                        return self.done(queue, &parcel, Verdict::Forbidden);
                    }
                    self.shared.reports.count(outlet, Verdict::Retried);
                    // The server answers, so others need not wait for this one.
                    return queue.put_back(parcel, now() + self.backoff.after(FORBIDDEN_WAIT));
                }
                Failure::Refused(why) | Failure::UnknownField(why) => {
                    self.tell_refusal(&C::describe(&parcel.job), &why);
                    return self.done(queue, &parcel, Verdict::Refused);
                }
                Failure::Away(why) => {
                    self.away = true;
                    (None, why, false)
                }
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
                    "giving up a report on {} after {} attempts: {why}",
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
        if self.failures >= WORTH_A_LINE && !self.reported {
            self.reported = true;
            tracing::warn!("cannot report to the API server: {why}; {} wait", queue.len() + 1);
        }
        let again = now + self.backoff.after(parcel.tries.max(1)).max(after.unwrap_or_default());
        queue.put_back(parcel, again);
    }

    /// At most one line a minute; the counter shows the rest.
    fn tell_refusal(&mut self, what: &str, why: &str) {
        let now = now();
        if self.reported_refusal.is_none_or(|last| now.saturating_duration_since(last) >= TELL_EVERY) {
            self.reported_refusal = Some(now);
            tracing::warn!("the API server refuses {what}: {why}; dropped");
        }
    }

    fn done(&mut self, queue: &mut Queue<Parcel<C::Job>>, parcel: &Parcel<C::Job>, verdict: Verdict) {
        self.shared.reports.count(C::outlet(&parcel.job), verdict);
        queue.done(parcel.object());
        if matches!(verdict, Verdict::Sent | Verdict::Already) {
            self.forbidden.remove(&C::outlet(&parcel.job));
        }
        if verdict != Verdict::GaveUp {
            self.successes += 1;
            self.failures = 0;
            self.pause = None;
            if std::mem::take(&mut self.away) {
                self.shared.courier.reconnected();
            }
            if std::mem::take(&mut self.reported) {
                tracing::info!("reports reach the API server again; {} wait", queue.len());
            }
        }
    }
}
