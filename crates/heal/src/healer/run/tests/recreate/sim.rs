//! A cluster that exists only in memory, and hubs that live and die beside it.

use std::collections::{BTreeMap, BTreeSet};

use parking_lot::MutexGuard;
use volmedic_api::resource::Heal;

use super::super::*;
use crate::attempts::{self, AttemptStore, Unchanged};
use crate::healer::{Owner, Record};
use crate::memory;
use crate::mode::ReportTrust;
use crate::policy::Recreate;

/// How long a pod takes to end, and a new one to become ready.
const ENDS: Duration = Duration::from_secs(3);
pub(super) const STARTS: Duration = Duration::from_secs(5);

pub(super) struct Pod {
    pub(super) claim: String,
    pub(super) uid: String,
    pub(super) node: &'static str,
    pub(super) made: Instant,
    pub(super) gone: Option<Instant>,
    pub(super) healthy: bool,
    pub(super) workload: &'static str,
}

/// What there is, whichever hub runs.
pub(super) struct Land {
    pub(super) pods: Vec<Pod>,
    /// The backend and the driver work, so that a new mount is a healthy one.
    pub(super) new_mounts_work: bool,
    pub(super) driver_registered: bool,
    /// A cause below the mount that somebody reports.
    pub(super) obstacle: Option<&'static str>,
    pub(super) budget_refuses: bool,
    /// The answer to an eviction gets lost, and so does the eviction.
    pub(super) answers_get_lost: bool,
    pub(super) api_away: bool,
    /// What a new probe right before acting answers, where it does not confirm.
    pub(super) new_probe: Option<Refusal>,
    pub(super) probes: usize,
    /// The first new mount is reported as healthy for all pods of the node, as when one mount serves all.
    pub(super) first_heals_all: bool,
    pub(super) node: NodeState,
    pub(super) next_node: &'static str,
    /// The claim's annotations.
    pub(super) mode: Option<&'static str>,
    pub(super) approval: Approval,
    /// Why the claim is not bound.
    pub(super) unbound: Option<&'static str>,
    /// Why the pods must not be evicted.
    pub(super) protected: Option<&'static str>,
    pub(super) evictions: Vec<(u64, String)>,
    /// How often an eviction was requested.
    pub(super) requests: usize,
    pub(super) heals: BTreeMap<String, Vec<Heal>>,
    /// Reported as lost, by when they began. One event each, however often it is reported.
    pub(super) lost: BTreeSet<Timestamp>,
    pub(super) reported: Vec<Record>,
    /// Since when the agent reports each place as unhealthy, whichever hub runs.
    pub(super) since: BTreeMap<Place, Timestamp>,
    pub(super) made: usize,
}

#[derive(Clone)]
pub(super) struct Sim {
    pub(super) land: Arc<Mutex<Land>>,
    pub(super) clock: Clock,
    pub(super) policy: Policy,
    pub(super) mode: Mode,
    pub(super) reports: ReportTrust,
}

impl Sim {
    pub(super) fn new() -> Self {
        let land = Land {
            pods: Vec::new(),
            new_mounts_work: true,
            driver_registered: true,
            obstacle: None,
            budget_refuses: false,
            answers_get_lost: false,
            api_away: false,
            new_probe: None,
            probes: 0,
            first_heals_all: false,
            node: NodeState::Up,
            next_node: "n0",
            mode: None,
            approval: Approval::None,
            unbound: None,
            protected: None,
            evictions: Vec::new(),
            requests: 0,
            heals: BTreeMap::new(),
            lost: BTreeSet::new(),
            reported: Vec::new(),
            since: BTreeMap::new(),
            made: 0,
        };
        let start = "2026-11-18T12:00:00Z".parse().unwrap();
        Self {
            land: Arc::new(Mutex::new(land)),
            clock: Clock { base: start, since: Instant::now() },
            policy: Policy { recreate: Some(Recreate::default()), ..Policy::default() },
            mode: Mode::Auto,
            reports: ReportTrust::default(),
        }
    }

