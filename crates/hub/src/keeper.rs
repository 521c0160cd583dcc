//! Keeps what is stored as it should be.

mod heals;
mod marks;
mod store;

use std::convert::Infallible;
use std::mem::Discriminant;
use std::sync::Arc;
use std::time::{Duration, Instant};

use jiff::{SignedDuration, Timestamp};
use kube::Client;
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::task::JoinSet;
use volmedic_panics::{caught, caught_now};

use crate::agents::Now;
use crate::merge::{Action, Keep, decide, merge};
use crate::queue::{Pace, Queue, Turns};
use crate::{ClaimKey, Facts, Metrics, Pushed, World};
pub use heals::HealsError;
use store::{Failure, Store, Write};

/// News of one claim that come this close to each other are one change.
const COALESCE: Duration = Duration::from_millis(50);
/// Claims visited before others get a turn.
const BATCH: usize = 500;
/// Tries to store a report while others write the same object.
const PUSH_TRIES: usize = 6;
/// Somebody may have fallen silent without anything else happening.
const LONGEST_SLEEP: Duration = Duration::from_secs(5);

/// Who makes an object fills it right after; one that stays empty for longer is nobody's.
const TO_FILL: SignedDuration = SignedDuration::from_secs(10);

#[derive(Debug, Clone, Copy)]
pub struct Settings {
    pub keep: Keep,
    /// Writes a second, and how many may go together after a rest.
    pub qps: f64,
    pub burst: u32,
    /// Claims written side by side.
    pub workers: usize,
    /// Mark the PersistentVolumes too.
    pub mark_volumes: bool,
}

/// Brings every claim's object up to date. Only one may do so in a cluster.
#[derive(Debug)]
pub struct Keeper {
    world: Arc<Mutex<World>>,
    /// To be notified when something was put into the world.
    woken: Arc<Notify>,
    settings: Settings,
    metrics: Metrics,
    store: Store,
    /// Reports that somebody sends are written no faster than what we find ourselves.
    reports: Turns,
}

/// Why a report was not stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PushError {
    /// There is no such claim.
    NoClaim,
    /// Not now; trying again later may help.
    Later(String),
}

/// What became of one claim.
enum Done {
    /// As it should be; to be checked again then.
    Fine(Option<Timestamp>),
    Failed(Failure),
    /// With its message.
    Panicked(String),
}

impl Keeper {
    pub fn new(
        client: Client,
        world: Arc<Mutex<World>>,
        woken: Arc<Notify>,
        settings: Settings,
        metrics: Metrics,
    ) -> Self {
        metrics.attach(world.clone());
        let store = Store::new(client, metrics.clone());
        let reports = Turns::new(settings.qps, settings.burst);
        Self { world, woken, settings, metrics, store, reports }
    }

    /// Works until dropped. `in_touch` says whether Leases are being watched right now.
    pub async fn run(self: Arc<Self>, in_touch: impl Fn() -> bool) -> Infallible {
        let mut queue = Queue::default();
        let mut pace = Pace::new(self.settings.qps, self.settings.burst, clock());
        let mut work: JoinSet<(ClaimKey, Done)> = JoinSet::new();
        let mut reported = None;
        loop {
            let now = now();
            let silent_at = self.take_in(now, in_touch(), &mut queue);
            let more_to_judge = self.judge(now.day);
            let mut looked = 0;
            let mut paced = None;
            while work.len() < self.settings.workers.max(1) && looked < BATCH {
                paced = pace.wait(now.clock);
                if paced.is_some() {
                    break;
                }
                let Some(key) = queue.pop(now.clock) else { break };
                looked += 1;
                match caught_now(|| self.plan(now.day, &key)) {
                    Err(panic) => Self::settle(key, Done::Panicked(panic), &mut queue, &mut reported),
                    Ok((None, due)) => queue.done(key, due.map(|due| after(now, due))),
                    Ok((Some(plan), due)) => {
                        pace.take(plan.requests());
                        let keeper = self.clone();
                        work.spawn(async move {
                            let done = match caught(keeper.carry_out(&key, plan)).await {
                                Ok(Ok(())) => Done::Fine(due),
                                Ok(Err(failure)) => Done::Failed(failure),
                                Err(panic) => Done::Panicked(panic),
                            };
                            (key, done)
                        });
                    }
                }
            }
            self.metrics.backlog.set(i64::try_from(queue.len()).unwrap_or(i64::MAX));
            if looked == BATCH || more_to_judge {
                // However much there is to judge, what was written is taken in.
                while let Some(Ok((key, done))) = work.try_join_next() {
                    Self::settle(key, done, &mut queue, &mut reported);
                }
                tokio::task::yield_now().await;
                continue;
            }
            let full = work.len() >= self.settings.workers.max(1);
            let next = if full { None } else { paced.or_else(|| queue.next_due()) };
            let wake = [next, silent_at].into_iter().flatten().fold(now.clock + LONGEST_SLEEP, Instant::min);
            tokio::select! {
                () = self.woken.notified() => {}
                Some(Ok((key, done))) = work.join_next() => Self::settle(key, done, &mut queue, &mut reported),
                () = tokio::time::sleep_until(wake.into()) => {}
            }
        }
    }

