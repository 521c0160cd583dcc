//! What a driver's controller says reaches the hub where the API server does not keep it in the claim, as is usual: its
//! feature gate is off unless somebody switches it on.

use std::path::PathBuf;
use std::sync::Arc;

use k8s_openapi::api::core::v1::Event;
use kube::Api;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams};
use serde_json::json;
use tempfile::TempDir;
use volmedic_api::resource::ControllerReport;
use volmedic_testkit::sim::{Sim, capability as can};
use volmedic_testkit::{ControlPlane, Feature, server_has};

use crate::process::Controller;
use crate::stage::{CRDS, DRIVER, QUICK, Stage, everything, install, start_hub, until};

const DEGRADED: i32 = 1;
const INACCESSIBLE: i32 = 2;
const UNHEALTHY: &str = "controller HealthFailure Inaccessible/VolumeNotFound";
const WELL: &str = "controller Healthy";

/// A driver with a controller, under the rights that it is shipped with.
struct Driver {
    sim: Sim,
    kubeconfig: PathBuf,
    _dir: TempDir,
}

impl Driver {
    async fn new(stage: &Stage) -> Self {
        install(&stage.plane, &["rbac-controller.yaml"]);
        let dir = tempfile::tempdir().expect("a directory for the socket");
        let sim = Sim::start(&dir.path().join("csi.sock"), DRIVER, &[can::LIST_VOLUME_HEALTH]);
        let kubeconfig = stage.kubeconfig_of("volmedic-controller").await;
        Self { sim: sim.expect("the driver listens"), kubeconfig, _dir: dir }
    }

    async fn watching(&self) -> Controller {
        let controller = Controller::start(self.sim.socket(), &self.kubeconfig, &[]);
        controller.wait_log("watching").await;
        controller
    }

    async fn claim(&self, stage: &Stage, name: &str) {
        self.sim.add_volumes([stage.handle(name)]);
        stage.claim(name).await;
    }
}

async fn stage(gate: bool, files: &[&str]) -> Stage {
    let plane = ControlPlane::options().gate("CSIVolumeHealth", gate).start().expect("a control plane");
    install(&plane, files);
    Stage::on(Arc::new(plane)).await
}

async fn report(stage: &Stage, claim: &str) -> Option<ControllerReport> {
    stage.healths().get_opt(claim).await.expect("an answer")?.status?.controller_report
}

#[tokio::test]
async fn with_the_gate_off_the_controller_reports_the_hub_and_its_recovery_too() {
    let stage = stage(false, &everything()).await;
    let driver = Driver::new(&stage).await;
    for claim in ["data", "well"] {
        driver.claim(&stage, claim).await;
    }
    let mut controller = driver.watching().await;
    let hub = start_hub(&stage.kubeconfig().await, &QUICK);
    driver.sim.harm(&stage.handle("data"), INACCESSIBLE, "VolumeNotFound", "it is gone");
    let object = stage.wait_stored("data", &[UNHEALTHY]).await;
    let owner = object.metadata.owner_references.expect("an owner");
    assert_eq!((owner[0].kind.as_str(), owner[0].name.as_str()), ("PersistentVolumeClaim", "data"));
    let status = object.status.expect("a status");
    assert_eq!(status.headline.message, "it is gone");
    let said = status.controller_report.expect("what the controller said");
    assert_eq!(said.driver, DRIVER);
    let lease = said.lease.expect("how it is known that it lives");
    until("it says that it lives", || async {
        let leases = Api::<k8s_openapi::api::coordination::v1::Lease>::namespaced(
            stage.client.clone(),
            &lease.namespace,
        );
        leases.get_opt(&lease.name).await.map(|lease| lease.is_some())
    })
    .await;

    // The driver is asked every second; nothing that lasts is written again.
    let before = stage.calm().await;
    let rounds = driver.sim.calls("ControllerListVolumeHealth") + 3;
    until("it looked again", || async {
        Ok::<_, String>(driver.sim.calls("ControllerListVolumeHealth") >= rounds)
    })
    .await;
    assert_eq!(stage.versions().await, before);
    assert_eq!(stage.stored("well").await, None);

    driver.sim.repair(&stage.handle("data"));
    stage.wait_stored("data", &[WELL]).await;
    driver.sim.harm(&stage.handle("data"), INACCESSIBLE, "VolumeNotFound", "it is gone");
    stage.wait_stored("data", &[UNHEALTHY]).await;

    // While no controller runs the volume recovers, and the API server forgets the events.
    controller.kill();
    driver.sim.repair(&stage.handle("data"));
    let events = Api::<Event>::namespaced(stage.client.clone(), &stage.namespace);
    let all = (DeleteParams::default(), ListParams::default());
    events.delete_collection(&all.0, &all.1).await.expect("no events");
    let next = driver.watching().await;
    stage.wait_stored("data", &[WELL]).await;

    // Who deletes the object does not make the trouble go away: the next change reports it again.
    driver.sim.harm(&stage.handle("data"), INACCESSIBLE, "VolumeNotFound", "it is gone");
    stage.wait_stored("data", &[UNHEALTHY]).await;
    stage.healths().delete("data", &DeleteParams::default()).await.expect("it is deleted");
    driver.sim.harm(&stage.handle("data"), DEGRADED, "SlowIO", "it is back, but slow");
    stage.wait_stored("data", &["controller HealthWarning Degraded/SlowIO"]).await;
    assert_eq!(next.terminate(), Some(0));
    assert_eq!(hub.terminate(), Some(0));
}

