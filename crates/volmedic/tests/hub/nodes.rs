//! Nodes that go down or away, and agents that fall silent.

use k8s_openapi::api::core::v1::Node;
use kube::Api;
use kube::api::DeleteParams;
use volmedic_testkit::objects;

use crate::stage::{DRIVER, shared, shared_hub, until};

#[tokio::test]
async fn a_node_that_goes_down_is_reported_on_all_claims_used_there_whatever_their_driver() {
    let stage = shared().await;
    let node = stage.make_node("n").await;
    stage.used_claim("data", &node).await;
    stage.claim("idle").await;
    objects::set_node_ready(&stage.client, &node, "Unknown").await.expect("the node's status");
    let object = stage.wait_stored("data", &["cluster HealthFailure Inaccessible/NodeDown"]).await;
    let message = object.status.expect("a status").headline.message;
    assert!(message.starts_with(&format!("node {node} is down since ")), "{message}");
    assert!(message.ends_with("it is used there by pod data"), "{message}");
    assert_eq!(stage.stored("idle").await, None);
    let series = format!(
        r#"volmedic_claim_health_status{{driver_name="{DRIVER}",namespace="{}",persistentvolumeclaim="data",node="",vantage="cluster",status="Inaccessible",reason="NodeDown"}} 1"#,
        stage.namespace
    );
    let has_series = async || shared_hub().get("/metrics").await.1.lines().any(|line| line == series);
    until("the claim has a series", || async { Ok::<_, String>(has_series().await) }).await;
    objects::set_node_ready(&stage.client, &node, "True").await.expect("the node's status");
    stage.wait_stored("data", &[]).await;
    until("the series is gone", || async { Ok::<_, String>(!has_series().await) }).await;
}

#[tokio::test]
async fn a_silent_agent_is_unknown_and_not_healthy() {
    let stage = shared().await;
    let node = stage.make_node("n").await;
    stage.used_claim("data", &node).await;
    stage.tell(&node, &stage.report(&[])).await;
    stage.beat(&node, 1).await;
    let object =
        stage.wait_stored("data", &[&format!("host/{node} HealthUnknown -/AgentNotResponding")]).await;
    let message = object.status.expect("a status").headline.message;
    assert!(message.starts_with(&format!("the agent on node {node} is not responding since ")), "{message}");
    stage.beat(&node, 300).await;
    stage.wait_stored("data", &[&format!("host/{node} Healthy")]).await;
}

#[tokio::test]
async fn a_deleted_node_takes_its_entries_with_it() {
    let stage = shared().await;
    let (here, there) = (stage.make_node("a").await, stage.make_node("b").await);
    stage.used_claim("data", &here).await;
    stage.pod("other", &there, "data").await;
    for node in [&here, &there] {
        stage.tell(node, &stage.report(&[("data", "Degraded", "SlowIO")])).await;
    }
    let line = |node: &str| format!("host/{node} HealthWarning Degraded/SlowIO");
    stage.wait_stored("data", &[&line(&here), &line(&there)]).await;
    let nodes = Api::<Node>::all(stage.client.clone());
    nodes.delete(&there, &DeleteParams::default()).await.expect("the node is deleted");
    let down = "cluster HealthFailure Inaccessible/NodeDown";
    stage.wait_stored("data", &[down, &line(&here)]).await;
}
