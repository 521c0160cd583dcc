//! Pods are recreated, on a cluster that exists only here: with hubs that are killed at every second, evictions that are
//! refused, pods that come up elsewhere or not at all.

use std::collections::{BTreeMap, BTreeSet};

use volmedic_api::resource::{Heal, HealOutcome};

use super::*;
use crate::attempts::{self, AttemptStore, Unchanged};
use crate::healer::{Owner, Record};
use crate::memory;
use crate::policy::Recreate;

/// How long a pod takes to end, and a new one to become ready.
const ENDS: Duration = Duration::from_secs(3);
const STARTS: Duration = Duration::from_secs(5);

struct Pod {
    claim: String,
    uid: String,
    node: &'static str,
    made: Instant,
    gone: Option<Instant>,
    healthy: bool,
    workload: &'static str,
}

/// What there is, whoever runs.
struct Land {
    pods: Vec<Pod>,
    /// The backend and the driver work, so that a new mount is a healthy one.
    new_mounts_work: bool,
    driver_registered: bool,
    obstacle: Option<&'static str>,
    budget_refuses: bool,
    next_node: &'static str,
    evictions: Vec<(u64, String)>,
    heals: BTreeMap<String, Vec<Heal>>,
    /// Reported as lost, by when they began. One event each, however often it is reported.
    lost: BTreeSet<Timestamp>,
    told: Vec<Record>,
    made: usize,
}

#[derive(Clone)]
struct Sim {
    land: Arc<Mutex<Land>>,
    clock: Clock,
    policy: Policy,
    mode: Mode,
}

impl Sim {
    fn new() -> Self {
        let land = Land {
            pods: Vec::new(),
            new_mounts_work: true,
            driver_registered: true,
            obstacle: None,
            budget_refuses: false,
            next_node: "n0",
            evictions: Vec::new(),
            heals: BTreeMap::new(),
            lost: BTreeSet::new(),
            told: Vec::new(),
            made: 0,
        };
        let start = "2026-11-18T12:00:00Z".parse().unwrap();
        Self {
            land: Arc::new(Mutex::new(land)),
            clock: Clock { base: start, since: Instant::now() },
            policy: Policy { recreate: Some(Recreate::default()), ..Policy::default() },
            mode: Mode::Auto,
        }
    }

    fn options(&self) -> Options {
        let recreate_rules = Rules { default: self.mode, ..Rules::default() };
        Options { policy: self.policy.clone(), recreate_rules, ..Options::default() }
    }

    fn pod(&self, claim: &str, node: &'static str, workload: &'static str, healthy: bool) {
        let mut land = self.land.lock();
        land.made += 1;
        let uid = format!("{claim}-{}", land.made);
        let made = Instant::now() - STARTS;
        land.pods.push(Pod { claim: claim.to_owned(), uid, node, made, gone: None, healthy, workload });
    }

    /// The pods that are there, without those that have ended.
    fn with<T>(&self, read: impl FnOnce(&mut Land) -> T) -> T {
        let mut land = self.land.lock();
        let now = Instant::now();
        land.pods.retain(|pod| pod.gone.is_none_or(|gone| gone > now));
        read(&mut land)
    }

    fn evictions(&self) -> Vec<u64> {
        self.land.lock().evictions.iter().map(|(at, _)| *at).collect()
    }

    fn all_healthy(&self) -> bool {
        self.with(|land| land.pods.iter().all(|pod| pod.healthy))
    }

