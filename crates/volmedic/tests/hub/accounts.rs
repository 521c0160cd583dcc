//! What the account of a driver's controller may write into VolumeHealths and into the health of claims, and that it is the
//! shipped policies that say so.

use std::sync::Arc;

use k8s_openapi::api::rbac::v1::PolicyRule;
use kube::Client;
use kube::api::{Patch, PatchParams, PostParams, Request};
use kube::config::{KubeConfigOptions, Kubeconfig};
use serde_json::{Value, json};
use volmedic_testkit::{ControlPlane, Feature, server_has};

use crate::rights::Rights;
use crate::stage::{CRDS, DRIVER, HOME, POLICY, RBAC, Stage, install, kubectl, until};

const OTHER: &str = "other.example.net";

/// A client with the shipped rights of a controller of this driver, in the stage's namespace.
async fn controller(stage: &Stage, account: &str, driver: &str) -> Client {
    let mut rights = Rights::read(&stage.plane, "rbac-controller.yaml");
    let names = |rule: &mut PolicyRule| {
        if rule.resource_names.is_some() {
            rule.resource_names = Some(vec![driver.to_owned()]);
        }
    };
    rights.cluster.iter_mut().for_each(names);
    let config = rights.grant(&stage.plane, &stage.client, &stage.namespace, account).await;
    let config: Kubeconfig = serde_json::from_value(config).expect("a kubeconfig");
    let config = kube::Config::from_custom_kubeconfig(config, &KubeConfigOptions::default()).await;
    Client::try_from(config.expect("a configuration")).expect("a client")
}

fn report(driver: &str, lease: Option<&str>) -> Value {
    let mut report = json!({"driver": driver, "since": "2026-08-21T10:00:00Z", "healthConditions": [{
        "type": "HealthFailure", "status": "True", "errorCode": "DataLoss", "reason": "Lie",
        "lastTransitionTime": "2026-08-21T10:00:00Z"}]});
    if let Some(namespace) = lease {
        report["lease"] = json!({"namespace": namespace, "name": "volmedic-controller-x"});
    }
    report
}

async fn patch(client: &Client, path: &str, name: &str, status: Value) -> Result<(), String> {
    let patch = Patch::Merge(json!({ "status": status }));
    let request = Request::new(path).patch_subresource("status", name, &PatchParams::default(), &patch);
    let answer = client.request::<Value>(request.expect("a request")).await;
    answer.map(drop).map_err(|error| error.to_string())
}

async fn create(client: &Client, path: &str, name: &str, metadata: Value) -> Result<(), String> {
    let mut object = json!({"apiVersion": "volmedic.dev/v1alpha1", "kind": "VolumeHealth", "metadata": metadata,
        "spec": {"persistentVolumeClaimName": name}});
    object["metadata"]["name"] = json!(name);
    let body = serde_json::to_vec(&object).expect("JSON");
    let request = Request::new(path).create(&PostParams { dry_run: true, ..PostParams::default() }, body);
    client.request::<Value>(request.expect("a request")).await.map(drop).map_err(|error| error.to_string())
}

fn owner(name: &str) -> Value {
    json!([{"apiVersion": "v1", "kind": "PersistentVolumeClaim", "name": name, "uid": "u"}])
}

struct Attempt {
    what: &'static str,
    why: &'static str,
    outcome: Result<(), String>,
}

