//! A driver of another project, healed: JuiceFS in production use has no call for it, so its pods are recreated.

use std::time::Instant;

use rustix::process::Signal;
use serde_json::{Value, json};

use super::juicefs::JuiceFs;
use super::{install_volmedic_with, processes};
use crate::agent::say;
use crate::ready;
use crate::stage::{KUBECTL_WAITS, Stage};

const WEB: &str = "jfs-web";
const NEAR: &str = "jfs-near";
/// As an operator would set it, but with pauses of seconds.
const QUICK: [&str; 9] = [
    "--heal-debounce=1s",
    "--heal-pause=1s",
    "--heal-longest-pause=3s",
    "--heal-look-again=1s",
    "--heal-brake-percent=100",
    "--heal-recreate-debounce=3s",
    "--heal-recreate-patience=5s",
    "--heal-recreate-settle=15s",
    "--heal-recreate-deadline=4m",
];

#[test]
#[ignore = "builds JuiceFS and runs a cluster, some minutes: cargo xtask world"]
fn a_juicefs_volume_whose_mount_process_died_is_healed_by_a_new_pod() {
    let stage = Stage::start_bare();
    let healing = json!({
        "heal": {"enabled": true, "recreatePods": {"enabled": true}},
        "hub": {"extraArgs": QUICK},
    });
    install_volmedic_with(&stage, &healing);
    let driver = JuiceFs::install(&stage);
    let mut near = driver.volume(NEAR);
    near[2]["metadata"]["annotations"] = recreated();
    let objects = [&workload(&driver)[..], &near[..]].concat();
    stage.create(&objects.into());
    let (old, old_uid) = replica(&stage);
    ready(&stage, NEAR);
    let near = identity(&stage, NEAR);
    stage.kubectl(&["exec", &old, "--", "sh", "-c", "echo before > /data/kept"]);
    stage.wait("the budget is known to allow nothing", || {
        let path = "jsonpath={.status.currentHealthy}/{.status.disruptionsAllowed}";
        let found = stage.try_kubectl(&["get", "pdb", WEB, "-o", path])?;
        if found == "1/0" { Ok(()) } else { Err(found) }
    });

    let killed = Instant::now();
    processes::signal(&driver.mounter(&stage, WEB), Signal::KILL);
    event(&stage, WEB, "HealingFailed", &["no pod was evicted: ", "disruption budget"]);
    say(&format!("the budget refused after {:.1} s", killed.elapsed().as_secs_f32()));
    assert_eq!(identity(&stage, &old).0, old_uid, "the budget was not respected");

    // The pod is not ready, because its probe reads the volume. A budget protects it all the same, unless it says otherwise.
    let allowed = Instant::now();
    let patch = r#"{"spec":{"unhealthyPodEvictionPolicy":"AlwaysAllow"}}"#;
    stage.kubectl(&["patch", "pdb", WEB, "--type=merge", "-p", patch]);
    event(&stage, WEB, "HealingSucceeded", &[&format!("replaced: {old} by {WEB}-")]);
    say(&format!(
        "healthy under a new pod {:.1} s after the budget allowed it",
        allowed.elapsed().as_secs_f32()
    ));
    event(&stage, WEB, "HealingStarted", &["RecreatePods is auto by the claim's annotation"]);

    let (new, new_uid) = replica(&stage);
    assert_ne!(new_uid, old_uid);
    let said = stage.kubectl(&[
        "exec",
        &new,
        "--",
        "sh",
        "-c",
        "echo again > /data/word; cat /data/kept /data/word",
    ]);
    assert_eq!(said.split_whitespace().collect::<Vec<_>>(), ["before", "again"]);
    let path = r#"jsonpath={range .status.heals[*]}{.remedy} {.outcome}{"\n"}{end}"#;
    let heals = stage.kubectl(&["get", "volumehealth", WEB, "-o", path]);
    assert_eq!(heals.lines().filter(|line| *line == "RecreatePods Succeeded").count(), 1, "{heals}");
    // The neighbour on the same node, of the same driver, with the same annotation.
    assert_eq!(identity(&stage, NEAR), near, "the neighbour was touched");
    stage.kubectl(&["exec", NEAR, "--", "sh", "-c", "echo well > /data/word"]);
    assert_eq!(healing_of(&stage, NEAR), [] as [(String, String); 0]);

    stage.kubectl(&["delete", "deployment", WEB, "--wait", KUBECTL_WAITS]);
    stage.kubectl(&["delete", "pod", NEAR, "--wait", KUBECTL_WAITS]);
    stage.kubectl(&["delete", "pvc", WEB, NEAR, "--wait", KUBECTL_WAITS]);
    driver.remove(&stage);
    stage.stop();
}

