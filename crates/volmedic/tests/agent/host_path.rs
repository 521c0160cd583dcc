//! Claims on directories of the node, as local-path provisioners make them: the kubelet has no directory for them.

use std::fs;

use volmedic_api::resource::NodeReport;

use crate::coverage::probed;
use crate::stage::{ABNORMAL, Stage};

const ARGUMENTS: [&str; 3] =
    ["--csi-address=/nowhere/csi.sock", "--monitor-interval=500ms", "--http-endpoint=127.0.0.1:0"];

#[tokio::test]
async fn a_directory_that_is_deleted_under_a_pod_is_reported_on_the_pod_and_its_claim() {
    let stage = Stage::new().await;
    let path = stage.ground.path().join("local-path");
    fs::create_dir(&path).unwrap();
    let data = stage.host_path("data", &path).await;
    stage.pending_pod("web", &[&data]).await;
    stage.set_status("web", serde_json::json!({"phase": "Running"})).await;
    let agent = stage.watching(&[&ARGUMENTS[..], &["--host-root=/"]].concat()).await;
    let is_probed = |report: &NodeReport| probed(report, &data.pv) == "Host" && report.counts.healthy == 1;
    let before = stage.report("it is probed", is_probed).await;
    stage.looks_of(&agent, "kubernetes.io/host-path", 20).await;
    let after = stage.stored().await.expect("it is there");
    assert_eq!(after.metadata.resource_version, before.metadata.resource_version, "nothing changed");

    fs::remove_dir(&path).unwrap();
    let event = stage.event("web", ABNORMAL, &["VolumeNotFound", "host checks"]).await;
    let message = event.message.unwrap_or_default();
    assert!(message.contains(path.to_str().unwrap()), "{message}");
    let is_gone = |report: &NodeReport| report.volumes.len() == 1 && probed(report, &data.pv) == "Host";
    let report = stage.report("it is in the report", is_gone).await.spec.report;
    assert_eq!(report.volumes[0].claim.as_ref().map(|claim| &*claim.name), Some("data"));
    assert_eq!(report.volumes[0].persistent_volume_name.as_deref(), Some(&*data.pv));

    // The pod is made again on a new directory.
    fs::create_dir(&path).unwrap();
    stage.set_status("web", serde_json::json!({"phase": "Failed"})).await;
    stage.pending_pod("web-1", &[&data]).await;
    stage.set_status("web-1", serde_json::json!({"phase": "Running"})).await;
    stage.report("it is healthy again", |report| report.volumes.is_empty() && is_probed(report)).await;
}

#[tokio::test]
async fn without_the_hosts_root_directory_it_is_not_probed_and_that_is_said() {
    let stage = Stage::new().await;
    let path = stage.ground.path().join("local-path");
    let data = stage.host_path("data", &path).await;
    stage.pending_pod("web", &[&data]).await;
    stage.set_status("web", serde_json::json!({"phase": "Running"})).await;
    let _agent = stage.watching(&ARGUMENTS).await;
    let unseen = |report: &NodeReport| probed(report, &data.pv) == "HostPathNotVisible";
    let report = stage.report("it is not probed", unseen).await.spec.report;
    assert_eq!(report.counts.healthy, 0, "{:?}", report.counts);
}
