//! The main screens, whole.

use serde_json::Value;

use crate::reported::{assert_transcript, text};
use crate::stage::{bare, whole};

fn check(name: &str, arguments: &[&str]) {
    assert_transcript("status", name, &whole().reported(arguments, 0));
}

#[test]
fn the_whole_cluster() {
    check("status.txt", &["status"]);
    check("wide.txt", &["status", "-A", "-o", "wide", "--health", "notwell"]);
}

#[test]
fn parts_of_it() {
    check("calm.txt", &["status", "-n", "calm"]);
    check("empty.txt", &["status", "-n", "kube-public"]);
    check("no-match.txt", &["status", "--driver", "other.example.net"]);
    check("few.txt", &["status", "--limit", "2", "--health", "inaccessible,unknown"]);
    check("by-node.txt", &["status", "--node", "worker-4"]);
    check("by-reason.txt", &["status", "--reason", "outofcapacity"]);
    check("by-word.txt", &["status", "db-1"]);
}

#[test]
fn by_label() {
    let stage = whole();
    stage.kubectl(&["label", "pvc", "-n", "calm", "well", "app=quiet", "--overwrite"]);
    let reported = stage.reported(&["status", "-l", "app=quiet"], 0);
    assert!(reported.contains("nothing is wrong with 1 claim") && reported.contains("calm"), "{reported}");
}

#[test]
fn nothing_installed() {
    assert_transcript("status", "bare.txt", &bare().reported(&["status"], 0));
}

#[test]
fn for_machines_the_same_in_both_formats() {
    let output = whole().run(&["status", "-n", "shop", "-o", "json"]);
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    let counts = &report["counts"];
    assert_eq!(
        (&counts["total"], &counts["inaccessible"], &counts["degraded"]),
        (&9.into(), &2.into(), &1.into())
    );
    let named =
        |name: &str| report["volumes"].as_array().unwrap().iter().find(|row| row["claim"] == name).unwrap();
    let unhealthy = named("data-0");
    assert_eq!((&unhealthy["health"], &unhealthy["reason"]), (&"Inaccessible".into(), &"IOHung".into()));
    assert_eq!(unhealthy["seenBy"][0]["conditions"][0]["reason"], "IOHung");
    assert_eq!((&unhealthy["nodes"][0], &unhealthy["pods"][0]), (&"worker-1".into(), &"db-0".into()));
    let unseen = named("data-3");
    assert_eq!((&unseen["health"], &unseen["reason"]), (&"Unknown".into(), &"NotProbed".into()));
    assert!(unseen["message"].as_str().unwrap().contains("no agent runs on node worker-3"), "{unseen}");

    let yaml = text(&whole().run(&["status", "-n", "shop", "-o", "yaml", "--limit", "1"]).stdout);
    for line in ["  inaccessible: 2", "  health: Inaccessible"] {
        assert!(yaml.lines().any(|found| found == line), "no {line:?} in\n{yaml}");
    }
    assert_eq!(yaml.matches("claim:").count(), 1, "{yaml}");
}

#[test]
fn the_exit_code_says_how_it_is_if_it_is_asked() {
    let code =
        |arguments: &[&str]| whole().run(&[&["status", "--exit-code"], arguments].concat()).status.code();
    assert_eq!(code(&["-n", "shop"]), Some(3));
    assert_eq!(code(&["-n", "shop", "--reason", "NotProbed"]), Some(4));
    assert_eq!(code(&["-n", "calm"]), Some(0));
    assert_eq!(code(&["-n", "kube-public"]), Some(0));
}

#[test]
fn as_a_plugin_of_kubectl() {
    let stage = whole();
    let room = tempfile::tempdir().unwrap();
    std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_volmedic"), room.path().join("kubectl-volmedic")).unwrap();
    let path = format!("{}:{}", room.path().display(), std::env::var("PATH").unwrap());
    let kubectl = stage.plane.kubectl();
    // Flags come behind the name of a plugin.
    let mut command = std::process::Command::new(kubectl.get_program());
    command.args(["kubectl", "volmedic", "status", "-n", "calm"]);
    let output = command.env("PATH", path).env("KUBECONFIG", stage.plane.kubeconfig()).output().unwrap();
    let reported = text(&output.stdout);
    assert!(
        reported.contains("nothing is wrong with 2 claims in namespace calm"),
        "{reported}{}",
        text(&output.stderr)
    );
}
