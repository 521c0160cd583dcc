//! On a terminal: the table, the keys, and the terminal given back.

use std::io::Write;
use std::process::{Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};

use crate::stage::{Demo, Room, assert_lines_fit};

/// Runs it on a terminal of this size.
fn on_terminal(room: &Room, size: &str, environment: &str, arguments: &[&str]) -> Demo {
    let line = format!("stty {size}; exec env {environment} {}", room.words(arguments).join(" "));
    let mut command = Command::new("script");
    command
        .args(["-qefc", &line, "/dev/null"])
        .env("TERM", "xterm")
        .env_remove("NO_COLOR")
        .stdin(Stdio::piped());
    Demo::start(&mut command)
}

fn press(demo: &mut Demo, key: &str) {
    demo.child.stdin.as_mut().unwrap().write_all(key.as_bytes()).unwrap();
}

#[test]
fn a_terminal_shows_a_table_listens_to_keys_and_is_given_back() {
    let room = Room::new();
    let mut demo = on_terminal(&room, "cols 120 rows 40", "LANG=C", &["--fault", "drive-suspect:photos"]);
    demo.wait("\x1b[?1049h");
    demo.wait("VOLUME");
    demo.wait("\x1b[32mHealthy");
    demo.wait("Keys: m kill a mounter");
    demo.wait("DriveSuspect");
    press(&mut demo, "u");
    demo.wait("(target-unmounted)");
    demo.wait("is healed: ");
    demo.wait("What next");
    press(&mut demo, "q");
    let (status, said) = demo.end();
    assert!(status.success(), "{said}");
    let (_, after) = said.rsplit_once("\x1b[?1049l").expect("the screen is given back");
    assert!(after.contains("everything was cleaned up"), "{after}");
    assert!(after.contains("volmedic watch --csi-address"), "what next is said: {after}");
    room.assert_nothing_is_left();
}

#[test]
fn a_small_terminal_without_colours_is_fine_and_ctrl_c_ends_it() {
    let room = Room::new();
    let mut demo = on_terminal(&room, "cols 40 rows 12", "NO_COLOR=1", &[]);
    demo.wait("VOLUME");
    // News come and go between two frames here; what is always there is waited for.
    demo.wait("What happens");
    demo.wait("q quit");
    press(&mut demo, "\x03");
    let (status, said) = demo.end();
    assert!(status.success(), "who leaves early has seen enough: {said}");
    assert!(!said.contains("\x1b[32m") && !said.contains("\x1b[1m"), "{said}");
    for line in said.split("\x1b[K\r\n").skip(1) {
        let line = line.rsplit('\x1b').next().unwrap();
        assert!(line.chars().count() < 400, "{line}");
    }
    room.assert_nothing_is_left();
}

/// One sentence instead of a screen that cannot be read.
#[test]
fn a_terminal_that_is_too_small_is_reported_what_to_do() {
    let room = Room::new();
    let mut demo = on_terminal(&room, "cols 60 rows 8", "LANG=C", &[]);
    demo.wait("The terminal has 60 columns and 8 lines; the demo needs 40");
    demo.wait("Enlarge it, or quit with q and use --headless.");
    press(&mut demo, "q");
    let (status, said) = demo.end();
    assert!(status.success(), "{said}");
    room.assert_nothing_is_left();
}

/// A window that is closed is not waited for.
#[test]
fn a_terminal_that_goes_away_ends_it() {
    let room = Room::new();
    let mut demo = on_terminal(&room, "cols 80 rows 24", "LANG=C", &[]);
    demo.wait("What happens");
    kill_process(Pid::from_child(&demo.child), Signal::KILL).unwrap();
    demo.end();
    let deadline = std::time::Instant::now() + crate::stage::PATIENCE;
    while !room.left().is_empty() {
        assert!(std::time::Instant::now() < deadline, "left behind: {:#?}", room.left());
        std::thread::sleep(std::time::Duration::from_millis(100));
    }
}

/// Where nothing can be drawn, each change is a line.
#[test]
fn a_dumb_terminal_gets_lines() {
    let room = Room::new();
    let demo = on_terminal(&room, "cols 80 rows 24", "TERM=dumb", &["--fault", "drive-suspect"]);
    let (status, said) = demo.end();
    assert!(status.success(), "{said}");
    assert!(!said.contains('\x1b') && said.contains("is Degraded/DriveSuspect"), "{said}");
    assert_lines_fit(&said, 80);
    room.assert_nothing_is_left();
}
