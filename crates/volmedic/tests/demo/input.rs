//! What a machine or a command line may have wrong: one sentence with the next step, an honest exit code, nothing left.

use std::fs;
use std::net::TcpListener;
use std::process::{Command, Stdio};

use volmedic_driver::fault::Fault;

use crate::stage::{Demo, Disk, PROGRAM, Room, WIDE, assert_lines_fit};

#[test]
fn all_faults_are_listed_and_nothing_is_begun() {
    let room = Room::new();
    let (status, said) = room.start(&["--fault", "list"]).end();
    assert!(status.success(), "{said}");
    assert_eq!(said.lines().count(), Fault::ALL.len() + 1, "{said}");
    for fault in Fault::ALL {
        assert!(
            said.lines().any(|line| line.starts_with(fault.name()) && line.ends_with(fault.what())),
            "{said}"
        );
    }
    assert!(said.contains("kernel-error          ext4            An ext4 error"), "{said}");
    let (status, said) = room.start(&["--fault", "mounter-kiled"]).end();
    assert_eq!(status.code(), Some(2), "{said}");
    assert!(said.contains("did you mean mounter-killed? `volmedic demo --fault list` lists all"), "{said}");
    room.assert_nothing_is_left();
}

/// A port that was asked for is meant; the usual one is not.
#[test]
fn a_port_in_use_is_an_error_only_if_it_was_asked_for() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let room = Room::new();
    let (status, said) = room.start(&["--page", &address, "--headless"]).end();
    assert_eq!(status.code(), Some(1), "{said}");
    let expected = format!(
        "cannot serve the page on {address}; free the port or give another --page: Address already in use"
    );
    assert!(said.contains(&expected), "{said}");
    assert!(said.contains("the demo failed; everything was cleaned up"), "{said}");
    room.assert_nothing_is_left();

    // Whether this test has it or another process does.
    let _taken = TcpListener::bind("127.0.0.1:8090");
    let home = room.home();
    let mut command = Command::new(PROGRAM);
    command.args(["demo", "--headless", "--fault", "drive-suspect", "--state-dir"]).arg(&home);
    let (status, said) = Demo::start(command.env("COLUMNS", WIDE).stdin(Stdio::null())).end();
    assert!(status.success(), "{said}");
    assert!(
        said.contains(
            "port 8090 cannot be used (Address already in use (os error 98)), so the page is on another"
        ),
        "{said}"
    );
    assert!(said.contains("the page is at http://127.0.0.1:"), "{said}");
    room.assert_nothing_is_left();
}

/// Not even a loopback interface is needed. What is said fits into 80 columns.
#[test]
fn it_runs_without_a_network() {
    let room = Room::new();
    let mut command = Command::new("unshare");
    command.args(["--net", PROGRAM, "demo", "--headless", "--fault", "drive-suspect", "--state-dir"]);
    let (status, said) =
        Demo::start(command.arg(room.home()).env_remove("COLUMNS").stdin(Stdio::null())).end();
    assert!(status.success(), "{said}");
    let flat = said.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(flat.contains("1 fault, 1 reported, none to heal; everything was cleaned up"), "{said}");
    assert_lines_fit(&said, 80);
    assert!(said.contains("\n                 "), "what does not fit goes on below: {said}");
    room.assert_nothing_is_left();
}

#[test]
fn a_disk_without_enough_space_is_found_out_before_anything_is_created() {
    let room = Room::new();
    let disk = Disk::of(room.path().join("small"), "8m");
    for below in [disk.0.join("demo"), disk.0.clone()] {
        let mut command = Command::new(PROGRAM);
        command.args(["demo", "--headless", "--state-dir"]).arg(&below).stdin(Stdio::null());
        let (status, said) = Demo::start(&mut command).end();
        assert_eq!(status.code(), Some(1), "{said}");
        let expected =
            format!("{} has 8 MB free, and the demo needs 250 MB; free some space", below.display());
        assert!(said.contains(&expected), "{said}");
        assert!(disk.is_empty());
    }
    // Not one byte is left, so that not even the first file can be written.
    fs::write(disk.0.join("all"), vec![0; 8 << 20]).unwrap();
    let mut command = Command::new(PROGRAM);
    command.args(["demo", "--headless", "--state-dir"]).arg(disk.0.join("demo")).stdin(Stdio::null());
    let (status, said) = Demo::start(&mut command).end();
    assert_eq!(status.code(), Some(1), "{said}");
    assert!(said.contains("has 0 MB free"), "{said}");
    assert!(!disk.0.join("demo").exists());
}
