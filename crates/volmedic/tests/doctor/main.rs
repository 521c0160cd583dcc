//! `volmedic doctor` as a process on a real API server: each finding with its fix.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should say where")]

#[allow(dead_code, reason = "the tests of status use the rest")]
#[path = "../status/stage.rs"]
mod stage;
#[path = "../status/told.rs"]
mod told;

use serde_json::Value;
use stage::{Stage, bare, build, whole};
use told::{assert_transcript, config_for, redact, serve, text, volmedic};

#[test]
fn an_installation_with_faults() {
    assert_transcript("doctor", "whole.txt", &whole().told(&["doctor"], 1));
}

#[test]
fn nothing_installed() {
    assert_transcript("doctor", "bare.txt", &bare().told(&["doctor"], 1));
}

#[tokio::test]
async fn who_may_read_nothing_is_told_so() {
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
    let mend: Vec<_> = findings.iter().filter(|finding| finding["level"] == "mend").collect();
    assert!(!mend.is_empty() && mend.iter().all(|finding| finding["fix"].is_string()), "{report}");
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
    assert_transcript("doctor", "sound.txt", &stage.told(&["doctor"], 0));
    stage.kubectl(&["delete", "clusterrolebinding", "volmedic-hub"]);
    stage.kubectl(&["delete", "role", "-n", "default", "volmedic-hub"]);
    stage.kubectl(&["delete", "validatingadmissionpolicybinding", "volmedic-agent"]);
    stage.wait_hubs_rights(false);
    assert_transcript("doctor", "gaps.txt", &stage.told(&["doctor"], 1));
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
            ("201 Created", r#"{"apiVersion":"authorization.k8s.io/v1","kind":"SelfSubjectAccessReview","spec":{},"status":{"allowed":true}}"#.to_owned())
        }
        "/metrics" => ("200 OK", "kubernetes_feature_enabled{name=\"CSIMigration\",stage=\"\"} 1\n".to_owned()),
        _ => ("200 OK", r#"{"kind":"List","apiVersion":"v1","metadata":{"resourceVersion":"1"},"items":[]}"#.to_owned()),
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
