//! One object for each unhealthy claim, which goes with it.

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use kube::Api;
use kube::api::{DeleteParams, PostParams};
use serde_json::json;
use volmedic_api::resource::{Heal, HealOutcome, VolumeHealth, VolumeHealthSpec, limit, time};
use volmedic_hub::{ClaimKey, Keep, Keeper, Metrics, PushError, Settings};
use volmedic_testkit::Feature;
use volmedic_testkit::feature::is_not_run_without;

use crate::stage::{apply_report, kubectl, shared, try_kubectl};

#[tokio::test]
async fn what_an_agent_sees_is_stored_and_its_recovery_too() {
    let stage = shared().await;
    let node = stage.make_node("n").await;
    stage.used_claim("data", &node).await;
    stage.used_claim("well", &node).await;
    stage.tell(&node, &stage.report(&[("data", "Inaccessible", "IOHung")])).await;
    let unhealthy = format!("host/{node} HealthFailure Inaccessible/IOHung");
    let object = stage.wait_stored("data", &[&unhealthy]).await;
    let owner = &object.metadata.owner_references.clone().expect("an owner")[0];
    let claims = Api::<PersistentVolumeClaim>::namespaced(stage.client.clone(), &stage.namespace);
    let claim = claims.get("data").await.expect("the claim");
    assert_eq!(Some(&owner.uid), claim.metadata.uid.as_ref());
    let status = object.status.expect("a status");
    assert_eq!(status.headline.reason.as_deref(), Some("IOHung"));
    assert_eq!(status.headline.since.map(|t| t.0.to_string()).as_deref(), Some("2026-08-21T10:00:00Z"));
    assert_eq!(status.volume_handle, Some(stage.handle("data")));
    assert_eq!(stage.stored("well").await, None, "nothing is wrong with it");

    let printed = kubectl(&stage.plane, &["get", "vh", "-n", &stage.namespace]);
    for word in
        ["NAME", "HEALTH", "SEEN BY", "HealthFailure", "Inaccessible", "IOHung", &format!("host/{node}")]
    {
        assert!(printed.contains(word), "{word} is not in\n{printed}");
    }
    println!("{printed}");
    let wait = ["wait", "vh/data", "-n", &stage.namespace, "--for=condition=Healthy", "--timeout=180s"];
    let (unhealthy, _) = try_kubectl(&stage.plane, &[&wait[..5], &["--timeout=1s"]].concat());
    assert!(!unhealthy, "it is not healthy yet");
    stage.tell(&node, &stage.report(&[])).await;
    println!("{}", kubectl(&stage.plane, &wait));
    let object = stage.wait_stored("data", &[&format!("host/{node} Healthy")]).await;
    let status = object.status.expect("a status");
    let words: Vec<&str> = status.history.iter().map(|past| past.health.as_str()).collect();
    assert_eq!(words, ["Healthy", "HealthFailure"]);

    let explained = kubectl(&stage.plane, &["explain", "volumehealth.status.headline"]);
    println!("{explained}");
    assert!(explained.contains("The worst that anybody sees"), "{explained}");
}

#[tokio::test]
async fn the_controller_and_the_kubelet_are_heard_too() {
    // What a controller reports on older releases is in `drivers.rs`.
    if is_not_run_without(Feature::PodHealth, "the_controller_and_the_kubelet_are_heard_too") {
        return;
    }
    let stage = shared().await;
    let node = stage.make_node("n").await;
    stage.used_claim("data", &node).await;
    let gone = json!([{"status": "Inaccessible", "reason": "VolumeNotFound", "message": "gone"}]);
    stage.controller_says("data", gone).await;
    stage.wait_stored("data", &["controller HealthFailure Inaccessible/VolumeNotFound"]).await;
    let reported =
        json!([{"name": "data", "healthConditions": [{"status": "Degraded", "reason": "SlowIO"}]}]);
    let patch = json!({"status": {"volumeHealth": reported}}).to_string();
    kubectl(
        &stage.plane,
        &[
            "patch",
            "pod",
            "data",
            "-n",
            &stage.namespace,
            "--subresource=status",
            "--type=merge",
            "-p",
            &patch,
        ],
    );
    let kubelet = format!("kubelet/{node} HealthWarning Degraded/SlowIO");
    stage.wait_stored("data", &["controller HealthFailure Inaccessible/VolumeNotFound", &kubelet]).await;
    stage.controller_says("data", json!([])).await;
    // No controller renews a Lease that says what it probes, so that nothing is wrong is not known.
    stage.wait_stored("data", &[&kubelet]).await;
}

