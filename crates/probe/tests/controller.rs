//! The controller probe against a simulated driver on a real socket.

use std::time::Duration;

use prometheus_client::registry::Registry;
use tempfile::TempDir;
use tokio::sync::mpsc;
use tonic::Code;
use volmedic_csi::dialect::ControllerProbe;
use volmedic_csi::{Address, Driver, Limits, Metrics, Settings};
use volmedic_health::{Sight, WhyKind};
use volmedic_monitor::{ListEnd, Probe, Seen};
use volmedic_probe::Controller;
use volmedic_testkit::sim::{Sim, capability as can};

const NAME: &str = "sim.example.net";
/// Only what hangs takes this long, however busy the machine is.
const LONG: Duration = Duration::from_mins(2);

struct Stage {
    sim: Sim,
    probe: Controller,
    _dir: TempDir,
}

async fn stage(capabilities: &[i32]) -> Stage {
    stage_within(capabilities, LONG).await
}

/// One in which every call has this long for its answer.
async fn stage_within(capabilities: &[i32], deadline: Duration) -> Stage {
    let dir = tempfile::tempdir().expect("a directory for the socket");
    let socket = dir.path().join("csi.sock");
    let sim = Sim::start(&socket, NAME, capabilities).expect("the simulated driver listens");
    sim.add_volumes((0..5).map(|i| format!("v{i}")));
    let address: Address = socket.to_str().expect("plain path").parse().expect("a socket path");
    let settings = Settings { deadline, first_pause: Duration::from_millis(10), ..Settings::default() };
    let metrics = Metrics::register(&mut Registry::default());
    let driver = Driver::start(address, settings, metrics);
    driver.ready_within(LONG).await.expect("the driver is ready");
    Stage {
        sim,
        probe: Controller::new(driver, Limits { page_deadline: deadline, ..Limits::default() }),
        _dir: dir,
    }
}

/// What a list says, one word a volume.
async fn list(stage: &Stage) -> (Vec<String>, bool) {
    let (sender, mut pages) = mpsc::channel(100);
    let end = stage.probe.list(sender).await;
    let mut seen = Vec::new();
    while let Some(page) = pages.recv().await {
        seen.extend(page.iter().map(|listed| format!("{} {}", listed.handle, short(&listed.sight))));
    }
    seen.sort();
    (seen, end == ListEnd::Complete)
}

fn short(sight: &Sight) -> String {
    match sight {
        Sight::Healthy => "ok".into(),
        Sight::Unlisted => "unlisted".into(),
        Sight::Adverse(set) => set.iter().map(ToString::to_string).collect::<Vec<_>>().join("+"),
        Sight::Missing(_) => "missing".into(),
        Sight::NotSeen(why) => format!("not seen: {}", why.kind),
    }
}

async fn look(stage: &Stage, handle: &str) -> String {
    match stage.probe.look(handle).await {
        Seen::Volume(sight) => short(&sight),
        Seen::Nothing => "nothing".into(),
        Seen::Overloaded(_) => "overloaded".into(),
        Seen::DriverGone(_) => "driver gone".into(),
    }
}

fn probe_of(stage: &Stage) -> ControllerProbe {
    stage.probe.choice().expect("the driver is there").probe
}

#[tokio::test]
async fn the_newer_dialect_lists_the_unhealthy_and_checks_one() {
    let stage = stage(&[can::LIST_VOLUME_HEALTH, can::GET_VOLUME_HEALTH]).await;
    stage.sim.harm("v1", 3, "LegsLost", "both legs");
    stage.sim.harm("v2", 77, "Haunted", "");
    assert_eq!(probe_of(&stage), ControllerProbe::ListHealth);
    let (seen, complete) = list(&stage).await;
    assert_eq!(seen, ["v1 DataLoss/LegsLost", "v2 Unrecognized(77)/Haunted"]);
    assert!(complete);
    assert_eq!(look(&stage, "v1").await, "DataLoss/LegsLost");
    assert_eq!(look(&stage, "v0").await, "ok");
    assert_eq!(look(&stage, "nobody").await, "missing");
}

