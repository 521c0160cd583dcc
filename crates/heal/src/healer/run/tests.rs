//! The loop with a clock that jumps: what is asked of the driver, and when.

mod recreate;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use parking_lot::Mutex;
use volmedic_api::Kind as ObjectKind;
use volmedic_csi::Kind;
use volmedic_health::{Reason, WellKnown};

use super::*;
use crate::healer::{Eviction, Handle, Record};
use crate::mode::{Mode, Rules};
use crate::policy::Policy;
use crate::triage::Approval;

/// The whole world of a test.
#[derive(Clone)]
struct World {
    outcome: Arc<dyn Fn(&Ticket) -> Outcome + Send + Sync>,
    takes: Duration,
    attached: usize,
    in_use: usize,
    leads: Arc<AtomicBool>,
    began: Instant,
    heals: Arc<Mutex<Vec<(u64, String)>>>,
    surveys: Arc<AtomicUsize>,
    now: Arc<AtomicUsize>,
    most: Arc<AtomicUsize>,
    reported: Arc<Mutex<Vec<Record>>>,
    metrics: Metrics,
}

impl World {
    fn new(outcome: impl Fn(&Ticket) -> Outcome + Send + Sync + 'static) -> Self {
        Self {
            outcome: Arc::new(outcome),
            takes: Duration::ZERO,
            attached: 0,
            in_use: 1000,
            leads: Arc::new(AtomicBool::new(true)),
            began: Instant::now(),
            heals: Arc::default(),
            surveys: Arc::default(),
            now: Arc::default(),
            most: Arc::default(),
            reported: Arc::default(),
            metrics: Metrics::default(),
        }
    }

    /// How many heals the metrics have, by how they went.
    fn counted(&self) -> Vec<String> {
        let mut registry = prometheus_client::registry::Registry::default();
        self.metrics.register(&mut registry);
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &registry).unwrap();
        let of_heals = text.lines().filter_map(|line| line.strip_prefix("volmedic_heal_seconds_count"));
        of_heals.map(str::to_owned).collect()
    }

    fn seconds(&self) -> Vec<u64> {
        self.heals.lock().iter().map(|(at, _)| *at).collect()
    }

    fn reasons(&self) -> Vec<&'static str> {
        self.reported.lock().iter().map(|record| record.news.reason()).collect()
    }
}

impl Cluster for World {
    async fn details(&self, _: &Place, _: &str) -> Result<Details, String> {
        Ok(Details {
            version: "1".into(),
            bound: Ok(()),
            filtered: None,
            claim: Some(ObjectRef::new(ObjectKind::PersistentVolumeClaim, "ns", "claim", "uid")),
            class: None,
            mode: None,
            approval: Approval::None,
            recreate_mode: None,
            recreate_approval: Approval::None,
        })
    }

    async fn in_use_on(&self, wanted: &[(Arc<str>, Arc<str>)]) -> Result<Vec<Found>, String> {
        if self.surveys.fetch_add(1, Ordering::Relaxed) == 0 && self.attached == usize::MAX {
            return Err("the API server is away".into());
        }
        let volumes = |(driver, node): &(Arc<str>, Arc<str>)| {
            let (driver, node) = (driver.clone(), node.clone());
            let count = if self.attached == usize::MAX { 1 } else { self.attached };
            (0..count).map(move |number| Found {
                place: Place::new(driver.clone(), format!("{node}-{number}"), node.clone()),
                pv: "pv".into(),
            })
        };
        Ok(wanted.iter().flat_map(volumes).collect())
    }

    async fn places_of(&self, _: &str, _: &str) -> Result<Vec<Found>, String> {
        Ok(vec![Found { place: place("v"), pv: "pv".into() }])
    }

    async fn users(&self, _: &str, _: &ObjectRef) -> Vec<ObjectRef> {
        Vec::new()
    }

    async fn pods_of(&self, _: &ObjectRef) -> Result<Vec<UserPod>, String> {
        panic!("recreating pods is not switched on")
    }

    async fn has_driver(&self, _: &Place) -> Result<bool, String> {
        panic!("recreating pods is not switched on")
    }

