//! The whole pipe with a paused clock: a scripted driver on one end, what was reported on the other.

#![allow(clippy::unwrap_used, reason = "a lock in a test may be poisoned only by a failing test")]

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use tokio::sync::{Notify, mpsc};
use volmedic_health::object::{Kind, ObjectRef};
use volmedic_health::{
    Change, Condition, Held, Ledger, Memo, Policy, Reason, Sight, Status, Subject, Transition, Vantage,
    Volume, Why, WhyKind,
};
use volmedic_monitor::{
    Absent, Arrival, Board, Inventory, ListEnd, Listed, Now, Observation, Outlet, Pace, Pages, Pipe, Probe,
    Seen, Settings, Way, run,
};

const DRIVER: &str = "disk.example.net";
/// A probe of a volume in this state panics.
const POISON: &str = "poison";

#[derive(Default)]
struct Volumes {
    changes: Mutex<Vec<Arrival>>,
    woken: Notify,
    joined: Mutex<Vec<ObjectRef>>,
}

impl Volumes {
    fn push(&self, arrival: Arrival) {
        self.changes.lock().unwrap().push(arrival);
        self.woken.notify_one();
    }
}

fn claim(handle: &str) -> ObjectRef {
    ObjectRef::new(Kind::PersistentVolumeClaim, "shop", &format!("claim-{handle}"), "uid")
}

impl Inventory for Volumes {
    fn drain(&self) -> Vec<Arrival> {
        std::mem::take(&mut *self.changes.lock().unwrap())
    }

    async fn changed(&self) {
        self.woken.notified().await;
    }

    fn about(&self, volume: &Volume) -> Vec<ObjectRef> {
        [claim(&volume.handle)].into_iter().chain(self.joined.lock().unwrap().iter().cloned()).collect()
    }

    fn is_only_observed(&self, handle: &str) -> bool {
        handle.starts_with("inline:")
    }
}

/// A driver with scripted answers.
struct Script {
    way: Mutex<Way>,
    changed: Notify,
    /// What is wrong with which volume; `NotSeen` takes its time.
    state: Mutex<HashMap<String, Sight>>,
    /// Volumes that the list of all volumes has, besides those with a state.
    present: Mutex<Vec<String>>,
    list_breaks: Mutex<Option<Why>>,
    checks: Mutex<HashMap<String, usize>>,
    lists: AtomicUsize,
    storage: Mutex<Option<Sight>>,
}

impl Script {
    fn new(way: Way) -> Arc<Self> {
        Arc::new(Self {
            way: Mutex::new(way),
            changed: Notify::new(),
            state: Mutex::default(),
            present: Mutex::default(),
            list_breaks: Mutex::default(),
            checks: Mutex::default(),
            lists: AtomicUsize::new(0),
            storage: Mutex::default(),
        })
    }

    fn set_way(&self, way: Way) {
        *self.way.lock().unwrap() = way;
        self.changed.notify_one();
    }

    fn set(&self, handle: &str, sight: impl Into<Option<Sight>>) {
        let mut state = self.state.lock().unwrap();
        match sight.into() {
            Some(sight) => drop(state.insert(handle.into(), sight)),
            None => drop(state.remove(handle)),
        }
    }
}

impl Probe for Script {
    fn way(&self) -> Way {
        self.way.lock().unwrap().clone()
    }

    async fn changed(&self) {
        self.changed.notified().await;
    }

    async fn list(&self, mut pages: impl Pages) -> ListEnd {
        self.lists.fetch_add(1, Ordering::Relaxed);
        let mut entries: Vec<Listed> = self
            .state
            .lock()
            .unwrap()
            .iter()
            .map(|(handle, sight)| Listed { handle: handle.clone(), sight: sight.clone(), again: false })
            .collect();
        let present = self.present.lock().unwrap().clone();
        entries.extend(present.into_iter().map(|handle| Listed {
            handle,
            sight: Sight::Healthy,
            again: false,
        }));
        for page in entries.chunks(2) {
            tokio::time::sleep(Duration::from_millis(5)).await;
            pages.page(page.to_vec()).await;
        }
        let breaks = self.list_breaks.lock().unwrap().clone();
        breaks.map_or(ListEnd::Complete, ListEnd::Broken)
    }

