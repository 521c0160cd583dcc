//! A list and a check of the same volume, under way together: whichever ends last, the one that began last counts.

#![allow(clippy::unwrap_used, reason = "a lock in a test may be poisoned only by a failing test")]

use std::sync::{Arc, Mutex};
use std::time::Duration;

use jiff::Timestamp;
use tokio::sync::{Notify, mpsc};
use volmedic_health::object::ObjectRef;
use volmedic_health::{
    Change, Condition, Ledger, Policy, Sight, Status, Transition, Vantage, Volume, WellKnown,
};
use volmedic_monitor::{
    Absent, Arrival, Board, Check, Inventory, ListEnd, Listed, Now, Outlet, Pace, Pages, Pipe, Probe, Seen,
    Settings, Way, run,
};

const LISTS: Way = Way::List { absent: Absent::Unlisted, looks: true };

struct OneVolume(Mutex<bool>);

impl Inventory for OneVolume {
    fn drain(&self) -> Vec<Arrival> {
        let first = std::mem::take(&mut *self.0.lock().unwrap());
        if first { vec![Arrival::Added("v".into())] } else { Vec::new() }
    }

    async fn changed(&self) {
        std::future::pending::<()>().await;
    }

    fn about(&self, _: &Volume) -> Vec<ObjectRef> {
        Vec::new()
    }
}

#[derive(Clone, Default)]
struct Reported(Arc<Mutex<Vec<&'static str>>>);

impl Outlet for Reported {
    fn tell(&mut self, transition: &Transition, _: Vec<ObjectRef>) {
        self.0.lock().unwrap().push(match &transition.change {
            Change::Appeared { .. } => "appeared",
            Change::Cleared { .. } => "cleared",
            other => other.kind(),
        });
    }
}

impl Reported {
    fn all(&self) -> Vec<&'static str> {
        self.0.lock().unwrap().clone()
    }
}

fn dead() -> Sight {
    Sight::adverse([Condition::new(Status::Inaccessible, WellKnown::MounterDead.into(), "")])
}

fn listed(sight: Sight) -> Vec<Listed> {
    vec![Listed { handle: "v".into(), sight, again: false }]
}

/// A pipe whose probes are played by hand.
struct Bench {
    pipe: Pipe<OneVolume, Reported>,
    reported: Reported,
    now: Now,
}

impl Bench {
    fn new(way: Way) -> Self {
        let now = Now { day: Timestamp::UNIX_EPOCH, clock: std::time::Instant::now() };
        let (reported, volumes) = (Reported::default(), Arc::new(OneVolume(Mutex::new(true))));
        let board = Board::new(Ledger::new(Policy { flap_limit: 1000, ..Policy::default() }));
        let pace = || Pace::new(Duration::from_mins(1), 1);
        let mut pipe =
            Pipe::new("d".into(), Vantage::Controller, volumes.clone(), reported.clone(), board, pace(), now);
        pipe.set_way(way, pace(), now);
        pipe.arrivals(volumes.drain(), now);
        Self { pipe, reported, now }
    }

    /// A check of the volume begins, as soon as it is due.
    fn check(&mut self) -> Check {
        self.now.clock += Duration::from_mins(2);
        self.pipe.next_check(self.now).expect("it is due")
    }

    fn checked(&mut self, check: &Check, sight: Sight) {
        self.pipe.checked(check, Seen::Volume(sight), self.now);
    }

    /// A whole pass.
    fn list(&mut self, page: Vec<Listed>) {
        self.pipe.list_began();
        self.list_ends(page);
    }

    fn list_ends(&mut self, page: Vec<Listed>) {
        self.pipe.listed(page, self.now);
        self.pipe.list_ended(&ListEnd::Complete, self.now);
    }
}

#[test]
fn a_page_from_before_a_check_does_not_bring_back_what_the_check_saw_healed() {
    let mut bench = Bench::new(LISTS);
    bench.list(listed(dead()));
    bench.pipe.list_began();
    // Healed while the driver makes up its list; a check that begins now sees it.
    let check = bench.check();
    bench.checked(&check, Sight::Healthy);
    bench.list_ends(listed(dead()));
    assert_eq!(bench.reported.all(), ["appeared", "cleared"]);
    // If it is unhealthy again, a check finds out now and not with the next list.
    let check = bench.pipe.next_check(bench.now).expect("an old sight is checked again");
    bench.checked(&check, dead());
    assert_eq!(bench.reported.all(), ["appeared", "cleared", "appeared"]);
}

#[test]
fn a_check_from_before_a_list_does_not_bring_back_what_the_list_saw_healed() {
    let mut bench = Bench::new(Way::List { absent: Absent::Missing, looks: true });
    bench.list(listed(dead()));
    let check = bench.check();
    bench.list(listed(Sight::Healthy));
    bench.checked(&check, dead());
    assert_eq!(bench.reported.all(), ["appeared", "cleared"]);
}