    async fn evict(&self, _: &UserPod) -> Eviction {
        panic!("recreating pods is not switched on")
    }
}

impl Surgeon for World {
    async fn heal(&self, _: &Relayed, _: &str, ticket: &Ticket, _: Duration) -> Outcome {
        let at = self.began.elapsed().as_secs();
        self.heals.lock().push((at, ticket.place.handle.to_string()));
        let now = self.now.fetch_add(1, Ordering::Relaxed) + 1;
        self.most.fetch_max(now, Ordering::Relaxed);
        tokio::time::sleep(self.takes).await;
        self.now.fetch_sub(1, Ordering::Relaxed);
        (self.outcome)(ticket)
    }
}

impl Eyes for World {
    async fn again(&self, _: &Place) -> Again {
        Again::StillUnhealthy
    }

    async fn confirm(&self, _: &Place, _: &Reason, _: Remedy) -> Result<(), Refusal> {
        Ok(())
    }

    fn in_use(&self, _: Option<&str>) -> Option<usize> {
        Some(self.in_use)
    }

    fn may_act(&self) -> bool {
        self.leads.load(Ordering::Relaxed)
    }
}

impl Nodes for World {
    fn state(&self, _: &str) -> NodeState {
        NodeState::Up
    }
}

impl Teller for World {
    fn tell(&self, record: &Record) {
        self.reported.lock().push(record.clone());
    }
}

fn place(handle: &str) -> Place {
    Place::new("d.example", handle, "n0")
}

fn relay(node: usize, generation: &str) -> Relayed {
    Relayed {
        driver: "d.example".into(),
        node: format!("n{node}").into(),
        namespace: "stor".into(),
        pod: "agent-x".into(),
        pod_uid: "p-1".into(),
        address: "10.0.0.1:9070".parse().unwrap(),
        generation: generation.into(),
        certificates: Arc::default(),
    }
}

struct Running {
    handle: Handle,
    relays: mpsc::Sender<RelayNews>,
    _task: tokio::task::JoinHandle<()>,
}

impl Running {
    fn start(world: &World) -> Self {
        let options = Options {
            rules: Rules { default: Mode::Auto, ..Rules::default() },
            policy: Policy::default(),
            ..Options::default()
        };
        let (handle, triggers) = Handle::new();
        let (relays, news) = mpsc::channel(2048);
        let w = || world.clone();
        let task = tokio::spawn(run(options, w(), w(), w(), w(), w(), world.metrics.clone(), news, triggers));
        Self { handle, relays, _task: task }
    }

    async fn came(&self, node: usize, generation: &str) {
        self.relays.send(RelayNews::Came(relay(node, generation))).await.unwrap();
    }

    fn unhealthy(&self, handle: &str) {
        let reason = WellKnown::MounterDead.into();
        let since = Timestamp::now();
        assert!(self.handle.tell(Trigger::Unhealthy {
            place: place(handle),
            pv: "pv".into(),
            reason,
            since
        }));
    }
}

async fn pass(seconds: u64) {
    tokio::time::sleep(Duration::from_secs(seconds)).await;
}

fn failed(kind: Kind) -> Outcome {
    Outcome::Failed { kind, message: "because".into(), secret: None }
}

/// Within a second or so: the loop rests a moment between two rounds.
#[track_caller]
fn about(seen: &[u64], expected: &[u64]) {
    let near = seen.len() == expected.len() && seen.iter().zip(expected).all(|(a, b)| a.abs_diff(*b) <= 2);
    assert!(near, "{seen:?} instead of {expected:?}");
}

