//! Without our resources nothing breaks, and what is missing is said.

use k8s_openapi::api::core::v1::Event;
use kube::Api;
use kube::api::{ListParams, PostParams};
use volmedic_testkit::objects;
use volmedic_testkit::sim::{Sim, capability as can};

use crate::process::Controller;
use crate::stage::{CRDS, DRIVER, POLICY, QUICK, RBAC, Stage, install, start_hub, until};
use crate::tokens::event;

#[tokio::test]
async fn without_its_resources_the_hub_waits_for_them_and_all_else_works() {
    let stage = Stage::own(&[&[POLICY, "rbac-controller.yaml"], &RBAC[..]].concat()).await;
    let node = stage.make_node("n").await;
    let failing = stage.make_node("failing").await;
    stage.used_claim("data", &node).await;
    stage.used_claim("there", &failing).await;
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

    // The controller reports on the claim that its node is down, and an agent on its pod what it sees.
    let dir = tempfile::tempdir().expect("a directory for the socket");
    let sim = Sim::start(&dir.path().join("csi.sock"), DRIVER, &[can::LIST_VOLUME_HEALTH]);
    let sim = sim.expect("the driver listens");
    sim.add_volumes(["data", "there"].map(|claim| stage.handle(claim)));
    let kubeconfig = stage.kubeconfig_of("volmedic-controller").await;
    let arguments = ["--enable-node-watcher", "--node-grace-period=1s"];
    let controller = Controller::start(sim.socket(), &kubeconfig, &arguments);
    controller.wait_log("watching").await;
    objects::set_node_ready(&stage.client, &failing, "Unknown").await.expect("the node's status");
    let events = Api::<Event>::namespaced(stage.client.clone(), &stage.namespace);
    until("the node's failure is reported on the claim", || async {
        let reported = events.list(&ListParams::default().fields("involvedObject.name=there")).await?;
        Ok::<_, kube::Error>(reported.iter().any(|event| event.reason.as_deref() == Some("NodeFailed")))
    })
    .await;
    let agent = Api::<Event>::namespaced(stage.agent(&node).await, &stage.namespace);
    let on_pod = event("Pod", &stage.namespace, &node);
    agent.create(&PostParams::default(), &on_pod).await.expect("an agent's event");

    assert!(hub.is_running());
    install(&stage.plane, &[CRDS]);
    stage.tell(&node, &stage.report(&[("data", "Degraded", "SlowIO")])).await;
    stage.wait_stored("data", &[&format!("host/{node} HealthWarning Degraded/SlowIO")]).await;
    stage.wait_stored("there", &["cluster HealthFailure Inaccessible/NodeDown"]).await;
    until("it is ready", || async { Ok::<_, String>(hub.get("/readyz").await.0 == 200) }).await;
    assert_eq!(hub.terminate(), Some(0));
    assert_eq!(controller.terminate(), Some(0));
}
