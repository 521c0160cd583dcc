//! The API server is away for a while.

use volmedic_driver::fault::Fault;
use volmedic_testkit::ControlPlane;

use crate::server;
use crate::stage::{ABNORMAL, NORMAL, Stage};

#[tokio::test]
async fn what_happens_while_the_api_server_is_away_is_reported_later() {
    let mut stage = Stage::on(server::own(ControlPlane::options()), &[]).await;
    let data = stage.volume("data", "ext4").await;
    let other = stage.volume("other", "fuse").await;
    stage.pod("web", &[&data, &other]).await;
    let arguments = ["--csi-address=/nowhere/csi.sock"];
    let mut agent = stage.watching(&arguments).await;
    stage.harm(Fault::ReadOnly, &other);
    stage.event("web", ABNORMAL, &["ReadOnlyFilesystem", &other.id]).await;
    stage.plane.stop_apiserver().unwrap();
    stage.harm(Fault::ReadOnly, &data);
    agent.wait_log(&format!("volume {} of", data.id)).await;
    stage.repair(Fault::ReadOnly, &other);
    agent.wait_log("recovered from").await;
    assert!(agent.is_running());
    stage.plane.start_apiserver().unwrap();
    stage.event("web", ABNORMAL, &["ReadOnlyFilesystem", &data.id]).await;
    stage.event("web", NORMAL, &["ReadOnlyFilesystem", &other.id]).await;
    let events = stage.events("web").await;
    assert!(events.iter().all(|event| event.count == Some(1)), "{events:#?}");
}

#[tokio::test]
async fn what_could_not_be_sent_before_a_kill_is_sent_after_it() {
    let mut stage = Stage::on(server::own(ControlPlane::options()), &[]).await;
    let data = stage.volume("data", "ext4").await;
    stage.pod("web", &[&data]).await;
    let arguments = ["--csi-address=/nowhere/csi.sock"];
    let mut agent = stage.watching(&arguments).await;
    stage.plane.stop_apiserver().unwrap();
    stage.harm(Fault::ReadOnly, &data);
    agent.wait_log(&format!("volume {} of", data.id)).await;
    agent.kill();
    stage.plane.start_apiserver().unwrap();
    let _agent = stage.watching(&arguments).await;
    let event = stage.event("web", ABNORMAL, &["ReadOnlyFilesystem", &data.id]).await;
    assert_eq!(event.count, Some(1));
}
