//! No cluster, the wrong one, or one that does not answer: each says what, and what next, in one screen.

use std::fs;
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::Output;

use serde_json::json;

use crate::reported::{assert_transcript, config_for, redact, serve, text, volmedic};
use crate::stage::whole;

/// Each of the three says the same of a cluster that is not there; only the exit code of the doctor is its own.
fn check(name: &str, run: impl Fn(&str) -> Output) {
    let output = run("status");
    let reported = text(&output.stderr);
    assert_eq!((output.status.code(), text(&output.stdout).as_str()), (Some(1), ""), "{reported}");
    assert_transcript("status", &format!("input-{name}.txt"), &redact(&reported));
    let doctor = run("doctor");
    assert_eq!((doctor.status.code(), redact(&text(&doctor.stderr))), (Some(3), redact(&reported)));
}

fn with_config(path: &Path, arguments: &[&str], role: &str) -> Output {
    volmedic().arg(role).arg("--kubeconfig").arg(path).args(arguments).output().unwrap()
}

#[test]
fn no_kubeconfig() {
    check("none", |role| volmedic().arg(role).output().unwrap());
    check("missing-file", |role| with_config(Path::new("/nonexistent/kubeconfig"), &[], role));
    let room = tempfile::tempdir().unwrap();
    let path = room.path().join("kubeconfig");
    fs::write(&path, "}{").unwrap();
    let output = with_config(&path, &[], "status");
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stderr).contains("cannot use the kubeconfig"), "{}", text(&output.stderr));
}

#[test]
fn the_wrong_context() {
    let path = whole().plane.kubeconfig();
    check("wrong-context", |role| with_config(path, &["--context", "staging"], role));
    let room = tempfile::tempdir().unwrap();
    let path = room.path().join("kubeconfig");
    let mut config = whole().config();
    config["current-context"] = "".into();
    fs::write(&path, config.to_string()).unwrap();
    let reported = text(&with_config(&path, &[], "status").stderr);
    assert!(reported.contains("has no current context; it has volmedic"), "{reported}");
}

#[test]
fn a_server_that_does_not_listen() {
    let room = tempfile::tempdir().unwrap();
    // The near end of a connection keeps its port from everybody else, and nobody listens on it.
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let held = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let port = held.local_addr().unwrap().port();
    let path = config_for(room.path(), &format!("http://127.0.0.1:{port}"));
    check("refused", |role| with_config(&path, &[], role));
}

#[test]
fn a_server_that_does_not_answer() {
    let room = tempfile::tempdir().unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let path = config_for(room.path(), &format!("http://{}", listener.local_addr().unwrap()));
    check("silent", |role| with_config(&path, &["--request-timeout", "5s"], role));
}

#[test]
fn something_else_answers() {
    let room = tempfile::tempdir().unwrap();
    let server = serve(|_| ("200 OK", "<html>welcome</html>".to_owned()));
    let path = config_for(room.path(), &server);
    check("not-kubernetes", |role| with_config(&path, &[], role));
}

#[test]
fn a_token_that_is_not_good() {
    let mut config = whole().config();
    config["users"][0]["user"] = json!({"token": "expired"});
    let path = whole().plane.kubeconfig().with_extension("expired");
    fs::write(&path, config.to_string()).unwrap();
    check("unauthorized", |role| with_config(&path, &[], role));
}

#[test]
fn a_command_line_that_makes_no_sense() {
    for arguments in [
        &["status", "-n", "a", "-A"][..],
        &["status", "--health", "splendid"],
        &["status", "-o", "xml"],
        &["status", "--watch", "--exit-code"],
        &["status", "--watch", "-o", "json"],
        &["status", "--request-timeout", "0s"],
        &["explain"],
        &["explain", "v", "--history", "f", "-n", "x"],
        &["doctor", "-o", "wide"],
    ] {
        let output = volmedic().args(arguments).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{arguments:?} {}", text(&output.stderr));
    }
}
