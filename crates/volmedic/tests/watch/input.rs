//! Bad input and a driver that is not there: each says what is wrong and what to do.

use std::fs;
use std::os::unix::net::UnixListener;
use std::process::Output;

use volmedic_testkit::sim::capability::LIST_VOLUMES;

use crate::stage::{Stage, text, volmedic};

fn check(output: &Output, code: i32, parts: &[&str]) {
    let reported = text(&output.stderr);
    assert_eq!(output.status.code(), Some(code), "{reported}");
    for part in parts {
        assert!(reported.contains(part), "no {part:?} in {reported}");
    }
}

#[test]
fn a_driver_that_is_not_there() {
    let room = tempfile::tempdir().unwrap();
    let run = |name: &str, timeout: &str| {
        let mut command = volmedic();
        command.args(["watch", "--once", "--timeout", timeout, "--csi-address"]);
        command.arg(room.path().join(name)).output().unwrap()
    };
    // What is wrong is found before the time is up, however slow the machine is.
    let ample = "60s";
    check(
        &run("none.sock", ample),
        1,
        &["cannot watch the driver", "there is no socket at", "start the driver, or correct --csi-address"],
    );
    fs::write(room.path().join("file"), "").unwrap();
    check(&run("file", ample), 1, &["is a regular file, not a socket"]);
    // Bound once, and nobody listens any more. It may only be starting, so it is given its time.
    drop(UnixListener::bind(room.path().join("dead.sock")).unwrap());
    check(&run("dead.sock", "5s"), 1, &["cannot be reached", "check that a CSI driver listens there"]);
    // Somebody listens, but never answers.
    let _silent = UnixListener::bind(room.path().join("silent.sock")).unwrap();
    check(&run("silent.sock", "1s"), 1, &["--timeout"]);
}

#[test]
fn a_command_line_that_makes_no_sense() {
    let stage = Stage::new(&[LIST_VOLUMES], &[]);
    for arguments in [
        &["--interval", "0s"][..],
        &["--interval", "soon"],
        &["--output", "xml", "--once"],
        &["--output", "json"],
        &["--explain", "vol-1"],
        &["--page-token-file", "x"],
        &["--once", "--page", "127.0.0.1:0"],
        &["--workers", "0"],
        &["--history-limit", "0"],
    ] {
        let output = stage.command(arguments).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{arguments:?} {}", text(&output.stderr));
    }
    let output = volmedic().arg("watch").output().unwrap();
    check(&output, 2, &["--csi-address"]);
}

#[test]
fn a_page_for_strangers_needs_a_token() {
    let stage = Stage::new(&[LIST_VOLUMES], &[]);
    let output = stage.command(&["--page", "0.0.0.0:0"]).output().unwrap();
    check(&output, 1, &["readers must have a token", "--page-token-file"]);
    let file = stage.file("token");
    fs::write(&file, "short\n").unwrap();
    let output = stage.command(&["--page", "0.0.0.0:0", "--page-token-file"]).arg(&file).output().unwrap();
    check(&output, 1, &["has 5 bytes", "openssl rand"]);
    assert!(!text(&output.stderr).contains("short"), "the token is in the error");

    fs::write(&file, "0123456789abcdef\n").unwrap();
    let watch = stage.watch(&["--page", "0.0.0.0:0", "--page-token-file", file.to_str().unwrap()]);
    watch.wait("page: http://0.0.0.0:");
    let said = watch.said();
    let port = said.rsplit_once("0.0.0.0:").unwrap().1.split('/').next().unwrap();
    assert_eq!(status(port, ""), 401);
    assert_eq!(status(port, "Authorization: Bearer 0123456789abcdeX\r\n"), 401);
    assert_eq!(status(port, "Authorization: Bearer 0123456789abcdef\r\n"), 200);
}

/// The status that the page answers with.
fn status(port: &str, header: &str) -> u16 {
    use std::io::{BufRead, BufReader, Write};
    let mut stream = std::net::TcpStream::connect(format!("127.0.0.1:{port}")).unwrap();
    stream.set_read_timeout(Some(crate::stage::PATIENCE)).unwrap();
    write!(stream, "GET / HTTP/1.1\r\nHost: anywhere.example\r\nConnection: close\r\n{header}\r\n").unwrap();
    let mut line = String::new();
    BufReader::new(stream).read_line(&mut line).unwrap();
    line.split(' ').nth(1).unwrap().parse().unwrap()
}