    fn reasons(&self) -> Vec<&'static str> {
        let land = self.land.lock();
        let places = land.told.iter().filter(|record| record.place.is_some());
        places.map(|record| record.news.reason()).collect()
    }

    fn says(&self, text: &str) -> bool {
        self.land.lock().told.iter().any(|record| record.text().contains(text))
    }

    fn unhealthy(&self) -> BTreeSet<Place> {
        self.with(|land| {
            let bad = land.pods.iter().filter(|pod| !pod.healthy);
            bad.map(|pod| Place::new("d.example", &*pod.claim, pod.node)).collect()
        })
    }

    fn used(&self, place: &Place) -> bool {
        self.with(|land| land.pods.iter().any(|pod| *pod.claim == *place.handle && *pod.node == *place.node))
    }

    /// One life of a hub: the healer, what it hears, and what it closes that an earlier one left.
    fn hub(&self) -> Hub {
        let (handle, triggers) = Handle::new();
        let (relays, news) = mpsc::channel(8);
        let w = || self.clone();
        let healer =
            run_by(self.clock, self.options(), w(), w(), w(), w(), w(), Metrics::default(), news, triggers);
        let sim = self.clone();
        let deadlines = self.options().deadlines();
        let stored = self.land.lock().heals.clone();
        let now = self.clock.now();
        let mut tasks = JoinSet::new();
        for (claim, heals) in stored {
            let volume = place(&claim).volume();
            let ill = self.unhealthy().iter().any(|place| *place.handle == *claim).then_some(now);
            if let Some(memory) = memory::recreated(&heals, ill, now, &self.policy, deadlines) {
                assert!(handle.tell(Trigger::Recreated { volume, memory: Box::new(memory) }));
            }
            for (begun, until) in memory::unfinished(&heals, deadlines) {
                let (store, begun) = (Store { sim: self.clone(), claim: claim.clone() }, begun.clone());
                let wait = Duration::try_from(until.duration_since(now)).unwrap_or_default();
                tasks.spawn(async move {
                    tokio::time::sleep(wait).await;
                    attempts::close(&store, &begun).await.unwrap();
                });
            }
        }
        tasks.spawn(healer);
        tasks.spawn(async move {
            let _relays = relays;
            let mut known = BTreeSet::new();
            loop {
                let bad = sim.unhealthy();
                for place in bad.difference(&known) {
                    let (reason, since) = (WellKnown::StaleHandle.into(), sim.clock.now());
                    handle.tell(Trigger::Ill { place: place.clone(), pv: "pv".into(), reason, since });
                }
                for place in known.difference(&bad) {
                    let place = place.clone();
                    let used = sim.used(&place);
                    handle.tell(if used { Trigger::Cleared { place } } else { Trigger::Gone { place } });
                }
                known = bad;
                pass(1).await;
            }
        });
        Hub { _tasks: tasks }
    }
}

/// Ends when dropped, as one that is killed.
struct Hub {
    _tasks: JoinSet<()>,
}

struct Store {
    sim: Sim,
    claim: String,
}

impl AttemptStore for Store {
    async fn read(&self) -> Result<Option<Vec<Heal>>, String> {
        Ok(Some(self.sim.land.lock().heals.get(&self.claim).cloned().unwrap_or_default()))
    }

    async fn change(
        &self,
        change: impl Fn(&[Heal]) -> Result<Vec<Heal>, String> + Send + Sync,
    ) -> Result<(), Unchanged> {
        // As long as a request takes, within which a hub may be killed.
        tokio::time::sleep(Duration::from_millis(700)).await;
        let mut land = self.sim.land.lock();
        let heals = land.heals.entry(self.claim.clone()).or_default();
        *heals = change(heals).map_err(Unchanged::Declined)?;
        Ok(())
    }

    async fn report_lost(&self, lost: &Heal) -> Result<(), String> {
        self.sim.land.lock().lost.insert(lost.time.0);
        Ok(())
    }
}

impl Cluster for Sim {
    async fn details(&self, place: &Place, _: &str) -> Result<Details, String> {
        Ok(Details {
            version: "1".into(),
            bound: Ok(()),
            filtered: None,
            claim: Some(ObjectRef::new(ObjectKind::PersistentVolumeClaim, "ns", &place.handle, "uid")),
            class: None,
            mode: None,
            approval: Approval::None,
            recreate_mode: None,
            recreate_approval: Approval::None,
        })
    }

