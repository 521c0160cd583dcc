//! Pods are recreated, on a cluster that exists only here: with hubs that are killed at every second, evictions that are
//! refused, pods that come up elsewhere or not at all.

mod sim;
mod stops;

use volmedic_api::resource::HealOutcome;

use super::*;
use crate::policy::Recreate;
use sim::{Pod, STARTS, Sim};

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
async fn fifty_claims_immediately_pull_the_brake() {
    let sim = Sim::new();
    for claim in 0..50 {
        sim.pod(&format!("v{claim}"), "n0", "web", false);
    }
    let _hub = sim.hub();
    pass(6 * 3600).await;
    assert!(sim.evictions().is_empty());
    assert!(sim.says("are unhealthy at the same time"));
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

/// What the hub knows may be older than the volume. So it is probed again, and nothing is done that the probe does not confirm.
#[tokio::test(start_paused = true)]
async fn a_new_probe_right_before_the_first_eviction_decides() {
    let healthy = Refusal::ProbedHealthy { remedy: Remedy::RecreatePods };
    let late = Refusal::NotConfirmed { remedy: Remedy::RecreatePods, why: "the agent did not answer".into() };
    for (refusal, text) in
        [(healthy, "found it healthy, so nothing was done"), (late, "the agent did not answer")]
    {
        let sim = Sim::new();
        sim.land.lock().new_probe = Some(refusal);
        sim.pod("v", "n0", "web", false);
        let hub = sim.hub();
        pass(600).await;
        assert!(sim.evictions().is_empty(), "{text}");
        assert_eq!(sim.reasons(), ["HealingSkipped"], "said once");
        assert!(sim.says(text), "{text}");
        // A person knows why, and is not kept waiting for it.
        let probes = sim.land.lock().probes;
        let handle = hub.handle.clone();
        let answer = handle.person("ns", "v", false).await.unwrap();
        assert!(matches!(&answer[..], [(_, Answer::Healed(_))]), "{answer:?}");
        assert_eq!((sim.evictions().len(), sim.land.lock().probes), (1, probes), "{text}");
    }
    let sim = Sim::new();
    sim.land.lock().new_probe = Some(Refusal::ProbedHealthy { remedy: Remedy::RecreatePods });
    sim.pod("v", "n0", "web", false);
    let _hub = sim.hub();
    pass(300).await;
    sim.land.lock().new_probe = None;
    pass(120).await;
    assert_eq!((sim.evictions().len(), sim.all_healthy()), (1, true), "a later probe confirms it");
}

#[tokio::test(start_paused = true)]
async fn no_probe_is_requested_where_nothing_would_be_done() {
    let sim = Sim { mode: Mode::Observe, ..Sim::new() };
    sim.pod("v", "n0", "web", false);
    let _hub = sim.hub();
    pass(3600).await;
    assert_eq!(sim.land.lock().probes, 0);
}
