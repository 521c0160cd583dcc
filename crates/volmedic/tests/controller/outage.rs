//! The API server or the driver is away for a while: nothing is lost, nothing made up, and nobody exits.

use std::time::Duration;

use volmedic_testkit::sim::capability as can;
use volmedic_testkit::{ControlPlane, Part, objects};

use crate::server;
use crate::stage::{DEGRADED, INACCESSIBLE, Stage};

/// Long enough for several tries of everything and for every backoff to grow to its longest. The tests beside it run on.
const OUTAGE: Duration = Duration::from_mins(1);

/// Longer than the ten seconds that a report waits for its answer.
const FREEZE: Duration = Duration::from_secs(13);

#[tokio::test]
async fn the_api_server_is_away_while_health_changes() {
    let plane = server::storing(ControlPlane::options());
    let stage = Stage::on(plane.clone(), &[can::LIST_VOLUME_HEALTH, can::GET_VOLUME_HEALTH]).await;
    stage.claims(&["appears", "comes-and-goes", "recovers", "stays", "well"]).await;
    let mut controller = stage.watching(&[]).await;
    for claim in ["recovers", "stays"] {
        stage.harm(claim, DEGRADED, "DiskDegrading", "42 bad sectors");
        stage.wait_stored(claim, &["Degraded/DiskDegrading"]).await;
    }

    plane.stop_apiserver().expect("the API server stops");
    stage.harm("appears", INACCESSIBLE, "NetworkError", "no path");
    stage.harm("comes-and-goes", DEGRADED, "OutOfCapacity", "99 % used");
    stage.repair("recovers");
    stage.rounds("ControllerListVolumeHealth", 3).await;
    stage.repair("comes-and-goes");
    tokio::time::sleep(OUTAGE).await;
    assert!(controller.is_running(), "{}", controller.log());
    plane.start_apiserver().expect("the API server starts again");

    stage.event("appears", "VolumeConditionAbnormal", "Inaccessible/NetworkError").await;
    stage.event("comes-and-goes", "VolumeConditionAbnormal", "Degraded/OutOfCapacity").await;
    stage.event("comes-and-goes", "VolumeConditionNormal", "recovered from Degraded/OutOfCapacity").await;
    stage.event("recovers", "VolumeConditionNormal", "recovered from Degraded/DiskDegrading").await;
    stage.wait_stored("appears", &["Inaccessible/NetworkError"]).await;
    stage.wait_stored("comes-and-goes", &[]).await;
    stage.wait_stored("recovers", &[]).await;
    let events = stage.all_events().await;
    assert_eq!(events.len(), 6, "nothing twice, nothing of the one that is well: {events:#?}");
    assert!(events.iter().all(|event| event.count == Some(1)), "{events:#?}");

    // Frozen, not stopped: requests that nobody answers are given up and sent again, and may be done twice by the
    // server when it wakes up. They still count once.
    plane.pause(Part::ApiServer).expect("the API server freezes");
    stage.harm("well", INACCESSIBLE, "NetworkError", "no path");
    tokio::time::sleep(FREEZE).await;
    plane.resume(Part::ApiServer).expect("the API server goes on");
    let reported = stage.event("well", "VolumeConditionAbnormal", "Inaccessible/NetworkError").await;
    assert_eq!(reported.count, Some(1));
    stage.wait_stored("well", &["Inaccessible/NetworkError"]).await;
    assert_eq!(stage.events("well").await, [reported]);

    // It went on watching: what is new is noticed.
    stage.claim("new").await;
    stage.harm("new", DEGRADED, "OutOfInodes", "0 left");
    stage.event("new", "VolumeConditionAbnormal", "Degraded/OutOfInodes").await;
    assert_eq!(controller.terminate(), Some(0));
}

#[tokio::test]
async fn a_driver_that_is_killed_frozen_and_restarted_with_other_capabilities() {
    let mut stage = Stage::new(&[can::GET_VOLUME_HEALTH]).await;
    stage.claims(&["sick", "well"]).await;
    let mut controller = stage.watching(&["--http-endpoint=127.0.0.1:0", "--timeout=5s"]).await;
    stage.harm("sick", DEGRADED, "OutOfCapacity", "99 % used");
    stage.wait_stored("sick", &["Degraded/OutOfCapacity"]).await;
    let before = stage.all_events().await;
    let blind = "has not been seen by";
    let again = "is seen again by";

    // Killed: nothing can be probed, which is said once, and what was believed stays.
    stage.sim.stop();
    controller.wait_log(blind).await;
    stage.sim.restart().expect("the driver listens again");
    controller.wait_log(again).await;
    assert_eq!(stage.all_events().await, before, "a driver that is away says nothing about its volumes");

    // Frozen: the same, though the socket is there.
    stage.sim.behaviour().delay = Duration::from_hours(1);
    controller.wait_says(blind, 2).await;
    let (_, metrics) = controller.get("/metrics").await;
    let blind_since = format!("volmedic_blind_since_seconds{{driver_name=\"{}\"}} ", stage.driver);
    let since = metrics.lines().find_map(|line| line.strip_prefix(&blind_since)).expect("the series");
    assert_ne!(since, "0", "blindness is in the metrics");
    stage.sim.behaviour().delay = Duration::ZERO;
    controller.wait_says(again, 2).await;
    assert_eq!(stage.all_events().await, before);
    assert_eq!((controller.says(blind), controller.says(again)), (2, 2), "each once: {}", controller.log());
    stage.repair("sick");
    stage.event("sick", "VolumeConditionNormal", "recovered from").await;

    // Another release of the driver, which speaks the older dialect only.
    stage.sim.stop();
    stage.sim.behaviour().capabilities = vec![can::LIST_VOLUMES, can::VOLUME_CONDITION];
    stage.sim.restart().expect("the driver listens again");
    stage.rounds("ListVolumes", 2).await;
    stage.harm("well", DEGRADED, "", "it rattles");
    let reported = stage.event("well", "VolumeConditionAbnormal", "Degraded/VolumeConditionAbnormal").await;
    assert!(reported.message.is_some_and(|message| message.contains("it rattles")));
    assert!(controller.is_running());
}

#[tokio::test]
async fn a_driver_that_reports_nothing_about_health() {
    let stage = Stage::new(&[]).await;
    stage.claims(&["data"]).await;
    let node = format!("{}-node", stage.namespace);
    objects::node(&stage.client, &node).await.expect("a node");
    objects::pod(&stage.client, &stage.namespace, "web", &node, &["data"]).await.expect("a pod");
    let arguments = ["--enable-node-watcher", "--node-grace-period=1s", "--http-endpoint=127.0.0.1:0"];
    let mut controller = stage.watching(&arguments).await;
    let missing =
        "it has neither LIST_VOLUME_HEALTH nor GET_VOLUME_HEALTH nor VOLUME_CONDITION; node failures";
    controller.wait_log(missing).await;
    objects::set_node_ready(&stage.client, &node, "Unknown").await.expect("a condition");
    stage.event("data", "NodeFailed", &node).await;
    objects::set_node_ready(&stage.client, &node, "True").await.expect("a condition");
    stage.event("data", "NodeRecovered", "recovered from").await;
    assert_eq!(controller.says(missing), 1, "{}", controller.log());
    assert_eq!(controller.get("/readyz").await.0, 200, "there is nothing it could be blind for");
    let (_, metrics) = controller.get("/metrics").await;
    let unknown = format!("volmedic_volumes{{driver_name=\"{}\",health=\"unknown\"}} 1", stage.driver);
    assert!(metrics.contains(&unknown), "nobody looked, so nobody knows: {metrics}");
    assert!(controller.is_running());
}