#[test]
fn absence_from_a_list_that_began_before_a_check_says_nothing() {
    let mut bench = Bench::new(LISTS);
    bench.list(listed(dead()));
    for _ in 0..4 {
        bench.pipe.list_began();
        let check = bench.check();
        bench.checked(&check, dead());
        bench.list_ends(Vec::new());
    }
    assert_eq!(bench.reported.all(), ["appeared"]);
}

#[test]
fn a_probe_that_did_not_see_the_volume_makes_no_sight_old() {
    let unseen = || Sight::not_seen(volmedic_health::WhyKind::Failed, "");
    let mut bench = Bench::new(LISTS);
    bench.pipe.list_began();
    let check = bench.check();
    bench.checked(&check, unseen());
    bench.list_ends(listed(dead()));
    assert_eq!(bench.reported.all(), ["appeared"]);
    let check = bench.check();
    bench.list(listed(unseen()));
    bench.checked(&check, Sight::Healthy);
    assert_eq!(bench.reported.all(), ["appeared", "cleared"]);
}

/// A volume that is dead from the beginning and healed once. Whatever probes were under way then, and however they end,
/// it is reported at most once, and its recovery is the last word.
#[test]
fn a_volume_that_was_healed_once_is_reported_once_in_every_order() {
    const STEPS: u32 = 8;
    let mut orders = 0;
    // Each step is one of: a pass begins or ends, a check begins or ends, the heal.
    for order in 0..3_u32.pow(STEPS) {
        let mut bench = Bench::new(LISTS);
        let truth = |healed: bool| if healed { Sight::Healthy } else { dead() };
        let (mut list, mut check, mut healed): (Option<bool>, Option<(Check, bool)>, bool) =
            (None, None, false);
        let mut left = order;
        for _ in 0..STEPS {
            let step = left % 3;
            left /= 3;
            match step {
                // What it sees is how it was when it began.
                0 => match list.take() {
                    None => {
                        bench.pipe.list_began();
                        list = Some(healed);
                    }
                    Some(healed) => bench.list_ends(if healed { Vec::new() } else { listed(dead()) }),
                },
                1 => match check.take() {
                    None => {
                        bench.now.clock += Duration::from_mins(2);
                        check = bench.pipe.next_check(bench.now).map(|check| (check, healed));
                    }
                    Some((check, healed)) => bench.checked(&check, truth(healed)),
                },
                _ => healed = true,
            }
        }
        let reported = bench.reported.all();
        let appeared = reported.iter().filter(|reported| **reported == "appeared").count();
        assert!(appeared <= 1, "order {order}: {reported:?}");
        orders += u32::from(reported.len() == 2);
    }
    assert!(orders > 100, "the heal was seen in {orders} orders only");
}

/// A driver that takes long to make up its list, and answers single questions quickly.
struct SlowList {
    healed: Mutex<bool>,
    lists: Notify,
}

impl SlowList {
    fn sight(&self) -> Sight {
        if *self.healed.lock().unwrap() { Sight::Healthy } else { dead() }
    }
}

impl Probe for SlowList {
    fn way(&self) -> Way {
        LISTS
    }

    async fn changed(&self) {
        std::future::pending::<()>().await;
    }

    async fn list(&self, mut pages: impl Pages) -> ListEnd {
        let sight = self.sight();
        self.lists.notify_one();
        tokio::time::sleep(Duration::from_secs(3)).await;
        if sight != Sight::Healthy {
            pages.page(listed(sight)).await;
        }
        ListEnd::Complete
    }

    async fn look(&self, _: &str) -> Seen {
        let sight = self.sight();
        tokio::time::sleep(Duration::from_millis(10)).await;
        Seen::Volume(sight)
    }
}

#[tokio::test(start_paused = true)]
async fn healed_while_a_list_is_under_way_it_is_reported_once_and_recovers_once() {
    // At each tenth of the time that a list takes, and between two.
    for tenth in 0..12 {
        let reported = Reported::default();
        let volumes = Arc::new(OneVolume(Mutex::new(true)));
        let board = Board::new(Ledger::new(Policy::default()));
        let settings =
            Settings { list_every: Duration::from_secs(4), look_every: Duration::from_secs(1), workers: 4 };
        let clock = || Now { day: Timestamp::UNIX_EPOCH, clock: tokio::time::Instant::now().into_std() };
        let pace = settings.pace(&LISTS);
        let pipe = Pipe::new(
            "d".into(),
            Vantage::Controller,
            volumes.clone(),
            reported.clone(),
            board,
            pace,
            clock(),
        );
        let probe = Arc::new(SlowList { healed: Mutex::new(false), lists: Notify::new() });
        let (_sender, observations) = mpsc::channel(1);
        let driver = probe.clone();
        let healing = async move {
            for _ in 0..3 {
                driver.lists.notified().await;
            }
            tokio::time::sleep(Duration::from_millis(300 * tenth + 1)).await;
            *driver.healed.lock().unwrap() = true;
            tokio::time::sleep(Duration::from_secs(30)).await;
        };
        run(pipe, volumes, probe, settings, observations, clock, healing).await;
        assert_eq!(reported.all(), ["appeared", "cleared"], "healed {} ms after a list began", 300 * tenth);
    }
}