#[tokio::test(start_paused = true)]
async fn each_row_of_the_error_table_as_the_driver_sees_it() {
    for (kind, expected) in [
        (Kind::InvalidArgument, &[10_u64][..]),
        (Kind::NotFound, &[10, 40, 100, 220, 460]),
        (Kind::Aborted, &[10, 70, 190, 430, 910]),
        (Kind::Unimplemented, &[10]),
        (Kind::Unauthenticated, &[10, 40, 100, 220, 460]),
        (Kind::Unknown, &[10]),
    ] {
        let world = World::new(move |_| failed(kind));
        let running = Running::start(&world);
        running.came(0, "1").await;
        running.unhealthy("v");
        pass(3 * 3600).await;
        about(&world.seconds(), expected);
        let reasons = world.reasons();
        assert_eq!(reasons.iter().filter(|reason| **reason == "HealingStarted").count(), expected.len());
        assert_eq!(
            reasons.iter().filter(|reason| **reason == "HealingSkipped").count(),
            1,
            "{kind:?} {reasons:?}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn fifty_at_the_same_time_pull_the_brake_and_nobody_is_touched() {
    let mut world = World::new(|_| Outcome::Well { message: String::new() });
    world.in_use = 60;
    let running = Running::start(&world);
    running.came(0, "1").await;
    for volume in 0..50 {
        running.unhealthy(&format!("v{volume}"));
    }
    pass(3600).await;
    assert!(world.seconds().is_empty());
    let reasons = world.reasons();
    assert_eq!(reasons.iter().filter(|reason| **reason == "HealingBraked").count(), 2, "driver and cluster");
    assert_eq!(reasons.iter().filter(|reason| **reason == "HealingSkipped").count(), 50);
    // All but one recover, and that one is repaired.
    for volume in 1..50 {
        running.handle.tell(Trigger::Cleared { place: place(&format!("v{volume}")) });
    }
    pass(60).await;
    let heals = world.heals.lock().clone();
    assert!(!heals.is_empty() && heals.iter().all(|(_, handle)| handle == "v0"), "{heals:?}");
    assert!(world.reasons().contains(&"HealingReleased"));
}

#[tokio::test(start_paused = true)]
async fn a_report_from_before_a_heal_that_comes_after_it_is_no_new_failure() {
    let world = World::new(|_| Outcome::Well { message: String::new() });
    let running = Running::start(&world);
    running.came(0, "1").await;
    running.unhealthy("v");
    pass(15).await;
    let story = ["HealingStarted", "HealingSucceeded"];
    assert_eq!(world.reasons(), story);
    // One reporter sees it healed, and what another saw before that comes late.
    for seconds in [1, 20, 40] {
        running.handle.tell(Trigger::Cleared { place: place("v") });
        pass(seconds).await;
        running.unhealthy("v");
        pass(seconds / 2).await;
    }
    running.handle.tell(Trigger::Cleared { place: place("v") });
    pass(3600).await;
    assert_eq!(world.reasons(), story);
}

#[tokio::test(start_paused = true)]
async fn all_node_plugins_restart_immediately_and_the_budget_holds() {
    let mut world = World::new(|_| Outcome::Well { message: String::new() });
    (world.attached, world.takes) = (10, Duration::from_millis(300));
    let running = Running::start(&world);
    for node in 0..100 {
        running.came(node, "1").await;
    }
    pass(600).await;
    let heals = world.heals.lock().clone();
    let once: BTreeMap<_, usize> = heals.iter().fold(BTreeMap::new(), |mut count, (_, handle)| {
        *count.entry(handle.clone()).or_default() += 1;
        count
    });
    assert_eq!((once.len(), once.values().max()), (1000, Some(&1)), "each once");
    assert_eq!(world.most.load(Ordering::Relaxed), Policy::default().cluster_budget);
    assert!(world.surveys.load(Ordering::Relaxed) <= 2, "looked up together");
    assert!(world.reported.lock().is_empty(), "nobody was bothered");
}

/// What is logged meanwhile.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl std::io::Write for Log {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().write(bytes)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

impl Log {
    fn lines(&self, text: &str) -> usize {
        let log = String::from_utf8(self.0.lock().clone()).unwrap();
        log.lines().filter(|line| line.contains(text)).count()
    }
}

#[tokio::test(start_paused = true)]
async fn a_check_that_finds_nothing_wrong_is_no_heal() {
    let log = Log::default();
    let writer = log.clone();
    let lines = tracing_subscriber::fmt().with_writer(move || writer.clone()).with_ansi(false);
    let _guard = tracing::subscriber::set_default(lines.finish());
    let unhealthy = Arc::new(AtomicBool::new(false));
    let found = unhealthy.clone();
    let mut world = World::new(move |_| {
        let message = String::new();
        if found.load(Ordering::Relaxed) {
            Outcome::StillUnhealthy { message }
        } else {
            Outcome::Well { message }
        }
    });
    world.attached = 53;
    let running = Running::start(&world);
    running.came(0, "1").await;
    pass(60).await;
    assert_eq!(world.seconds().len(), 53);
    assert_eq!(log.lines("Healing"), 0);
    assert_eq!(log.lines("volumes were checked and are healthy volumes=53"), 1);
    assert_eq!((world.reasons(), world.counted()), (Vec::new(), Vec::new()));
    // What a check finds wrong, the driver was asked to heal; that is news.
    unhealthy.store(true, Ordering::Relaxed);
    running.came(0, "2").await;
    pass(20).await;
    assert_eq!(world.reasons(), ["HealingFailed"; 53]);
    assert_eq!(world.counted(), [r#"{driver_name="d.example",remedy="NodeHealer",result="still_ill"} 53"#]);
    assert_eq!(log.lines("volumes were checked and are healthy"), 1);
}

#[tokio::test(start_paused = true)]
async fn the_same_life_of_a_driver_is_checked_once_and_the_next_one_again() {
    let mut world = World::new(|_| Outcome::Well { message: String::new() });
    world.attached = 1;
    let running = Running::start(&world);
    running.came(0, "1").await;
    pass(10).await;
    running.relays.send(RelayNews::Went(relay(0, "1"))).await.unwrap();
    running.came(0, "1").await;
    pass(60).await;
    assert_eq!(world.seconds().len(), 1);
    running.came(0, "2").await;
    pass(60).await;
    assert_eq!(world.seconds().len(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_survey_that_failed_is_made_again() {
    let mut world = World::new(|_| Outcome::Well { message: String::new() });
    world.attached = usize::MAX;
    let running = Running::start(&world);
    running.came(0, "1").await;
    pass(60).await;
    assert_eq!((world.surveys.load(Ordering::Relaxed), world.seconds().len()), (2, 1));
}

#[tokio::test(start_paused = true)]
async fn a_panic_of_ours_costs_a_try_and_not_the_volume() {
    let world = World::new(|ticket| match ticket.nth {
        1 => panic!("a mistake of ours, made on purpose"),
        _ => Outcome::Well { message: String::new() },
    });
    let running = Running::start(&world);
    running.came(0, "1").await;
    running.unhealthy("v");
    pass(100).await;
    about(&world.seconds(), &[10, 70]);
    assert_eq!(
        world.reasons()[..4],
        ["HealingStarted", "HealingFailed", "HealingStarted", "HealingSucceeded"]
    );
}

#[tokio::test(start_paused = true)]
async fn who_does_not_lead_any_more_does_nothing() {
    let world = World::new(|_| Outcome::Well { message: String::new() });
    world.leads.store(false, Ordering::Relaxed);
    let running = Running::start(&world);
    running.came(0, "1").await;
    running.unhealthy("v");
    pass(600).await;
    assert!(world.seconds().is_empty());
    world.leads.store(true, Ordering::Relaxed);
    pass(60).await;
    assert!(!world.seconds().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_person_without_a_relay_is_informed_immediately() {
    let world = World::new(|_| Outcome::Well { message: "done".into() });
    let running = Running::start(&world);
    let answer = running.handle.person("ns", "claim", false).await.unwrap();
    assert!(
        matches!(&answer[..], [(_, Answer::Refused(why))] if why[0].contains("no trusted relay")),
        "{answer:?}"
    );
    running.came(0, "1").await;
    let answer = running.handle.person("ns", "claim", true).await.unwrap();
    let how = "NodeHealer: ask the node plugin to heal it; the mode is auto by default";
    assert_eq!(answer, [(place("v"), Answer::WouldHeal(how.to_owned()))]);
    assert!(world.seconds().is_empty());
    let answer = running.handle.person("ns", "claim", false).await.unwrap();
    assert_eq!(answer, [(place("v"), Answer::Healed("done".into()))]);
    assert_eq!(world.seconds().len(), 1);
}
