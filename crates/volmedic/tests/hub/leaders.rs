//! Several replicas: one leads, the others stand by. And claims that the cluster's own garbage collector clears away.

use std::ffi::OsStr;
use std::path::Path;
use std::process::Command;

use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use kube::Api;
use kube::api::{DeleteParams, Patch, PatchParams};
use serde_json::json;

use crate::process::{Controller as Process, program};
use crate::stage::{HOME, Stage, everything};

/// A hub on a machine of another name, as another pod is.
fn start_on(host: &str, kubeconfig: &Path) -> Process {
    let mut command = Command::new("unshare");
    command.args(["--uts", "--", "sh", "-c", r#"echo "$1" > /proc/sys/kernel/hostname; shift; exec "$@""#]);
    command
        .args([OsStr::new("sh"), OsStr::new(host), program().as_os_str()])
        .arg("hub")
        .arg(format!("--kubeconfig={}", kubeconfig.display()))
        .args(["--leader-election-namespace", HOME, "--http-endpoint=127.0.0.1:0"])
        .args(["--leader-election-lease-duration=20s", "--leader-election-renew-deadline=15s"])
        .arg("--leader-election-retry-period=500ms");
    Process::spawn(&mut command)
}

#[tokio::test]
async fn the_other_takes_over_and_what_the_first_wrote_stands() {
    let stage = Stage::own(&everything()).await;
    let node = stage.make_node("n").await;
    for claim in ["data", "late"] {
        stage.used_claim(claim, &node).await;
    }
    let kubeconfig = stage.kubeconfig().await;
    let mut first = start_on("replica-a", &kubeconfig);
    first.wait_log("merging what is known").await;
    let second = start_on("replica-b", &kubeconfig);
    second.wait_log("standing by while replica-a leads").await;
    stage.tell(&node, &stage.report(&[("data", "Degraded", "SlowIO")])).await;
    let unhealthy = format!("host/{node} HealthWarning Degraded/SlowIO");
    let before = stage.wait_stored("data", &[&unhealthy]).await;
    first.kill();
    second.wait_log("merging what is known").await;
    stage.tell(&node, &stage.report(&[("data", "Degraded", "SlowIO"), ("late", "Degraded", "SlowIO")])).await;
    stage.wait_stored("late", &[&unhealthy]).await;
    let after = stage.wait_stored("data", &[&unhealthy]).await;
    assert_eq!(before.metadata.resource_version, after.metadata.resource_version, "nothing is written twice");
    assert_eq!(second.terminate(), Some(0));

    // With no hub at all, the owner reference alone makes the object go with its claim.
    let mut collector = garbage_collector(&stage);
    let claims = Api::<PersistentVolumeClaim>::namespaced(stage.client.clone(), &stage.namespace);
    let free = Patch::Merge(json!({"metadata": {"finalizers": null}}));
    claims.patch("data", &PatchParams::default(), &free).await.expect("no finalizers");
    claims.delete("data", &DeleteParams::default()).await.expect("the claim is deleted");
    stage.wait_gone("data").await;
    assert!(stage.stored("late").await.is_some(), "the other claim is still there");
    collector.kill();
}

/// The controller manager of Kubernetes, with nothing but its garbage collector.
fn garbage_collector(stage: &Stage) -> Process {
    let mut command = Command::new(stage.plane.kubectl().get_program());
    command
        .arg("kube-controller-manager")
        .arg(format!("--kubeconfig={}", stage.plane.kubeconfig().display()))
        .args(["--controllers=garbage-collector-controller", "--leader-elect=false", "--secure-port=0"]);
    Process::spawn(&mut command)
}
