//! Nothing is written while nothing changes.

use volmedic_testkit::sim::capability as can;

use crate::stage::{DATA_LOSS, DEGRADED, Stage};

/// Number of rounds in which everything is checked.
const ROUNDS: u64 = 5;

async fn check(capabilities: &[i32], call: &str) {
    let stage = Stage::new(capabilities).await;
    let claims: Vec<String> = (0..10).map(|n| format!("c{n}")).collect();
    for claim in &claims {
        stage.claim(claim).await;
    }
    let namespace = format!("--leader-election-namespace={}", stage.namespace);
    let arguments =
        ["--leader-election", &namespace, "--leader-election-retry-period=1s", "--enable-node-watcher"];
    let controller = stage.watching(&arguments).await;
    stage.harm("c0", DEGRADED, "OutOfCapacity", "99 % used");
    stage.harm("c1", DATA_LOSS, "DiskFailure", "it is no more");
    for (claim, condition) in [("c0", "Degraded/OutOfCapacity"), ("c1", "DataLoss/DiskFailure")] {
        stage.event(claim, "VolumeConditionAbnormal", condition).await;
        stage.wait_stored(claim, &[condition]).await;
    }
    let before = (stage.all_events().await, stage.requests_noted().await);

    let looks = if call.contains("Get") { ROUNDS * claims.len() as u64 } else { ROUNDS };
    stage.rounds(call, looks).await;
    let since = stage.requests().split_off(before.1);
    let renewals = since.iter().filter(|request| request.is("update", "leases")).count();
    assert!(renewals > 0, "the log of requests is alive: {since:?}");
    let others: Vec<_> =
        since.iter().filter(|request| request.resource != "leases" && request.verb != "watch").collect();
    assert!(others.is_empty(), "asked of the API server while nothing changed: {others:?}");
    assert_eq!(stage.all_events().await, before.0);
    assert_eq!(controller.terminate(), Some(0));
}

#[tokio::test]
async fn by_list() {
    check(&[can::LIST_VOLUME_HEALTH], "ControllerListVolumeHealth").await;
}

#[tokio::test]
async fn volume_by_volume() {
    check(&[can::GET_VOLUME_HEALTH], "ControllerGetVolumeHealth").await;
}
