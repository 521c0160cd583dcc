//! Health, metrics, and what is said of checks that are off.

use std::os::unix::process::CommandExt;
use std::time::{Duration, Instant};

use volmedic_driver::fault::Fault;

use crate::process::{Controller as Process, PATIENCE};
use crate::stage::{ABNORMAL, Stage};

async fn shows(agent: &Process, line: &str) {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let (_, text) = agent.get("/metrics").await;
        if text.lines().any(|found| found.starts_with(line)) {
            return;
        }
        assert!(Instant::now() < deadline, "{line} is not in\n{text}");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

#[tokio::test]
async fn what_a_scrape_shows() {
    let mut stage = Stage::new().await;
    let data = stage.volume("data", "ext4").await;
    let other = stage.volume("other", "fuse").await;
    stage.pod("web", &[&data, &other]).await;
    let agent = stage.watching(&["--http-endpoint=127.0.0.1:0", "--volume-stats-metrics"]).await;
    assert_eq!(agent.get("/healthz").await, (200, "ok".to_owned()));
    assert_eq!(agent.get("/readyz").await, (200, "ok".to_owned()));
    let (driver, namespace) = (&stage.driver, &stage.namespace);
    shows(&agent, &format!(r#"volmedic_volumes{{driver_name="{driver}",health="healthy"}} 2"#)).await;
    shows(&agent, &format!(r#"volmedic_volumes{{driver_name="{driver}",health="unknown"}} 0"#)).await;
    shows(&agent, r#"volmedic_check_enabled{check="mounted"} 1"#).await;
    shows(&agent, r#"volmedic_helpers{state="stuck"} 0"#).await;
    let claim = format!(r#"{{namespace="{namespace}",persistentvolumeclaim="data"}}"#);
    shows(&agent, &format!("kubelet_volume_stats_capacity_bytes{claim}")).await;
    shows(&agent, &format!(r#"volmedic_build_info{{version="{}"}} 1"#, env!("CARGO_PKG_VERSION"))).await;
    let (_, text) = agent.get("/metrics").await;
    let of_claim = format!(
        r#"volmedic_volume_device_info{{driver_name="{driver}",namespace="{namespace}",persistentvolumeclaim="data","#
    );
    let devices: Vec<&str> = text.lines().filter(|line| line.starts_with(&of_claim)).collect();
    for layer in ["volume", "disk"] {
        let ends = format!(r#"",layer="{layer}"}} 1"#);
        let found = devices.iter().filter(|line| line.contains(r#",device="loop"#) && line.ends_with(&ends));
        assert_eq!(found.count(), 1, "{layer}: {devices:?} in\n{text}");
    }
    let (_, text) = agent.get("/metrics").await;
    assert!(!text.contains("csi_node_volume_health_status{"), "healthy volumes have no series");
    stage.harm(Fault::ReadOnly, &data);
    stage.event("web", ABNORMAL, &["ReadOnlyFilesystem", "host checks"]).await;
    let labels = format!(
        r#"{{driver_name="{driver}",namespace="{namespace}",pod="web",persistentvolumeclaim="data",status="Inaccessible""#
    );
    let (_, text) = agent.get("/metrics").await;
    assert!(text.contains(&format!("csi_node_volume_health_status{labels}")), "{text}");
    stage.repair(Fault::ReadOnly, &data);
    shows(&agent, &format!(r#"volmedic_volumes{{driver_name="{driver}",health="healthy"}} 2"#)).await;
}

/// Without the kernel's leave to read its log and to mark file systems, these are off by name, and all else works.
#[tokio::test]
async fn a_missing_privilege_turns_a_check_off_by_name() {
    let mut stage = Stage::new().await;
    let data = stage.volume("data", "ext4").await;
    stage.pod("web", &[&data]).await;
    let arguments = ["--http-endpoint=127.0.0.1:0"];
    let command = stage.command(&arguments);
    // An agent that has lost the capabilities for the kernel's log (34) and for administration (21).
    let mut poor = std::process::Command::new("setpriv");
    poor.arg0("setpriv")
        .args(["--bounding-set=-syslog,-sys_admin", "--inh-caps=-all"])
        .arg(command.get_program())
        .args(command.get_args());
    let agent = Process::spawn(&mut poor);
    agent.wait_log("watching").await;
    assert_eq!(agent.says("fs-errors"), 1, "{}", agent.log());
    shows(&agent, r#"volmedic_check_enabled{check="fs-errors"} 0"#).await;
    shows(&agent, r#"volmedic_check_enabled{check="mounted"} 1"#).await;
    stage.harm(Fault::ReadOnly, &data);
    stage.event("web", ABNORMAL, &["ReadOnlyFilesystem", "host checks"]).await;
}

#[tokio::test]
async fn a_command_line_that_is_wrong_ends_it_with_a_sentence() {
    let stage = Stage::new().await;
    let check = |arguments: &[&str], code: i32, says: &str| {
        let mut agent = stage.agent(arguments);
        assert_eq!(agent.ended(PATIENCE), Some(code), "{arguments:?}");
        let deadline = Instant::now() + PATIENCE;
        while agent.says(says) == 0 {
            assert!(Instant::now() < deadline, "{arguments:?}: {}", agent.log());
            std::thread::sleep(Duration::from_millis(20));
        }
    };
    check(&["--capacity-threshold=0"], 2, "0 is not in 1..=100");
    check(&["--kubeconfig=/nowhere"], 1, "cannot use the kubeconfig /nowhere");
    check(&["--http-endpoint=192.0.2.1:1"], 1, "choose another --http-endpoint");
}
