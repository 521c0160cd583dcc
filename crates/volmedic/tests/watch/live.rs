//! Watching for a while: changes as lines, and as a screen on a terminal.

use std::process::{Command, Stdio};

use volmedic_testkit::sim::capability::{
    GET_VOLUME_HEALTH, LIST_VOLUME_HEALTH, LIST_VOLUMES, VOLUME_CONDITION,
};

use crate::stage::{DEGRADED, INACCESSIBLE, Stage, Watch};

const NEW: &[i32] = &[LIST_VOLUMES, LIST_VOLUME_HEALTH, GET_VOLUME_HEALTH];

#[test]
fn each_change_is_a_line_and_reported_once() {
    let stage = Stage::new(NEW, &["vol-1", "vol-2"]);
    let watch = stage.watch(&[]);
    watch.wait("2 volumes: 2 healthy");
    stage.sim.harm("vol-2", DEGRADED, "OutOfCapacity", "99 % used");
    watch.wait("volume vol-2 of disk.example.net is Degraded/OutOfCapacity (99 % used)");
    watch.wait("2 volumes: 1 degraded, 1 healthy");
    stage.sim.repair("vol-2");
    watch.wait("volume vol-2 of disk.example.net recovered from Degraded/OutOfCapacity");
    let (code, said) = watch.interrupt();
    assert_eq!(code, Some(0), "{said}");
    assert_eq!(said.matches("is Degraded/OutOfCapacity").count(), 1, "{said}");
    assert_eq!(said.matches("recovered from").count(), 1, "{said}");
    let first = said.lines().next().unwrap();
    assert!(first.starts_with("disk.example.net at ") && first.ends_with("csi.sock"), "{said}");
    assert!(
        said.contains("controller capabilities: LIST_VOLUMES, GET_VOLUME_HEALTH, LIST_VOLUME_HEALTH"),
        "{said}"
    );
}

/// In every dialect, volumes that come are checked, and those the driver deletes leave without an alarm.
#[test]
fn volumes_come_and_go() {
    for capabilities in [NEW, &[LIST_VOLUMES, VOLUME_CONDITION], &[LIST_VOLUMES, GET_VOLUME_HEALTH]] {
        let stage = Stage::new(capabilities, &["vol-1", "vol-2"]);
        let watch = stage.watch(&[]);
        watch.wait("2 volumes: 2 healthy");
        stage.sim.harm("vol-3", INACCESSIBLE, "DiskFailure", "gone");
        watch.wait("volume vol-3 of disk.example.net is ");
        stage.sim.remove_volume("vol-1");
        watch.wait(", 1 healthy");
        stage.sim.remove_volume("vol-3");
        watch.wait("1 volume: 1 healthy");
        watch.wait("volume vol-3 of disk.example.net is no longer watched");
        let (_, said) = watch.interrupt();
        assert!(!said.contains("VolumeNotFound"), "{capabilities:?}: {said}");
    }
}

#[test]
fn a_driver_that_restarts_is_survived() {
    let mut stage = Stage::new(NEW, &["vol-1"]);
    let watch = stage.watch(&[]);
    watch.wait("1 volume: 1 healthy");
    stage.sim.stop();
    watch.wait("storage backend of disk.example.net has not been seen");
    watch.wait("1 volume: 1 unknown");
    stage.sim.restart().unwrap();
    watch.wait("storage backend of disk.example.net is seen again");
    let (code, said) = watch.interrupt();
    assert_eq!(code, Some(0), "{said}");
}

/// On a terminal the screen is drawn, and given back at the end.
#[test]
fn a_terminal_is_drawn_on_and_given_back() {
    let stage = Stage::new(NEW, &["vol-1", "vol-2"]);
    stage.sim.harm("vol-2", DEGRADED, "OutOfCapacity", "99 % used");
    let run = |environment: &str| {
        let line = format!(
            "stty cols 100 rows 24; {environment} {} watch --interval 200ms --csi-address {}",
            env!("CARGO_BIN_EXE_volmedic"),
            stage.sim.socket().display()
        );
        let mut command = Command::new("script");
        command.args(["-qefc", &line, "/dev/null"]).env("TERM", "xterm").env_remove("NO_COLOR");
        let mut watch = Watch::start(command.stdin(Stdio::piped()));
        watch.wait("is Degraded/OutOfCapacity");
        watch.press_interrupt();
        watch.wait("\u{1b}[?1049l");
        watch.said()
    };
    let screen = run("");
    assert!(screen.contains("\u{1b}[?1049h"), "a screen of its own: {screen:?}");
    assert!(screen.contains("\u{1b}[33mDegraded\u{1b}[0m"), "in colour: {screen:?}");
    assert!(screen.contains("OutOfCapacity") && screen.contains("What changed"), "{screen:?}");
    assert!(!screen.contains("INFO") && !screen.contains("WARN"), "log lines on the screen: {screen:?}");
    let plain = run("NO_COLOR=1");
    assert!(plain.contains("Degraded") && !plain.contains("\u{1b}[33m"), "{plain:?}");
}
