//! `volmedic doctor` as a process on a real API server: each finding with its fix.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should say where")]

#[path = "../status/reported.rs"]
mod reported;
#[allow(dead_code, reason = "the tests of status use the rest")]
#[path = "../status/stage.rs"]
mod stage;

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Stdio};

use reported::{assert_transcript, config_for, redact, serve, text, volmedic};
use serde_json::{Value, json};
use stage::{Stage, bare, build, whole};

const VERSION: &str = r#"{"major":"1","minor":"33","gitVersion":"v1.33.1","gitCommit":"","gitTreeState":"",
    "buildDate":"","goVersion":"","compiler":"","platform":""}"#;
const ALLOWED: &str = r#"{"apiVersion":"authorization.k8s.io/v1","kind":"SelfSubjectAccessReview","spec":{},
    "status":{"allowed":true}}"#;
const FORBIDDEN: &str = r#"{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Forbidden",
    "message":"no","code":403}"#;
const LIST: &str = r#"{"kind":"List","apiVersion":"v1","metadata":{"resourceVersion":"1"},"items":[]}"#;
const NODES: &str =
    r#"{"kind":"NodeList","apiVersion":"v1","metadata":{"resourceVersion":"1"},"items":[NODES]}"#;

#[test]
fn an_installation_with_faults() {
    assert_transcript("doctor", "whole.txt", &whole().reported(&["doctor"], 1));
}

#[test]
fn nothing_installed() {
    assert_transcript("doctor", "bare.txt", &bare().reported(&["doctor"], 1));
}

#[tokio::test]
async fn who_may_read_nothing_is_informed() {
    let config = whole().kubeconfig_of("nobody", "shop").await;
    let output = volmedic().args(["doctor", "--kubeconfig"]).arg(&config).output().unwrap();
    assert_eq!(output.status.code(), Some(3), "{}", text(&output.stderr));
    assert_transcript("doctor", "forbidden.txt", &redact(&text(&output.stdout)));
}

#[test]
fn for_machines() {
    let output = whole().run(&["doctor", "-o", "json"]);
    assert_eq!(output.status.code(), Some(1), "{}", text(&output.stderr));
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    let findings = report["findings"].as_array().unwrap();
    let problems: Vec<_> = findings.iter().filter(|finding| finding["level"] == "problem").collect();
    assert!(!problems.is_empty() && problems.iter().all(|finding| finding["fix"].is_string()), "{report}");
    let drivers = report["drivers"].as_array().unwrap();
    let driver = drivers.iter().find(|driver| driver["name"] == "disk.example.net").unwrap();
    assert_eq!(driver["controller"], "alive");
}

#[test]
fn rights_that_a_role_lacks() {
    async fn furnish(stage: &Stage) {
        stage.ours("hub", "volmedic-hub", "hub-0").await;
        stage.lease("volmedic-hub", "hub-0", true).await;
    }
    let stage = build(true, |stage| Box::pin(furnish(stage)));
    assert_transcript("doctor", "sound.txt", &stage.reported(&["doctor"], 0));
    stage.kubectl(&["delete", "clusterrolebinding", "volmedic-hub"]);
    stage.kubectl(&["delete", "role", "-n", "default", "volmedic-hub"]);
    stage.kubectl(&["delete", "validatingadmissionpolicybinding", "volmedic-agent"]);
    stage.wait_hubs_rights(false);
    assert_transcript("doctor", "gaps.txt", &stage.reported(&["doctor"], 1));
}

#[test]
fn before_anything_is_installed() {
    assert_transcript("doctor", "before.txt", &bare().reported(&["doctor", "--pre"], 0));
}

#[tokio::test]
async fn a_user_without_rights_learns_before_that_installing_fails() {
    let config = bare().kubeconfig_of("nobody", "shop").await;
    let output = volmedic().args(["doctor", "--pre", "--kubeconfig"]).arg(&config).output().unwrap();
    assert_eq!(output.status.code(), Some(1), "{}", text(&output.stderr));
    assert_transcript("doctor", "before-forbidden.txt", &redact(&text(&output.stdout)));
}

