//! On a terminal: colours unless they are not wanted, lines that fit, and a word while something is waited for.

use std::io::Read;
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::sync::mpsc::channel;

use crate::reported::{config_for, serve, text};
use crate::stage::{PATIENCE, whole};

/// A command on a terminal of 100 columns.
fn terminal(environment: &[(&str, &str)], arguments: &str) -> Command {
    let line = format!("stty cols 100 rows 30; exec {} {arguments}", env!("CARGO_BIN_EXE_volmedic"));
    let mut command = Command::new("script");
    command.args(["--quiet", "--flush", "--return", "--command", &line, "/dev/null"]).stdin(Stdio::null());
    command.env("TERM", "xterm").env_remove("NO_COLOR").envs(environment.iter().copied());
    command
}

/// What a command prints there.
fn on_a_terminal(environment: &[(&str, &str)], arguments: &str) -> String {
    text(&terminal(environment, arguments).output().unwrap().stdout)
}

#[test]
fn colours_and_width() {
    let status = format!("status --kubeconfig {}", whole().plane.kubeconfig().display());
    let reported = on_a_terminal(&[], &status);
    assert!(reported.contains("\x1b[31mInaccessible\x1b[0m"), "{reported}");
    let bare = on_a_terminal(&[("NO_COLOR", "1")], &status);
    assert!(!is_coloured(&bare), "{bare:?}");
    let table = bare.lines().filter(|line| line.starts_with("NAMESPACE") || line.starts_with("shop"));
    assert!(table.clone().count() > 5, "{bare}");
    for line in table {
        assert!(line.trim_end().chars().count() <= 100, "{line}");
    }
    let doctor = format!("doctor --kubeconfig {}", whole().plane.kubeconfig().display());
    assert!(on_a_terminal(&[], &doctor).contains("\x1b[31m✖\x1b[0m"));
    let bare = on_a_terminal(&[("NO_COLOR", "1")], &doctor);
    assert!(!is_coloured(&bare), "{bare:?}");
}

/// On a busy machine the line about the wait is shown and erased, which is no colour.
fn is_coloured(text: &str) -> bool {
    text.replace("\x1b[K", "").contains("\x1b[")
}

/// The claims are not sent before the line about the wait was seen, however long that takes.
#[test]
fn a_user_who_waits_sees_what_for() {
    const WAIT: &str = "reading the cluster …";
    let (seen, is_seen) = channel();
    let is_seen = Mutex::new(is_seen);
    let server = serve(move |path| {
        if path.contains("persistentvolumeclaims") {
            let waited = is_seen.lock().unwrap().recv_timeout(PATIENCE);
            if waited.is_err() {
                return ("500 Internal Server Error", String::new());
            }
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
    let kubeconfig = config_for(room.path(), &server);
    let status = format!("status --request-timeout 5m --kubeconfig {}", kubeconfig.display());
    let mut child = terminal(&[], &status).stdout(Stdio::piped()).spawn().unwrap();
    let mut out = child.stdout.take().unwrap();
    let (mut reported, mut piece, mut seen) = (Vec::new(), [0; 1024], Some(seen));
    loop {
        let read = out.read(&mut piece).unwrap();
        if read == 0 {
            break;
        }
        reported.extend_from_slice(&piece[..read]);
        if String::from_utf8_lossy(&reported).contains(WAIT)
            && let Some(seen) = seen.take()
        {
            seen.send(()).unwrap();
        }
    }
    assert!(child.wait().unwrap().success());
    let reported = text(&reported);
    assert!(reported.contains(&format!("{WAIT}\r\x1b[K")), "{reported:?}");
    assert!(reported.contains("there are no claims in all namespaces"), "{reported}");
}
