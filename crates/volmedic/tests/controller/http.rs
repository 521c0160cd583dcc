//! Health and metrics over HTTP.

use std::time::{Duration, Instant};

use volmedic_testkit::sim::capability as can;

use crate::process::{Controller, PATIENCE};
use crate::rights::{Right, Rights};
use crate::stage::{DEGRADED, Stage};

const ANY_PORT: &str = "--http-endpoint=127.0.0.1:0";

async fn wait_ready(controller: &Controller) {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let (status, body) = controller.get("/readyz").await;
        if status == 200 {
            return;
        }
        assert!(Instant::now() < deadline, "it never gets ready: {status} {body}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

#[tokio::test]
async fn alive_immediately_and_ready_when_the_driver_is_there() {
    let mut stage = Stage::new(&[can::LIST_VOLUME_HEALTH]).await;
    stage.sim.stop();
    let controller = stage.controller(&[ANY_PORT]);
    assert_eq!(controller.get("/healthz").await, (200, "ok".to_owned()));
    assert_eq!(controller.get("/readyz").await, (503, "starting".to_owned()));
    assert_eq!(
        controller.get("/healthz/leader-election").await.0,
        200,
        "without an election nothing is wrong with it"
    );
    assert_eq!(controller.get("/nowhere").await.0, 404);
    stage.sim.restart().expect("the driver listens");
    wait_ready(&controller).await;
    assert_eq!(controller.terminate(), Some(0));
}

#[tokio::test]
async fn not_ready_while_blind_for_long_and_ready_again_when_it_sees() {
    let mut stage = Stage::new(&[can::LIST_VOLUME_HEALTH]).await;
    stage.claims(&["data"]).await;
    let controller = stage.watching(&[ANY_PORT, "--not-ready-after=1s"]).await;
    wait_ready(&controller).await;
    stage.sim.stop();
    let deadline = Instant::now() + PATIENCE;
    loop {
        let (status, body) = controller.get("/readyz").await;
        if status == 500 {
            let begins = format!("driver {} has not been seen since 20", stage.driver);
            assert!(body.starts_with(&begins), "{body}");
            break;
        }
        assert!(Instant::now() < deadline, "it stays ready: {status} {body}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    assert_eq!(controller.get("/healthz").await.0, 200, "to be restarted would not help");
    stage.sim.restart().expect("the driver listens");
    wait_ready(&controller).await;
    assert_eq!(controller.terminate(), Some(0));
}

#[tokio::test]
async fn not_ready_without_the_volumes_and_says_why() {
    let stage = Stage::new(&[can::LIST_VOLUME_HEALTH]).await;
    let right = Right { resource: "persistentvolumes".to_owned(), verb: "list".to_owned() };
    let account = stage.account("poor", &Rights::shipped(&stage.plane).without(&right)).await;
    let controller = stage.controller_as(&account, &[ANY_PORT]);
    let deadline = Instant::now() + PATIENCE;
    loop {
        let (status, body) = controller.get("/readyz").await;
        if status == 500 && body.contains("forbidden") {
            assert!(body.starts_with("out of touch with the API server: "), "{body}");
            assert!(body.contains("persistentvolumes"), "{body}");
            break;
        }
        assert_ne!(status, 200, "{body}");
        assert!(Instant::now() < deadline, "{status} {body}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    assert_eq!(controller.get("/healthz").await.0, 200, "to be restarted would not help");
}

#[tokio::test]
async fn metrics_have_every_health_and_the_names_that_others_look_for() {
    let stage = Stage::new(&[can::GET_VOLUME_HEALTH]).await;
    stage.claims(&["sick", "well", "hung"]).await;
    stage.harm("sick", DEGRADED, "OutOfCapacity", "99 % used");
    stage.sim.behaviour().hung.push(stage.handle("hung"));
    let controller = stage.watching(&[ANY_PORT, "--metrics-path=/m", "--timeout=3s"]).await;
    stage.wait_stored("sick", &["Degraded/OutOfCapacity"]).await;
    let driver = &stage.driver;
    let get = "/csi.v1.Controller/ControllerGetVolumeHealth";
    let probes = |result| {
        format!(
            "csi_volume_health_probe_total{{driver_name=\"{driver}\",method_name=\"{get}\",result=\"{result}\"}} "
        )
    };
    let mut wanted = vec![probes("error")];
    for (health, count) in [
        ("healthy", 1),
        ("degraded", 1),
        ("inaccessible", 0),
        ("data_loss", 0),
        ("unrecognized", 0),
        ("unknown", 1),
    ] {
        wanted.push(format!("volmedic_volumes{{driver_name=\"{driver}\",health=\"{health}\"}} {count}\n"));
    }
    // The three are checked side by side, in no order.
    let deadline = Instant::now() + PATIENCE;
    let page = loop {
        let (status, page) = controller.get("/m").await;
        assert_eq!(status, 200);
        let missing: Vec<_> = wanted.iter().filter(|series| !page.contains(*series)).collect();
        if missing.is_empty() {
            break page;
        }
        assert!(Instant::now() < deadline, "{missing:?} are not in {page}");
        tokio::time::sleep(Duration::from_millis(100)).await;
    };
    let namespace = &stage.namespace;
    let sick = format!(
        "csi_controller_volume_health_status{{driver_name=\"{driver}\",namespace=\"{namespace}\",\
         persistentvolumeclaim=\"sick\",status=\"Degraded\",reason=\"OutOfCapacity\"}} 1\n"
    );
    assert!(page.contains(&sick), "{page}");
    assert!(!page.contains("persistentvolumeclaim=\"well\""), "only what is ill has a series");
    for begins in [
        probes("success"),
        "csi_volume_health_probe_duration_seconds_bucket{".to_owned(),
        "csi_sidecar_operations_seconds_bucket{".to_owned(),
        format!("volmedic_blind_since_seconds{{driver_name=\"{driver}\"}} 0"),
        "process_start_time_seconds ".to_owned(),
    ] {
        assert!(page.lines().any(|line| line.starts_with(&begins)), "no {begins} in {page}");
    }
    assert!(page.ends_with("# EOF\n"));
    assert_eq!(controller.get("/metrics").await.0, 404, "they are where they were asked to be");
}
