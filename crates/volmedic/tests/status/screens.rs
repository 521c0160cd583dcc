//! The main screens, whole.

use serde_json::Value;

use crate::stage::{bare, whole};
use crate::told::{assert_transcript, text};

fn check(name: &str, arguments: &[&str]) {
    assert_transcript("status", name, &whole().told(arguments, 0));
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
    let told = stage.told(&["status", "-l", "app=quiet"], 0);
    assert!(told.contains("all is well with 1 claim") && told.contains("calm"), "{told}");
}

#[test]
fn nothing_installed() {
    assert_transcript("status", "bare.txt", &bare().told(&["status"], 0));
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
    let ill = named("data-0");
    assert_eq!((&ill["health"], &ill["reason"]), (&"Inaccessible".into(), &"IOHung".into()));
    assert_eq!(ill["seenBy"][0]["conditions"][0]["reason"], "IOHung");
    assert_eq!((&ill["nodes"][0], &ill["pods"][0]), (&"worker-1".into(), &"db-0".into()));
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
    let told = text(&output.stdout);
    assert!(told.contains("all is well with 2 claims in namespace calm"), "{told}{}", text(&output.stderr));
}