    /// Stores a report that somebody sent. When this returns well, it is stored.
    pub async fn push(&self, key: &ClaimKey, pushed: &Pushed) -> Result<(), PushError> {
        let mut has_turn = false;
        for _ in 0..PUSH_TRIES {
            if !self.world.lock().is_ready() {
                return Err(PushError::Later("the hub has not read the cluster's state yet".to_owned()));
            }
            let case = self.world.lock().case(key);
            let Some(uid) = case.uid else { return Err(PushError::NoClaim) };
            let foreign = case.stored.as_ref().is_some_and(|stored| stored.owner.as_ref() != Some(&uid));
            if foreign || case.stored.as_ref().is_some_and(|stored| stored.going) {
                return Err(PushError::Later(
                    "the object of an earlier claim of that name is still there".to_owned(),
                ));
            }
            let facts = Facts { pushed: Some(pushed.clone()), ..case.facts };
            let before = case.stored.as_ref().and_then(|stored| stored.status.as_ref());
            let write =
                match (decide(Timestamp::now(), &facts, before, self.settings.keep).action, case.stored) {
                    (Action::Nothing, _) | (Action::Remove, None) => return Ok(()),
                    (Action::Write(status), None) => Write::Create { owner: uid.to_string().into(), status },
                    (Action::Write(status), Some(stored)) => {
                        Write::Apply { uid: stored.uid, version: stored.version, status }
                    }
                    (Action::Remove, Some(stored)) => {
                        Write::Remove { uid: stored.uid, version: Some(stored.version) }
                    }
                };
            if !has_turn {
                // Things may have moved on by then.
                self.reports.turn().await;
                has_turn = true;
                continue;
            }
            match self.carry_out(key, Plan::of(write)).await {
                Ok(()) => {
                    self.woken.notify_one();
                    return Ok(());
                }
                Err(Failure::Moved) => {
                    if let Some(object) =
                        self.store.read(key).await.map_err(|f| PushError::Later(f.to_string()))?
                    {
                        self.world.lock().put_stored(&key.namespace, &key.name, &object);
                    }
                }
                Err(failure) => return Err(PushError::Later(failure.to_string())),
            }
        }
        Err(PushError::Later("others keep writing it".to_owned()))
    }

    /// What changed goes into the queue. Answers when an agent may fall silent next.
    fn take_in(&self, now: Now, in_touch: bool, queue: &mut Queue) -> Option<Instant> {
        let mut world = self.world.lock();
        let silent_at = world.tick(now, in_touch);
        if world.is_ready() {
            for key in world.take_dirty() {
                queue.push(key, now.clock + COALESCE);
            }
        }
        silent_at
    }

    /// Judges claims that may have changed, for the metrics; writes wait for their turn, and metrics must not. Answers
    /// whether more claims wait.
    fn judge(&self, now: Timestamp) -> bool {
        if !self.world.lock().is_ready() {
            return false;
        }
        for _ in 0..BATCH {
            let Some(key) = self.world.lock().take_unjudged() else { return false };
            if let Err(panic) = caught_now(|| self.world.lock().judge(now, &key)) {
                tracing::error!(claim = %key, panic, "internal error (bug): the metrics have an old health of a claim");
            }
        }
        true
    }