/// Only what such nodes report matters, so a server that answers with it will do.
#[test]
fn before_on_nodes_of_many_kinds() {
    let node = |name: &str, labels: Value, info: [&str; 4]| {
        let [system, architecture, image, kubelet] = info;
        json!({
            "metadata": {"name": name, "labels": labels},
            "status": {
                "allocatable": {"pods": "1"},
                "nodeInfo": {"operatingSystem": system, "architecture": architecture, "osImage": image, "kubeletVersion": kubelet},
            },
        })
    };
    let list = |kind: &str, items: Vec<Value>| {
        json!({"kind": kind, "apiVersion": "v1", "metadata": {"resourceVersion": "1"}, "items": items})
            .to_string()
    };
    let nodes = list(
        "NodeList",
        vec![
            node("a", json!({}), ["linux", "amd64", "Fedora CoreOS 41", "v1.33.1"]),
            node("b", json!({"microk8s.io/cluster": "true"}), ["linux", "arm64", "Ubuntu 24.04", "v1.33.1"]),
            node("c", json!({}), ["linux", "amd64", "Debian 12", "v1.33.1+k0s"]),
            node("w", json!({}), ["windows", "amd64", "Windows Server 2022", "v1.33.1"]),
        ],
    );
    let pods = list(
        "PodList",
        vec![json!({"metadata": {"name": "p", "namespace": "n"}, "spec": {"nodeName": "c"}})],
    );
    let strict = json!({"metadata": {"name": "volmedic", "labels": {"pod-security.kubernetes.io/enforce": "baseline"}}});
    let namespaces = list("NamespaceList", vec![strict]);
    let server = serve(move |path| match path.split('?').next().unwrap_or_default() {
        "/version" => ("200 OK", VERSION.to_owned()),
        "/api/v1/nodes" => ("200 OK", nodes.clone()),
        "/api/v1/pods" => ("200 OK", pods.clone()),
        "/api/v1/namespaces" => ("200 OK", namespaces.clone()),
        "/apis" => ("200 OK", r#"{"kind":"APIGroupList","apiVersion":"v1","groups":[]}"#.to_owned()),
        _ => ("201 Created", ALLOWED.to_owned()),
    });
    let room = tempfile::tempdir().unwrap();
    let config = config_for(room.path(), &server);
    let output = volmedic().args(["doctor", "--pre", "--kubeconfig"]).arg(&config).output().unwrap();
    assert_eq!(output.status.code(), Some(1), "{}", text(&output.stderr));
    assert_transcript("doctor", "before-nodes.txt", &redact(&text(&output.stdout)));
}

/// Two more answers of such a server: a cluster without nodes, and a user who may not list pods.
#[test]
fn before_on_a_cluster_that_says_little() {
    for (nodes, expected) in [
        ("", "there are no nodes yet"),
        (
            r#"{"metadata":{"name":"a"}}"#,
            "it is unknown whether each node has room for an agent, because pods cannot be read: you may not list them",
        ),
    ] {
        let server = serve(move |path| match path.split('?').next().unwrap_or_default() {
            "/version" => ("200 OK", VERSION.to_owned()),
            "/api/v1/pods" => ("403 Forbidden", FORBIDDEN.to_owned()),
            "/api/v1/nodes" => ("200 OK", NODES.replace("NODES", nodes)),
            "/apis" => ("200 OK", r#"{"kind":"APIGroupList","apiVersion":"v1","groups":[]}"#.to_owned()),
            path if path.contains("authorization.k8s.io") => ("201 Created", ALLOWED.to_owned()),
            _ => ("200 OK", LIST.to_owned()),
        });
        let room = tempfile::tempdir().unwrap();
        let config = config_for(room.path(), &server);
        let output = volmedic().args(["doctor", "--pre", "--kubeconfig"]).arg(&config).output().unwrap();
        let said = text(&output.stdout);
        assert_eq!(output.status.code(), Some(3), "{said}{}", text(&output.stderr));
        assert!(said.contains(expected), "{said}");
        assert!(!said.contains("0 nodes") && !said.contains("architecture \n"), "{said}");
    }
}

/// The exit code is about what was asked for.
#[test]
fn some_areas_only() {
    let output = whole().run(&["doctor", "--area", "cluster,rights", "-o", "json"]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stdout));
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    let areas: BTreeSet<&str> = report["findings"]
        .as_array()
        .unwrap()
        .iter()
        .map(|finding| finding["area"].as_str().unwrap())
        .collect();
    assert_eq!(areas, BTreeSet::from(["cluster", "rights"]));
    assert_eq!(report["drivers"], json!([]));
}

#[test]
fn waiting_ends_when_there_is_no_problem_any_more() {
    let stage = build(true, |_| Box::pin(async {}));
    let mut command = volmedic();
    command.args(["doctor", "--wait", "5m", "--kubeconfig"]).arg(stage.plane.kubeconfig());
    let waiting = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    // It ends when there is a hub, however long that takes, and no sooner.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let stage = runtime.block_on(async {
        // A client works on the runtime that it was made on.
        let Stage { plane, .. } = stage;
        let stage = Stage { client: plane.client().await.unwrap(), plane };
        stage.ours("hub", "volmedic-hub", "hub-0").await;
        stage.lease("volmedic-hub", "hub-0", true).await;
        stage
    });
    let output = waiting.wait_with_output().unwrap();
    drop(stage);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stdout));
    let output = bare().run(&["doctor", "--wait", "1s"]);
    assert_eq!(output.status.code(), Some(1), "{}", text(&output.stdout));
}