fn recreated() -> Value {
    json!({"volmedic.dev/heal-recreate-pods": "auto"})
}

/// A volume, a Deployment that uses it, and a budget that allows no disruption.
fn workload(driver: &JuiceFs) -> Vec<Value> {
    let [secret, volume, mut claim, pod] = driver.volume(WEB);
    claim["metadata"]["annotations"] = recreated();
    let selector = json!({"matchLabels": {"app": WEB}});
    let deployment = json!({
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": WEB, "namespace": "default"},
        "spec": {
            "replicas": 1,
            "selector": selector,
            "template": {"metadata": {"labels": {"app": WEB}}, "spec": pod["spec"]},
        },
    });
    let budget = json!({
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": WEB, "namespace": "default"},
        "spec": {"minAvailable": 1, "selector": selector},
    });
    vec![secret, volume, claim, deployment, budget]
}

/// The one pod of the Deployment that is ready and does not end: its name and uid.
fn replica(stage: &Stage) -> (String, String) {
    stage.wait(&format!("{WEB} is ready"), || {
        let list = stage.try_kubectl(&["get", "pods", "-l", &format!("app={WEB}"), "-o", "json"])?;
        let list: Value = serde_json::from_str(&list).map_err(|error| error.to_string())?;
        let pods = list["items"].as_array().into_iter().flatten();
        let here: Vec<&Value> = pods.filter(|pod| pod["metadata"]["deletionTimestamp"].is_null()).collect();
        let ready = |pod: &Value| {
            let conditions = pod["status"]["conditions"].as_array().into_iter().flatten();
            conditions.filter(|one| one["type"] == "Ready").any(|one| one["status"] == "True")
        };
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        match &here[..] {
            [pod] if ready(pod) => Ok((text(&pod["metadata"]["name"]), text(&pod["metadata"]["uid"]))),
            other => Err(format!("{other:#?}")),
        }
    })
}

/// What changes when a pod is replaced or its container is started again.
fn identity(stage: &Stage, pod: &str) -> (String, String) {
    let path = |path: &str| stage.kubectl(&["get", "pod", pod, "-o", &format!("jsonpath={{{path}}}")]);
    (path(".metadata.uid"), path(".status.containerStatuses[0].restartCount"))
}

/// The reasons and messages of the healer's events on a claim.
fn healing_of(stage: &Stage, claim: &str) -> Vec<(String, String)> {
    let fields = format!("involvedObject.kind=PersistentVolumeClaim,involvedObject.name={claim}");
    let list = stage.kubectl(&["get", "events", "--field-selector", &fields, "-o", "json"]);
    let list: Value = serde_json::from_str(&list).unwrap();
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let all = list["items"].as_array().unwrap().iter();
    let all = all.map(|event| (text(&event["reason"]), text(&event["message"])));
    all.filter(|(reason, _)| reason.starts_with("Healing")).collect()
}

fn event(stage: &Stage, claim: &str, reason: &str, words: &[&str]) {
    stage.wait(&format!("{claim} has {reason} with {words:?}"), || {
        let events = healing_of(stage, claim);
        let has = |(found, text): &(String, String)| {
            found == reason && words.iter().all(|word| text.contains(word))
        };
        if events.iter().any(has) {
            return Ok(());
        }
        let logs = ["logs", "deployment/volmedic-hub", "-n", super::NAMESPACE, "--tail=20"];
        Err(format!("{events:#?}\n{}", stage.try_kubectl(&logs).unwrap_or_else(|error| error)))
    });
}
