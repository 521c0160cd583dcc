//! `volmedic conformance` as a process, against the reference driver as another. Needs root.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on should say where")]

#[path = "../driver/ground.rs"]
#[allow(dead_code, reason = "shared with the driver's own tests, which use all of it")]
mod ground;

mod transcript;

use std::fs;
use std::process::{Command, Output, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use ground::{Ground, PROGRAM, SOON};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

fn conformance(ground: &Ground, arguments: &[&str]) -> Command {
    let mut command = Command::new(PROGRAM);
    command
        .arg("conformance")
        .arg(format!("--csi-address=unix://{}", ground.socket().display()))
        .args(["--staging-dir", &ground.kubelet(""), "--target-dir", &ground.kubelet("")])
        .args(arguments)
        .stdin(Stdio::null());
    command
}

fn text(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

/// Runs every rule, and returns how many have each result. None may be broken.
fn check(ground: &Ground, arguments: &[&str]) -> [usize; 2] {
    let output = conformance(ground, &["-o", "json"]).args(arguments).output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}\n{}", text(&output), ground.log());
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(report["leftovers"], Value::Array(Vec::new()));
    let outcomes = report["outcomes"].as_array().unwrap();
    let count = |verdict: &str| outcomes.iter().filter(|outcome| outcome["verdict"] == verdict).count();
    assert_eq!(count("fail"), 0);
    [count("pass"), count("notApplicable")]
}

/// Each dialect has rules of its own; in both together, with volumes that can be hurt, none is left out.
#[test]
fn the_reference_driver_keeps_every_rule() {
    for (dialect, arguments, expected) in [
        ("legacy", &[][..], [37, 25]),
        ("health", &[], [57, 5]),
        ("both", &[], [62, 0]),
        ("both", &["--block"], [62, 0]),
        ("both", &["--parameters", "kind=fuse"], [62, 0]),
    ] {
        let mut ground = Ground::new();
        ground.start(&["--dialect", dialect]);
        let state = ground.state().root().display().to_string();
        let mut arguments = arguments.to_vec();
        arguments.extend(["--fault-state-dir", &state]);
        assert_eq!(check(&ground, &arguments), expected, "{dialect} {arguments:?}");
        ground.assert_clean();
    }
}

#[test]
fn controller_and_node_may_have_sockets_of_their_own() {
    let mut ground = Ground::new();
    ground.start(&["--services", "controller"]);
    let node = ground.path().join("node.sock");
    ground.start_at(&node, &["--services", "node"]);
    let address = format!("unix://{}", node.display());
    assert_eq!(check(&ground, &["--node-address", &address]), [56, 6]);
    // Without it, the rules about the node do not apply, and none is broken.
    let [passed, not_applicable] = check(&ground, &[]);
    assert!(passed >= 38 && not_applicable >= 20, "{passed} {not_applicable}");
    ground.assert_clean();
}

#[test]
fn a_broken_rule_is_one_and_bad_usage_is_two() {
    let mut ground = Ground::new();
    ground.start(&[]);
    // Where the driver may not publish, it cannot.
    let outside = ground.path().join("outside");
    fs::create_dir(&outside).unwrap();
    let output = conformance(&ground, &["--only", "volumes-are-published", "--only", "plugin-name"])
        .args(["--target-dir"])
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(2), "{}", text(&output));
    let output = Command::new(PROGRAM)
        .arg("conformance")
        .arg(format!("--csi-address=unix://{}", ground.socket().display()))
        .args(["--only", "volumes-are-published", "--only", "plugin-name"])
        .arg("--target-dir")
        .arg(&outside)
        .arg("--staging-dir")
        .arg(&outside)
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(1), "{}", text(&output));
    let reported = text(&output);
    assert!(
        reported.contains("not below an allowed root") && reported.contains("1 passed, 1 failed"),
        "{reported}"
    );
    assert_eq!(fs::read_dir(&outside).unwrap().count(), 0);
    for bad in [
        ["--only", "no-such-rule"],
        ["--parameters", "kind"],
        ["--output", "xml"],
        ["--node-address", "tcp://x"],
    ] {
        let output = conformance(&ground, &bad).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{bad:?} {}", text(&output));
    }
    ground.assert_clean();
}

