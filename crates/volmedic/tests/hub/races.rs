//! Many hubs at the same time, as can happen for a moment when a leader hangs.

use crate::stage::{Stage, everything, start_hub};

#[tokio::test]
async fn ten_racing_writers_make_one_object_and_come_to_rest() {
    let stage = Stage::own(&everything()).await;
    let node = stage.make_node("n").await;
    let names: Vec<String> = (0..10).map(|n| format!("claim-{n}")).collect();
    for name in &names {
        stage.used_claim(name, &node).await;
    }
    let kubeconfig = stage.kubeconfig().await;
    let arguments = ["--leader-election=false", "--mark-volumes"];
    let hubs: Vec<_> = (0..10).map(|_| start_hub(&kubeconfig, &arguments)).collect();
    for hub in &hubs {
        hub.wait_log("merging what is known").await;
    }
    for (status, reason) in [("Degraded", "SlowIO"), ("Inaccessible", "IOHung"), ("DataLoss", "LegsLost")] {
        let unhealthy: Vec<_> = names.iter().map(|name| (name.as_str(), status, reason)).collect();
        stage.tell(&node, &stage.report(&unhealthy)).await;
        let word = if status == "Degraded" { "HealthWarning" } else { "HealthFailure" };
        for name in &names {
            stage.wait_stored(name, &[&format!("host/{node} {word} {status}/{reason}")]).await;
        }
    }
    // All of them have seen the end when nothing moves any more.
    let versions = stage.calm().await;
    assert_eq!(versions.len(), names.len());
    for name in &names {
        let status = stage.healths().get(name).await.expect("the object").status.expect("a status");
        // One that lags behind must not take the news of another for old.
        let history: Vec<_> = status.history.iter().filter_map(|past| past.reason.as_deref()).collect();
        assert_eq!(history, ["LegsLost", "IOHung", "SlowIO"], "{name}");
    }
    let printed = crate::stage::kubectl(
        &stage.plane,
        &["get", "pv", "-l", "volmedic.dev/health=HealthFailure", "-o", "name"],
    );
    assert_eq!(printed.lines().count(), names.len(), "{printed}");
    let lost: Vec<_> = names.iter().map(|name| (name.as_str(), "DataLoss", "LegsLost")).collect();
    let mut two = stage.report(&lost);
    let more = stage.report(&[(names[0].as_str(), "Degraded", "SlowIO")]);
    two.volumes[0].health_conditions.extend(more.volumes[0].health_conditions.clone());
    stage.tell(&node, &two).await;
    let volume = format!("pv-{}-{}", stage.namespace, names[0]);
    let path = "jsonpath={.metadata.annotations.PVUnhealthMessage}";
    let mark = || crate::stage::kubectl(&stage.plane, &["get", "pv", &volume, "-o", path]);
    crate::stage::until("the mark has both errors", || async {
        Ok::<_, String>(mark() == "LegsLost - as the test says; SlowIO - as the test says")
    })
    .await;
    stage.tell(&node, &stage.report(&[])).await;
    for name in &names {
        stage.wait_stored(name, &[&format!("host/{node} Healthy")]).await;
    }
    crate::stage::until("the marks are gone", || async {
        let left =
            crate::stage::kubectl(&stage.plane, &["get", "pv", "-l", "volmedic.dev/health", "-o", "name"]);
        Ok::<_, String>(left.trim().is_empty())
    })
    .await;
    assert_eq!(mark(), "", "the message goes with the label");
}
