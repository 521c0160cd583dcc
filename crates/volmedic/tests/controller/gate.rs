//! A server without the field for claims' health, or with it switched off.

use volmedic_testkit::{ControlPlane, sim::capability as can};

use crate::server;
use crate::stage::{DEGRADED, Stage};

#[tokio::test]
async fn a_server_that_drops_the_status_gets_events_and_is_not_asked_again_and_again() {
    let plane = server::own(ControlPlane::options().gate("CSIVolumeHealth", false));
    let stage = Stage::on(plane, &[can::LIST_VOLUME_HEALTH]).await;
    let claims = ["one", "two", "three", "four", "five"];
    stage.claims(&claims).await;
    let controller = stage.watching(&[]).await;
    for claim in claims {
        stage.harm(claim, DEGRADED, "OutOfCapacity", "99 % used");
        stage.event(claim, "VolumeConditionAbnormal", "Degraded/OutOfCapacity").await;
    }
    let dropped = "does not keep status.healthStatus";
    controller.wait_log(dropped).await;
    for claim in claims {
        stage.repair(claim);
        stage.event(claim, "VolumeConditionNormal", "recovered from").await;
        assert!(stage.stored(claim).await.is_empty(), "the gate is off");
    }
    assert_eq!(controller.says(dropped), 1, "{}", controller.log());
    assert_eq!(controller.says(" ERROR "), 0, "it is no error of anything: {}", controller.log());
    let patches = stage.requests().iter().filter(|r| r.is("patch", "persistentvolumeclaims/status")).count();
    assert_eq!(patches, 1, "one write was enough to find out");
    // VolumeHealths are not installed either.
    assert_eq!(
        controller.says("VolumeHealths (deploy/chart/files/crds) are not installed"),
        1,
        "{}",
        controller.log()
    );
    let creates =
        stage.requests().iter().filter(|r| r.verb == "create" && r.resource == "volumehealths").count();
    assert_eq!(creates, 1, "one write was enough for that, too");
    assert_eq!(controller.terminate(), Some(0));
}
