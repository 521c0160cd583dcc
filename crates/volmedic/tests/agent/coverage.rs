//! Which volumes the node's report says are probed, from where, and why the others are not.

use std::process::Command;

use volmedic_api::resource::NodeReport;

use crate::process::{Controller as Process, program};
use crate::server;
use crate::stage::{Stage, install_resources};

/// The vantages of a PersistentVolume, or the reason why there are none.
pub(crate) fn probed(report: &NodeReport, pv: &str) -> String {
    let coverage = report.coverage.as_ref().expect("an agent of this version says what it probes");
    let mut groups =
        coverage.groups.iter().filter(|group| group.persistent_volumes.iter().any(|name| name == pv));
    let Some(group) = groups.next() else { return "not named".to_owned() };
    assert!(groups.next().is_none(), "it is in two groups: {coverage:#?}");
    assert_eq!(group.probed_from.is_empty(), !group.reason.is_empty(), "{group:?}");
    assert_eq!(group.reason.is_empty(), group.message.is_empty(), "{group:?}");
    let vantages: Vec<_> = group.probed_from.iter().map(|vantage| format!("{vantage:?}")).collect();
    format!("{}{}", vantages.join("+"), group.reason)
}

#[tokio::test]
async fn each_volume_is_named_with_where_it_is_probed_from_and_that_is_written_once() {
    let plane = server::shared();
    install_resources(&plane);
    let mut stage = Stage::on(plane, &["--dialect=health"]).await;
    let data = stage.volume("data", "ext4").await;
    stage.pod("web", &[&data]).await;
    let later = stage.volume("later", "fuse").await;
    let starting = stage.pending_pod("starting", &[&later]).await;
    stage.publish(&starting, &later).await;
    let arguments = ["--monitor-interval=500ms", "--probe-timeout=2s", "--http-endpoint=127.0.0.1:0"];
    let agent = stage.watching(&arguments).await;
    let both = |report: &NodeReport| {
        (probed(report, &data.pv), probed(report, &later.pv)) == ("Node+Host".into(), "BeingMounted".into())
    };
    let report = stage.report("one is probed, one is being mounted", both).await;
    let coverage = report.spec.report.coverage.expect("it is there");
    // Twice the interval, three times the deadline, and ten seconds.
    assert_eq!((coverage.within_seconds, coverage.omitted), (17, 0));

    stage.set_status("starting", serde_json::json!({"phase": "Running"})).await;
    let all =
        |report: &NodeReport| [&data, &later].iter().all(|volume| probed(report, &volume.pv) == "Node+Host");
    let before = stage.report("both are probed", |report| all(report) && report.counts.healthy == 2).await;
    stage.looks(&agent, 60).await;
    let after = stage.stored().await.expect("it is there");
    assert_eq!(after.metadata.resource_version, before.metadata.resource_version, "{before:#?} {after:#?}");

    stage.ground.kill();
    let host = |report: &NodeReport| probed(report, &data.pv) == "Host";
    stage.report("the driver is gone, and the host checks go on", host).await;
}

/// An agent that has less rights than the chart gives, and a volume that is another user's.
#[tokio::test]
async fn a_volume_that_never_let_the_agent_in_is_not_probed() {
    let mut stage = Stage::new().await;
    let data = stage.volume("data", "ext4").await;
    let open = stage.volume("open", "ext4").await;
    let uid = stage.pod("web", &[&data, &open]).await;
    let mount = stage.kubelet.publish(&uid, &data.pv).unwrap();
    std::os::unix::fs::chown(&mount, Some(1234), Some(1234)).unwrap();
    std::fs::set_permissions(&mount, std::os::unix::fs::PermissionsExt::from_mode(0o700)).unwrap();
    let limited = stage.command(&["--csi-address=/nowhere/csi.sock", "--monitor-interval=500ms"]);
    let mut command = Command::new("setpriv");
    command.arg("--bounding-set=-dac_override,-dac_read_search").arg("--").arg(program());
    command.args(limited.get_args()).env("POD_NAMESPACE", &stage.namespace);
    let agent = Process::spawn(&mut command);
    agent.wait_log("watching").await;
    let wanted = |report: &NodeReport| {
        (probed(report, &data.pv), probed(report, &open.pv)) == ("AccessDenied".into(), "Host".into())
    };
    let report = stage.report("one is closed", wanted).await.spec.report;
    assert!(report.volumes.is_empty(), "that is no finding: {report:#?}");
    assert_eq!((report.counts.healthy, report.counts.unknown), (1, 1), "{:?}", report.counts);
    std::fs::set_permissions(&mount, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let open = |report: &NodeReport| probed(report, &data.pv) == "Host" && report.counts.healthy == 2;
    stage.report("it lets the agent in", open).await;
}
