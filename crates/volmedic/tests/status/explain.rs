//! One claim in full.

use k8s_openapi::jiff::{SignedDuration, Timestamp};
use serde_json::Value;

use crate::reported::{assert_transcript, redact, text, volmedic};
use crate::stage::{bare, whole};

fn check(name: &str, arguments: &[&str]) {
    assert_transcript("status", name, &whole().reported(arguments, 0));
}

#[test]
fn claims_of_every_kind() {
    check("explain-hung.txt", &["explain", "data-0", "-n", "shop"]);
    check("explain-node-down.txt", &["explain", "shop/data-4"]);
    check("explain-nobody-looks.txt", &["explain", "pvc/data-3", "-n", "shop"]);
    check("explain-well.txt", &["explain", "well", "-n", "calm"]);
    check("explain-waiting.txt", &["explain", "waiting", "-n", "shop"]);
}

#[test]
fn where_nothing_is_installed() {
    assert_transcript("status", "explain-bare.txt", &bare().reported(&["explain", "ill", "-n", "shop"], 0));
}

#[test]
fn for_machines() {
    let output = whole().run(&["explain", "data-0", "-n", "shop", "-o", "json"]);
    let explained: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(explained["claim"]["reason"], "IOHung");
    assert_eq!(explained["evidence"][0]["lines"][0], "kernel: nbd3: Connection timed out");
    assert_eq!(explained["heals"][0]["outcome"], "Failed");
    assert_eq!(explained["users"][0]["nodeState"], "ready");
    assert_eq!(explained["history"].as_array().unwrap().len(), 3);
}

#[test]
fn a_claim_that_is_not_there() {
    let output = whole().run(&["explain", "nothing", "-n", "shop"]);
    assert_eq!(output.status.code(), Some(1));
    let reported = text(&output.stderr);
    assert!(
        reported.contains("there is no claim nothing in namespace shop")
            && reported.contains("volmedic status -n shop"),
        "{reported}"
    );
}

/// The file that `volmedic watch --history` keeps, without a cluster.
#[test]
fn from_a_history() {
    let room = tempfile::tempdir().unwrap();
    let file = room.path().join("history");
    let now = Timestamp::now();
    let line = |hours: i64, health: &str, standing: &str, reported: &str| {
        let at = now - SignedDuration::from_hours(hours);
        format!(
            r#"{{"at":"{at}","driver":"disk.example.net","volume":"vol-1","vantage":"controller","kind":"x","warning":true,
                "health":"{health}","standing":[{}],"text":"{reported}"}}"#,
            standing.replace("AT", &at.to_string())
        )
        .replace('\n', "")
    };
    let wrong = r#"{"status":"Degraded","reason":"OutOfCapacity","message":"99 % used","since":"AT"}"#;
    let lines = [
        line(30, "Degraded", wrong, "volume vol-1 is Degraded/OutOfCapacity"),
        line(10, "Healthy", "", "volume vol-1 recovered"),
    ];
    std::fs::write(&file, lines.map(|line| line + "\n").concat()).unwrap();
    let output = volmedic().args(["explain", "vol-1", "--history"]).arg(&file).output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    assert_transcript("status", "explain-history.txt", &redact(&text(&output.stdout)));

    let output = volmedic().args(["explain", "vol-2", "--history"]).arg(&file).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stderr).contains("has nothing about a volume vol-2"), "{}", text(&output.stderr));
}
