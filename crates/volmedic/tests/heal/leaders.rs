//! Who leads no more does nothing more.

use std::ffi::OsStr;
use std::process::Command;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};

use crate::process::{Controller as Process, program};
use crate::stage::{Clinic, QUICK};

/// A hub on a machine of another name, as another pod is.
fn start_on(clinic: &Clinic, host: &str, kubeconfig: &std::path::Path) -> Process {
    let mut command = Command::new("unshare");
    command.args(["--uts", "--", "sh", "-c", r#"echo "$1" > /proc/sys/kernel/hostname; shift; exec "$@""#]);
    command.args([OsStr::new("sh"), OsStr::new(host), program().as_os_str()]);
    let lease = [
        "--leader-election-lease-duration=4s",
        "--leader-election-renew-deadline=3s",
        "--leader-election-retry-period=500ms",
    ];
    clinic.launch(command, kubeconfig, &[&QUICK[..], &lease].concat())
}

fn signal(process: &Process, signal: Signal) {
    let pid = Pid::from_raw(i32::try_from(process.pid()).unwrap()).unwrap();
    kill_process(pid, signal).unwrap();
}

#[tokio::test]
async fn a_leader_that_slept_finds_that_another_has_repaired_it() {
    let clinic = Clinic::open().await;
    let ward = clinic.ward(|fake| fake).await;
    ward.claim("data", Some("auto")).await;
    let kubeconfig = ward.stage.kubeconfig().await;
    let mut first = start_on(&clinic, "replica-a", &kubeconfig);
    first.wait_log("healing is on").await;
    let second = start_on(&clinic, "replica-b", &kubeconfig);
    second.wait_log("standing by while replica-a leads").await;
    assert_eq!(second.says("healing is on"), 0, "only one heals");
    signal(&first, Signal::STOP);
    ward.unhealthy(&["data"]).await;
    second.wait_log("healing is on").await;
    ward.wait_reported("data", "HealingSucceeded", "").await;
    signal(&first, Signal::CONT);
    assert_eq!(first.ended(Duration::from_mins(1)), Some(1), "it starts over");
    assert_eq!(first.says("HealingStarted"), 0, "{}", first.log());
    assert_eq!(ward.asked("data"), 1);
    let reasons = ward.reasons("data").await;
    assert_eq!(reasons.iter().filter(|reason| *reason == "HealingStarted").count(), 1, "{reasons:?}");
    ward.end().await;
}
