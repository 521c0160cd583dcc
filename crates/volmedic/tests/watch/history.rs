//! What is kept in a file outlives the process.

use std::fs;

use volmedic_testkit::sim::capability::{GET_VOLUME_HEALTH, LIST_VOLUME_HEALTH, LIST_VOLUMES};

use crate::stage::{DEGRADED, Stage, assert_transcript, text, volmedic};

const NEW: &[i32] = &[LIST_VOLUMES, LIST_VOLUME_HEALTH, GET_VOLUME_HEALTH];

#[test]
fn a_restart_neither_repeats_nor_forgets() {
    let stage = Stage::new(NEW, &["vol-1", "vol-2"]);
    let file = stage.file("history");
    let history = ["--history", file.to_str().unwrap()];
    stage.sim.harm("vol-2", DEGRADED, "OutOfCapacity", "99 % used");
    let watch = stage.watch(&history);
    watch.wait("is Degraded/OutOfCapacity");
    watch.wait("1 degraded, 1 healthy");
    watch.kill();

    let watch = stage.watch(&history);
    watch.wait("2 volumes: 1 degraded, 1 healthy");
    stage.sim.harm("vol-1", DEGRADED, "DiskDegrading", "3 reallocated sectors");
    watch.wait("is Degraded/DiskDegrading");
    let (_, said) = watch.interrupt();
    assert!(!said.contains("is Degraded/OutOfCapacity"), "told again after the restart: {said}");

    // Recovered while nobody watched: the end is reported, with when it began.
    stage.sim.repair("vol-2");
    let watch = stage.watch(&history);
    watch.wait("vol-2 of disk.example.net recovered from Degraded/OutOfCapacity");
    watch.kill();

    let output = volmedic().args(["watch", "--explain", "vol-2"]).args(history).output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    assert_transcript("explain.txt", &stage.redact(&text(&output.stdout)));
}

#[test]
fn what_cannot_be_explained_is_said() {
    let stage = Stage::new(NEW, &["vol-1"]);
    let file = stage.file("history");
    let explain = |volume: &str| {
        let output =
            volmedic().args(["watch", "--explain", volume, "--history"]).arg(&file).output().unwrap();
        assert_eq!(output.status.code(), Some(1));
        text(&output.stderr)
    };
    assert!(explain("vol-1").contains("cannot read the history"));
    fs::write(&file, "").unwrap();
    assert!(explain("vol-1").contains("has nothing about a volume vol-1"));

    let watch = stage.watch(&["--history", file.to_str().unwrap()]);
    watch.wait("1 volume");
    let second = stage.once(&["--history", file.to_str().unwrap()]);
    assert_eq!(second.status.code(), Some(1));
    assert!(text(&second.stderr).contains("another process keeps its history"), "{}", text(&second.stderr));
}
