//! The pictures of the README: `cargo test -p volmedic --test page portraits -- --ignored --nocapture` makes them again below
//! the target folder. A hub on a real API server, with a cluster that has a few troubles and a past.

use k8s_openapi::api::core::v1::{Namespace, PersistentVolumeClaim};
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use kube::Api;
use kube::api::{Patch, PatchParams, PostParams};
use serde_json::{Value, json};
use volmedic_api::resource::VolumeHealth;
use volmedic_testkit::objects;

use crate::chrome::Chrome;
use crate::hub::wait_renewing;
use crate::hub_stage::{Stage, everything, start_hub};
use crate::page_of;

const BLOCK: &str = "block.csi.example.net";
const FILES: &str = "files.csi.example.net";
const NODES: usize = 5;

/// What is wrong: namespace, claim, status, reason, message, for how many minutes.
const TROUBLE: [(&str, &str, &str, &str, &str, i64); 5] = [
    (
        "payments",
        "data-ledger-0",
        "Inaccessible",
        "ReadOnlyFilesystem",
        "ext4 went read-only after 3 I/O errors",
        95,
    ),
    ("search", "index-2", "DataLoss", "FilesystemCorruption", "3 of 3 checks say that xfs is corrupt", 12),
    ("media", "uploads-1", "Inaccessible", "MounterDead", "the FUSE process is gone: ENOTCONN", 4),
    ("shop", "data-orders-1", "Degraded", "OutOfCapacity", "98 % of 200 GiB are used", 33),
    ("shop", "cache-0", "Degraded", "OutOfInodes", "99 % of 65,536 inodes are used", 410),
];

fn ago(minutes: i64) -> String {
    format!("{:.0}", Timestamp::now() - SignedDuration::from_mins(minutes))
}

fn claims() -> Vec<(&'static str, String)> {
    let of = |namespace, app: &str, count: usize| {
        (0..count).map(|number| (namespace, format!("{app}-{number}"))).collect::<Vec<_>>()
    };
    [
        of("payments", "data-ledger", 3),
        of("search", "index", 6),
        of("media", "uploads", 4),
        of("shop", "data-orders", 3),
        of("shop", "cache", 2),
    ]
    .concat()
}

fn driver(namespace: &str) -> &'static str {
    if namespace == "media" { FILES } else { BLOCK }
}

fn handle(namespace: &str, claim: &str) -> String {
    format!("{namespace}.{claim}")
}

fn node(index: usize) -> String {
    format!("worker-{}", index % NODES + 1)
}

/// What an earlier hub stored of a claim.
async fn past(stage: &Stage, namespace: &str, claim: &str) {
    let claims = Api::<PersistentVolumeClaim>::namespaced(stage.client.clone(), namespace);
    let uid = claims.get(claim).await.expect("the claim").metadata.uid.expect("a uid");
    let api = Api::<VolumeHealth>::namespaced(stage.client.clone(), namespace);
    let owner = json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "name": claim, "uid": uid});
    let object = json!({
        "apiVersion": "volmedic.dev/v1alpha1", "kind": "VolumeHealth",
        "metadata": {"name": claim, "namespace": namespace, "ownerReferences": [owner]},
        "spec": {"persistentVolumeClaimName": claim},
    });
    let object = serde_json::from_value(object).expect("an object");
    api.create(&PostParams::default(), &object).await.expect("an object");
    let line = |minutes,
                health: &str,
                status: Option<&str>,
                reason: Option<&str>,
                message: &str,
                seer: Option<&str>| {
        json!({"time": ago(minutes), "health": health, "status": status, "reason": reason, "message": message, "vantage": seer})
    };
    let host = Some("host/worker-1");
    let (name, reason, message) =
        ("ReadOnlyFilesystem", Some("ReadOnlyFilesystem"), "ext4 went read-only after 3 I/O errors");
    let history = json!([
        line(95, "HealthFailure", Some("Inaccessible"), reason, message, host),
        line(
            260,
            "HealthWarning",
            Some("Degraded"),
            Some("DiskDegrading"),
            "3 reallocated sectors",
            Some("controller")
        ),
        line(420, "Healthy", None, None, "nothing wrong is seen by controller, host/worker-1", None),
        line(
            545,
            "HealthFailure",
            Some("Inaccessible"),
            Some("VolumeUnmounted"),
            "nothing is mounted at its target",
            host
        ),
        line(700, "Healthy", None, None, "nothing wrong is seen by controller, host/worker-1", None),
        line(790, "HealthWarning", Some("Degraded"), Some("RWIOError"), "2 I/O errors", host),
    ]);
    let heal = |minutes, outcome: &str, message: &str| json!({"time": ago(minutes), "outcome": outcome, "remedy": "NodeHealer", "node": "worker-1", "message": message});
    let heals = json!([
        heal(94, "Skipped", "the file system has errors: a heal would not help, a person must look"),
        heal(420, "Succeeded", "mounted again after 1.2 s; the pod did not restart"),
        heal(421, "Started", "VolumeUnmounted, seen by host checks"),
    ]);
    let headline = json!({"health": "HealthFailure", "status": "Inaccessible", "reason": name, "message": message,
                          "since": ago(95), "vantage": "host/worker-1"});
    let status = json!({"status": {"headline": headline, "history": history, "heals": heals}});
    api.patch_status(claim, &PatchParams::default(), &Patch::Merge(status)).await.expect("its past");
}