    async fn in_use_on(&self, _: &[(Arc<str>, Arc<str>)]) -> Result<Vec<Found>, String> {
        Ok(Vec::new())
    }

    async fn places_of(&self, _: &str, _: &str) -> Result<Vec<Found>, String> {
        Ok(Vec::new())
    }

    async fn users(&self, _: &str, _: &ObjectRef) -> Vec<ObjectRef> {
        Vec::new()
    }

    async fn pods_of(&self, claim: &ObjectRef) -> Result<Vec<UserPod>, String> {
        let pod = |pod: &Pod| UserPod {
            namespace: "ns".into(),
            name: pod.uid.as_str().into(),
            uid: pod.uid.as_str().into(),
            node: Some(pod.node.into()),
            owner: (!pod.workload.is_empty()).then(|| Owner {
                kind: "ReplicaSet.apps".into(),
                name: pod.workload.into(),
                uid: pod.workload.into(),
            }),
            ends: pod.gone.is_some(),
            ready: pod.healthy && pod.made.elapsed() >= STARTS,
            protected: None,
        };
        Ok(self.with(|land| land.pods.iter().filter(|one| *one.claim == *claim.name).map(pod).collect()))
    }

    async fn has_driver(&self, _: &Place) -> Result<bool, String> {
        Ok(self.land.lock().driver_registered)
    }

    async fn evict(&self, pod: &UserPod) -> Eviction {
        let at = self.clock.since.elapsed().as_secs();
        self.with(|land| {
            if land.budget_refuses {
                return Eviction::Later("it would violate the pod's disruption budget".to_owned());
            }
            let Some(old) = land.pods.iter_mut().find(|one| *one.uid == *pod.uid) else {
                return Eviction::Gone;
            };
            old.gone.get_or_insert(Instant::now() + ENDS);
            let (claim, workload) = (old.claim.clone(), old.workload);
            land.evictions.push((at, pod.uid.to_string()));
            land.made += 1;
            let (uid, node, healthy) =
                (format!("{claim}-{}", land.made), land.next_node, land.new_mounts_work);
            land.pods.push(Pod { claim, uid, node, made: Instant::now(), gone: None, healthy, workload });
            Eviction::Accepted
        })
    }
}

impl Surgeon for Sim {
    async fn heal(&self, _: &Relayed, _: &str, _: &Ticket, _: Duration) -> Outcome {
        panic!("no driver here can heal")
    }
}

impl Eyes for Sim {
    async fn again(&self, place: &Place) -> Again {
        match (self.unhealthy().contains(place), self.used(place)) {
            (true, _) => Again::StillIll,
            (false, true) => Again::Well,
            (false, false) => Again::NotSeen("no pod uses it there any more".into()),
        }
    }

    fn prevents_new_mount(&self, _: &ObjectRef, _: &Place) -> Option<String> {
        self.land.lock().obstacle.map(str::to_owned)
    }

    fn at_new_pod(&self, _: &ObjectRef, place: &Place, _: bool) -> Again {
        if self.unhealthy().contains(place) { Again::StillIll } else { Again::Well }
    }

    fn in_use(&self, _: Option<&str>) -> Option<usize> {
        Some(60)
    }
}

impl Nodes for Sim {
    fn state(&self, _: &str) -> NodeState {
        NodeState::Up
    }
}

impl Teller for Sim {
    fn tell(&self, record: &Record) {
        let mut land = self.land.lock();
        land.told.push(record.clone());
        if !matches!(record.news, News::Started { .. })
            && let (Some(place), Some(entry)) = (&record.place, record.entry())
        {
            let heals = land.heals.entry(place.handle.to_string()).or_default();
            *heals = memory::noted(heals, &entry);
        }
    }

    async fn begin(&self, record: &Record) -> Result<(), String> {
        let claim = record.place.as_ref().unwrap().handle.to_string();
        let (store, entry) = (Store { sim: self.clone(), claim }, record.entry().unwrap());
        attempts::begin(&store, &entry, record.at, self.options().deadlines()).await.map(drop)
    }
}