    async fn storage(&self) -> Option<Sight> {
        self.storage.lock().unwrap().clone()
    }

    async fn look(&self, handle: &str) -> Seen {
        *self.checks.lock().unwrap().entry(handle.into()).or_default() += 1;
        let sight = self.state.lock().unwrap().get(handle).cloned().unwrap_or(Sight::Healthy);
        assert!(!matches!(&sight, Sight::Missing(why) if **why == *POISON), "{handle} is poisoned");
        let takes = if matches!(sight, Sight::NotSeen(_)) { 15_000 } else { 10 };
        tokio::time::sleep(Duration::from_millis(takes)).await;
        Seen::Volume(sight)
    }
}

#[derive(Clone, Default)]
struct Reported(Arc<Mutex<Vec<String>>>);

impl Outlet for Reported {
    fn tell(&mut self, transition: &Transition, about: Vec<ObjectRef>) {
        let what = match &transition.change {
            Change::Appeared { condition, .. } => format!("appeared {condition}"),
            Change::Cleared { condition, ending, .. } => format!("cleared {condition} {ending:?}"),
            other => other.kind().to_owned(),
        };
        let on: Vec<String> = about.iter().map(ToString::to_string).collect();
        let subject = match &transition.subject {
            Subject::Volume(volume) => volume.handle.to_string(),
            Subject::Backend(_) => "backend".into(),
        };
        self.0.lock().unwrap().push(format!("{subject}: {what} on {on:?}"));
    }
}

impl Reported {
    fn take(&self) -> Vec<String> {
        let mut reported = std::mem::take(&mut *self.0.lock().unwrap());
        reported.sort();
        reported
    }
}

struct Stage {
    volumes: Arc<Volumes>,
    script: Arc<Script>,
    reported: Reported,
    observe: mpsc::Sender<Observation>,
    board: Board,
    stop: Arc<Notify>,
}

fn start(way: Way, volumes: usize) -> Stage {
    let (script, reported, inventory) = (Script::new(way), Reported::default(), Arc::new(Volumes::default()));
    for i in 0..volumes {
        inventory.push(Arrival::Added(format!("v{i}").into()));
    }
    let board = Board::new(Ledger::new(Policy::default()));
    let settings =
        Settings { list_every: Duration::from_mins(5), look_every: Duration::from_mins(1), workers: 10 };
    let began = tokio::time::Instant::now();
    let clock = move || {
        let clock = tokio::time::Instant::now();
        let passed = SignedDuration::try_from(clock - began).expect("short");
        Now { day: Timestamp::UNIX_EPOCH + passed, clock: clock.into_std() }
    };
    let pace = settings.pace(&Way::Look);
    let pipe = Pipe::new(
        DRIVER.into(),
        Vantage::Controller,
        inventory.clone(),
        reported.clone(),
        board.clone(),
        pace,
        clock(),
    );
    let (observe, observations) = mpsc::channel(16);
    let stop = Arc::new(Notify::new());
    let stopped = stop.clone();
    let probe = script.clone();
    let seen = inventory.clone();
    tokio::spawn(async move {
        run(pipe, seen, probe, settings, observations, clock, async move { stopped.notified().await }).await;
    });
    Stage { volumes: inventory, script, reported, observe, board, stop }
}

async fn minutes(minutes: u64) {
    tokio::time::sleep(Duration::from_mins(minutes)).await;
}

fn bad(reason: &str) -> Sight {
    Sight::adverse([Condition::new(Status::Degraded, Reason::new(reason), "")])
}

