//! A real API server and etcd, as tests of other crates use them.

use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::{ConfigMap, PersistentVolumeClaim, Pod};
use k8s_openapi::api::rbac::v1::{Role, RoleBinding};
use kube::api::{ListParams, Patch, PatchParams, PostParams};
use kube::core::DynamicObject;
use kube::{Api, Client};
use owner::Owner;
use serde_json::{Value, json};
use volmedic_testkit::{Cluster, ControlPlane, Feature, Part, objects, server_has};

#[path = "common/owner.rs"]
mod owner;

const PATIENCE: Duration = Duration::from_mins(3);

/// Writes two reasons under one status by server-side apply and returns what a fresh read shows.
async fn apply_health(client: &Client, namespace: &str, claim: &str) -> kube::Result<Value> {
    let resource = kube::core::ApiResource::erase::<PersistentVolumeClaim>(&());
    let claims = Api::<DynamicObject>::namespaced_with(client.clone(), namespace, &resource);
    let patch = json!({
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "status": {"healthStatus": {"lastTransitionTime": "2026-08-21T09:55:30Z", "healthConditions": [
            {"status": "Degraded", "reason": "MirrorLegLost", "message": "1 of 2 legs online"},
            {"status": "Degraded", "reason": "SlowIO"},
        ]}},
    });
    let params = PatchParams::apply("volmedic-test");
    claims.patch_status(claim, &params, &Patch::Apply(patch)).await?;
    Ok(claims.get(claim).await?.data["status"]["healthStatus"].clone())
}

/// How releases without the field answer, whatever the gate is. The reporter goes by these words.
fn assert_refused(answer: kube::Result<Value>) {
    let Err(kube::Error::Api(status)) = answer else { panic!("it is not refused: {answer:?}") };
    assert_eq!(status.code, 500, "{status:?}");
    assert!(status.message.contains(".status.healthStatus: field not declared in schema"), "{status:?}");
}

#[tokio::test]
async fn health_status_of_a_claim_survives_with_the_gate_on() {
    let plane = ControlPlane::shared();
    let client = plane.client().await.unwrap();
    let namespace = plane.namespace("gate-on").await.unwrap();
    let bound = objects::bound_claim(&client, &namespace, "data", "csi.example.com", "vol-1").await.unwrap();
    assert_eq!(bound.claim.status.unwrap().phase.as_deref(), Some("Bound"));
    assert_eq!(bound.volume.status.unwrap().phase.as_deref(), Some("Bound"));

    let answer = apply_health(&client, &namespace, "data").await;
    if !server_has(Feature::ClaimHealth) {
        return assert_refused(answer);
    }
    let health = answer.expect("the write is accepted");
    let reasons: Vec<&str> = health["healthConditions"]
        .as_array()
        .expect("the server keeps the field")
        .iter()
        .map(|condition| condition["reason"].as_str().unwrap())
        .collect();
    assert_eq!(reasons, ["MirrorLegLost", "SlowIO"]);
}

#[tokio::test]
async fn health_status_of_a_claim_vanishes_with_the_gate_off() {
    let plane = ControlPlane::options().gate("CSIVolumeHealth", false).start().unwrap();
    let client = plane.client().await.unwrap();
    let namespace = plane.namespace("gate-off").await.unwrap();
    objects::bound_claim(&client, &namespace, "data", "csi.example.com", "vol-1").await.unwrap();
    let answer = apply_health(&client, &namespace, "data").await;
    if !server_has(Feature::ClaimHealth) {
        return assert_refused(answer);
    }
    assert_eq!(answer.expect("the write is accepted"), Value::Null);
}

#[tokio::test]
async fn an_account_without_rights_is_refused_and_one_with_rights_is_not() {
    let plane = ControlPlane::shared();
    let namespace = plane.namespace("rbac").await.unwrap();
    let admin = plane.client().await.unwrap();
    let reader = plane.client_for(&namespace, "reader").await.unwrap();
    let maps = Api::<ConfigMap>::namespaced(reader, &namespace);

    let refusal = maps.list(&ListParams::default()).await.unwrap_err();
    let kube::Error::Api(status) = &refusal else { panic!("{refusal}") };
    assert_eq!(status.code, 403);
    let who = format!("system:serviceaccount:{namespace}:reader");
    assert!(status.message.contains(&who), "{}", status.message);

    // A role of our own: the built-in ones are put together by the controller manager, which does not run here.
    let (role, binding) = (
        json!({"metadata": {"name": "reader"},
            "rules": [{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["list"]}]}),
        json!({"metadata": {"name": "reader"},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "reader"},
            "subjects": [{"kind": "ServiceAccount", "name": "reader", "namespace": namespace}]}),
    );
    let params = PostParams::default();
    let roles = Api::<Role>::namespaced(admin.clone(), &namespace);
    roles.create(&params, &serde_json::from_value(role).unwrap()).await.unwrap();
    let bindings = Api::<RoleBinding>::namespaced(admin, &namespace);
    bindings.create(&params, &serde_json::from_value(binding).unwrap()).await.unwrap();
    let end = Instant::now() + PATIENCE;
    while let Err(error) = maps.list(&ListParams::default()).await {
        // The authorizer learns of the grant through a watch.
        assert!(Instant::now() < end, "{error}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let kube::Error::Api(status) = maps.create(&params, &map("x")).await.unwrap_err() else {
        panic!("not refused")
    };
    assert_eq!(status.code, 403, "reading is not writing");
}

