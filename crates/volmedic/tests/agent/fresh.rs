//! What the hub asks right before it heals: a new probe, requested and answered on the agent's Lease.

use std::time::{Duration, Instant};

use k8s_openapi::api::coordination::v1::Lease;
use kube::Api;
use kube::api::{Patch, PatchParams};
use serde_json::json;
use volmedic_api::{
    Found, PROBE_REQUESTS, ProbeAnswer, ProbeRequest, probe_answers, probe_requests, requests_text,
};
use volmedic_driver::fault::Fault;

use crate::process::PATIENCE;
use crate::stage::Stage;

/// Leaves requests on the Lease, one for each of these volumes, and waits for the answers to them.
async fn ask(stage: &Stage, round: &str, handles: &[&str]) -> Vec<ProbeAnswer> {
    let leases = Api::<Lease>::namespaced(stage.client.clone(), &stage.namespace);
    let name = format!("volmedic-agent-{}", stage.node);
    let request = |handle: &&str| ProbeRequest {
        id: format!("{round}-{handle}"),
        driver: stage.driver.clone(),
        volume_handle: (*handle).to_owned(),
        time: jiff::Timestamp::now(),
    };
    let requests: Vec<ProbeRequest> = handles.iter().map(request).collect();
    let text = requests_text(requests.clone());
    let patch = Patch::Merge(json!({"metadata": {"annotations": {PROBE_REQUESTS: text}}}));
    let deadline = Instant::now() + PATIENCE;
    while leases.get_opt(&name).await.unwrap().is_none() {
        assert!(Instant::now() < deadline, "there is no Lease");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    leases.patch(&name, &PatchParams::default(), &patch).await.unwrap();
    loop {
        let annotations = leases.get(&name).await.unwrap().metadata.annotations;
        assert_eq!(probe_requests(annotations.as_ref()), requests, "the agent leaves them as they are");
        let answers = probe_answers(annotations.as_ref());
        let of = |request: &ProbeRequest| answers.iter().find(|answer| answer.id == request.id).cloned();
        if let Some(answers) = requests.iter().map(of).collect() {
            return answers;
        }
        assert!(Instant::now() < deadline, "there are these answers only: {answers:#?}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// Nothing but a new probe can find this within the test: the kernel does not report it, and the next round is in an hour.
#[tokio::test]
async fn a_request_on_the_lease_is_answered_by_a_new_probe() {
    let mut stage = Stage::new().await;
    let data = stage.volume("data", "ext4").await;
    let well = stage.volume("well", "ext4").await;
    stage.pod("web", &[&data, &well]).await;
    let _agent = stage.watching(&["--monitor-interval=1h", "--http-endpoint=127.0.0.1:0"]).await;
    stage.report("all are well", |report| report.counts.healthy == 2).await;

    let answers = ask(&stage, "first", &[&data.id, "of-nobody"]).await;
    let found: Vec<Found> = answers.iter().map(|answer| answer.found).collect();
    assert_eq!(found, [Found::Healthy, Found::NotProbed], "{answers:#?}");
    assert!(answers[1].message.contains("no pod on this node uses it"), "{answers:#?}");

    stage.harm(Fault::Full, &data);
    let answers = ask(&stage, "second", &[&data.id, &well.id]).await;
    let found: Vec<Found> = answers.iter().map(|answer| answer.found).collect();
    assert_eq!(found, [Found::Unhealthy, Found::Healthy], "{answers:#?}");
    assert!(answers[0].reasons.iter().any(|reason| reason == "OutOfCapacity"), "{answers:#?}");
    // What the probe found is reported as ever.
    let reported = |volume: &volmedic_api::resource::NodeVolume| *volume.volume_handle == *data.id;
    stage.report("it is reported", |report| report.volumes.iter().any(reported)).await;

    stage.repair(Fault::Full, &data);
    let answers = ask(&stage, "third", &[&data.id]).await;
    assert_eq!(answers[0].found, Found::Healthy, "{answers:#?}");
}