#[tokio::test]
async fn with_the_gate_on_nothing_is_said_twice() {
    // Releases without the field have a gate of that name, too.
    let in_claim = server_has(Feature::ClaimHealth);
    let stage = stage(true, &everything()).await;
    let driver = Driver::new(&stage).await;
    driver.claim(&stage, "data").await;
    let _hub = start_hub(&stage.kubeconfig().await, &QUICK);
    let _controller = driver.watching().await;
    driver.sim.harm(&stage.handle("data"), INACCESSIBLE, "VolumeNotFound", "it is gone");
    stage.wait_stored("data", &[UNHEALTHY]).await;
    assert_eq!(report(&stage, "data").await.is_none(), in_claim);
    driver.sim.repair(&stage.handle("data"));
    stage.wait_stored("data", &[WELL]).await;
    assert_eq!(report(&stage, "data").await.is_none(), in_claim);
}

#[tokio::test]
async fn without_the_resources_the_controller_reports_all_it_can_and_says_what_is_missing_once() {
    let stage = stage(false, &[]).await;
    let driver = Driver::new(&stage).await;
    for claim in ["one", "two"] {
        driver.claim(&stage, claim).await;
    }
    let controller = driver.watching().await;
    let missing = "VolumeHealths (deploy/chart/files/crds) are not installed";
    for claim in ["one", "two"] {
        driver.sim.harm(&stage.handle(claim), INACCESSIBLE, "VolumeNotFound", "it is gone");
    }
    controller.wait_log(missing).await;
    let events = Api::<Event>::namespaced(stage.client.clone(), &stage.namespace);
    until("both are told", || async {
        events.list(&ListParams::default()).await.map(|events| events.items.len() == 2)
    })
    .await;
    assert_eq!(controller.says(missing), 1, "{}", controller.log());
    assert_eq!(controller.terminate(), Some(0));

    // They are installed, and a role that starts then has a place for what lasts.
    install(&stage.plane, &[CRDS]);
    let controller = driver.watching().await;
    driver.sim.harm(&stage.handle("one"), DEGRADED, "SlowIO", "it is back, but slow");
    until("it is stored for the hub", || async {
        let reported = report(&stage, "one").await.map(|report| report.health_conditions);
        Ok::<_, String>(
            reported.is_some_and(|reported| reported.len() == 1 && reported[0].reason == "SlowIO"),
        )
    })
    .await;
    until("so is what did not change", || async { Ok::<_, String>(report(&stage, "two").await.is_some()) })
        .await;
    assert_eq!(controller.terminate(), Some(0));
}

/// Somebody who may write VolumeHealths makes a controller of his own: it is believed about volumes of its driver only.
#[tokio::test]
async fn the_controller_of_another_driver_is_not_believed() {
    let stage = crate::stage::shared().await;
    let node = stage.make_node("n").await;
    stage.used_claim("data", &node).await;
    stage.tell(&node, &stage.report(&[("data", "Degraded", "SlowIO")])).await;
    let unhealthy = format!("host/{node} HealthWarning Degraded/SlowIO");
    stage.wait_stored("data", &[&unhealthy]).await;
    let lie = json!({
        "apiVersion": "volmedic.dev/v1alpha1", "kind": "VolumeHealth",
        "metadata": {"name": "data"},
        "status": {"controllerReport": {"driver": "other.example.net", "since": "2026-08-21T10:00:00Z",
            "healthConditions": [{"type": "HealthFailure", "status": "True", "errorCode": "DataLoss",
                "reason": "Lie", "lastTransitionTime": "2026-08-21T10:00:00Z"}]}},
    });
    let params = PatchParams::apply("a-controller").force();
    stage.healths().patch_status("data", &params, &Patch::Apply(lie)).await.expect("it may be written");
    stage.tell(&node, &stage.report(&[("data", "Inaccessible", "IOHung")])).await;
    stage.wait_stored("data", &[&format!("host/{node} HealthFailure Inaccessible/IOHung")]).await;
}
