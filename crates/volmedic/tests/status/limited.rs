//! A user who may not read everything is shown what he may, and what he may not.

use std::sync::OnceLock;

use crate::reported::{assert_transcript, redact, text, volmedic};
use crate::stage::{Stage, whole};

/// An account that may read the claims of one namespace and nothing else.
pub(crate) fn reader(stage: &Stage) {
    static ONCE: OnceLock<()> = OnceLock::new();
    ONCE.get_or_init(|| {
        stage.kubectl(&[
            "create",
            "role",
            "reader",
            "-n",
            "shop",
            "--verb=list,get",
            "--resource=persistentvolumeclaims",
        ]);
        stage.kubectl(&[
            "create",
            "rolebinding",
            "reader",
            "-n",
            "shop",
            "--role=reader",
            "--serviceaccount=default:reader",
        ]);
    });
    for verb in ["list", "get"] {
        stage.wait_allowed("reader", "shop", [verb, "persistentvolumeclaims"], true);
    }
}

#[tokio::test]
async fn claims_of_one_namespace() {
    let stage = whole();
    reader(stage);
    let config = stage.kubeconfig_of("reader", "shop").await;
    let output = volmedic().args(["status", "--kubeconfig"]).arg(&config).output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    assert_transcript("status", "limited.txt", &redact(&text(&output.stdout)));

    // Who insists on all is not shown less without a word.
    let output = volmedic().args(["status", "-A", "--kubeconfig"]).arg(&config).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    let reported = text(&output.stderr);
    assert!(reported.contains("you may not list claims in all namespaces"), "{reported}");

    let output = volmedic().args(["explain", "data-0", "--kubeconfig"]).arg(&config).output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    assert_transcript("status", "explain-limited.txt", &redact(&text(&output.stdout)));
}

#[tokio::test]
async fn nothing_at_all() {
    let config = whole().kubeconfig_of("nobody", "shop").await;
    for command in [&["status"][..], &["explain", "data-0"]] {
        let output = volmedic().args(command).arg("--kubeconfig").arg(&config).output().unwrap();
        assert_eq!(output.status.code(), Some(1), "{}", text(&output.stdout));
        assert_transcript("status", &format!("forbidden-{}.txt", command[0]), &redact(&text(&output.stderr)));
    }
}
