//! What the controller's Lease says about its probing: alive is not the same as able to see the driver.

use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

use k8s_openapi::api::coordination::v1::Lease;
use kube::Api;
use kube::api::ListParams;
use volmedic_api::{CONTROLLER_COVERAGE, ControllerCoverage, Probed, REPORTS_HEALTH};
use volmedic_testkit::ControlPlane;
use volmedic_testkit::sim::capability as can;

use crate::process::{Controller, PATIENCE, program};
use crate::server;
use crate::stage::Stage;

/// What the Lease of the driver's controller says, found by its label as every reader finds it.
async fn stated(stage: &Stage) -> Option<ControllerCoverage> {
    let api: Api<Lease> = Api::namespaced(stage.client.clone(), &stage.namespace);
    let leases = api.list(&ListParams::default().labels(REPORTS_HEALTH)).await.expect("leases").items;
    let text = leases.first()?.metadata.annotations.as_ref()?.get(CONTROLLER_COVERAGE)?;
    let coverage = ControllerCoverage::parse(text).expect("it can be read");
    assert_eq!(coverage.driver, stage.driver);
    Some(coverage)
}

async fn states(
    stage: &Stage,
    what: &str,
    wanted: impl Fn(&ControllerCoverage) -> bool,
) -> ControllerCoverage {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let stated = stated(stage).await;
        if let Some(coverage) = stated.as_ref().filter(|coverage| wanted(coverage)) {
            return coverage.clone();
        }
        assert!(Instant::now() < deadline, "waited in vain until {what}: {stated:#?}");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

fn is_unreachable(coverage: &ControllerCoverage) -> bool {
    coverage.not_probed.as_ref().is_some_and(|outage| outage.reason == "DriverUnreachable")
}

#[tokio::test]
async fn a_driver_that_is_killed_is_on_the_lease_and_costs_no_write_of_its_own() {
    let mut stage = Stage::new(&[can::LIST_VOLUME_HEALTH]).await;
    stage.claims(&["a", "b"]).await;
    let namespace = format!("--leader-election-namespace={}", stage.namespace);
    let arguments = ["--leader-election", &namespace, "--leader-election-retry-period=1s", "--timeout=5s"];
    let mut controller = stage.watching(&arguments).await;
    let well = states(&stage, "all is probed", |coverage| coverage.not_probed.is_none()).await;
    assert_eq!(well.probed_by, "ControllerListVolumeHealth");
    assert_eq!(well.probed(&stage.handle("a")), Probed::Yes);

    let before = stage.requests_noted().await;
    stage.sim.stop();
    let lost = states(&stage, "the driver is gone", is_unreachable).await;
    let outage = lost.not_probed.as_ref().expect("why");
    assert!(!outage.message.is_empty(), "{outage:?}");
    assert_eq!(lost.probed(&stage.handle("a")), Probed::None(outage));
    let others: Vec<_> =
        stage.writes_after(before).into_iter().filter(|request| request.resource != "leases").collect();
    assert!(others.is_empty(), "an outage of the driver is no write about its claims: {others:#?}");
    let renewals =
        stage.requests().split_off(before).into_iter().filter(|r| r.is("update", "leases")).count();
    let waited = outage.since.0.duration_until(jiff::Timestamp::now()).as_secs().unsigned_abs();
    // Once a second, as the flag says; a conflict or a slow answer may add one.
    assert!(renewals as u64 <= waited + 30, "{renewals} renewals in about {waited} s");

    // One that begins while the driver is away waits for it, and what was said stands meanwhile.
    stage.sim.restart().expect("the driver listens again");
    let again = states(&stage, "it is back", |coverage| coverage.not_probed.is_none()).await;
    assert_eq!(again, well);
    assert!(controller.is_running());
}

#[tokio::test]
async fn volumes_that_each_probe_misses_are_named() {
    let stage = Stage::new(&[can::GET_VOLUME_HEALTH]).await;
    stage.claims(&["dark", "well"]).await;
    let namespace = format!("--leader-election-namespace={}", stage.namespace);
    let arguments = ["--leader-election", &namespace, "--leader-election-retry-period=1s", "--timeout=2s"];
    let _controller = stage.watching(&arguments).await;
    let both = states(&stage, "all is probed", |coverage| coverage.volumes_not_probed.is_empty()).await;
    assert_eq!(both.probed_by, "ControllerGetVolumeHealth");
    let dark = stage.handle("dark");
    stage.sim.behaviour().hung = vec![dark.clone()];
    let some = states(&stage, "one is missed", |coverage| !coverage.volumes_not_probed.is_empty()).await;
    assert_eq!(some.volumes_not_probed, std::slice::from_ref(&dark));
    assert_eq!(some.probed(&dark), Probed::NotThis);
    assert_eq!(some.probed(&stage.handle("well")), Probed::Yes);
    stage.sim.behaviour().hung = Vec::new();
    states(&stage, "it is probed again", |coverage| coverage.volumes_not_probed.is_empty()).await;
}

#[tokio::test]
async fn a_driver_that_reports_no_health_probes_nothing() {
    let stage = Stage::new(&[]).await;
    stage.claim("a").await;
    let namespace = format!("--leader-election-namespace={}", stage.namespace);
    let _controller = stage.watching(&["--leader-election", &namespace]).await;
    let mute = states(&stage, "it says so", |coverage| coverage.not_probed.is_some()).await;
    assert_eq!(mute.not_probed.map(|outage| outage.reason).as_deref(), Some("DriverReportsNoHealth"));
    assert_eq!(mute.probed_by, "");
}

/// Where no leader election renews a Lease, the controller renews its own, from the start if there may be a hub.
#[tokio::test]
async fn without_an_election_it_is_on_a_lease_of_its_own() {
    let plane: Arc<ControlPlane> = server::own(ControlPlane::options());
    plane.install_definitions().expect("VolumeHealths are installed");
    let mut stage = Stage::on(plane, &[can::LIST_VOLUME_HEALTH]).await;
    stage.claim("a").await;
    let arguments = ["controller", "--monitor-interval=1s", "--list-volumes-interval=1s", "--timeout=5s"];
    let controller = Controller::spawn(
        Command::new(program())
            .args(arguments)
            .arg(format!("--csi-address={}", stage.sim.socket().display()))
            .arg(format!("--kubeconfig={}", stage.kubeconfig.display()))
            .env("POD_NAMESPACE", &stage.namespace),
    );
    controller.wait_log("watching").await;
    states(&stage, "all is probed", |coverage| coverage.probed("any") == Probed::Yes).await;
    stage.sim.stop();
    states(&stage, "the driver is gone", is_unreachable).await;
    stage.sim.restart().expect("the driver listens again");
    states(&stage, "it is back", |coverage| coverage.not_probed.is_none()).await;
}
