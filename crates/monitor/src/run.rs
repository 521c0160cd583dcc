//! The loop around the pipe: waits for what comes, and hands it over with the time.

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::{Instant, MissedTickBehavior, interval, sleep_until};
use volmedic_health::{Sight, Vantage, Why, WhyKind};

use crate::guard;
use crate::pipe::{Now, Pipe};
use crate::ports::{Inventory, ListEnd, Listed, Outlet, Probe, Seen, Way};
use crate::schedule::{Check, Pace};

/// Pages that may wait between the driver and the ledger. More would only hold memory.
const PAGES_AHEAD: usize = 2;
/// Interval at which the ledger reports what is due by time alone.
const TICK: Duration = Duration::from_secs(15);

/// How often volumes are checked.
#[derive(Debug, Clone)]
pub struct Settings {
    /// From the start of one list to the start of the next.
    pub list_every: Duration,
    /// Each volume once in this time, where they are checked one by one.
    pub look_every: Duration,
    /// Maximum number of concurrent checks.
    pub workers: usize,
}

impl Settings {
    /// The pace of checks. Beside a list, only unhealthy volumes are checked, at the interval of the list.
    pub fn pace(&self, way: &Way) -> Pace {
        match way {
            Way::List { .. } => Pace::new(self.list_every, self.workers),
            Way::Look | Way::Nothing | Way::Blind(_) => Pace::new(self.look_every, self.workers),
        }
    }
}

/// A sight that did not come from the probe.
#[derive(Debug, Clone)]
pub struct Observation {
    pub handle: Arc<str>,
    pub vantage: Vantage,
    pub sight: Sight,
}

/// Runs until `stop` completes. Nothing else ends it.
pub async fn run<I: Inventory, O: Outlet, P: Probe>(
    mut pipe: Pipe<I, O>,
    inventory: Arc<I>,
    probe: Arc<P>,
    settings: Settings,
    mut observations: mpsc::Receiver<Observation>,
    clock: impl Fn() -> Now,
    stop: impl Future<Output = ()>,
) -> Pipe<I, O> {
    let mut stop = pin!(stop);
    let mut tick = interval(TICK);
    tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut storage_tick = interval(settings.look_every.max(Duration::from_millis(1)));
    storage_tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let driver = pipe.driver().clone();
    let mut checks: JoinSet<(Check, Seen)> = JoinSet::new();
    let mut list: Option<List> = None;
    let mut next_list = Instant::now();
    let mut storage: JoinSet<Option<Sight>> = JoinSet::new();

    pipe.arrivals(inventory.drain(), clock());
    pipe.close_strangers(clock());
    loop {
        let way = probe.way();
        if way != *pipe.way() {
            // A check that is under way belongs to the old schedule, and a list to the old driver.
            checks = JoinSet::new();
            storage = JoinSet::new();
            list = None;
            next_list = Instant::now();
            tracing::debug!(?way, "the driver is asked in another way");
            let pace = settings.pace(&way);
            pipe.set_way(way, pace, clock());
        }
        if matches!(pipe.way(), Way::List { .. }) && list.is_none() && Instant::now() >= next_list {
            next_list = Instant::now() + settings.list_every;
            pipe.list_began();
            list = Some(List::start(probe.clone(), driver.clone()));
        }
        while let Some(check) = pipe.next_check(clock()) {
            let probe = probe.clone();
            let driver = driver.clone();
            checks.spawn(async move {
                let seen = guard::look(&*probe, &driver, &check.key).await;
                (check, seen)
            });
        }
        let wake = pipe.next_wake(clock()).map(Instant::from_std);
        let list_due = (list.is_none() && matches!(pipe.way(), Way::List { .. })).then_some(next_list);
        let nap = [wake, list_due].into_iter().flatten().min();

        tokio::select! {
            () = &mut stop => break,
            () = inventory.changed() => pipe.arrivals(inventory.drain(), clock()),
            () = probe.changed() => {}
            event = next_of(&mut list) => match event {
                FromList::Page(page) => pipe.listed(page, clock()),
                FromList::End(end) => {
                    pipe.list_ended(&end, clock());
                    list = None;
                }
            },
            // Neither panics nor is it cancelled before the set is dropped.
            Some(Ok((check, seen))) = checks.join_next() => pipe.checked(&check, seen, clock()),
            Some(Observation { handle, vantage, sight }) = observations.recv() => {
                pipe.observed(&handle, &vantage, sight, clock());
            }
            _ = tick.tick() => pipe.tick(clock()),
            _ = storage_tick.tick() => {
                if let Way::Blind(why) = pipe.way() {
                    let why = why.clone();
                    pipe.driver_gone(why, clock());
                } else if storage.is_empty() {
                    let (probe, driver) = (probe.clone(), driver.clone());
                    storage.spawn(async move { guard::storage(&*probe, &driver).await });
                }
            }
            Some(Ok(Some(sight))) = storage.join_next() => pipe.saw_storage(sight, clock()),
            () = sleep_until(nap.unwrap_or_else(Instant::now)), if nap.is_some() => {}
        }
    }
    pipe
}

/// A list under way.
struct List {
    pages: mpsc::Receiver<Vec<Listed>>,
    task: JoinHandle<ListEnd>,
}

enum FromList {
    Page(Vec<Listed>),
    End(ListEnd),
}

impl List {
    fn start<P: Probe>(probe: Arc<P>, driver: Arc<str>) -> Self {
        let (sender, pages) = mpsc::channel(PAGES_AHEAD);
        Self { pages, task: tokio::spawn(async move { guard::list(&*probe, &driver, sender).await }) }
    }
}

impl Drop for List {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Every page first, then the end. Never returns where there is no list. Can be dropped and called again.
async fn next_of(list: &mut Option<List>) -> FromList {
    let Some(list) = list else { return std::future::pending().await };
    if let Some(page) = list.pages.recv().await {
        return FromList::Page(page);
    }
    FromList::End((&mut list.task).await.unwrap_or_else(|error| {
        // It neither panics nor is it cancelled before the list is dropped.
        ListEnd::Broken(Why::new(
            WhyKind::Failed,
            &format!("internal error (bug): the list ended early: {error}"),
        ))
    }))
}
