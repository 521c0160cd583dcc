//! The official conformance suite of CSI, whole, against the driver as a real process. Needs root and Go.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on should say where")]

#[path = "../driver/ground.rs"]
#[allow(dead_code, reason = "shared with the driver's own tests, which use all of it")]
mod ground;

use std::fs;
use std::process::{Command, Output};

use ground::Ground;
use volmedic_testkit::sanity;

/// For one run of the suite. It is for what hangs: a busy machine may take its time.
const RUN_SECONDS: &str = "1200";

fn text(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

/// How the suite is run, and how many of its specs have something to judge then.
struct Run<'a> {
    dialect: &'a str,
    parameters: &'a str,
    arguments: &'a [&'a str],
    specs: u32,
}

fn check(run: &Run<'_>) {
    let suite = sanity::program().unwrap();
    let mut ground = Ground::new();
    ground.start(&["--dialect", run.dialect]);
    let parameters = ground.path().join("parameters.yaml");
    fs::write(&parameters, run.parameters).unwrap();
    let output = Command::new("timeout")
        .arg(RUN_SECONDS)
        .arg(suite)
        .arg(format!("-csi.endpoint=unix://{}", ground.socket().display()))
        .arg(format!("-csi.mountdir={}", ground.kubelet("target")))
        .arg(format!("-csi.stagingdir={}", ground.kubelet("staging")))
        .arg(format!("-csi.testvolumeparameters={}", parameters.display()))
        .arg("-ginkgo.no-color")
        .args(run.arguments)
        .output()
        .unwrap();
    let reported = text(&output);
    assert!(output.status.success(), "{reported}\n{}", ground.log());
    let ran =
        reported.lines().find_map(|line| line.strip_prefix("Ran ")?.split(' ').next()?.parse::<u32>().ok());
    assert_eq!(ran, Some(run.specs), "the suite ran another number of specs than it should\n{reported}");
    ground.assert_clean();
}

/// What is skipped in all of these is what the driver does not say that it can: volume groups, modifying volumes, a
/// limit of volumes per node, and the calls of the other dialect.
#[test]
fn legacy_dialect_ext4() {
    check(&Run { dialect: "legacy", parameters: "kind: loop\n", arguments: &[], specs: 80 });
}

#[test]
fn health_dialect_ext4() {
    check(&Run { dialect: "health", parameters: "kind: loop\n", arguments: &[], specs: 86 });
}

#[test]
fn both_dialects_raw_block() {
    let arguments = ["-csi.testvolumeaccesstype=block"];
    check(&Run { dialect: "both", parameters: "kind: loop\n", arguments: &arguments, specs: 86 });
}

#[test]
fn legacy_dialect_xfs() {
    check(&Run { dialect: "legacy", parameters: "fsType: xfs\n", arguments: &[], specs: 80 });
}

#[test]
fn legacy_dialect_btrfs() {
    check(&Run { dialect: "legacy", parameters: "fsType: btrfs\n", arguments: &[], specs: 80 });
}

/// Capabilities are said of a driver and not of a kind of volume: volumes of kind fuse cannot be copied, so the specs
/// that make copies are left out here.
#[test]
fn legacy_dialect_fuse() {
    let arguments = ["-ginkgo.skip=Snapshot|existing source|source volume"];
    check(&Run { dialect: "legacy", parameters: "kind: fuse\n", arguments: &arguments, specs: 59 });
}
