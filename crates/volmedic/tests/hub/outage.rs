//! The API server's store goes away for a while.

use std::time::Duration;

use volmedic_testkit::Part;

use crate::stage::{Stage, everything, start_hub};

const QUICK: [&str; 3] = [
    "--leader-election-lease-duration=4s",
    "--leader-election-renew-deadline=3s",
    "--leader-election-retry-period=500ms",
];

#[tokio::test]
async fn while_the_store_is_away_nobody_is_called_silent_or_well() {
    let stage = Stage::own(&everything()).await;
    let node = stage.make_node("n").await;
    for claim in ["data", "well"] {
        stage.used_claim(claim, &node).await;
    }
    stage.tell(&node, &stage.report(&[("data", "Degraded", "SlowIO")])).await;
    stage.beat(&node, 2).await;
    let kubeconfig = stage.kubeconfig().await;
    let mut hub = start_hub(&kubeconfig, &QUICK);
    let ill = format!("host/{node} HealthWarning Degraded/SlowIO");
    stage.beat(&node, 60).await;
    let before = stage.wait_stored("data", &[&ill]).await;
    stage.plane.pause(Part::Etcd).expect("the store can be frozen");
    // A leader that cannot renew its lease ends, as it must; whoever runs it starts it again.
    let ended = hub.ended(Duration::from_mins(1));
    stage.plane.resume(Part::Etcd).expect("the store goes on");
    assert_eq!(ended, Some(1));
    stage.plane.wait_until_ready().expect("the API server is ready again");
    let hub = start_hub(&kubeconfig, &QUICK);
    hub.wait_log("merging what is known").await;
    stage.beat(&node, 60).await;
    stage.tell(&node, &stage.report(&[("data", "Degraded", "SlowIO"), ("well", "DataLoss", "X")])).await;
    stage.wait_stored("well", &[&format!("host/{node} HealthFailure DataLoss/X")]).await;
    let after = stage.wait_stored("data", &[&ill]).await;
    assert_eq!(before.metadata.resource_version, after.metadata.resource_version);
}