    fn options(&self) -> Options {
        let reports = self.reports.clone();
        let recreate_rules = Rules { default: self.mode, reports, ..Rules::default() };
        Options { policy: self.policy.clone(), recreate_rules, ..Options::default() }
    }

    pub(super) fn pod(&self, claim: &str, node: &'static str, workload: &'static str, healthy: bool) {
        let mut land = self.land.lock();
        land.made += 1;
        let uid = format!("{claim}-{}", land.made);
        let made = Instant::now() - STARTS;
        land.pods.push(Pod { claim: claim.to_owned(), uid, node, made, gone: None, healthy, workload });
    }

    /// The pods that are there, without those that have ended.
    pub(super) fn with<T>(&self, read: impl FnOnce(&mut Land) -> T) -> T {
        let mut land = self.land.lock();
        let now = Instant::now();
        land.pods.retain(|pod| pod.gone.is_none_or(|gone| gone > now));
        read(&mut land)
    }

    pub(super) fn evictions(&self) -> Vec<u64> {
        self.land.lock().evictions.iter().map(|(at, _)| *at).collect()
    }

    pub(super) fn all_healthy(&self) -> bool {
        self.with(|land| land.pods.iter().all(|pod| pod.healthy))
    }

    pub(super) fn reasons(&self) -> Vec<&'static str> {
        let land = self.land.lock();
        let places = land.reported.iter().filter(|record| record.place.is_some());
        places.map(|record| record.news.reason()).collect()
    }

    pub(super) fn says(&self, text: &str) -> bool {
        self.land.lock().reported.iter().any(|record| record.text().contains(text))
    }

    /// What the API server has, if it answers.
    fn answers(&self) -> Result<MutexGuard<'_, Land>, String> {
        let land = self.land.lock();
        if land.api_away { Err("the API server is away".to_owned()) } else { Ok(land) }
    }

    fn unhealthy(&self) -> BTreeSet<Place> {
        let now = self.clock.now();
        self.with(|land| {
            let bad = land.pods.iter().filter(|pod| !pod.healthy);
            let bad: BTreeSet<Place> =
                bad.map(|pod| Place::new("d.example", &*pod.claim, pod.node)).collect();
            land.since.retain(|place, _| bad.contains(place));
            for place in &bad {
                land.since.entry(place.clone()).or_insert(now);
            }
            bad
        })
    }

    fn used(&self, place: &Place) -> bool {
        self.with(|land| land.pods.iter().any(|pod| *pod.claim == *place.handle && *pod.node == *place.node))
    }

    /// One life of a hub: the healer, what it hears, and what it closes that an earlier one left.
    pub(super) fn hub(&self) -> Hub {
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
            let unhealthy = self.unhealthy().iter().any(|place| *place.handle == *claim).then_some(now);
            if let Some(memory) = memory::recreated(&heals, unhealthy, now, &self.policy, deadlines) {
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
        let triggers = handle.clone();
        tasks.spawn(async move {
            let _relays = relays;
            let mut known = BTreeSet::new();
            loop {
                let bad = sim.unhealthy();
                for place in bad.difference(&known) {
                    let reason = WellKnown::StaleHandle.into();
                    let since = sim.land.lock().since[place];
                    triggers.tell(Trigger::Unhealthy {
                        place: place.clone(),
                        pv: "pv".into(),
                        reason,
                        since,
                    });
                }
                for place in known.difference(&bad) {
                    let place = place.clone();
                    let used = sim.used(&place);
                    triggers.tell(if used { Trigger::Cleared { place } } else { Trigger::Gone { place } });
                }
                known = bad;
                pass(1).await;
            }
        });
        Hub { handle, _tasks: tasks }
    }
}

