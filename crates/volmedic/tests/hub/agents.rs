//! What an agent says is believed only where its node uses the volume.

use std::time::Duration;

use kube::Api;
use volmedic_api::resource::NodeVolumeHealth;
use volmedic_report::{NodeReporter, NodeReporterOptions};

use crate::stage::{HOME, shared, until};

#[tokio::test]
async fn a_forged_report_changes_nothing() {
    let stage = shared().await;
    let (honest, liar) = (stage.make_node("honest").await, stage.make_node("liar").await);
    stage.used_claim("data", &honest).await;
    stage.used_claim("own", &liar).await;
    stage.claim("idle").await;
    let lie = [("data", "DataLoss", "Lie"), ("idle", "DataLoss", "Lie"), ("own", "Degraded", "SlowIO")];
    stage.tell(&liar, &stage.report(&lie)).await;
    stage.wait_stored("own", &[&format!("host/{liar} HealthWarning Degraded/SlowIO")]).await;
    assert_eq!((stage.stored("data").await, stage.stored("idle").await), (None, None));
    let (_, metrics) = crate::stage::shared_hub().get("/metrics").await;
    let counted = metrics.lines().find_map(|line| line.strip_prefix("volmedic_hub_unbelieved_entries "));
    let counted: u64 = counted.and_then(|count| count.parse().ok()).expect("it is counted");
    assert!(counted >= 2, "{counted} lies were counted");
    stage.tell(&honest, &stage.report(&[("data", "Degraded", "SlowIO")])).await;
    stage.wait_stored("data", &[&format!("host/{honest} HealthWarning Degraded/SlowIO")]).await;
}

#[tokio::test]
async fn the_agents_writer_writes_on_change_only_and_gives_signs_of_life() {
    let stage = shared().await;
    let node = stage.make_node("n").await;
    stage.used_claim("data", &node).await;
    let agent = stage.agent(&node).await;
    let quick = NodeReporterOptions {
        heartbeat: Duration::from_millis(500),
        ..NodeReporterOptions::new(&node, HOME)
    };
    let reporter = NodeReporter::start(&agent, &quick);
    let unhealthy = stage.report(&[("data", "Degraded", "SlowIO")]);
    reporter.set(unhealthy.clone());
    stage.wait_stored("data", &[&format!("host/{node} HealthWarning Degraded/SlowIO")]).await;
    // It counts once it has the answer, which may come after the hub has acted on what was written.
    until("it is counted", || async { Ok::<_, String>(reporter.written() > 0) }).await;
    assert_eq!(reporter.written(), 1);
    let leases = Api::<k8s_openapi::api::coordination::v1::Lease>::namespaced(stage.client.clone(), HOME);
    let renewed = async || {
        let lease = leases.get_opt(&format!("volmedic-agent-{node}")).await.expect("leases");
        lease.and_then(|lease| lease.spec).and_then(|spec| spec.renew_time)
    };
    let first = renewed().await;
    until("the lease is renewed", || async { Ok::<_, String>(renewed().await != first) }).await;
    for _ in 0..10 {
        reporter.set(unhealthy.clone());
    }
    drop(reporter);

    // After a restart what is stored already is not written again.
    let reports = Api::<NodeVolumeHealth>::all(stage.client.clone());
    let before = reports.get(&node).await.expect("the report").metadata.resource_version;
    let reporter = NodeReporter::start(&agent, &quick);
    reporter.set(unhealthy);
    let second = renewed().await;
    until("the new one works", || async { Ok::<_, String>(renewed().await != second) }).await;
    assert_eq!(reports.get(&node).await.expect("the report").metadata.resource_version, before);
    reporter.set(stage.report(&[]));
    stage.wait_stored("data", &[&format!("host/{node} Healthy")]).await;
    drop(reporter);
    stage.wait_stored("data", &[&format!("host/{node} HealthUnknown -/AgentNotResponding")]).await;
}
