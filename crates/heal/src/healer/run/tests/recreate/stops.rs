//! What changes while an attempt is under way: each guard that held when it began is checked again before every eviction.

use volmedic_api::resource::HealOutcome;

use super::super::*;
use super::sim::{Land, Pod, STARTS, Sim};
use crate::policy::Recreate;

/// Something that happens to a cluster, and how it is undone.
struct Change {
    name: &'static str,
    happens: fn(&Sim),
    ends: fn(&Sim),
    /// What the report must say.
    sentence: &'static str,
}

macro_rules! change {
    ($name:literal, $field:ident: $before:expr => $after:expr, $sentence:literal) => {
        Change {
            name: $name,
            happens: |sim| sim.land.lock().$field = $after,
            ends: |sim| sim.land.lock().$field = $before,
            sentence: $sentence,
        }
    };
}

/// What people change, and what breaks.
fn changes() -> Vec<Change> {
    vec![
        change!("off", mode: Some("auto") => Some("off"), "recreating pods is off by the claim's annotation"),
        change!("no annotation", mode: Some("auto") => None, "recreating pods is off by default"),
        change!("a misspelt mode", mode: Some("auto") => Some("Auto"), "recreating pods only observes"),
        change!("no consent", mode: Some("auto") => Some("approve"), "recreating pods needs a person's consent"),
        Change {
            name: "an admission policy was deleted",
            happens: |sim| sim.reports.set_verified(false),
            ends: |sim| sim.reports.set_verified(true),
            sentence: "recreating pods only observes",
        },
        change!("cordon", node: NodeState::Up => NodeState::Cordoned, "the node is cordoned"),
        change!("unbound", unbound: None => Some("it is Released, not Bound"), "it is Released, not Bound"),
        change!("protected", protected: None => Some("a person said so"), "must not be evicted, because a person said so"),
        change!("backend", obstacle: None => Some("the controller reports NetworkError"), "the controller reports NetworkError"),
        change!("agent", obstacle: None => Some("the agent's Lease has expired"), "the agent's Lease has expired"),
        change!("driver", driver_registered: true => false, "the driver is not registered on node n0"),
        change!("API server", api_away: false => true, "the API server is away"),
    ]
}

/// Only the claim's annotation allows anything.
fn by_annotation() -> Sim {
    let sim = Sim { mode: Mode::Off, ..Sim::new() };
    sim.land.lock().mode = Some("auto");
    sim
}

/// Waits for a fact, second by second.
#[track_caller]
fn until(sim: &Sim, what: &str, fact: impl Fn(&Land) -> bool) -> impl Future<Output = ()> {
    let caller = std::panic::Location::caller();
    async move {
        for _ in 0..900 {
            if sim.with(|land| fact(land)) {
                return;
            }
            pass(1).await;
        }
        panic!("{caller}: never: {what}");
    }
}

/// The reports of failed attempts: text, and whether pods may have been evicted.
fn failures(sim: &Sim) -> Vec<(String, bool)> {
    let land = sim.land.lock();
    let failed = land.reported.iter().filter_map(|record| match &record.news {
        News::Failed { asked, .. } => Some((record.text(), *asked)),
        _ => None,
    });
    failed.collect()
}

#[tokio::test(start_paused = true)]
async fn a_change_while_the_budget_refuses_ends_the_attempt_before_any_eviction() {
    for Change { name, happens, ends, sentence } in changes() {
        let sim = by_annotation();
        sim.land.lock().budget_refuses = true;
        sim.pod("v", "n0", "web", false);
        let _hub = sim.hub();
        until(&sim, "two refusals", |land| land.requests >= 2).await;
        happens(&sim);
        let requests = sim.with(|land| {
            land.budget_refuses = false;
            land.requests
        });
        pass(1800).await;
        assert_eq!(sim.with(|land| land.requests), requests, "{name}: an eviction was requested");
        let failures = failures(&sim);
        let [(text, asked)] = &failures[..] else { panic!("{name}: {failures:?}") };
        assert!(text.contains("no pod was evicted: ") && text.contains(sentence), "{name}: {text}");
        assert!(!asked, "{name}: nothing was done, so nothing failed");
        ends(&sim);
        pass(1800).await;
        assert_eq!((sim.evictions().len(), sim.all_healthy()), (1, true), "{name}: afterwards it goes on");
    }
}

