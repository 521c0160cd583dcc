//! The API server's store goes away for a while.

use std::sync::Arc;
use std::time::{Duration, Instant};

use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use kube::api::{Patch, PatchParams};
use kube::{Api, Client};
use serde_json::json;
use tokio::sync::watch;
use volmedic_testkit::Part;

use crate::stage::{HOME, Stage, everything, start_hub};

const QUICK: [&str; 3] = [
    "--leader-election-lease-duration=4s",
    "--leader-election-renew-deadline=3s",
    "--leader-election-retry-period=500ms",
];
/// How long an agent's Lease holds.
const PROMISE: u32 = 8;
/// An agent whose Lease is this old does not respond.
const TOO_OLD: Duration = Duration::from_secs(12);
/// The store is away until the Leases are that old and the hub has ended, which takes far less than this.
const LONGEST: Duration = Duration::from_mins(3);

/// For how long the store is away at least, if it was asked for by hand.
fn at_least() -> Duration {
    let seconds = std::env::var("VOLMEDIC_OUTAGE_SECONDS").ok().and_then(|text| text.parse().ok());
    Duration::from_secs(seconds.unwrap_or(0))
}

/// Renews the Lease of an agent until this is ended, and shows when that last succeeded.
fn beating(agent: Client, node: &str) -> (tokio::task::JoinHandle<()>, watch::Receiver<Instant>) {
    let name = format!("volmedic-agent-{node}");
    let (renewed_at, renewals) = watch::channel(Instant::now());
    let beats = tokio::spawn(async move {
        let leases = Api::<Lease>::namespaced(agent, HOME);
        loop {
            let renewed = MicroTime(jiff::Timestamp::now());
            let spec = json!({"leaseDurationSeconds": PROMISE, "renewTime": renewed});
            let lease = json!({
                "apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": name}, "spec": spec,
            });
            let params = PatchParams::apply("test").force();
            let beat = async { leases.patch(&name, &params, &Patch::Apply(lease)).await };
            if let Ok(Ok(_)) = tokio::time::timeout(Duration::from_secs(4), beat).await {
                renewed_at.send_replace(Instant::now());
            }
            tokio::time::sleep(Duration::from_millis(500)).await;
        }
    });
    (beats, renewals)
}

#[tokio::test]
async fn while_the_store_is_away_nobody_is_called_silent_or_well() {
    let stage = Stage::own(&everything()).await;
    let node = stage.make_node("n").await;
    for claim in ["data", "well", "late"] {
        stage.used_claim(claim, &node).await;
    }
    let unhealthy = [("data", "Degraded", "SlowIO")];
    stage.tell(&node, &stage.report(&unhealthy)).await;
    // The rights of an agent do not let it apply its Lease; whose it is does not matter here.
    let (beats, renewals) = beating(stage.client.clone(), &node);
    let kubeconfig = stage.kubeconfig().await;
    let mut hub = start_hub(&kubeconfig, &QUICK);
    let slow = format!("host/{node} HealthWarning Degraded/SlowIO");
    let before = stage.wait_stored("data", &[&slow]).await;

    // What is reported right before must not be lost.
    let more = [unhealthy[0], ("late", "DataLoss", "LegsLost")];
    stage.tell(&node, &stage.report(&more)).await;
    stage.plane.pause(Part::Etcd).expect("the store can be frozen");
    let began = Instant::now();
    let mut starts = 1;
    while renewals.borrow().elapsed() < TOO_OLD || starts == 1 || began.elapsed() < at_least() {
        assert!(began.elapsed() < LONGEST + at_least(), "the hub was started {starts} time(s)");
        // A leader that cannot renew its lease ends, as it must; the kubelet starts it again.
        if !hub.is_running() {
            hub = start_hub(&kubeconfig, &QUICK);
            starts += 1;
        }
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    stage.plane.resume(Part::Etcd).expect("the store goes on");
    stage.plane.wait_until_ready().expect("the API server is ready again");
    println!("away for {} s; the hub was started {starts} times", began.elapsed().as_secs());
    let hub = Arc::new(std::sync::Mutex::new(hub));
    let (running, config) = (hub.clone(), kubeconfig.clone());
    let runner = tokio::spawn(async move {
        loop {
            {
                let mut hub = running.lock().expect("not poisoned");
                if !hub.is_running() {
                    *hub = start_hub(&config, &QUICK);
                }
            }
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    });
    let lost = format!("host/{node} HealthFailure DataLoss/LegsLost");
    stage.wait_stored("late", &[&lost]).await;
    let last = [more[0], more[1], ("well", "DataLoss", "X")];
    stage.tell(&node, &stage.report(&last)).await;
    stage.wait_stored("well", &[&format!("host/{node} HealthFailure DataLoss/X")]).await;
    let after = stage.wait_stored("data", &[&slow]).await;
    assert_eq!(before.metadata.resource_version, after.metadata.resource_version, "nothing was said of it");
    let late = stage.healths().get("late").await.expect("the object").status.expect("a status");
    assert_eq!(late.history.len(), 1, "nobody was called silent in between: {:?}", late.history);
    runner.abort();
    beats.abort();
}