#[tokio::test]
async fn a_token_bound_to_a_pod_names_the_pod_and_its_node_and_dies_with_the_pod() {
    let plane = ControlPlane::shared();
    let namespace = plane.namespace("bound").await.unwrap();
    let admin = plane.client().await.unwrap();
    let node = format!("node-{namespace}");
    objects::node(&admin, &node).await.unwrap();
    let pod = objects::pod(&admin, &namespace, "agent", &node, &[]).await.unwrap();
    assert_eq!(pod.status.as_ref().unwrap().phase.as_deref(), Some("Running"));

    let bound = plane.client_for_pod(&namespace, "default", &pod).await.unwrap();
    let review = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"});
    let reviews = Api::<k8s_openapi::api::authentication::v1::SelfSubjectReview>::all(bound);
    let ask = serde_json::from_value(review).unwrap();
    let me = reviews.create(&PostParams::default(), &ask).await.unwrap().status.unwrap().user_info.unwrap();
    assert_eq!(me.username.unwrap(), format!("system:serviceaccount:{namespace}:default"));
    let extra = me.extra.unwrap();
    assert_eq!(extra["authentication.kubernetes.io/node-name"], [node]);
    assert_eq!(extra["authentication.kubernetes.io/pod-name"], ["agent"]);

    let now = kube::api::DeleteParams::default().grace_period(0);
    Api::<Pod>::namespaced(admin, &namespace).delete("agent", &now).await.unwrap();
    let end = Instant::now() + PATIENCE;
    // Tokens are cached for some seconds.
    while reviews.create(&PostParams::default(), &ask).await.is_ok() {
        assert!(Instant::now() < end, "the token outlived its pod");
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}

#[tokio::test]
async fn the_api_server_comes_back_on_its_port_with_what_it_stored() {
    let plane = ControlPlane::options().start().unwrap();
    let client = plane.client().await.unwrap();
    let url = plane.url();
    let namespace = plane.namespace("again").await.unwrap();
    let maps = Api::<ConfigMap>::namespaced(client, &namespace);
    maps.create(&PostParams::default(), &map("kept")).await.unwrap();

    plane.stop_apiserver().unwrap();
    assert_eq!(plane.pid(Part::ApiServer), None);
    maps.get("kept").await.unwrap_err();
    plane.start_apiserver().unwrap();
    assert_eq!(plane.url(), url);
    maps.get("kept").await.unwrap();

    plane.pause(Part::ApiServer).unwrap();
    let waited = tokio::time::timeout(Duration::from_secs(1), maps.get("kept")).await;
    waited.expect_err("a paused API server must not answer");
    plane.resume(Part::ApiServer).unwrap();
    maps.get("kept").await.unwrap();

    plane.kill(Part::Etcd).unwrap();
    plane.start(Part::Etcd).unwrap();
    let end = Instant::now() + PATIENCE;
    while let Err(error) = maps.get("kept").await {
        // The API server tries to reach etcd again at its own pace.
        assert!(Instant::now() < end, "{error}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

#[test]
fn a_control_plane_dies_with_its_owner_however_that_ends() {
    let mut owner = Owner::start("control-plane");
    assert_eq!(owner.parts.keys().collect::<Vec<_>>(), ["etcd", "kube-apiserver"]);
    let folder = owner.kubeconfig.parent().expect("it is in a folder").to_owned();
    owner.kill();
    owner.parts_must_end();
    // Starting anything looks for what others left. Other tests start something, too, and may be at it already.
    drop(ControlPlane::options().start().unwrap());
    let end = Instant::now() + PATIENCE;
    while folder.exists() {
        assert!(Instant::now() < end, "{} is left", folder.display());
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn a_part_that_does_not_start_is_named_with_the_end_of_its_log() {
    let check = |error: anyhow::Error, part: &str| {
        let reported = format!("{error:#}");
        let (first, log) = reported.split_once("\nThe end of ").expect("the log is shown");
        assert!(first.ends_with(&format!("{part} ended on its own (exit status: 1)")), "{reported}");
        assert!(log.contains("unknown flag: --no-such-flag"), "{reported}");
        let path = log.split_once(':').expect("the log is named").0;
        assert!(std::path::Path::new(path).exists(), "{path} is gone");
    };
    let plane = ControlPlane::options().apiserver_argument("--no-such-flag");
    check(plane.start().unwrap_err(), "kube-apiserver");
    let cluster = Cluster::options().control_plane_only().controller_manager_argument("--no-such-flag");
    check(cluster.start().unwrap_err(), "kube-controller-manager");
}

fn map(name: &str) -> ConfigMap {
    serde_json::from_value(json!({"metadata": {"name": name}})).expect("a config map")
}