/// What the controller of another driver tries on a claim whose volume is not its own.
async fn attempts(stage: &Stage, foreign: &Client) -> Vec<Attempt> {
    let path = format!("/apis/volmedic.dev/v1alpha1/namespaces/{}/volumehealths", stage.namespace);
    let home = stage.namespace.as_str();
    let vantage = json!({"name": "pushed/x", "kind": "Pushed", "source": "x", "health": "HealthFailure",
        "since": "2026-08-21T10:00:00Z"});
    let heal =
        json!({"time": "2026-08-21T10:00:00Z", "outcome": "Started", "remedy": "NodeHealer", "node": "n"});
    let headline = json!({"health": "HealthFailure", "status": "DataLoss", "reason": "Lie"});
    let mut forged = report(DRIVER, Some(home));
    forged["healthConditions"][0]["reason"] = json!("AnotherLie");
    let only_the_hub = "only the hub may write anything but status.controllerReport";
    let mut all = Vec::new();
    for (what, why, status) in [
        (
            "a report in another driver's name",
            "may not report for the driver disk.example.net",
            json!({ "controllerReport": forged }),
        ),
        (
            "its own report on another driver's volume",
            "the volume belongs to the driver disk.example.net",
            json!({"controllerReport": report(OTHER, Some(home))}),
        ),
        (
            "taking the report away",
            "may be changed by its own controller only",
            json!({"controllerReport": null}),
        ),
        ("a forged heal", only_the_hub, json!({"heals": [heal]})),
        ("wiped heals", only_the_hub, json!({"heals": null})),
        ("a forged vantage", only_the_hub, json!({"vantages": [vantage]})),
        ("a forged headline", only_the_hub, json!({ "headline": headline })),
        ("another driver", only_the_hub, json!({"driver": OTHER})),
    ] {
        all.push(Attempt { what, why, outcome: patch(foreign, &path, "data", status).await });
        // As it was, for the next one.
        restore(stage).await;
    }
    let owned = "must be owned by the claim of its name";
    let metadata = json!({"ownerReferences": owner("new"), "finalizers": ["volmedic.dev/never"]});
    let outcome = create(foreign, &path, "new", metadata).await;
    all.push(Attempt { what: "an object that cannot be deleted", why: owned, outcome });
    let outcome = create(foreign, &path, "new", json!({"ownerReferences": owner("data")})).await;
    all.push(Attempt { what: "an object of another claim", why: owned, outcome });
    if server_has(Feature::ClaimHealth) {
        let claims = format!("/api/v1/namespaces/{}/persistentvolumeclaims", stage.namespace);
        let reported = json!({"healthStatus": {"lastTransitionTime": "2026-08-21T10:00:00Z", "healthConditions": [{
            "status": "DataLoss", "reason": "Lie"}]}});
        let outcome = patch(foreign, &claims, "data", reported).await;
        all.push(Attempt {
            what: "the health of another driver's claim",
            why: "may not report on volumes",
            outcome,
        });
        patch(&stage.client, &claims, "data", json!({"healthStatus": null}))
            .await
            .expect("the health is taken away");
    }
    all
}

/// The object as the hub and the driver's own controller wrote it.
async fn restore(stage: &Stage) {
    let path = format!("/apis/volmedic.dev/v1alpha1/namespaces/{}/volumehealths", stage.namespace);
    let status = json!({
        "driver": DRIVER, "vantages": null, "headline": {"health": "Healthy", "status": null, "reason": null},
        "heals": [{"time": "2026-08-21T10:00:00Z", "outcome": "Failed", "remedy": "NodeHealer", "node": "n"}],
        "controllerReport": report(DRIVER, Some(&stage.namespace)),
    });
    patch(&stage.client, &path, "data", status).await.expect("an administrator may write everything");
}

#[tokio::test]
async fn a_controllers_token_writes_its_own_report_and_the_policies_are_why() {
    let plane = ControlPlane::options().gate("CSIVolumeHealth", true).start().expect("a control plane");
    install(&plane, &[&[CRDS, POLICY], &RBAC[..]].concat());
    let stage = Stage::on(Arc::new(plane)).await;
    stage.claim("data").await;
    let annotation = format!("volume.kubernetes.io/storage-provisioner={DRIVER}");
    kubectl(&stage.plane, &["annotate", "pvc", "data", "-n", &stage.namespace, &annotation]);
    let path = format!("/apis/volmedic.dev/v1alpha1/namespaces/{}/volumehealths", stage.namespace);
    let object = json!({"apiVersion": "volmedic.dev/v1alpha1", "kind": "VolumeHealth",
        "metadata": {"name": "data"}, "spec": {"persistentVolumeClaimName": "data"}});
    let request = Request::new(&*path).create(&PostParams::default(), object.to_string().into_bytes());
    stage.client.request::<Value>(request.expect("a request")).await.expect("an object");
    restore(&stage).await;
    let (own, foreign) =
        (controller(&stage, "own", DRIVER).await, controller(&stage, "foreign", OTHER).await);

    until("the policies are in force", || async {
        let attempts = attempts(&stage, &foreign).await;
        Ok::<_, String>(attempts.iter().all(|attempt| attempt.outcome.is_err()))
    })
    .await;
    for Attempt { what, why, outcome } in attempts(&stage, &foreign).await {
        let said = outcome.expect_err(what);
        assert!(said.contains(why), "{what}: {said}");
        println!("{what}: {said}");
    }
    // Its own report, with a Lease in its own namespace and nowhere else.
    for (lease, allowed) in [(None, false), (Some(HOME), false), (Some(&*stage.namespace), true)] {
        let mut report = report(DRIVER, lease);
        report["since"] = json!("2026-08-22T10:00:00Z");
        if lease.is_none() {
            report["lease"] = Value::Null;
        }
        let outcome = patch(&own, &path, "data", json!({ "controllerReport": report })).await;
        assert_eq!(outcome.is_ok(), allowed, "{lease:?}: {outcome:?}");
        if let Err(said) = outcome {
            assert!(said.contains("must name a lease in the namespace of its account"), "{said}");
        }
    }
    patch(&own, &path, "data", json!({"controllerReport": null})).await.expect("its own may be taken away");
    create(&own, &path, "new", json!({"ownerReferences": owner("new")})).await.expect("a new object");
    if server_has(Feature::ClaimHealth) {
        let claims = format!("/api/v1/namespaces/{}/persistentvolumeclaims", stage.namespace);
        let reported = json!({"healthStatus": {"lastTransitionTime": "2026-08-21T10:00:00Z", "healthConditions": [{
            "status": "DataLoss", "reason": "Gone"}]}});
        patch(&own, &claims, "data", reported).await.expect("the health of a claim of its driver");
    }
    // The hub is not limited.
    let hub = stage.plane.client_for(HOME, "volmedic-hub").await.expect("the hub");
    patch(&hub, &path, "data", json!({"heals": null})).await.expect("the hub writes every field");
    restore(&stage).await;

    for name in ["volmedic-health", "volmedic-claim-health"] {
        kubectl(&stage.plane, &["delete", "validatingadmissionpolicybinding", name]);
    }
    until("the policies are gone", || async {
        let attempts = attempts(&stage, &foreign).await;
        Ok::<_, String>(attempts.iter().all(|attempt| attempt.outcome.is_ok()))
    })
    .await;
}

