//! What is wrong with a volume is reported on its claim, once, and so is its end; in every way a driver can be asked.

use volmedic_testkit::sim::capability as can;

use crate::stage::{DEGRADED, INACCESSIBLE, Stage};

async fn story(capabilities: &[i32], appeared: &str) {
    let stage = Stage::new(capabilities).await;
    for claim in ["sick", "well", "lost"] {
        stage.claim(claim).await;
    }
    let controller = stage.controller(&[]);
    controller.wait_log("watching").await;

    stage.harm("sick", DEGRADED, "OutOfCapacity", "99 % used");
    let reported = stage.event("sick", "VolumeConditionAbnormal", appeared).await;
    assert_eq!(reported.type_.as_deref(), Some("Warning"));
    assert_eq!(reported.involved_object.kind.as_deref(), Some("PersistentVolumeClaim"));
    assert!(reported.message.as_deref().is_some_and(|m| m.contains("99 % used")), "{reported:#?}");

    stage.repair("sick");
    let reported = stage.event("sick", "VolumeConditionNormal", "recovered from").await;
    assert_eq!(reported.type_.as_deref(), Some("Normal"));
    stage.wait_stored("sick", &[]).await;

    if capabilities.contains(&can::LIST_VOLUME_HEALTH) {
        // To be absent from a list of the unhealthy is health: only the driver can say that a volume is gone.
        stage.harm("lost", INACCESSIBLE, "VolumeNotFound", "the backend does not know it");
    } else {
        stage.sim.remove_volume(&stage.handle("lost"));
    }
    stage.event("lost", "VolumeConditionAbnormal", "Inaccessible/VolumeNotFound").await;
    stage.wait_stored("lost", &["Inaccessible/VolumeNotFound"]).await;
    assert!(stage.events("well").await.is_empty(), "nothing is reported of a volume that is healthy");
    assert_eq!(stage.events("sick").await.len(), 2, "one event for the trouble, one for its end");
    assert_eq!(controller.terminate(), Some(0));
}

#[tokio::test]
async fn newer_dialect_by_list() {
    story(&[can::LIST_VOLUME_HEALTH], "Degraded/OutOfCapacity").await;
}

#[tokio::test]
async fn newer_dialect_by_list_with_confirmation() {
    story(&[can::LIST_VOLUME_HEALTH, can::GET_VOLUME_HEALTH], "Degraded/OutOfCapacity").await;
}

#[tokio::test]
async fn newer_dialect_volume_by_volume() {
    story(&[can::GET_VOLUME_HEALTH], "Degraded/OutOfCapacity").await;
}

#[tokio::test]
async fn older_dialect_by_list() {
    story(&[can::LIST_VOLUMES, can::VOLUME_CONDITION], "Degraded/VolumeConditionAbnormal").await;
}

#[tokio::test]
async fn older_dialect_volume_by_volume() {
    story(&[can::GET_VOLUME, can::VOLUME_CONDITION], "Degraded/VolumeConditionAbnormal").await;
}

#[tokio::test]
async fn two_troubles_immediately_are_both_stored_and_reported() {
    let stage = Stage::new(&[can::GET_VOLUME_HEALTH]).await;
    stage.claim("data").await;
    let controller = stage.controller(&[]);
    controller.wait_log("watching").await;
    stage.harm("data", INACCESSIBLE, "PathsDown", "0 of 4");
    stage.wait_stored("data", &["Inaccessible/PathsDown"]).await;
    let handle = stage.handle("data");
    let second = volmedic_testkit::sim::Adverse {
        status: INACCESSIBLE,
        reason: "DiskFailure".into(),
        message: String::new(),
    };
    stage.sim.behaviour().volumes.entry(handle).or_default().push(second);
    stage.wait_stored("data", &["Inaccessible/DiskFailure", "Inaccessible/PathsDown"]).await;
    stage.event("data", "VolumeConditionAbnormal", "Inaccessible/DiskFailure").await;
}