/// Ends when dropped, as one that is killed.
pub(super) struct Hub {
    pub(super) handle: Handle,
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
        let land = self.answers()?;
        Ok(Details {
            version: "1".into(),
            bound: land.unbound.map_or(Ok(()), |why| Err(why.into())),
            filtered: None,
            claim: Some(ObjectRef::new(ObjectKind::PersistentVolumeClaim, "ns", &place.handle, "uid")),
            class: None,
            mode: None,
            approval: Approval::None,
            recreate_mode: land.mode.map(Into::into),
            recreate_approval: land.approval,
        })
    }

    async fn in_use_on(&self, _: &[(Arc<str>, Arc<str>)]) -> Result<Vec<Found>, String> {
        Ok(Vec::new())
    }

    async fn places_of(&self, _: &str, claim: &str) -> Result<Vec<Found>, String> {
        Ok(self.with(|land| {
            let nodes: BTreeSet<_> =
                land.pods.iter().filter(|pod| *pod.claim == *claim).map(|pod| pod.node).collect();
            let found = |node| Found { place: Place::new("d.example", claim, node), pv: "pv".into() };
            nodes.into_iter().map(found).collect()
        }))
    }

    async fn users(&self, _: &str, _: &ObjectRef) -> Vec<ObjectRef> {
        Vec::new()
    }

    async fn pods_of(&self, claim: &ObjectRef) -> Result<Vec<UserPod>, String> {
        let protected = self.answers()?.protected;
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
            made: Some(self.clock.at(pod.made)),
            protected: protected.map(Into::into),
        };
        Ok(self.with(|land| land.pods.iter().filter(|one| *one.claim == *claim.name).map(pod).collect()))
    }

    async fn has_driver(&self, _: &Place) -> Result<bool, String> {
        Ok(self.answers()?.driver_registered)
    }

    async fn evict(&self, pod: &UserPod) -> Eviction {
        let at = self.clock.since.elapsed().as_secs();
        self.with(|land| {
            land.requests += 1;
            if land.answers_get_lost || land.api_away {
                return Eviction::Unknown("the connection was closed".to_owned());
            }
            if land.budget_refuses {
                return Eviction::Later("it would violate the pod's disruption budget".to_owned());
            }
            let Some(old) = land.pods.iter_mut().find(|one| *one.uid == *pod.uid) else {
                return Eviction::Gone;
            };
            old.gone.get_or_insert(Instant::now() + ENDS);
            let (claim, workload) = (old.claim.clone(), old.workload);
            land.evictions.push((at, pod.uid.to_string()));
            if land.first_heals_all {
                land.pods.iter_mut().for_each(|pod| pod.healthy = true);
            }
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
            (true, _) => Again::StillUnhealthy,
            (false, true) => Again::Well,
            (false, false) => Again::NotSeen("no pod uses it there any more".into()),
        }
    }

    async fn confirm(&self, _: &Place, _: &Reason, _: Remedy) -> Result<(), Refusal> {
        // As long as an agent takes, within which a hub may be killed.
        tokio::time::sleep(Duration::from_millis(600)).await;
        let mut land = self.land.lock();
        land.probes += 1;
        land.new_probe.clone().map_or(Ok(()), Err)
    }

    fn prevents_new_mount(&self, claim: &ObjectRef, place: &Place) -> Option<String> {
        let reported = self.unhealthy().contains(place);
        let unreported = || (!reported).then(|| "nothing on the node reports a broken mount".to_owned());
        self.cause_below_mount(claim, place).or_else(unreported)
    }

    fn cause_below_mount(&self, _: &ObjectRef, _: &Place) -> Option<String> {
        self.land.lock().obstacle.map(str::to_owned)
    }

    fn at_new_pod(&self, _: &ObjectRef, place: &Place, _: bool) -> Again {
        if self.unhealthy().contains(place) { Again::StillUnhealthy } else { Again::Well }
    }

    fn in_use(&self, _: Option<&str>) -> Option<usize> {
        Some(60)
    }
}

impl Nodes for Sim {
    fn state(&self, _: &str) -> NodeState {
        self.land.lock().node
    }
}

impl Teller for Sim {
    fn tell(&self, record: &Record) {
        let mut land = self.land.lock();
        land.reported.push(record.clone());
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