    /// What to write for a claim, and when to check it again.
    fn plan(&self, now: Timestamp, key: &ClaimKey) -> (Option<Plan>, Option<Timestamp>) {
        let case = self.world.lock().case(key);
        let Some(uid) = case.uid else {
            // The garbage collector would take it too; this way it also goes where none runs.
            let orphan = case
                .stored
                .filter(|stored| !stored.going)
                .map(|stored| Write::Remove { uid: stored.uid, version: None });
            return (orphan.map(Plan::of), None);
        };
        let foreign = case.stored.as_ref().is_some_and(|stored| stored.owner.as_ref() != Some(&uid));
        if let Some(stored) = case.stored.as_ref().filter(|stored| foreign || stored.going) {
            // Of an earlier claim of the same name. The new one gets an object of its own once this is gone.
            let remove = (!stored.going).then(|| Write::Remove { uid: stored.uid.clone(), version: None });
            return (remove.map(Plan::of), None);
        }
        let before = case.stored.as_ref().and_then(|stored| stored.status.as_ref());
        let decision = decide(now, &case.facts, before, self.settings.keep);
        let write = match (decision.action, &case.stored) {
            // Made, but never filled, because its maker ended in between; and nothing is wrong any more.
            (Action::Nothing, Some(stored)) if stored.status.is_none() => {
                let filled_by = stored.made.and_then(|made| made.checked_add(TO_FILL).ok());
                if let Some(filled_by) = filled_by.filter(|filled_by| *filled_by > now) {
                    return (None, Some(filled_by));
                }
                Some(Write::Remove { uid: stored.uid.clone(), version: Some(stored.version.clone()) })
            }
            (Action::Nothing, _) | (Action::Remove, None) => None,
            (Action::Write(status), None) => Some(Write::Create { owner: uid.to_string().into(), status }),
            (Action::Write(status), Some(stored)) => {
                Some(Write::Apply { uid: stored.uid.clone(), version: stored.version.clone(), status })
            }
            (Action::Remove, Some(stored)) => {
                Some(Write::Remove { uid: stored.uid.clone(), version: Some(stored.version.clone()) })
            }
        };
        let marks = match (&case.marks, self.settings.mark_volumes) {
            (Some((volume, marks)), true) => {
                let wanted = marks::of(&merge(now, &case.facts, before));
                (wanted != *marks).then(|| (volume.clone(), wanted))
            }
            _ => None,
        };
        let plan = (write.is_some() || marks.is_some()).then_some(Plan { write, marks });
        (plan, decision.due)
    }

    async fn carry_out(&self, key: &ClaimKey, plan: Plan) -> Result<(), Failure> {
        let Plan { write, marks } = plan;
        if let Some(write) = write {
            match self.store.write(key, write).await? {
                Some(object) => self.world.lock().put_stored(&key.namespace, &key.name, &object),
                None => self.world.lock().remove_stored(&key.namespace, &key.name),
            }
        }
        if let Some((volume, marks)) = marks {
            self.store.mark(&volume, &marks).await?;
        }
        Ok(())
    }

    /// Trouble of one kind is reported once until something works again: in an outage all claims have the same.
    fn settle(key: ClaimKey, done: Done, queue: &mut Queue, reported: &mut Option<Discriminant<Failure>>) {
        let now = now();
        match done {
            Done::Fine(due) => {
                *reported = None;
                queue.done(key, due.map(|due| after(now, due)));
            }
            Done::Failed(failure) => {
                let what = key.to_string();
                let wait = queue.failed(key, now.clock);
                let kind = std::mem::discriminant(&failure);
                if failure.is_ordinary() || reported.replace(kind) == Some(kind) {
                    tracing::debug!("the health of {what} was not written: {failure}");
                } else {
                    tracing::warn!(
                        "the health of {what} was not written: {failure}; trying again in {} s",
                        wait.as_secs().max(1)
                    );
                }
            }
            Done::Panicked(panic) => {
                tracing::error!(claim = %key, panic, "internal error (bug): the health of a claim was not written; retrying");
                queue.failed(key, now.clock);
            }
        }
    }
}

/// What to write for one claim.
struct Plan {
    write: Option<Write>,
    marks: Option<(Arc<str>, crate::world::Marks)>,
}

impl Plan {
    /// How many requests it takes.
    fn requests(&self) -> u32 {
        let writes = match &self.write {
            None => 0,
            // Made first and filled then: the API server takes no status of an object that is new.
            Some(Write::Create { .. }) => 2,
            Some(Write::Apply { .. } | Write::Remove { .. }) => 1,
        };
        writes + u32::from(self.marks.is_some())
    }

    fn of(write: Write) -> Self {
        Self { write: Some(write), marks: None }
    }
}

fn now() -> Now {
    Now { day: Timestamp::now(), clock: clock() }
}

fn clock() -> Instant {
    tokio::time::Instant::now().into_std()
}

/// A time of the calendar by our own clock, never in the past and within a day.
fn after(now: Now, due: Timestamp) -> Instant {
    let wait = Duration::try_from(due.duration_since(now.day)).unwrap_or_default();
    now.clock + wait.clamp(COALESCE, Duration::from_hours(24))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_claim_whose_work_panics_is_tried_again_later_and_the_others_go_on() {
        let (mut queue, mut reported) = (Queue::default(), None);
        let (poisoned, healthy) = (ClaimKey::new("a", "poisoned"), ClaimKey::new("b", "healthy"));
        let begun = clock();
        queue.push(poisoned.clone(), begun);
        queue.push(healthy.clone(), begun);
        let first = queue.pop(clock()).unwrap();
        Keeper::settle(first.clone(), Done::Panicked("on purpose".to_owned()), &mut queue, &mut reported);
        assert_eq!((first, queue.pop(begun)), (poisoned.clone(), Some(healthy.clone())));
        Keeper::settle(healthy, Done::Fine(None), &mut queue, &mut reported);
        let due = queue.next_due().unwrap();
        assert!(due > begun);
        assert_eq!(queue.pop(due), Some(poisoned));
    }
}
