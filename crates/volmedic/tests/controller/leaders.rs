//! Several replicas: one leads, the others stand by.

use std::time::{Duration, Instant};

use k8s_openapi::api::coordination::v1::Lease;
use kube::Api;
use kube::api::{Patch, PatchParams};
use serde_json::json;
use volmedic_testkit::sim::capability as can;

use crate::process::{Controller, PATIENCE};
use crate::rights::Rights;
use crate::stage::{DEGRADED, Stage};

/// As short as a leader on a busy machine, which may be stalled for seconds, can live with.
const QUICK: [&str; 3] = [
    "--leader-election-lease-duration=20s",
    "--leader-election-renew-deadline=15s",
    "--leader-election-retry-period=500ms",
];
/// A lease that nobody would wait for to run out.
const LONG: [&str; 3] = [
    "--leader-election-lease-duration=10m",
    "--leader-election-renew-deadline=5m",
    "--leader-election-retry-period=500ms",
];

impl Stage {
    fn lease(&self) -> (Api<Lease>, String) {
        // As external-health-monitor names it: everything but letters, digits and dashes becomes a dash.
        let name = format!("external-health-monitor-leader-{}", self.driver.replace('.', "-"));
        (Api::namespaced(self.client.clone(), &self.namespace), name)
    }

    /// A leader, and a replica under an account of its own that stands by.
    async fn two_replicas(&self, election: &[&str]) -> (Controller, Controller) {
        let namespace = format!("--leader-election-namespace={}", self.namespace);
        let mut arguments = vec!["--leader-election", &namespace, "--http-endpoint=127.0.0.1:0"];
        arguments.extend(election);
        let leader = Controller::start_on("replica-a", self.sim.socket(), &self.kubeconfig, &arguments);
        leader.wait_log("watching").await;
        let account = self.account("standby", &Rights::shipped(&self.plane)).await;
        let standby = Controller::start_on("replica-b", self.sim.socket(), &account, &arguments);
        standby.wait_log("standing by while replica-a leads").await;
        (leader, standby)
    }
}

#[tokio::test]
async fn the_other_takes_over_when_the_leader_is_killed_and_nothing_is_reported_twice() {
    let stage = Stage::new(&[can::LIST_VOLUME_HEALTH]).await;
    stage.claims(&["sick", "well"]).await;
    let (mut leader, standby) = stage.two_replicas(&QUICK).await;
    stage.harm("sick", DEGRADED, "OutOfCapacity", "99 % used");
    stage.event("sick", "VolumeConditionAbnormal", "Degraded/OutOfCapacity").await;
    stage.wait_stored("sick", &["Degraded/OutOfCapacity"]).await;
    let (leases, name) = stage.lease();
    let holder = leases.get(&name).await.expect("the lease of external-health-monitor").spec;
    assert_eq!(holder.and_then(|spec| spec.holder_identity).as_deref(), Some("replica-a"));

    let deadline = Instant::now() + PATIENCE;
    while stage.requests_of("standby").is_empty() {
        assert!(Instant::now() < deadline, "the API server notes nothing");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let asked = stage.requests_of("standby");
    assert!(!asked.is_empty() && asked.iter().all(|request| request.is("get", "leases")), "{asked:?}");
    assert_eq!(standby.get("/readyz").await.0, 200, "to stand by is what a replica is there for");
    assert_eq!(standby.get("/healthz/leader-election").await.0, 200);

    let before = stage.all_events().await;
    leader.kill();
    let began = Instant::now();
    standby.wait_log("watching").await;
    println!("the other replica watches {:.1} s after the leader was killed", began.elapsed().as_secs_f64());
    stage.rounds("ControllerListVolumeHealth", 3).await;
    assert_eq!(stage.all_events().await, before, "nothing is given twice");
    let writes = stage.requests_of("standby").into_iter().filter(|r| r.is_write() && r.resource != "leases");
    assert_eq!(writes.count(), 0);
    stage.repair("sick");
    let reported = stage.event("sick", "VolumeConditionNormal", "recovered from").await;
    assert_eq!((reported.count, reported.reporting_instance.as_deref()), (Some(1), Some("replica-b")));
}

#[tokio::test]
async fn a_leader_that_is_asked_to_end_gives_the_lease_up() {
    let stage = Stage::new(&[can::LIST_VOLUME_HEALTH]).await;
    stage.claims(&["data"]).await;
    let (leader, standby) = stage.two_replicas(&LONG).await;
    let began = Instant::now();
    assert_eq!(leader.terminate(), Some(0));
    standby.wait_log("watching").await;
    let took = began.elapsed();
    println!("the other replica watches {:.1} s after the leader was told to end", took.as_secs_f64());
    assert!(took < Duration::from_mins(9), "the lease would have lasted ten minutes; it took {took:?}");
    assert_eq!(standby.terminate(), Some(0));
    let (leases, name) = stage.lease();
    let holder = leases.get(&name).await.expect("the lease").spec.and_then(|spec| spec.holder_identity);
    assert_eq!(holder.unwrap_or_default(), "", "nobody leads");
}

#[tokio::test]
async fn a_leader_whose_lease_somebody_took_ends_and_says_why() {
    let stage = Stage::new(&[can::LIST_VOLUME_HEALTH]).await;
    stage.claims(&["data"]).await;
    let namespace = format!("--leader-election-namespace={}", stage.namespace);
    let mut arguments = vec!["--leader-election", namespace.as_str()];
    arguments.extend(QUICK);
    let mut controller = stage.watching(&arguments).await;
    let (leases, name) = stage.lease();
    let thief = json!({"spec": {"holderIdentity": "external-health-monitor-0", "leaseDurationSeconds": 600}});
    leases.patch(&name, &PatchParams::default(), &Patch::Merge(thief)).await.expect("the lease is taken");
    assert_eq!(controller.ended(PATIENCE), Some(1));
    controller.wait_log("volmedic: the lease was lost; another replica leads now").await;
}
