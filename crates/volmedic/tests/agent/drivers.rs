//! Through the driver: both dialects, found or given, there or not.

use serde_json::json;
use volmedic_driver::fault::Fault;

use crate::server;
use crate::stage::{ABNORMAL, NORMAL, Stage};

#[tokio::test]
async fn the_newer_dialect_has_the_drivers_own_reason() {
    let mut stage = Stage::on(server::shared(), &["--dialect=health"]).await;
    let data = stage.volume("data", "ext4").await;
    stage.pod("web", &[&data]).await;
    let agent = stage.watching(&[]).await;
    agent.wait_log("reports the health of its volumes and of the storage").await;
    // Nothing of this can be seen from the host.
    stage.harm(Fault::DriveSuspect, &data);
    let event = stage.event("web", ABNORMAL, &["the driver on node"]).await;
    assert!(!event.message.unwrap_or_default().contains("host checks"));
    stage.repair(Fault::DriveSuspect, &data);
    stage.event("web", NORMAL, &["the driver on node"]).await;
}

#[tokio::test]
async fn the_older_dialect_has_its_message() {
    let mut stage = Stage::on(server::shared(), &["--dialect=legacy"]).await;
    let data = stage.volume("data", "ext4").await;
    stage.pod("web", &[&data]).await;
    let agent = stage.watching(&[]).await;
    agent.wait_log("old dialect").await;
    stage.harm(Fault::DriveBad, &data);
    stage.event("web", ABNORMAL, &["VolumeConditionAbnormal", "the driver on node"]).await;
    stage.repair(Fault::DriveBad, &data);
    stage.event("web", NORMAL, &["VolumeConditionAbnormal", "the driver on node"]).await;
}

#[tokio::test]
async fn without_the_driver_the_hosts_host_checks_are_enough() {
    let mut stage = Stage::new().await;
    let data = stage.volume("data", "ext4").await;
    stage.pod("web", &[&data]).await;
    // Nobody registers here, and nobody listens there.
    stage.ground.kill();
    let _agent = stage.watching(&[]).await;
    stage.harm(Fault::ReadOnly, &data);
    stage.event("web", ABNORMAL, &["ReadOnlyFilesystem", "host checks"]).await;
}

#[tokio::test]
async fn what_the_kubelet_found_is_read_instead_of_asking_again() {
    let gate = volmedic_testkit::ControlPlane::options().gate("CSIVolumeHealth", true);
    let mut stage = Stage::on(server::own(gate), &["--dialect=health"]).await;
    let data = stage.volume("data", "ext4").await;
    stage.pod("web", &[&data]).await;
    let arguments =
        ["--kubelet-volume-health=read", "--monitor-interval=300ms", "--http-endpoint=127.0.0.1:0"];
    let agent = stage.watching(&arguments).await;
    let said = json!([{"status": "Degraded", "reason": "KubeletSaysSo", "message": "not the driver"}]);
    let health = |conditions| {
        json!({"volumeHealth": [{"name": "data", "healthConditions": conditions,
                                                        "lastTransitionTime": "2026-08-21T10:02:00Z"}]})
    };
    stage.set_status("web", health(said)).await;
    stage.event("web", ABNORMAL, &["KubeletSaysSo", "not the driver"]).await;
    // The driver would say otherwise; it is not asked.
    stage.harm(Fault::DriveBad, &data);
    stage.looks(&agent, 5).await;
    stage.set_status("web", health(json!([]))).await;
    stage.event("web", NORMAL, &["KubeletSaysSo"]).await;
    let reported = stage.all_reported().await;
    assert!(reported.iter().all(|(_, message)| message.contains("KubeletSaysSo")), "{reported:#?}");
}

#[tokio::test]
async fn what_the_kubelet_has_not_found_yet_ends_nothing_and_what_it_found_long_ago_begins_nothing() {
    let gate = volmedic_testkit::ControlPlane::options().gate("CSIVolumeHealth", true);
    let mut stage = Stage::on(server::own(gate), &["--dialect=health"]).await;
    let (data, other) = (stage.volume("data", "ext4").await, stage.volume("other", "ext4").await);
    stage.pod("web", &[&data]).await;
    stage.pod("db", &[&other]).await;
    let agent = stage.watching(&["--monitor-interval=300ms", "--http-endpoint=127.0.0.1:0"]).await;
    stage.harm(Fault::DriveSuspect, &data);
    stage.event("web", ABNORMAL, &["the driver on node"]).await;
    // Of one volume the kubelet says what is over by now, and of the other it says nothing yet.
    let said = json!([{"status": "Degraded", "reason": "KubeletSaysSo", "message": "long ago"}]);
    let health = json!({"volumeHealth": [{"name": "other", "healthConditions": said,
                                          "lastTransitionTime": "2026-08-21T10:02:00Z"}]});
    stage.set_status("db", health).await;
    agent.wait_log("the kubelet asks the driver about volumes already").await;
    stage.looks(&agent, 10).await;
    stage.repair(Fault::DriveSuspect, &data);
    stage.event("web", NORMAL, &["the driver on node"]).await;
    let reported = stage.events("web").await;
    assert!(reported.len() == 2 && reported.iter().all(|event| event.count == Some(1)), "{reported:#?}");
    assert!(stage.events("db").await.is_empty());
}