#[test]
fn a_bundle_has_what_is_needed_and_with_redact_no_name() {
    let room = tempfile::tempdir().unwrap();
    for redact in [false, true] {
        let file = room.path().join(format!("{redact}.tar"));
        let mut arguments = vec!["doctor", "--bundle", file.to_str().unwrap()];
        arguments.extend(redact.then_some("--redact"));
        let output = whole().run(&arguments);
        assert_eq!(output.status.code(), Some(1), "{}", text(&output.stderr));
        assert!(text(&output.stderr).contains("Read it before you pass it on"), "{}", text(&output.stderr));
        let listed = Command::new("tar").arg("-xOf").arg(&file).output().unwrap();
        assert!(listed.status.success(), "{}", text(&listed.stderr));
        let all = text(&listed.stdout);
        for word in [
            "NodeVolumeHealth",
            "IOHung",
            "external-health-monitor-leader-disk-example-net",
            "volmedic-agent-pods",
        ] {
            assert!(all.contains(word), "{word}");
        }
        for name in ["data-0", "worker-1", "shop", "registry.example", "context volmedic", "array-watcher"] {
            assert_eq!(all.contains(name), !redact, "{name}");
        }
        let replaced = text(&output.stderr).contains("Replaced by numbers: namespaces");
        assert_eq!(replaced, redact, "{}", text(&output.stderr));
        assert_eq!(all.contains("is not responding: node-"), redact, "the findings follow the same numbers");
        assert!(!all.contains("managedFields"));
        assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
        assert!(!room.path().join(format!("{redact}.tar.part")).exists());
    }
    let nowhere = room.path().join("no/such/folder.tar");
    let output = whole().run(&["doctor", "--bundle", nowhere.to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(3));
    assert!(text(&output.stderr).contains("cannot write"), "{}", text(&output.stderr));
}

/// Only what such a server would answer matters, so one that answers it will do.
#[test]
fn an_old_server() {
    let server = serve(|path| {
        match path.split('?').next().unwrap_or_default() {
        "/version" => ("200 OK", r#"{"major":"1","minor":"27+","gitVersion":"v1.27.9-vendor.1","gitCommit":"","gitTreeState":"","buildDate":"","goVersion":"","compiler":"","platform":""}"#.to_owned()),
        path if path.contains("volmedic.dev") || path.contains("admissionregistration") => {
            ("404 Not Found", r#"{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"NotFound","message":"no such kind","code":404}"#.to_owned())
        }
        path if path.contains("authorization.k8s.io") => {
            ("201 Created", ALLOWED.to_owned())
        }
        "/metrics" => ("200 OK", "kubernetes_feature_enabled{name=\"CSIMigration\",stage=\"\"} 1\n".to_owned()),
        _ => ("200 OK", LIST.to_owned()),
    }
    });
    let room = tempfile::tempdir().unwrap();
    let config = config_for(room.path(), &server);
    let output = volmedic().args(["doctor", "--kubeconfig"]).arg(&config).output().unwrap();
    assert_eq!(output.status.code(), Some(1), "{}", text(&output.stderr));
    assert_transcript("doctor", "old-server.txt", &redact(&text(&output.stdout)));
    let output = volmedic().args(["status", "--kubeconfig"]).arg(&config).output().unwrap();
    assert!(
        text(&output.stdout).contains("there are no claims in all namespaces"),
        "{}",
        text(&output.stderr)
    );
}