/// The reports of all agents.
async fn reports(stage: &Stage, placed: &[(&'static str, String, String)]) {
    for index in 0..NODES {
        let on = node(index);
        let unhealthy = TROUBLE.iter().filter(|(namespace, claim, ..)| {
            placed.iter().any(|(ns, name, node)| (ns, name.as_str(), node) == (namespace, *claim, &on))
        });
        let volume = |(namespace, claim, status, reason, message, minutes): &(
            &str,
            &str,
            &str,
            &str,
            &str,
            i64,
        )| {
            let kind = if *status == "Degraded" { "HealthWarning" } else { "HealthFailure" };
            json!({"vantage": "Host", "driver": driver(namespace), "volumeHandle": handle(namespace, claim),
                   "healthConditions": [{"type": kind, "status": "True", "errorCode": status, "reason": reason,
                                         "message": message, "lastTransitionTime": ago(*minutes)}]})
        };
        let volumes: Vec<Value> = unhealthy.map(volume).collect();
        stage.tell(&on, &serde_json::from_value(json!({ "volumes": volumes })).expect("a report")).await;
    }
}

#[tokio::test]
#[ignore = "makes pictures for people"]
#[allow(clippy::print_stdout, reason = "it says where they are")]
async fn the_pictures_of_the_readme() {
    let stage = Stage::own(&everything()).await;
    let namespaces = Api::<Namespace>::all(stage.client.clone());
    for name in ["payments", "search", "media", "shop"] {
        let namespace = serde_json::from_value(json!({"metadata": {"name": name}})).expect("a namespace");
        namespaces.create(&PostParams::default(), &namespace).await.expect("a namespace");
        let account = json!({"metadata": {"name": "default"}});
        let accounts =
            Api::<k8s_openapi::api::core::v1::ServiceAccount>::namespaced(stage.client.clone(), name);
        let _ = accounts
            .create(&PostParams::default(), &serde_json::from_value(account).expect("an account"))
            .await;
    }
    for index in 0..NODES {
        objects::node(&stage.client, &node(index)).await.expect("a node");
    }
    let mut placed = Vec::new();
    for (index, (namespace, claim)) in claims().into_iter().enumerate() {
        let (on, pod) = (node(index), claim.trim_start_matches("data-").to_owned());
        let handle = handle(namespace, &claim);
        let bound = objects::bound_claim(&stage.client, namespace, &claim, driver(namespace), &handle);
        bound.await.expect("a bound claim");
        objects::pod(&stage.client, namespace, &pod, &on, &[&claim]).await.expect("a pod");
        placed.push((namespace, claim, on));
    }
    past(&stage, "payments", "data-ledger-0").await;
    let hub = start_hub(&stage.kubeconfig().await, &["--leader-election=false", "--page=127.0.0.1:0"]);
    let url = page_of(&hub).await;
    reports(&stage, &placed).await;
    let mut chrome = Chrome::start();
    chrome.emulate(1280, 860, "light");
    chrome.open(&url);
    let shown = "document.title.startsWith('1 data loss, 2 inaccessible, 2 degraded, 13 healthy')";
    let renew = async || {
        for index in 0..NODES {
            stage.beat(&node(index), 600).await;
        }
    };
    wait_renewing(&mut chrome, shown, renew).await;
    chrome.eval("document.querySelectorAll('.fresh').forEach((row) => row.classList.remove('fresh'))");
    println!("{}", chrome.screenshot("readme-list").display());
    chrome.open(&format!("{url}volume?driver={BLOCK}&volume=payments.data-ledger-0"));
    chrome.wait("document.querySelectorAll('svg.timeline rect.span').length >= 6");
    println!("{}", chrome.screenshot("readme-volume").display());
}