#[tokio::test(start_paused = true)]
async fn volume_by_volume_everything_is_checked_every_interval_and_hung_ones_delay_no_other() {
    let stage = start(Way::Look, 200);
    for i in 0..10 {
        stage.script.set(&format!("v{i}"), Sight::not_seen(WhyKind::TimedOut, ""));
    }
    minutes(10).await;
    let checks = stage.script.checks.lock().unwrap().clone();
    for i in 10..200 {
        let count = checks[&format!("v{i}")];
        assert!((10..=12).contains(&count), "v{i} was checked {count} times in ten minutes");
    }
    let reported = stage.reported.take();
    assert_eq!(reported.len(), 10, "each hung volume is reported once as not seen: {reported:?}");
}

#[tokio::test(start_paused = true)]
async fn a_probe_that_panics_counts_as_not_seen_and_is_repeated_while_the_others_go_on() {
    let stage = start(Way::Look, 20);
    stage.script.set("v7", Sight::missing(POISON));
    minutes(10).await;
    let checks = stage.script.checks.lock().unwrap().clone();
    for i in 0..20 {
        let count = checks[&format!("v{i}")];
        assert!((10..=12).contains(&count), "v{i} was probed {count} times in ten minutes");
    }
    let reported = stage.reported.take();
    assert!(
        reported.len() == 1 && reported[0].starts_with("v7: "),
        "only the volume that cannot be probed: {reported:?}"
    );
    stage.script.set("v7", bad("SlowIO"));
    minutes(2).await;
    let reported = stage.reported.take();
    assert!(
        reported.iter().any(|reported| reported.starts_with("v7: appeared Degraded/SlowIO")),
        "{reported:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn a_new_volume_is_checked_immediately_and_reported_on_its_claim() {
    let stage = start(Way::Look, 1);
    minutes(1).await;
    stage.script.set("late", bad("SlowIO"));
    stage.volumes.push(Arrival::Added("late".into()));
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(stage.reported.take(), [r#"late: appeared Degraded/SlowIO on ["claim shop/claim-late"]"#]);
    stage.script.set("late", None);
    tokio::time::sleep(Duration::from_secs(20)).await;
    let recovered = stage.reported.take();
    assert_eq!(recovered, [r#"late: cleared Degraded/SlowIO Recovered on ["claim shop/claim-late"]"#]);
}

#[tokio::test(start_paused = true)]
async fn a_list_of_the_unhealthy_is_confirmed_by_a_check_where_there_is_one() {
    let stage = start(Way::List { absent: Absent::Unlisted, looks: true }, 3);
    stage.script.set("v1", bad("SlowIO"));
    stage.script.set("stranger", bad("NotOurs"));
    minutes(6).await;
    assert_eq!(stage.reported.take(), [r#"v1: appeared Degraded/SlowIO on ["claim shop/claim-v1"]"#]);
    stage.script.set("v1", None);
    // An unhealthy volume is checked again within a quarter of the five minutes.
    tokio::time::sleep(Duration::from_secs(76)).await;
    assert_eq!(stage.reported.take().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn without_single_checks_recovery_takes_two_complete_lists_and_a_broken_one_does_not_count() {
    let stage = start(Way::List { absent: Absent::Unlisted, looks: false }, 3);
    stage.script.set("v1", bad("SlowIO"));
    minutes(1).await;
    assert_eq!(stage.reported.take().len(), 1);
    stage.script.set("v1", None);
    minutes(5).await;
    assert!(stage.reported.take().is_empty(), "absent from one list");
    *stage.script.list_breaks.lock().unwrap() = Some(Why::new(WhyKind::Incomplete, "page 2 never came"));
    minutes(5).await;
    assert!(stage.reported.take().is_empty(), "absent from an incomplete list");
    *stage.script.list_breaks.lock().unwrap() = None;
    minutes(5).await;
    assert_eq!(
        stage.reported.take(),
        [r#"v1: cleared Degraded/SlowIO Recovered on ["claim shop/claim-v1"]"#]
    );
}

#[tokio::test(start_paused = true)]
async fn a_volume_missing_from_the_list_of_all_is_reported_on_the_second_list() {
    let stage = start(Way::List { absent: Absent::Missing, looks: false }, 3);
    stage.script.present.lock().unwrap().extend(["v0".to_owned(), "v2".to_owned()]);
    minutes(1).await;
    assert!(stage.reported.take().is_empty());
    minutes(5).await;
    let gone = stage.reported.take();
    assert_eq!(gone, [r#"v1: appeared Inaccessible/VolumeNotFound on ["claim shop/claim-v1"]"#]);
}

#[tokio::test(start_paused = true)]
async fn a_list_that_breaks_falls_back_to_single_checks_and_is_reported_once_on_the_backend() {
    let stage = start(Way::List { absent: Absent::Missing, looks: true }, 50);
    *stage.script.list_breaks.lock().unwrap() = Some(Why::new(WhyKind::Incomplete, "page 1 never came"));
    stage.script.state.lock().unwrap().clear();
    minutes(30).await;
    let checks = stage.script.checks.lock().unwrap().clone();
    assert!(
        (0..50).all(|i| checks[&format!("v{i}")] >= 6),
        "each pass that broke was made up for: {checks:?}"
    );
    // The checks reach the backend.
    assert_eq!(stage.reported.take(), Vec::<String>::new());
}

#[tokio::test(start_paused = true)]
async fn a_driver_that_is_gone_is_one_piece_of_news_not_one_per_volume() {
    let stage = start(Way::Look, 100);
    minutes(2).await;
    stage.script.set_way(Way::Blind(Why::new(WhyKind::Unreachable, "connection refused")));
    minutes(30).await;
    assert_eq!(stage.reported.take(), ["backend: went_blind on []"]);
    assert_eq!(stage.board.lock_ledger().tally(DRIVER).unknown, 100);
    stage.script.set_way(Way::Look);
    minutes(1).await;
    assert_eq!(stage.reported.take(), ["backend: sees_again on []"]);
    assert_eq!(stage.board.lock_ledger().tally(DRIVER).healthy, 100);
}

#[tokio::test(start_paused = true)]
async fn a_volume_that_leaves_is_closed_and_a_new_user_of_an_unhealthy_one_gets_the_report() {
    let stage = start(Way::Look, 2);
    stage.script.set("v1", bad("SlowIO"));
    minutes(1).await;
    stage.reported.take();
    *stage.volumes.joined.lock().unwrap() = vec![claim("second")];
    for _ in 0..3 {
        stage.volumes.push(Arrival::AudienceChanged("v1".into()));
    }
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(stage.reported.take(), [r#"v1: appeared Degraded/SlowIO on ["claim shop/claim-second"]"#]);
    stage.volumes.joined.lock().unwrap().clear();
    stage.volumes.push(Arrival::All(vec!["v0".into()]));
    minutes(5).await;
    let closed = stage.reported.take();
    let both = r#"["claim shop/claim-v1", "claim shop/claim-second"]"#;
    assert_eq!(closed, [format!("v1: cleared Degraded/SlowIO LeftInventory on {both}")]);
}

#[tokio::test(start_paused = true)]
async fn a_node_that_goes_down_is_reported_on_the_claims_on_it() {
    let stage = start(Way::Nothing, 2);
    let down = Condition::new(Status::Inaccessible, Reason::new("NodeDown"), "node worker-7 does not answer");
    let sight = |sight| Observation { handle: "v1".into(), vantage: Vantage::Cluster, sight };
    stage.observe.send(sight(Sight::adverse([down]))).await.unwrap();
    minutes(1).await;
    assert_eq!(stage.reported.take(), [r#"v1: appeared Inaccessible/NodeDown on ["claim shop/claim-v1"]"#]);
    stage.observe.send(sight(Sight::Healthy)).await.unwrap();
    minutes(1).await;
    assert_eq!(stage.reported.take().len(), 1);
    stage.stop.notify_one();
}

#[tokio::test(start_paused = true)]
async fn a_list_runs_once_an_interval_and_not_while_one_runs() {
    let stage = start(Way::List { absent: Absent::Unlisted, looks: false }, 3);
    minutes(51).await;
    assert_eq!(stage.script.lists.load(Ordering::Relaxed), 11);
}

#[tokio::test(start_paused = true)]
async fn what_is_only_observed_leaves_nothing_behind_when_it_is_over() {
    let stage = start(Way::Nothing, 1);
    let down = || Sight::adverse([Condition::new(Status::Inaccessible, Reason::new("NodeDown"), "")]);
    let sight = |handle: &str, sight| Observation { handle: handle.into(), vantage: Vantage::Cluster, sight };
    for handle in ["v0", "inline:shop/web", "left"] {
        stage.observe.send(sight(handle, down())).await.unwrap();
        stage.observe.send(sight(handle, Sight::Healthy)).await.unwrap();
    }
    minutes(1).await;
    assert_eq!(stage.reported.take().len(), 6);
    let known: Vec<Subject> = stage.board.lock_ledger().subjects().collect();
    assert_eq!(known, [Subject::volume(DRIVER, "v0")], "the others would pile up");
}

#[tokio::test(start_paused = true)]
async fn after_a_restart_only_new_users_get_the_report() {
    let (reported, inventory) = (Reported::default(), Arc::new(Volumes::default()));
    *inventory.joined.lock().unwrap() = vec![claim("newcomer")];
    let board = Board::new(Ledger::new(Policy::default()));
    let now = Now { day: Timestamp::UNIX_EPOCH, clock: std::time::Instant::now() };
    for handle in ["unhealthy", "gone", "inline:shop/web"] {
        let condition = Condition::new(Status::Degraded, Reason::new("SlowIO"), "");
        board.lock_ledger().recall(Memo {
            subject: Subject::volume(DRIVER, handle),
            vantage: Vantage::Controller,
            reported: vec![Held { condition, since: now.day }],
            reported_at: now.day,
            blind_since: None,
            flapping_since: None,
        });
    }
    let pace = Pace::new(Duration::from_mins(1), 1);
    let mut pipe = Pipe::new(
        DRIVER.into(),
        Vantage::Controller,
        inventory.clone(),
        reported.clone(),
        board.clone(),
        pace,
        now,
    );
    for handle in ["unhealthy", "healthy"] {
        pipe.recall_audience(handle, claim(handle));
    }
    pipe.arrivals(vec![Arrival::Added("unhealthy".into()), Arrival::Added("healthy".into())], now);
    pipe.close_strangers(now);
    let newcomer = r#"unhealthy: appeared Degraded/SlowIO on ["claim shop/claim-newcomer"]"#;
    let both = r#"["claim shop/claim-gone", "claim shop/claim-newcomer"]"#;
    let closed = format!("gone: cleared Degraded/SlowIO LeftInventory on {both}");
    assert_eq!(reported.take(), [closed.as_str(), newcomer]);
    pipe.arrivals(
        vec![Arrival::AudienceChanged("unhealthy".into()), Arrival::AudienceChanged("healthy".into())],
        now,
    );
    assert_eq!(reported.take(), Vec::<String>::new(), "all users have the report");

    pipe.forget_vantage(&Vantage::Controller, now);
    let closed = reported.take();
    assert_eq!(closed.len(), 2, "{closed:?}");
    assert!(closed.iter().all(|line| line.contains("cleared Degraded/SlowIO VantageGone")), "{closed:?}");
}

#[tokio::test(start_paused = true)]
async fn a_disturbed_volume_is_checked_immediately() {
    let stage = start(Way::Look, 2);
    tokio::time::sleep(Duration::from_secs(61)).await;
    let checks = |handle: &str| stage.script.checks.lock().unwrap()[handle];
    let before = (checks("v0"), checks("v1"));
    stage.script.set("v1", bad("SlowIO"));
    stage.volumes.push(Arrival::Disturbed("v1".into()));
    stage.volumes.push(Arrival::Disturbed("stranger".into()));
    tokio::time::sleep(Duration::from_millis(20)).await;
    assert_eq!(stage.reported.take(), [r#"v1: appeared Degraded/SlowIO on ["claim shop/claim-v1"]"#]);
    assert_eq!((checks("v0"), checks("v1")), (before.0, before.1 + 1));
}

#[tokio::test(start_paused = true)]
async fn what_the_driver_says_of_its_storage_outlasts_answers_about_volumes() {
    let stage = start(Way::Look, 5);
    *stage.script.storage.lock().unwrap() = Some(bad("PoolLow"));
    minutes(5).await;
    assert_eq!(stage.reported.take(), ["backend: appeared Degraded/PoolLow on []"]);
    *stage.script.storage.lock().unwrap() = Some(Sight::Healthy);
    minutes(2).await;
    assert_eq!(stage.reported.take(), ["backend: cleared Degraded/PoolLow Recovered on []"]);
}

/// Two vantages, one ledger: each reports its sights, and the end is reported on every object that has the report.
#[test]
fn pipes_that_share_a_board_agree_on_what_was_reported() {
    let (reported, inventory) = (Reported::default(), Arc::new(Volumes::default()));
    let board = Board::new(Ledger::new(Policy::default()));
    let now = Now { day: Timestamp::UNIX_EPOCH, clock: std::time::Instant::now() };
    let pipe = |vantage: Vantage| {
        let pace = Pace::new(Duration::from_mins(1), 1);
        let mut pipe =
            Pipe::new(DRIVER.into(), vantage, inventory.clone(), reported.clone(), board.clone(), pace, now);
        pipe.set_way(Way::Look, Pace::new(Duration::from_mins(1), 1), now);
        pipe.arrivals(vec![Arrival::All(vec!["v".into()])], now);
        pipe
    };
    let (mut host, mut node) = (pipe(Vantage::Host("n".into())), pipe(Vantage::Node("n".into())));
    let see = |pipe: &mut Pipe<Volumes, Reported>, sight: Sight| {
        pipe.arrivals(vec![Arrival::Disturbed("v".into())], now);
        let check = pipe.next_check(now).expect("it is due");
        pipe.checked(&check, Seen::Volume(sight), now);
        reported.take()
    };
    let (one, both) = (r#"["claim shop/claim-v"]"#, r#"["claim shop/claim-v", "claim shop/claim-second"]"#);
    assert_eq!(see(&mut host, bad("A")), [format!("v: appeared Degraded/A on {one}")]);
    *inventory.joined.lock().unwrap() = vec![claim("second")];
    assert_eq!(see(&mut node, bad("B")), [format!("v: appeared Degraded/B on {both}")]);
    inventory.joined.lock().unwrap().clear();
    assert_eq!(see(&mut host, Sight::Healthy), [format!("v: cleared Degraded/A Recovered on {both}")]);
    // The volume leaves: the first pipe that gets the arrival closes all reports, once.
    node.arrivals(vec![Arrival::Removed("v".into())], now);
    assert_eq!(reported.take(), [format!("v: cleared Degraded/B LeftInventory on {both}")]);
    host.arrivals(vec![Arrival::Removed("v".into())], now);
    assert_eq!((reported.take(), board.audiences()), (Vec::<String>::new(), Vec::new()));
}

#[test]
fn a_check_that_finds_nothing_to_see_changes_nothing() {
    let (reported, inventory) = (Reported::default(), Arc::new(Volumes::default()));
    let board = Board::new(Ledger::new(Policy::default()));
    let now = Now { day: Timestamp::UNIX_EPOCH, clock: std::time::Instant::now() };
    let pace = || Pace::new(Duration::from_mins(1), 1);
    let vantage = Vantage::Host("n".into());
    let mut pipe = Pipe::new(DRIVER.into(), vantage, inventory, reported.clone(), board.clone(), pace(), now);
    pipe.set_way(Way::Look, pace(), now);
    pipe.arrivals(vec![Arrival::All(vec!["v".into()])], now);
    for sight in [Seen::Volume(bad("A")), Seen::Nothing, Seen::Nothing, Seen::Nothing] {
        pipe.arrivals(vec![Arrival::Disturbed("v".into())], now);
        let check = pipe.next_check(now).expect("it is due");
        pipe.checked(&check, sight, now);
    }
    assert_eq!(reported.take().len(), 1, "neither over nor unreachable");
}
