//! The shipped rights are enough, as all other tests here show by running under them; and none is too many: without any
//! single one something breaks, and what is missing is said.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Node;
use kube::api::{DeleteParams, ObjectMeta, PostParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Api, Client};
use serde_json::{Value, json};
use volmedic_api::resource::Heal;
use volmedic_hub::{ClaimKey, Keep, Keeper, Metrics, PushError, Settings};
use volmedic_testkit::objects;

use crate::process::{Controller as Process, PATIENCE};
use crate::rights::{Right, Rights};
use crate::stage::{
    CRDS, POLICY, RBAC, Stage, apply_report, bare, install, kubectl, start_hub, start_hub_in,
};

/// What breaks without a right.
enum Breaks {
    /// It says this by itself.
    Says(&'static str),
    /// It says this when somebody reports to it.
    Push(&'static str),
    /// It says this when an agent left something behind on a node that is gone.
    Stray(&'static str),
    /// It says this when claims fall unhealthy and recover. No other hub may do it in its place.
    Alone(&'static str),
    /// The healer's memory, which says this.
    Memory(&'static str),
    /// It says this when a node is down.
    Down(&'static str),
}

use Breaks::{Alone, Down, Memory, Push, Says, Stray};

/// Every right there is, and what breaks without it.
const NEEDED: &[(&str, &str, Breaks)] = &[
    ("csinodes", "list", Says("does not let us list csinodes")),
    ("csinodes", "watch", Says("does not let us watch csinodes")),
    ("events", "create", Down("cannot create resource \"events\"")),
    ("leases", "create", Says("cannot read or write the lease")),
    ("leases", "delete", Stray("cannot delete resource \"leases\"")),
    ("leases", "get", Says("cannot read or write the lease")),
    ("leases", "list", Says("does not let us list leases")),
    ("leases", "list", Says("cannot read the Leases of controllers")),
    ("leases", "update", Says("lost the lease")),
    ("leases", "watch", Says("does not let us watch leases")),
    ("nodes", "list", Says("does not let us list nodes")),
    ("nodes", "watch", Says("does not let us watch nodes")),
    ("nodevolumehealths", "delete", Stray("cannot delete resource \"nodevolumehealths\"")),
    ("nodevolumehealths", "list", Says("does not let us list nodevolumehealths")),
    ("nodevolumehealths", "watch", Says("does not let us watch nodevolumehealths")),
    ("persistentvolumeclaims", "list", Says("does not let us list persistentvolumeclaims")),
    ("persistentvolumeclaims", "watch", Says("does not let us watch persistentvolumeclaims")),
    ("persistentvolumes", "list", Says("does not let us list persistentvolumes")),
    ("persistentvolumes", "patch", Alone("cannot patch resource \"persistentvolumes\"")),
    ("persistentvolumes", "watch", Says("does not let us watch persistentvolumes")),
    ("pods", "list", Says("does not let us list pods")),
    ("pods", "watch", Says("does not let us watch pods")),
    ("subjectaccessreviews", "create", Push("cannot be asked what its sender may do")),
    ("tokenreviews", "create", Push("cannot be asked who sent this")),
    ("validatingadmissionpolicies", "get", Says("does not check that an agent speaks only for its own node")),
    (
        "validatingadmissionpolicybindings",
        "get",
        Says("does not check that an agent speaks only for its own node"),
    ),
    ("volumeattachments", "list", Says("does not let us list volumeattachments")),
    ("volumeattachments", "watch", Says("does not let us watch volumeattachments")),
    ("volumehealths", "create", Alone("cannot create resource \"volumehealths\"")),
    ("volumehealths", "delete", Alone("cannot delete resource \"volumehealths\"")),
    ("volumehealths", "get", Memory("cannot get resource \"volumehealths\"")),
    ("volumehealths", "list", Says("does not let us list volumehealths")),
    ("volumehealths", "merge", Alone("only the hub may write anything but status.controllerReport")),
    ("volumehealths", "watch", Says("does not let us watch volumehealths")),
    ("volumehealths/status", "patch", Alone("cannot patch resource \"volumehealths/status\"")),
];

/// A lease that is lost within seconds.
const ELECTION: [&str; 3] = [
    "--leader-election-lease-duration=20s",
    "--leader-election-renew-deadline=15s",
    "--leader-election-retry-period=500ms",
];

fn needed() -> impl Iterator<Item = (Right, &'static Breaks)> {
    NEEDED.iter().map(|(resource, verb, breaks)| {
        (Right { resource: (*resource).to_owned(), verb: (*verb).to_owned() }, breaks)
    })
}

#[tokio::test]
async fn every_right_that_is_shipped_is_needed() {
    let plane = bare();
    let shipped = Rights::read(&plane, "rbac-hub.yaml");
    let named: Vec<Right> = needed().map(|(right, _)| right).collect();
    assert_eq!(
        shipped.all(),
        named,
        "each right in the manifest has its line in this test, and each line its right"
    );
    install(&plane, &[&[CRDS, POLICY], &RBAC[..]].concat());
    let mut cases = tokio::task::JoinSet::new();
    for (right, breaks) in needed().filter(|(_, breaks)| !matches!(breaks, Alone(_))) {
        let (stage, rights) = (Stage::on(plane.clone()).await, shipped.without(&right));
        cases.spawn(async move { lacks(&stage, &rights, breaks).await });
    }
    while let Some(case) = cases.join_next().await {
        if let Err(error) = case {
            std::panic::resume_unwind(error.into_panic());
        }
    }
}

#[tokio::test]
async fn every_right_to_write_is_needed() {
    let stage = Stage::own(&[&[CRDS, POLICY], &RBAC[..]].concat()).await;
    let shipped = Rights::read(&stage.plane, "rbac-hub.yaml");
    let node = stage.make_node("n").await;
    stage.used_claim("data", &node).await;
    for (n, (right, breaks)) in needed().filter(|(_, breaks)| matches!(breaks, Alone(_))).enumerate() {
        let Alone(says) = breaks else { continue };
        let config = account(&stage, &format!("poor-{n}"), &shipped.without(&right)).await;
        let arguments = ["--leader-election=false", "--mark-volumes", "--keep-recovered=1s"];
        let hub = start_hub(&write(&stage, &format!("poor-{n}"), &config), &arguments);
        exercise(&stage, &node, &hub, says).await;
    }
}

/// Trouble that comes and goes, until the log says what was to come.
async fn exercise(stage: &Stage, node: &str, hub: &Process, says: &str) {
    let deadline = Instant::now() + PATIENCE;
    let agent = stage.agent(node).await;
    loop {
        for unhealthy in [&[("data", "Degraded", "SlowIO")][..], &[]] {
            apply_report(&agent, node, &stage.report(unhealthy)).await.expect("a report");
            let turn = Instant::now() + Duration::from_secs(3);
            while Instant::now() < turn {
                if hub.says(says) > 0 {
                    return;
                }
                assert!(Instant::now() < deadline, "the log never says {says:?}:\n{}", hub.log());
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        }
    }
}

async fn lacks(stage: &Stage, rights: &Rights, breaks: &Breaks) {
    let config = account(stage, "poor", rights).await;
    let kubeconfig = write(stage, "poor", &config);
    let start = |arguments: &[&str]| start_hub_in(&stage.namespace, &kubeconfig, arguments);
    match breaks {
        Says(says) => start(&ELECTION).wait_log(says).await,
        Push(says) => {
            let hub = start(&["--leader-election=false", "--push-endpoint=127.0.0.1:0"]);
            push(stage, &hub, says).await;
        }
        Stray(says) => {
            let hub = start(&["--leader-election=false", "--clear-nodes-after=1s"]);
            stray(stage, &hub, says).await;
        }
        Memory(says) => {
            let why = remember(stage, config).await;
            assert!(why.contains(says), "{why}");
        }
        Down(says) => {
            let node = stage.make_node("down").await;
            stage.used_claim("data", &node).await;
            objects::set_node_ready(&stage.client, &node, "Unknown").await.expect("the node's status");
            start(&["--leader-election=false", "--node-grace-period=1s"]).wait_log(says).await;
        }
        Alone(_) => unreachable!("those have their own test"),
    }
}

/// A service account with these rights; answers its kubeconfig.
async fn account(stage: &Stage, name: &str, rights: &Rights) -> Value {
    rights.grant(&stage.plane, &stage.client, &stage.namespace, name).await
}

fn write(stage: &Stage, name: &str, config: &Value) -> PathBuf {
    let path = stage.plane.kubeconfig().with_extension(format!("{name}-{}", stage.namespace));
    std::fs::write(&path, config.to_string()).expect("the kubeconfig can be written");
    path
}

/// Reports with a good token: whether it is one is the first thing asked, and whether it may the second.
async fn push(stage: &Stage, hub: &Process, says: &str) {
    hub.wait_log("taking reports on").await;
    let log = hub.log();
    let (_, rest) = log.split_once("taking reports on http://").expect("an address");
    let address = rest.split('/').next().expect("an address");
    stage.plane.token(&stage.namespace, "detector", None).await.expect("an account");
    let audience = "--audience=volmedic-hub";
    let token = kubectl(&stage.plane, &["create", "token", "detector", "-n", &stage.namespace, audience]);
    let claim = json!({"namespace": stage.namespace, "name": "data"});
    let report = json!({"claim": claim, "source": "test", "ttlSeconds": 600, "conditions": []}).to_string();
    let deadline = Instant::now() + PATIENCE;
    loop {
        let answer = post(address, token.trim(), &report);
        if answer.contains(says) {
            return;
        }
        assert!(Instant::now() < deadline, "the answer never says {says:?}:\n{answer}");
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}

fn post(address: &str, token: &str, body: &str) -> String {
    let mut stream = TcpStream::connect(address).expect("it listens");
    stream.set_read_timeout(Some(PATIENCE)).expect("a limit for reads");
    let head = format!(
        "POST /v1/reports HTTP/1.1\r\nHost: hub\r\nConnection: close\r\nAuthorization: Bearer {token}\r\n\
         Content-Type: application/json\r\nContent-Length: {}\r\n\r\n",
        body.len()
    );
    stream.write_all([head.as_bytes(), body.as_bytes()].concat().as_slice()).expect("it reads");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("it answers");
    answer
}

/// What an agent left behind, again and again: another hub may clear it away first.
async fn stray(stage: &Stage, hub: &Process, says: &str) {
    let node = stage.make_node("gone").await;
    let agent = stage.agent(&node).await;
    let nodes = Api::<Node>::all(stage.client.clone());
    nodes.delete(&node, &DeleteParams::default()).await.expect("the node is deleted");
    let leases = Api::<Lease>::namespaced(stage.client.clone(), &stage.namespace);
    let name = Some(format!("volmedic-agent-{node}"));
    let lease = Lease { metadata: ObjectMeta { name, ..ObjectMeta::default() }, spec: None };
    let deadline = Instant::now() + PATIENCE;
    while hub.says(says) == 0 {
        apply_report(&agent, &node, &stage.report(&[])).await.expect("its own report");
        // It may be there still.
        let _ = leases.create(&PostParams::default(), &lease).await;
        assert!(Instant::now() < deadline, "the log never says {says:?}:\n{}", hub.log());
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}

/// What the healer's memory says when it cannot be read.
async fn remember(stage: &Stage, config: Value) -> String {
    let kubeconfig: Kubeconfig = serde_json::from_value(config).expect("a kubeconfig");
    let config = kube::Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await;
    let client = Client::try_from(config.expect("a configuration")).expect("a client");
    let keep = Keep { all: false, recovered_for: jiff::SignedDuration::from_hours(1) };
    let settings = Settings { keep, qps: 10.0, burst: 10, workers: 1, mark_volumes: false };
    let memory = Keeper::new(client, Arc::default(), Arc::default(), settings, Metrics::default());
    let heal = json!({"time": "2026-08-21T10:00:00Z", "outcome": "Failed", "remedy": "none"});
    let heal: Heal = serde_json::from_value(heal).expect("an attempt to heal");
    let outcome = memory.record_heal(&ClaimKey::new(&stage.namespace, "data"), &heal).await;
    match outcome.expect_err("it may not be read") {
        PushError::Later(why) => why,
        PushError::NoClaim => "there is nothing to read".to_owned(),
    }
}
