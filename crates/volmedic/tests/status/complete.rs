//! What is offered while a command line is typed: by kubectl itself, and by the program.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::time::{Duration, Instant};

use serde_json::json;

use crate::reported::{text, volmedic};
use crate::stage::whole;

/// What kubectl offers for a line whose last word is not finished, without the descriptions.
fn offered(room: &Path, config: &Path, words: &[&str]) -> Vec<String> {
    let kubectl = whole().plane.kubectl();
    let mut command = std::process::Command::new(kubectl.get_program());
    command.args(["kubectl", "__complete", "volmedic"]).args(words);
    let path = format!("{}:{}", room.display(), std::env::var("PATH").unwrap());
    let output = command.env("PATH", path).env("KUBECONFIG", config).output().unwrap();
    let said = text(&output.stdout);
    assert!(output.status.success(), "{words:?}: {said}{}", text(&output.stderr));
    said.lines().map(|line| line.split('\t').next().unwrap_or_default().to_owned()).collect()
}

#[test]
fn kubectl_completes_from_the_cluster() {
    let stage = whole();
    let room = tempfile::tempdir().unwrap();
    for name in ["kubectl-volmedic", "kubectl_complete-volmedic"] {
        symlink(env!("CARGO_BIN_EXE_volmedic"), room.path().join(name)).unwrap();
    }
    let check = |words: &[&str], expected: &[&str]| {
        let found = offered(room.path(), stage.plane.kubeconfig(), words);
        assert_eq!(found, [expected, &[":4"]].concat(), "{words:?}");
    };
    check(&["stat"], &["status"]);
    check(&["status", "--exi"], &["--exit-code"]);
    check(&["explain", "-n", "shop", "data-"], &["data-0", "data-1", "data-2", "data-3", "data-4"]);
    check(&["explain", "shop/f"], &["shop/files-idle", "shop/full"]);
    check(&["heal", "-n", "calm", ""], &["spare", "well"]);
    check(&["status", "-n", "sh"], &["shop"]);
    check(&["status", "--namespace=ca"], &["--namespace=calm"]);
    check(&["status", "--context", ""], &["volmedic"]);
    check(&["status", "--node", "worker-"], &["worker-1", "worker-2", "worker-3", "worker-4"]);
    check(&["status", "--driver", "disk"], &["disk.example.net"]);
    check(&["status", "--reason", "IOH"], &["IOHung"]);
    check(&["status", "--health", "n"], &["notwell"]);
    check(&["status", "-o", "m"], &["markdown"]);
    // With the rights of the user that is named.
    check(&["explain", "-n", "shop", "--as", "jane", "data-"], &[]);
    assert_eq!(offered(room.path(), stage.plane.kubeconfig(), &["status", "--kubeconfig", ""]), [":0"]);
}

#[test]
fn completion_offers_nothing_that_a_shell_would_run_and_ends_in_time() {
    let room = tempfile::tempdir().unwrap();
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let context = |name: &str| json!({"name": name, "context": {"cluster": "c", "user": "u"}});
    let hostile = ["good", "a;reboot", "$(reboot)", "two words", "line\nbreak", "tab\tstop", "`x`", "-n"];
    let config = json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "good",
        "clusters": [{"name": "c", "cluster": {"server": format!("http://{}", silent.local_addr().unwrap())}}],
        "users": [{"name": "u", "user": {}}],
        "contexts": hostile.map(context),
    });
    let path = room.path().join("kubeconfig");
    fs::write(&path, config.to_string()).unwrap();
    let complete = |words: &[&str]| {
        let output = volmedic().arg("__complete").args(words).env("KUBECONFIG", &path).output().unwrap();
        (text(&output.stdout), text(&output.stderr), output.status.code())
    };
    let expected = |offers: &str| (offers.to_owned(), String::new(), Some(0));
    assert_eq!(complete(&["status", "--context", ""]), expected("good\n:4\n"));
    let began = Instant::now();
    assert_eq!(complete(&["explain", ""]), expected(":4\n"));
    // Its own deadline is 2 s; that of a request is 30 s.
    assert!(began.elapsed() < Duration::from_secs(25), "{:?}", began.elapsed());
    assert_eq!(complete(&["explain", "--kubeconfig", "/nonexistent", ""]), expected(":4\n"));
}
