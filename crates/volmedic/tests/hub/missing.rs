//! Without our resources nothing breaks, and what is missing is said.

use crate::stage::{CRDS, POLICY, QUICK, RBAC, Stage, install, start_hub, until};

#[tokio::test]
async fn without_its_resources_the_hub_waits_for_them_and_then_works() {
    let stage = Stage::own(&[&[POLICY], &RBAC[..]].concat()).await;
    let node = stage.make_node("n").await;
    stage.used_claim("data", &node).await;
    let mut hub = start_hub(&stage.kubeconfig().await, &QUICK);
    hub.wait_log("list volumehealths with code 404").await;
    assert_eq!(hub.get("/healthz").await.0, 200);
    until("it says what it waits for", || async {
        let (code, why) = hub.get("/readyz").await;
        if code == 500 && why.contains("volumehealths with code 404") {
            Ok(true)
        } else {
            Err(format!("{code} {why}"))
        }
    })
    .await;
    assert!(hub.is_running());
    install(&stage.plane, &[CRDS]);
    stage.tell(&node, &stage.report(&[("data", "Degraded", "SlowIO")])).await;
    stage.wait_stored("data", &[&format!("host/{node} HealthWarning Degraded/SlowIO")]).await;
    until("it is ready", || async { Ok::<_, String>(hub.get("/readyz").await.0 == 200) }).await;
    assert_eq!(hub.terminate(), Some(0));
}