/// A policy that is there, but without its rules, is none.
#[tokio::test]
async fn a_policy_that_was_weakened_is_noticed() {
    let stage = Stage::own(&[&[CRDS, POLICY], &RBAC[..]].concat()).await;
    let kubeconfig = stage.kubeconfig().await;
    let sound = crate::stage::start_hub(&kubeconfig, &crate::stage::QUICK);
    sound.wait_log("lets every agent speak only for its own node").await;
    assert_eq!(sound.says("is not as shipped"), 0, "{}", sound.log());
    drop(sound);
    let weaken = r#"[{"op": "replace", "path": "/spec/validations", "value": [{"expression": "true"}]}]"#;
    kubectl(
        &stage.plane,
        &["patch", "validatingadmissionpolicy", "volmedic-agent-pods", "--type=json", "-p", weaken],
    );
    let hub = crate::stage::start_hub(&kubeconfig, &crate::stage::QUICK);
    hub.wait_log("the ValidatingAdmissionPolicy volmedic-agent-pods is not as shipped").await;
    let node = stage.make_node("n").await;
    stage.used_claim("data", &node).await;
    stage.tell(&node, &stage.report(&[("data", "Degraded", "SlowIO")])).await;
    let object = stage.wait_stored("data", &[&format!("host/{node} HealthWarning Degraded/SlowIO")]).await;
    assert_eq!(object.status.expect("a status").vantages[0].verified, Some(false));
}

/// The hub that heals requests tokens for itself, so it notices when nothing limits which ones. That says nothing about
/// reports, which stay verified.
#[tokio::test]
async fn a_missing_policy_on_the_hubs_own_tokens_is_noticed_where_it_heals() {
    let files = [&[CRDS, POLICY][..], &RBAC[..], &["rbac-healer.yaml", "admission-hub.yaml"]].concat();
    let stage = Stage::own(&files).await;
    crate::kind::define(&stage.client).await;
    let kubeconfig = stage.kubeconfig().await;
    let heals = [&crate::stage::QUICK[..], &["--heal", "--heal-relays"]].concat();
    let unverified = async |hub: &crate::process::Controller| {
        let (_, text) = hub.get("/metrics").await;
        text.lines().find_map(|line| line.strip_prefix("volmedic_hub_unverified ").map(str::to_owned))
    };
    let sound = crate::stage::start_hub(&kubeconfig, &heals);
    sound.wait_log("lets the hub request tokens only for the relays of one node each").await;
    sound.wait_log("merging what is known").await;
    assert_eq!(unverified(&sound).await.as_deref(), Some("0"), "{}", sound.log());
    drop(sound);

    kubectl(&stage.plane, &["delete", "validatingadmissionpolicybinding", "volmedic-hub"]);
    let hub = crate::stage::start_hub(&kubeconfig, &heals);
    hub.wait_log("the ValidatingAdmissionPolicyBinding volmedic-hub is missing").await;
    hub.wait_log("merging what is known").await;
    assert_eq!(unverified(&hub).await.as_deref(), Some("1"), "{}", hub.log());
    let node = stage.make_node("n").await;
    stage.used_claim("data", &node).await;
    stage.tell(&node, &stage.report(&[("data", "Degraded", "SlowIO")])).await;
    let object = stage.wait_stored("data", &[&format!("host/{node} HealthWarning Degraded/SlowIO")]).await;
    assert_eq!(object.status.expect("a status").vantages[0].verified, None);
    drop(hub);

    // A hub that does not heal requests no tokens, and may not read that policy.
    let plain = crate::stage::start_hub(&kubeconfig, &crate::stage::QUICK);
    plain.wait_log("merging what is known").await;
    assert_eq!(plain.says("volmedic-hub is missing"), 0, "{}", plain.log());
    assert_eq!(unverified(&plain).await.as_deref(), Some("0"), "{}", plain.log());
}
