//! The screens, whole: drivers of every kind.

use serde_json::Value;
use volmedic_testkit::sim::capability::{
    GET_VOLUME, GET_VOLUME_HEALTH, LIST_VOLUME_HEALTH, LIST_VOLUMES, VOLUME_CONDITION,
};

use crate::stage::{DEGRADED, INACCESSIBLE, Stage, assert_transcript, text};

const NEW: &[i32] = &[LIST_VOLUMES, LIST_VOLUME_HEALTH, GET_VOLUME_HEALTH];

fn hurt(stage: &Stage) {
    stage.sim.harm("vol-2", DEGRADED, "OutOfCapacity", "99 % of bytes used");
    stage.sim.harm("vol-3", INACCESSIBLE, "DiskFailure", "the disk does not answer");
}

fn check(name: &str, capabilities: &[i32], arguments: &[&str]) {
    let stage = Stage::new(capabilities, &["vol-1", "vol-2", "vol-3"]);
    hurt(&stage);
    let output = stage.once(arguments);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    assert_transcript(name, &stage.redact(&text(&output.stdout)));
}

#[test]
fn a_driver_that_lists_health() {
    check("lists-health.txt", NEW, &[]);
}

#[test]
fn a_driver_of_the_older_dialect() {
    check("older-dialect.txt", &[LIST_VOLUMES, VOLUME_CONDITION], &[]);
}

#[test]
fn a_driver_asked_volume_by_volume() {
    check("volume-by-volume.txt", &[LIST_VOLUMES, GET_VOLUME, VOLUME_CONDITION, GET_VOLUME_HEALTH], &[]);
}

#[test]
fn a_driver_that_reports_nothing() {
    check("tells-nothing.txt", &[LIST_VOLUMES], &[]);
}

#[test]
fn a_driver_that_cannot_list() {
    check("cannot-list.txt", &[GET_VOLUME_HEALTH], &[]);
    check("cannot-list-named.txt", &[GET_VOLUME_HEALTH], &["--volume", "vol-2", "--volume", "vol-9"]);
    check("lists-only-what-is-wrong.txt", &[LIST_VOLUME_HEALTH], &[]);
}

#[test]
fn for_machines_the_same_in_both_formats() {
    let stage = Stage::new(NEW, &["vol-1", "vol-2", "vol-3"]);
    hurt(&stage);
    let output = stage.once(&["-o", "json"]);
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(report["counts"]["total"], 3);
    assert_eq!(report["counts"]["inaccessible"], 1);
    let first = &report["volumes"][0];
    assert_eq!((&first["volume"], &first["health"]), (&"vol-3".into(), &"Inaccessible".into()));
    assert_eq!(
        (&first["reason"], &first["message"]),
        (&"DiskFailure".into(), &"the disk does not answer".into())
    );
    assert_eq!(first["seenBy"][0]["vantage"], "controller");
    assert!(first["next"].as_str().unwrap().ends_with('.'));
    let call =
        |name: &str| report["about"]["calls"].as_array().unwrap().iter().any(|call| call["name"] == name);
    assert!(call("ListVolumes") && call("ControllerListVolumeHealth"), "{report}");
    assert_eq!(text(&output.stderr), "", "nothing but the answer");

    let yaml = text(&stage.once(&["-o", "yaml"]).stdout);
    for line in ["  inaccessible: 1", "- volume: vol-3", "  health: Inaccessible", "  reason: DiskFailure"] {
        assert!(yaml.lines().any(|found| found == line), "no {line:?} in\n{yaml}");
    }
}

#[test]
fn hostile_text_does_not_reach_the_terminal() {
    let stage = Stage::new(NEW, &["vol\u{1b}[2J\u{202e}"]);
    stage.sim.harm("vol\u{1b}[2J\u{202e}", DEGRADED, "Odd", "a\u{1b}]0;title\u{7}\nb");
    let reported = text(&stage.once(&[]).stdout);
    assert!(reported.contains("vol\\u{1b}[2J\\u{202e}"), "{reported}");
    assert!(!reported.contains(['\u{1b}', '\u{202e}', '\u{7}']), "{reported:?}");
}