#[tokio::test]
async fn a_claim_that_is_recreated_gets_an_object_of_its_own() {
    let stage = shared().await;
    let node = stage.make_node("n").await;
    stage.used_claim("data", &node).await;
    stage.tell(&node, &stage.report(&[("data", "Degraded", "SlowIO")])).await;
    let unhealthy = format!("host/{node} HealthWarning Degraded/SlowIO");
    let first = stage.wait_stored("data", &[&unhealthy]).await;
    let claims = Api::<PersistentVolumeClaim>::namespaced(stage.client.clone(), &stage.namespace);
    let patch = json!({"metadata": {"finalizers": null}});
    let patch = kube::api::Patch::Merge(patch);
    claims.patch("data", &kube::api::PatchParams::default(), &patch).await.expect("no finalizers");
    claims.delete("data", &DeleteParams::default()).await.expect("the claim is deleted");
    stage.wait_gone("data").await;

    kubectl(&stage.plane, &["delete", "pv", &format!("pv-{}-data", stage.namespace), "--wait=false"]);
    kubectl(
        &stage.plane,
        &[
            "patch",
            "pv",
            &format!("pv-{}-data", stage.namespace),
            "--type=merge",
            "-p",
            r#"{"metadata":{"finalizers":null}}"#,
        ],
    );
    stage.claim("data").await;
    let second = stage.wait_stored("data", &[&unhealthy]).await;
    assert_ne!(first.metadata.uid, second.metadata.uid);
    assert_eq!(
        second.status.expect("a status").history.len(),
        1,
        "what the other went through is not its own"
    );
}

#[tokio::test]
async fn nothing_is_written_while_nothing_changes() {
    let stage = shared().await;
    let node = stage.make_node("n").await;
    for name in ["a", "b", "c"] {
        stage.used_claim(name, &node).await;
    }
    let report = stage.report(&[("a", "Degraded", "SlowIO"), ("b", "Degraded", "SlowIO")]);
    stage.tell(&node, &report).await;
    for name in ["a", "b"] {
        stage.wait_stored(name, &[&format!("host/{node} HealthWarning Degraded/SlowIO")]).await;
    }
    let mine = async || {
        let mut all = stage.versions().await;
        all.retain(|name, _| name.starts_with(&stage.namespace));
        all
    };
    let before = mine().await;
    assert_eq!(before.len(), 2);
    // The world turns, but nothing of it matters: the same report again, another label on a pod, a claim's annotation.
    stage.tell(&node, &report).await;
    kubectl(&stage.plane, &["label", "pod", "a", "-n", &stage.namespace, "x=y"]);
    kubectl(&stage.plane, &["annotate", "pvc", "a", "-n", &stage.namespace, "x=y"]);
    kubectl(&stage.plane, &["annotate", "pv", &format!("pv-{}-a", stage.namespace), "x=y"]);
    // And something that does matter, so that we know when all of that was checked.
    stage
        .tell(
            &node,
            &stage.report(&[
                ("a", "Degraded", "SlowIO"),
                ("b", "Degraded", "SlowIO"),
                ("c", "DataLoss", "X"),
            ]),
        )
        .await;
    stage.wait_stored("c", &[&format!("host/{node} HealthFailure DataLoss/X")]).await;
    tokio::time::sleep(Duration::from_millis(300)).await;
    let mut after = mine().await;
    after.remove(&format!("{}/c", stage.namespace));
    assert_eq!(after, before);
}

#[tokio::test]
async fn attempts_to_heal_are_kept_beside_what_the_hub_writes() {
    let stage = shared().await;
    let node = stage.make_node("n").await;
    stage.used_claim("data", &node).await;
    stage.tell(&node, &stage.report(&[("data", "Degraded", "SlowIO")])).await;
    stage.wait_stored("data", &[&format!("host/{node} HealthWarning Degraded/SlowIO")]).await;
    let keep = Keep { all: false, recovered_for: jiff::SignedDuration::from_hours(1) };
    let settings = Settings { keep, qps: 10.0, burst: 10, workers: 1, mark_volumes: false };
    let healer =
        Keeper::new(stage.client.clone(), Arc::default(), Arc::default(), settings, Metrics::default());
    let key = ClaimKey::new(&stage.namespace, "data");
    let most = u32::try_from(limit::HEALS).expect("few");
    for n in 0..most + 2 {
        let heal = Heal {
            time: time(jiff::Timestamp::UNIX_EPOCH),
            outcome: HealOutcome::Failed,
            remedy: format!("attempt {n}"),
            node: Some(node.clone()),
            message: "it did not help".to_owned(),
            code: "StillUnhealthy".to_owned(),
            attempt: n + 1,
            not_before: None,
        };
        healer.record_heal(&key, &heal).await.expect("it is kept");
    }
    stage.tell(&node, &stage.report(&[])).await;
    let object = stage.wait_stored("data", &[&format!("host/{node} Healthy")]).await;
    let heals = object.status.expect("a status").heals;
    let newest = format!("attempt {}", most + 1);
    let shown = (heals.len(), heals[0].remedy.clone(), heals[limit::HEALS - 1].remedy.clone());
    assert_eq!(shown, (limit::HEALS, newest, "attempt 2".to_owned()));
    let nobody = healer.record_heal(&ClaimKey::new(&stage.namespace, "well"), &heals[0]).await;
    assert_eq!(nobody, Err(PushError::NoClaim));
}

