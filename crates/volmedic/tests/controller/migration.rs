//! A deployment of external-health-monitor runs unchanged.

use std::process::Command;

use volmedic_testkit::sim::capability as can;

use crate::process::{Controller, program};
use crate::stage::{DEGRADED, Stage};

/// The older dialect, which is all that external-health-monitor knows.
const OLD: [i32; 2] = [can::LIST_VOLUMES, can::VOLUME_CONDITION];

async fn runs(arguments: &[&str]) -> Controller {
    let stage = Stage::new(&OLD).await;
    stage.claims(&["data"]).await;
    stage.harm("data", DEGRADED, "", "it rattles");
    let mut command = Command::new(program());
    command.arg("controller").arg(format!("--csi-address=unix://{}", stage.sim.socket().display()));
    command.arg(format!("--kubeconfig={}", stage.kubeconfig.display())).args(arguments);
    let controller = Controller::spawn(command.env("POD_NAMESPACE", &stage.namespace));
    controller.wait_log("watching").await;
    let reported = stage.event("data", "VolumeConditionAbnormal", "it rattles").await;
    let component = format!("csi-pv-monitor-controller-{}", stage.driver);
    assert_eq!(
        reported.source.and_then(|source| source.component),
        Some(component),
        "as its events are filtered by"
    );
    controller
}

#[tokio::test]
async fn the_arguments_of_its_own_sample() {
    let controller = runs(&["--v=5", "--leader-election", "--http-endpoint=127.0.0.1:0"]).await;
    assert_eq!(controller.get("/healthz/leader-election").await, (200, "ok".to_owned()));
    assert_eq!(controller.terminate(), Some(0));
}

#[tokio::test]
async fn every_flag_it_has() {
    let controller = runs(&[
        "-v=2",
        "--timeout=10s",
        // Go takes one dash as well as two.
        "-monitor-interval=1m0s",
        "--list-volumes-interval=5m",
        "--volume-list-add-interval=5m",
        "--node-list-add-interval=5m",
        "--worker-threads=10",
        "--enable-node-watcher=true",
        "--resync=10m",
        "--leader-election=true",
        "--leader-election-namespace=",
        "--leader-election-lease-duration=15s",
        "--leader-election-renew-deadline=10s",
        "--leader-election-retry-period=5s",
        "--leader-election-labels=app:monitor,tier:storage",
        "--kube-api-qps=5",
        "--kube-api-burst=10",
        "--metrics-address=127.0.0.1:0",
        "--metrics-path=/metrics",
        "--automaxprocs=true",
        "--logging-format=text",
        "--log-flush-frequency=5s",
        "--vmodule=",
    ])
    .await;
    // What has no effect any more is said, once each.
    for note in [
        "--volume-list-add-interval has no effect",
        "--node-list-add-interval has no effect",
        "--resync has no effect",
        "--automaxprocs has no effect",
        "--metrics-address is deprecated",
    ] {
        assert_eq!(controller.says(note), 1, "{note}: {}", controller.log());
    }
    let (_, metrics) = controller.get("/metrics").await;
    assert!(metrics.contains("csi_sidecar_operations_seconds_bucket{"), "{metrics}");
    assert_eq!(controller.terminate(), Some(0));
}