#[tokio::test(start_paused = true)]
async fn a_change_between_two_pods_spares_the_next_one_and_is_reported() {
    for Change { name, happens, ends, sentence } in changes() {
        let sim = by_annotation();
        for _ in 0..3 {
            sim.pod("v", "n0", "web", false);
        }
        let _hub = sim.hub();
        until(&sim, "the first eviction", |land| land.evictions.len() == 1).await;
        happens(&sim);
        pass(1800).await;
        assert_eq!(sim.evictions().len(), 1, "{name}");
        let failures = failures(&sim);
        let [(text, asked)] = &failures[..] else { panic!("{name}: {failures:?}") };
        assert!(text.contains("evicted: v-1; ") && text.contains(sentence), "{name}: {text}");
        assert!(*asked, "{name}: a pod was evicted: {text}");
        let stored: Vec<_> = sim.land.lock().heals["v"].iter().map(|heal| heal.outcome).collect();
        let attempts: Vec<_> =
            stored.into_iter().filter(|outcome| *outcome != HealOutcome::Skipped).collect();
        assert_eq!(attempts, [HealOutcome::Failed], "{name}");
        ends(&sim);
        pass(3600).await;
        assert!(sim.all_healthy(), "{name}: afterwards it goes on");
        assert_eq!(once(&sim), ["v-1", "v-2", "v-3"], "{name}: what was replaced is not evicted again");
    }
}

/// The pods that were evicted, in order.
fn once(sim: &Sim) -> Vec<String> {
    sim.with(|land| land.evictions.iter().map(|(_, pod)| pod.clone()).collect())
}

/// The hub dies after the first pod of three was replaced, and the next hub knows only the pods and the problem.
#[tokio::test(start_paused = true)]
async fn the_next_attempt_leaves_pods_alone_that_the_one_before_it_replaced() {
    let sim = by_annotation();
    for _ in 0..3 {
        sim.pod("v", "n0", "web", false);
    }
    let hub = sim.hub();
    until(&sim, "the first eviction", |land| land.evictions.len() == 1).await;
    drop(hub);
    pass(30).await;
    let _hub = sim.hub();
    pass(3600).await;
    assert!(sim.all_healthy());
    assert_eq!(once(&sim), ["v-1", "v-2", "v-3"]);
}

/// After the first new mount nothing reports a broken one any more, but the other pods still have it.
#[tokio::test(start_paused = true)]
async fn the_other_pods_of_a_volume_are_replaced_although_it_reads_well() {
    let sim = by_annotation();
    sim.land.lock().first_heals_all = true;
    for _ in 0..3 {
        sim.pod("v", "n0", "web", false);
    }
    let _hub = sim.hub();
    pass(600).await;
    let pods: BTreeSet<String> = sim.with(|land| land.evictions.iter().map(|(_, pod)| pod.clone()).collect());
    assert_eq!(pods, ["v-1", "v-2", "v-3"].map(str::to_owned).into());
    assert_eq!(failures(&sim), []);
}

#[tokio::test(start_paused = true)]
async fn a_volume_that_recovers_while_the_budget_refuses_keeps_its_pod() {
    let sim = by_annotation();
    sim.land.lock().budget_refuses = true;
    sim.pod("v", "n0", "web", false);
    let _hub = sim.hub();
    until(&sim, "two refusals", |land| land.requests >= 2).await;
    sim.with(|land| {
        land.budget_refuses = false;
        land.pods.iter_mut().for_each(|pod| pod.healthy = true);
    });
    pass(1800).await;
    assert!(sim.evictions().is_empty());
    assert!(failures(&sim)[0].0.contains("nothing on the node reports a broken mount"));
}

#[tokio::test(start_paused = true)]
async fn many_other_volumes_that_fail_meanwhile_pull_the_brake() {
    let sim = by_annotation();
    for _ in 0..3 {
        sim.pod("v", "n0", "web", false);
    }
    let _hub = sim.hub();
    until(&sim, "the first eviction", |land| land.evictions.len() == 1).await;
    for claim in 0..30 {
        sim.pod(&format!("w{claim}"), "n0", "other", false);
    }
    pass(1800).await;
    assert_eq!(sim.evictions().len(), 1);
    let failures = failures(&sim);
    assert!(failures[0].0.contains("pod v-2 was not evicted: 3"), "{failures:?}");
    assert!(failures[0].0.contains("are unhealthy at the same time"), "{failures:?}");
}