#[tokio::test(start_paused = true)]
async fn a_stale_volume_is_healthy_under_a_new_pod() {
    let sim = Sim::new();
    sim.pod("v", "n0", "web", false);
    let _hub = sim.hub();
    pass(300).await;
    about(&sim.evictions(), &[60]);
    assert!(sim.all_healthy());
    assert_eq!(sim.reasons(), ["HealingStarted", "HealingSucceeded"]);
    assert!(sim.says("RecreatePods is auto by default"));
    let heals = sim.land.lock().heals["v"].clone();
    assert!(
        matches!(&heals[..], [one] if one.remedy == "RecreatePods" && one.outcome == HealOutcome::Succeeded)
    );
}

#[tokio::test(start_paused = true)]
async fn nothing_is_evicted_where_nobody_switched_it_on() {
    for (mode, policy) in [
        (Mode::Off, Policy { recreate: Some(Recreate::default()), ..Policy::default() }),
        (Mode::Observe, Policy { recreate: Some(Recreate::default()), ..Policy::default() }),
        (Mode::Approve, Policy { recreate: Some(Recreate::default()), ..Policy::default() }),
        (Mode::Auto, Policy::default()),
    ] {
        let sim = Sim { policy, mode, ..Sim::new() };
        sim.pod("v", "n0", "web", false);
        let _hub = sim.hub();
        pass(6 * 3600).await;
        assert!(sim.evictions().is_empty(), "{mode}");
    }
}