#[tokio::test]
async fn an_object_that_its_maker_never_filled_goes() {
    let stage = shared().await;
    stage.claim("data").await;
    let claims = Api::<PersistentVolumeClaim>::namespaced(stage.client.clone(), &stage.namespace);
    let uid = claims.get("data").await.expect("the claim").metadata.uid.expect("a uid");
    let mut empty =
        VolumeHealth::new("data", VolumeHealthSpec { persistent_volume_claim_name: "data".to_owned() });
    let owner = json!([{"apiVersion": "v1", "kind": "PersistentVolumeClaim", "name": "data", "uid": uid}]);
    empty.metadata.owner_references = serde_json::from_value(owner).expect("an owner");
    stage.healths().create(&PostParams::default(), &empty).await.expect("it is made");
    stage.wait_gone("data").await;
}

#[tokio::test]
async fn what_the_schema_forbids_is_refused() {
    let stage = shared().await;
    let make = |name: &str, claim: &str| {
        VolumeHealth::new(name, VolumeHealthSpec { persistent_volume_claim_name: claim.to_owned() })
    };
    let refused = async |object: VolumeHealth, why: &str| {
        let error = stage.healths().create(&PostParams::default(), &object).await.expect_err("it is refused");
        assert!(error.to_string().contains(why), "{error}");
    };
    refused(make("data", "other"), "a VolumeHealth has the name of its claim").await;
    let long = "x".repeat(300);
    let node = stage.make_node("n").await;
    let mut report = stage.report(&[("data", "Degraded", "SlowIO")]);
    report.volumes[0].health_conditions[0].reason = "not a reason".to_owned();
    let agent = stage.agent(&node).await;
    let error = apply_report(&agent, &node, &report).await.expect_err("the reason is none").to_string();
    assert!(error.contains("reason"), "{error}");
    let mut report = stage.report(&[("data", "Degraded", "SlowIO")]);
    report.volumes[0].driver = long;
    let error = apply_report(&agent, &node, &report).await.expect_err("the driver is too long").to_string();
    assert!(error.contains("driver"), "{error}");
    report.volumes = vec![stage.report(&[("data", "Degraded", "SlowIO")]).volumes[0].clone(); 501];
    let error = apply_report(&agent, &node, &report).await.expect_err("there are too many").to_string();
    assert!(error.contains("at most 500 items"), "{error}");
}

#[tokio::test]
async fn what_somebody_else_changed_or_deleted_is_put_right() {
    let stage = shared().await;
    let node = stage.make_node("n").await;
    stage.used_claim("data", &node).await;
    stage.tell(&node, &stage.report(&[("data", "Degraded", "SlowIO")])).await;
    let unhealthy = format!("host/{node} HealthWarning Degraded/SlowIO");
    stage.wait_stored("data", &[&unhealthy]).await;
    let lie = json!({"status": {"headline": {"health": "Healthy", "status": null, "reason": null}, "vantages": null}});
    let lie = lie.to_string();
    kubectl(
        &stage.plane,
        &["patch", "vh", "data", "-n", &stage.namespace, "--subresource=status", "--type=merge", "-p", &lie],
    );
    stage.wait_stored("data", &[&unhealthy]).await;
    let object = stage.healths().get("data").await.expect("the object");
    stage.healths().delete("data", &DeleteParams::default()).await.expect("it is deleted");
    crate::stage::until("it is there again", || async {
        stage
            .healths()
            .get_opt("data")
            .await
            .map(|new| new.is_some_and(|new| new.metadata.uid != object.metadata.uid))
    })
    .await;
    stage.wait_stored("data", &[&unhealthy]).await;
}