#[tokio::test]
async fn the_older_dialect_lists_all_and_checks_one() {
    let stage = stage(&[can::LIST_VOLUMES, can::GET_VOLUME, can::VOLUME_CONDITION]).await;
    stage.sim.harm("v1", 1, "ignored", "LUN 7 offline");
    assert_eq!(probe_of(&stage), ControllerProbe::ListVolumes);
    let (seen, complete) = list(&stage).await;
    assert_eq!(seen, ["v0 ok", "v1 Degraded/VolumeConditionAbnormal", "v2 ok", "v3 ok", "v4 ok"]);
    assert!(complete);
    assert_eq!(look(&stage, "v1").await, "Degraded/VolumeConditionAbnormal");
    assert_eq!(look(&stage, "nobody").await, "missing");
}

#[tokio::test]
async fn an_answer_without_a_condition_is_not_health() {
    let stage = stage(&[can::GET_VOLUME, can::VOLUME_CONDITION]).await;
    assert_eq!(look(&stage, "v1").await, "ok");
    // It still says at the start that it would tell conditions.
    stage.sim.behaviour().capabilities.clear();
    assert_eq!(look(&stage, "v1").await, format!("not seen: {}", WhyKind::NoAnswer));
}

#[tokio::test]
async fn a_hung_volume_is_distinguished_from_a_hung_driver() {
    let stage = stage_within(&[can::GET_VOLUME_HEALTH], Duration::from_secs(3)).await;
    stage.sim.behaviour().hung.push("v1".into());
    assert_eq!(look(&stage, "v1").await, format!("not seen: {}", WhyKind::TimedOut));
    // A driver that answers nothing at all is what hangs, not this volume.
    stage.sim.behaviour().delay = Duration::from_mins(1);
    // An answer of a moment ago still speaks for the driver.
    let deadline = tokio::time::Instant::now() + LONG;
    while look(&stage, "v2").await != "driver gone" {
        assert!(tokio::time::Instant::now() < deadline, "a driver that hangs is never told");
    }
}

#[tokio::test]
async fn errors_never_look_like_health() {
    let stage = stage(&[can::GET_VOLUME_HEALTH]).await;
    for (code, expected) in [
        (Code::Internal, "not seen: answered with an error"),
        (Code::Unavailable, "not seen: answered with an error"),
        (Code::PermissionDenied, "not seen: answered with an error"),
        (Code::ResourceExhausted, "overloaded"),
        (Code::NotFound, "missing"),
    ] {
        stage.sim.behaviour().failing = Some((code, "as told".into()));
        assert_eq!(look(&stage, "v1").await, expected, "{code:?}");
    }
}

#[tokio::test]
async fn a_driver_that_comes_back_with_other_capabilities_is_asked_in_another_way() {
    let mut stage = stage(&[can::GET_VOLUME_HEALTH]).await;
    assert_eq!(probe_of(&stage), ControllerProbe::GetHealth);
    stage.sim.stop();
    while stage.probe.choice().is_ok() {
        tokio::time::timeout(LONG, stage.probe.changed()).await.expect("the loss of the driver is noticed");
    }
    assert_eq!(look(&stage, "v1").await, "driver gone");
    let (seen, complete) = list(&stage).await;
    assert!(seen.is_empty() && !complete);
    stage.sim.behaviour().capabilities = vec![can::LIST_VOLUMES, can::VOLUME_CONDITION];
    stage.sim.restart().expect("it listens again");
    while stage.probe.choice().is_err() {
        tokio::time::timeout(LONG, stage.probe.changed()).await.expect("it comes back");
    }
    assert_eq!(probe_of(&stage), ControllerProbe::ListVolumes);
}