/// The hub dies at any second of an attempt and another one follows.
#[tokio::test(start_paused = true)]
async fn a_hub_that_is_killed_at_any_moment_neither_doubles_nor_loses_anything() {
    for new_mounts_work in [true, false] {
        for killed_after in 50..90 {
            let sim = Sim::new();
            sim.land.lock().new_mounts_work = new_mounts_work;
            sim.pod("v", "n0", "web", false);
            let hub = sim.hub();
            // Between two requests, too.
            tokio::time::sleep(Duration::from_millis(killed_after * 1000 + 350 * (killed_after % 3))).await;
            drop(hub);
            pass(2).await;
            let _hub = sim.hub();
            // Time for three attempts with their pauses, and for a fourth.
            pass(6000).await;
            let evictions = sim.evictions();
            let land = sim.land.lock();
            let open =
                land.heals.values().flatten().filter(|heal| heal.outcome == HealOutcome::Started).count();
            assert_eq!(open, 0, "killed after {killed_after} s: an attempt stays open");
            assert!(land.lost.len() <= 1, "killed after {killed_after} s: {:?}", land.lost);
            if new_mounts_work {
                assert_eq!(evictions.len(), 1, "killed after {killed_after} s: {evictions:?}");
                assert!(land.pods.iter().all(|pod| pod.healthy), "killed after {killed_after} s");
            } else {
                assert_eq!(evictions.len(), 3, "killed after {killed_after} s: {evictions:?}");
                let paused = evictions.windows(2).all(|pair| pair[1] - pair[0] >= 600);
                assert!(paused, "killed after {killed_after} s: {evictions:?}");
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_budget_that_refuses_for_an_hour_is_respected_and_then_it_goes_on() {
    let sim = Sim::new();
    sim.land.lock().budget_refuses = true;
    sim.pod("v", "n0", "web", false);
    let _hub = sim.hub();
    pass(3600).await;
    assert!(sim.evictions().is_empty());
    assert!(sim.says("the eviction of pod v-1 is refused: it would violate the pod's disruption budget"));
    assert!(!sim.says("given up"));
    sim.land.lock().budget_refuses = false;
    pass(3600).await;
    assert_eq!(sim.evictions().len(), 1);
    assert!(sim.all_healthy());
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_comes_up_on_another_node_is_followed_there() {
    let sim = Sim::new();
    sim.land.lock().next_node = "n7";
    sim.pod("v", "n0", "web", false);
    let _hub = sim.hub();
    pass(300).await;
    assert_eq!(sim.reasons(), ["HealingStarted", "HealingSucceeded"]);
    assert!(sim.all_healthy());
    // There it breaks again, and the pod comes back: that is the second attempt, not the first of another node.
    sim.with(|land| {
        land.pods.iter_mut().for_each(|pod| pod.healthy = false);
        land.next_node = "n0";
    });
    pass(300).await;
    sim.with(|land| land.pods.iter_mut().for_each(|pod| pod.healthy = false));
    pass(300).await;
    let numbers: Vec<u32> = sim.land.lock().heals["v"].iter().map(|heal| heal.attempt).collect();
    assert_eq!(numbers, [2, 1, 1]);
}

#[tokio::test(start_paused = true)]
async fn a_new_pod_that_is_no_better_is_left_alone_until_the_pause_is_over() {
    let sim = Sim::new();
    sim.land.lock().new_mounts_work = false;
    sim.pod("v", "n0", "web", false);
    let _hub = sim.hub();
    pass(12 * 3600).await;
    // Nearly 10 min until the attempt is over, then 10 min; and the same again, then 20 min.
    about(&sim.evictions(), &[60, 1246, 3032]);
    assert!(sim.says("evicted: v-1; the new pod v-2 on n0 is not ready, and the time for it is over"));
    assert!(sim.says("were recreated 3 times without lasting success"));
}

#[tokio::test(start_paused = true)]
async fn what_a_new_mount_needs_is_waited_for_and_then_used() {
    for missing in ["driver", "backend"] {
        let sim = Sim::new();
        sim.pod("v", "n0", "web", false);
        sim.with(|land| match missing {
            "driver" => land.driver_registered = false,
            _ => land.obstacle = Some("the controller reports NetworkError"),
        });
        let _hub = sim.hub();
        pass(3 * 3600).await;
        assert!(sim.evictions().is_empty());
        assert_eq!(sim.reasons(), ["HealingSkipped"], "said once");
        assert!(sim.says("a new mount would not help"));
        sim.with(|land| (land.driver_registered, land.obstacle) = (true, None));
        pass(60).await;
        assert_eq!((sim.evictions().len(), sim.all_healthy()), (1, true), "{missing}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_pod_without_a_controller_stays_and_so_do_the_others_of_its_volume() {
    let sim = Sim::new();
    sim.pod("v", "n0", "web", false);
    sim.pod("v", "n0", "", false);
    let _hub = sim.hub();
    pass(3600).await;
    assert!(sim.evictions().is_empty());
    assert!(sim.says("pod v-2 has no controller that would make a new one"));
}

#[tokio::test(start_paused = true)]
async fn fifty_claims_at_once_pull_the_brake() {
    let sim = Sim::new();
    for claim in 0..50 {
        sim.pod(&format!("v{claim}"), "n0", "web", false);
    }
    let _hub = sim.hub();
    pass(6 * 3600).await;
    assert!(sim.evictions().is_empty());
    assert!(sim.says("are ill at once"));
}

/// Of one workload never two pods at a time, whether they share a volume or have one each.
#[tokio::test(start_paused = true)]
async fn one_pod_of_a_workload_at_a_time() {
    for shared in [true, false] {
        let sim = Sim::new();
        for replica in ["a", "b", "c"] {
            sim.pod(if shared { "v" } else { replica }, "n0", "web", false);
        }
        let _hub = sim.hub();
        for _ in 0..600 {
            pass(1).await;
            let missing = sim.with(|land| {
                let ready = |pod: &&Pod| pod.gone.is_none() && pod.made.elapsed() >= STARTS;
                3 - land.pods.iter().filter(ready).count()
            });
            assert!(missing <= 1, "shared: {shared}");
        }
        assert_eq!((sim.evictions().len(), sim.all_healthy()), (3, true), "shared: {shared}");
    }
}
