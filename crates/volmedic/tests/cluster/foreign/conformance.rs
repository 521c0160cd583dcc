//! The rules of `volmedic conformance` against a driver of another project, which runs as a plain process.

use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};
use std::{env, fs};

use serde_json::Value;
use volmedic_testkit::foreign;

use crate::stage::{PATIENCE, PROGRAM};

/// Where the report goes, in the form that `--baseline` reads.
const REPORT: &str = "VOLMEDIC_WORLD_CONFORMANCE";

struct Ended(Child);

impl Drop for Ended {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
#[ignore = "for docs/conformance-hostpath.json: cargo xtask world"]
fn the_rules_are_checked_with_hostpath() {
    let driver = foreign::hostpath().unwrap();
    let folder = tempfile::tempdir().unwrap();
    let (socket, kubelet) = (folder.path().join("csi.sock"), folder.path().join("kubelet"));
    fs::create_dir(&kubelet).unwrap();
    let mut command = Command::new(&driver.program);
    command.arg(format!("--endpoint=unix://{}", socket.display())).arg("--nodeid=node-1");
    command.arg("--statedir").arg(folder.path().join("csi-data-dir"));
    let log = fs::File::create(folder.path().join("log")).unwrap();
    let _driver = Ended(command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log).spawn().unwrap());
    let deadline = Instant::now() + PATIENCE;
    while UnixStream::connect(&socket).is_err() {
        assert!(Instant::now() < deadline, "the driver does not listen");
        sleep(Duration::from_millis(20));
    }

    let mut command = Command::new("timeout");
    command.args(["300", PROGRAM, "conformance", "-o", "json", "--volume-size=64Mi"]);
    command.arg(format!("--csi-address=unix://{}", socket.display()));
    command.arg("--staging-dir").arg(&kubelet).arg("--target-dir").arg(&kubelet);
    let output = command.stdin(Stdio::null()).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    let report: Value =
        serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {said}"));
    assert_eq!((&report["stopped"], &report["leftovers"]), (&Value::Bool(false), &Value::Array(Vec::new())));
    let broken = report["outcomes"].as_array().unwrap().iter().any(|outcome| outcome["verdict"] == "fail");
    assert_eq!(output.status.code(), Some(i32::from(broken)), "{said}");
    if let Some(path) = env::var_os(REPORT) {
        write(report, folder.path(), Path::new(&path));
    }
}

/// Without what differs from run to run: the evidence of rules that hold, and this folder.
fn write(mut report: Value, folder: &Path, path: &Path) {
    for outcome in report["outcomes"].as_array_mut().unwrap() {
        let evidence = outcome["evidence"].as_str().unwrap();
        let kept = if outcome["verdict"] == "fail" { evidence } else { "" };
        outcome["evidence"] = kept.replace(folder.to_str().unwrap(), "…").into();
    }
    fs::write(path, format!("{}\n", serde_json::to_string_pretty(&report).unwrap())).unwrap();
}