/// Consent counts when the attempt begins; taken back it counts no more.
#[tokio::test(start_paused = true)]
async fn consent_may_expire_during_an_attempt_but_not_be_taken_back() {
    for taken_back in [false, true] {
        let approval = SignedDuration::from_secs(65);
        let policy = Policy { approval, recreate: Some(Recreate::default()), ..Policy::default() };
        let sim = Sim { policy, ..by_annotation() };
        sim.with(|land| (land.budget_refuses, land.mode) = (true, Some("approve")));
        sim.pod("v", "n0", "web", false);
        let _hub = sim.hub();
        pass(5).await;
        let given = sim.clock.now();
        sim.land.lock().approval = Approval::Given(given);
        until(&sim, "two refusals", |land| land.requests >= 2).await;
        if taken_back {
            sim.land.lock().approval = Approval::None;
        }
        while sim.clock.now().duration_since(given) <= approval {
            pass(1).await;
        }
        assert_eq!(failures(&sim).len(), usize::from(taken_back), "{:?}", failures(&sim));
        sim.land.lock().budget_refuses = false;
        pass(600).await;
        assert_eq!(sim.evictions().len(), usize::from(!taken_back), "taken back: {taken_back}");
        assert!(!taken_back || failures(&sim)[0].0.contains("needs a person's consent"));
    }
}

#[tokio::test(start_paused = true)]
async fn a_person_overrides_a_mode_that_changes_meanwhile_but_not_off() {
    for (mode, expected) in [("observe", 3), ("approve", 3), ("off", 1)] {
        let sim = by_annotation();
        sim.land.lock().mode = Some("observe");
        for _ in 0..3 {
            sim.pod("v", "n0", "web", false);
        }
        let hub = sim.hub();
        pass(3).await;
        let handle = hub.handle.clone();
        let asked = tokio::spawn(async move { handle.person("ns", "v", false).await });
        until(&sim, "the first eviction", |land| land.evictions.len() == 1).await;
        sim.land.lock().mode = Some(mode);
        let answer = asked.await.unwrap().unwrap();
        assert_eq!(sim.evictions().len(), expected, "{mode}");
        let healed = matches!(&answer[..], [(_, Answer::Healed(_))]);
        assert_eq!(healed, expected == 3, "{mode}: {answer:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_somebody_deletes_meanwhile_is_not_evicted_but_followed() {
    let sim = by_annotation();
    sim.land.lock().budget_refuses = true;
    sim.pod("v", "n0", "web", false);
    let _hub = sim.hub();
    until(&sim, "two refusals", |land| land.requests >= 2).await;
    let requests = sim.with(|land| {
        land.pods[0].gone = Some(Instant::now());
        let (claim, uid, made) = ("v".to_owned(), "v-by-hand".to_owned(), Instant::now());
        land.pods.push(Pod { claim, uid, node: "n0", made, gone: None, healthy: true, workload: "web" });
        land.requests
    });
    pass(300).await;
    assert_eq!(sim.with(|land| land.requests), requests);
    assert!(sim.says("replaced: v-1 by v-by-hand"));
    assert!(sim.with(|land| land.pods[0].made.elapsed() > STARTS));
}

/// Whether the request arrived is unknown, so the attempt is not one in which nothing was done.
#[tokio::test(start_paused = true)]
async fn an_eviction_without_an_answer_is_never_called_none() {
    let sim = by_annotation();
    sim.land.lock().answers_get_lost = true;
    sim.pod("v", "n0", "web", false);
    let _hub = sim.hub();
    until(&sim, "two requests", |land| land.requests >= 2).await;
    sim.land.lock().mode = Some("off");
    pass(300).await;
    let failures = failures(&sim);
    let [(text, asked)] = &failures[..] else { panic!("{failures:?}") };
    assert!(text.contains("whether pod v-1 was evicted is unknown; recreating pods is off"), "{text}");
    assert!(asked);
}
