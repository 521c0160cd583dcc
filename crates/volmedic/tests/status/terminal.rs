//! On a terminal: colours unless they are not wanted, lines that fit, and a word to whoever waits.

use std::process::{Command, Stdio};
use std::time::Duration;

use crate::stage::whole;
use crate::told::{config_for, serve, text};

/// What a command prints on a terminal of 100 columns.
fn on_a_terminal(environment: &[(&str, &str)], arguments: &str) -> String {
    let line = format!("stty cols 100 rows 30; exec {} {arguments}", env!("CARGO_BIN_EXE_volmedic"));
    let mut command = Command::new("script");
    command.args(["--quiet", "--return", "--command", &line, "/dev/null"]).stdin(Stdio::null());
    command.env("TERM", "xterm").env_remove("NO_COLOR").envs(environment.iter().copied());
    text(&command.output().unwrap().stdout)
}

#[test]
fn colours_and_width() {
    let status = format!("status --kubeconfig {}", whole().plane.kubeconfig().display());
    let told = on_a_terminal(&[], &status);
    assert!(told.contains("\x1b[31mInaccessible\x1b[0m"), "{told}");
    let bare = on_a_terminal(&[("NO_COLOR", "1")], &status);
    assert!(!bare.contains("\x1b["), "{bare:?}");
    let table = bare.lines().filter(|line| line.starts_with("NAMESPACE") || line.starts_with("shop"));
    assert!(table.clone().count() > 5, "{bare}");
    for line in table {
        assert!(line.trim_end().chars().count() <= 100, "{line}");
    }
    let doctor = format!("doctor --kubeconfig {}", whole().plane.kubeconfig().display());
    assert!(on_a_terminal(&[], &doctor).contains("\x1b[31m✖\x1b[0m"));
    assert!(!on_a_terminal(&[("NO_COLOR", "1")], &doctor).contains("\x1b["));
}

#[test]
fn whoever_waits_is_told_what_for() {
    let server = serve(|path| {
        if path.contains("persistentvolumeclaims") {
            std::thread::sleep(Duration::from_secs(2));
        }
        match path.split('?').next().unwrap_or_default() {
            "/version" => (
                "200 OK",
                r#"{"major":"1","minor":"37","gitVersion":"v1.37.1","gitCommit":"","gitTreeState":"","buildDate":"","goVersion":"","compiler":"","platform":""}"#.to_owned(),
            ),
            _ => ("200 OK", r#"{"metadata":{"resourceVersion":"1"},"items":[]}"#.to_owned()),
        }
    });
    let room = tempfile::tempdir().unwrap();
    let status = format!("status --kubeconfig {}", config_for(room.path(), &server).display());
    let told = on_a_terminal(&[], &status);
    assert!(told.contains("reading the cluster …\r\x1b[K"), "{told:?}");
    assert!(told.contains("there are no claims in all namespaces"), "{told}");
}