/// A rule that was broken before is no reason for CI to fail; one that was not is.
#[test]
fn a_run_is_compared_with_an_earlier_one_and_written_for_ci() {
    let mut ground = Ground::new();
    ground.start(&[]);
    let outside = ground.path().join("outside");
    fs::create_dir(&outside).unwrap();
    let only = ["--only", "volumes-are-published", "--only", "plugin-name"];
    let file = |name: &str, output: &Output| {
        let path = ground.path().join(name);
        fs::write(&path, &output.stdout).unwrap();
        path.display().to_string()
    };
    let run = |directory: &str, more: &[&str]| {
        let mut command = Command::new(PROGRAM);
        command.arg("conformance").arg(format!("--csi-address=unix://{}", ground.socket().display()));
        command.args(["--staging-dir", directory, "--target-dir", directory]).args(only).args(more);
        command.stdin(Stdio::null()).output().unwrap()
    };
    let (good, bad) = (ground.kubelet(""), outside.display().to_string());
    let whole = run(&good, &["-o", "json"]);
    assert_eq!(whole.status.code(), Some(0), "{}", text(&whole));
    let broken = run(&bad, &["-o", "json"]);
    assert_eq!(broken.status.code(), Some(1), "{}", text(&broken));
    let (whole, broken) = (file("whole.json", &whole), file("broken.json", &broken));

    let worse = run(&bad, &["-o", "junit", "--baseline", &whole]);
    assert_eq!(worse.status.code(), Some(1), "{}", text(&worse));
    let xml = String::from_utf8(worse.stdout.clone()).unwrap();
    assert!(xml.starts_with("<?xml ") && xml.contains("tests=\"2\" failures=\"1\""), "{xml}");
    let said = String::from_utf8_lossy(&worse.stderr).into_owned();
    assert!(said.contains("newly broken: volumes-are-published, pass before, fail now"), "{said}");

    let same = run(&bad, &["--baseline", &broken]);
    assert_eq!(same.status.code(), Some(0), "{}", text(&same));
    let better = run(&good, &["--baseline", &broken]);
    assert_eq!(better.status.code(), Some(0), "{}", text(&better));
    assert!(
        text(&better).contains("changed: volumes-are-published, fail before, pass now"),
        "{}",
        text(&better)
    );

    let none = run(&good, &["--baseline", &bad]);
    assert_eq!(none.status.code(), Some(3), "{}", text(&none));
    assert!(text(&none).contains("cannot read the baseline"), "{}", text(&none));
    ground.assert_clean();
}

#[test]
fn a_driver_that_is_not_there_is_said_to_be_so() {
    let ground = Ground::new();
    let check = || {
        let output = conformance(&ground, &[]).output().unwrap();
        assert_eq!(output.status.code(), Some(3));
        let reported = text(&output);
        assert!(reported.contains("cannot be reached") && reported.contains("csi.sock"), "{reported}");
        assert!(reported.contains("check the address, and that the driver runs"), "{reported}");
    };
    check();
    // Bound once, and nobody listens any more.
    drop(std::os::unix::net::UnixListener::bind(ground.socket()).unwrap());
    check();
}

/// Interrupted while the driver does not answer, it still takes away what it made.
#[test]
fn an_interrupted_run_leaves_nothing() {
    let mut ground = Ground::new();
    let driver = Pid::from_raw(i32::try_from(ground.start(&[])).unwrap()).unwrap();
    let child = conformance(&ground, &[]).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    // With something mounted and the driver stopped, the run is in the middle of a rule and stays there.
    let deadline = Instant::now() + SOON;
    loop {
        while ground.mounts().is_empty() {
            assert!(Instant::now() < deadline, "nothing is mounted\n{}", ground.log());
            sleep(Duration::from_millis(1));
        }
        kill_process(driver, Signal::STOP).unwrap();
        let stopped = volmedic_host::process::wait_until_stopped(driver.as_raw_nonzero().get(), SOON);
        assert!(stopped, "the driver does not stop\n{}", ground.log());
        if !ground.mounts().is_empty() {
            break;
        }
        kill_process(driver, Signal::CONT).unwrap();
    }
    kill_process(Pid::from_child(&child), Signal::INT).unwrap();
    kill_process(driver, Signal::CONT).unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(3), "{}", text(&output));
    assert!(text(&output).contains("was stopped"), "{}", text(&output));
    assert_eq!(fs::read_dir(ground.kubelet("")).unwrap().count(), 0, "{}", text(&output));
    ground.assert_clean();
}
