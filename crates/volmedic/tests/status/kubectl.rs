//! What people expect of a program beside kubectl: its formats, and its flags.

use std::fs;

use serde_json::{Value, json};

use crate::limited::reader;
use crate::reported::{assert_transcript, redact, text, volmedic};
use crate::stage::whole;

#[test]
fn a_template_selects_what_it_selects_for_kubectl() {
    let stage = whole();
    let status = |format: &str| stage.run(&["status", "-n", "shop", "-o", format]);
    let mut document: Value = serde_json::from_slice(&status("json").stdout).unwrap();
    for (name, value) in [
        ("apiVersion", json!("volmedic.dev/v1alpha1")),
        ("kind", json!("VolumeHealth")),
        ("metadata", json!({"name": "x"})),
    ] {
        document[name] = value;
    }
    let room = tempfile::tempdir().unwrap();
    let file = room.path().join("document.json");
    fs::write(&file, document.to_string()).unwrap();
    let file = file.display().to_string();
    for template in [
        "{.volumes[*].claim}",
        "{.volumes[0].health}/{.volumes[-1].health}",
        "{.volumes[1:3].claim}",
        "{$.counts.total} {.counts.degraded}",
        "{.volumes[?(@.health==\"Inaccessible\")].claim}",
        "{.volumes[?(@.health!='Inaccessible')].claim}",
        "{.volumes[?(@.pods)].pods[0]}",
        "{range .volumes[*]}{.namespace}{\"/\"}{.claim}{\"\\t\"}{.reason}{\"\\n\"}{end}",
        "{range .volumes[*]}{range .seenBy[*]}{.vantage}{\" \"}{end}{end}",
        "{range .volumes[*]}{.claim} is {@.health}, {end}",
        "{.volumes[0].pods}",
        "{.volumes[*]['claim']}",
        "{.missing.more}",
        "no template",
    ] {
        let kubectls = stage.kubectl(&[
            "create",
            "--dry-run=client",
            "--validate=false",
            "-f",
            &file,
            "-o",
            &format!("jsonpath={template}"),
        ]);
        let ours = status(&format!("jsonpath={template}"));
        assert_eq!(
            (text(&ours.stdout), ours.status.code()),
            (kubectls, Some(0)),
            "{template} {}",
            text(&ours.stderr)
        );
    }
    let none = status("jsonpath={.volumes[99].claim}");
    assert_eq!((none.status.code(), text(&none.stdout)), (Some(1), String::new()));
    let errors = text(&none.stderr);
    assert!(errors.contains("character 11 of the template: there is no item 99 in a list of 9"), "{errors}");
    let wrong = status("jsonpath={..claim}");
    assert_eq!(wrong.status.code(), Some(2));
    assert!(
        text(&wrong.stderr).contains("character 3 of the template: `..` is not supported"),
        "{}",
        text(&wrong.stderr)
    );
}

#[test]
fn names_and_documents() {
    let stage = whole();
    let names = stage.reported(&["status", "-n", "shop", "--health", "inaccessible", "-o", "name"], 0);
    let mut names: Vec<&str> = names.lines().collect();
    names.sort_unstable();
    assert_eq!(names, ["persistentvolumeclaim/data-0", "persistentvolumeclaim/data-4"]);
    // What kubectl reads.
    stage.kubectl(&["get", "-n", "shop", names[0]]);
    assert_eq!(
        stage.reported(&["explain", "shop/data-0", "-o", "name"], 0),
        "persistentvolumeclaim/data-0\n"
    );
    let template = "jsonpath={.claim.reason} {.heals[0].outcome} {.evidence[*].lines[0]}";
    let line = stage.reported(&["explain", "shop/data-0", "-o", template], 0);
    assert_eq!(line, "IOHung Failed kernel: nbd3: Connection timed out\n");
    assert_transcript(
        "status",
        "markdown.txt",
        &stage.reported(&["status", "-n", "shop", "-o", "markdown"], 0),
    );
    assert_transcript(
        "status",
        "post-mortem.txt",
        &stage.reported(&["explain", "shop/data-0", "-o", "markdown"], 0),
    );
    assert_transcript(
        "status",
        "post-mortem-node-down.txt",
        &stage.reported(&["explain", "shop/data-4", "-o", "markdown"], 0),
    );
}

#[tokio::test]
async fn as_another_user() {
    let stage = whole();
    reader(stage);
    let account = "system:serviceaccount:default:reader";
    let shown = stage.reported(&["status", "-n", "shop", "--as", account], 0);
    assert!(shown.contains(&format!("context volmedic as {account}: 9 claims")), "{shown}");
    assert!(shown.contains("you may not list"), "{shown}");
    let output = stage.run(&["status", "--as", "jane"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stderr).contains("you may not list claims"), "{}", text(&output.stderr));

    // Every group counts, not only the last.
    let groups = ["--as-group", "system:masters", "--as-group", "system:authenticated"];
    let shown = stage.reported(&[&["status", "--as", "jane"][..], &groups].concat(), 0);
    assert!(shown.contains("as jane:") && !shown.contains("you may not"), "{shown}");
    for command in ["explain", "heal"] {
        let output = stage.run(&[command, "data-0", "-n", "shop", "--as", "jane"]);
        assert_eq!(output.status.code(), Some(1), "{command}: {}", text(&output.stdout));
        assert!(text(&output.stderr).contains("jane"), "{command}: {}", text(&output.stderr));
    }

    let config = stage.kubeconfig_of("reader", "shop").await;
    let output = volmedic().args(["status", "--as", "jane", "--kubeconfig"]).arg(&config).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    let errors = redact(&text(&output.stderr));
    assert!(errors.contains("you may not act as another user") && errors.contains("impersonate"), "{errors}");
    assert_eq!(stage.run(&["status", "--as-group", "x"]).status.code(), Some(2));
}
