//! The part of this that runs with every change: one driver that reports health, one kind of volume without any driver,
//! and for each the faults that take seconds.

use std::fs;
use std::path::Path;
use std::time::Instant;

use rustix::mount::{UnmountFlags, unmount};
use volmedic_testkit::helm;

use super::hostpath::Hostpath;
use super::local_path::LocalPath;
use super::measure::Look;
use super::{NAMESPACE, install_volmedic, reference, target};
use crate::agent::say;
use crate::ready;
use crate::stage::{KUBECTL_WAITS, Stage};

const CLAIMS: [&str; 3] = ["lost", "unmounted", "full"];

#[test]
fn volumes_of_other_projects_drivers_are_watched() {
    let stage = Stage::start_bare();
    install_volmedic(&stage);
    let (hostpath, local) = (Hostpath::install(&stage), LocalPath::install(&stage));
    Hostpath::add_sidecar(&stage);
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    say(&helm::Chart::of(&root).unwrap().test(&stage.kubeconfig(), NAMESPACE).unwrap());
    let [lost, unmounted, full] = CLAIMS;
    let objects = [Hostpath::volume(lost), Hostpath::volume(unmounted), LocalPath::volume(full, true)];
    stage.create(&objects.concat().into());
    for name in CLAIMS {
        ready(&stage, name);
    }

    // The backend lost the volume. The pod goes on with what it has, so that only the driver knows.
    fs::remove_dir_all(hostpath.data(&stage, lost)).unwrap();
    reported(&stage, lost, "controller", "VolumeConditionAbnormal");
    // Something unmounted it on the host.
    unmount(target(&stage, unmounted), UnmountFlags::DETACH).unwrap();
    reported(&stage, unmounted, "host", "VolumeUnmounted");
    // No space, and no driver at all.
    local.disk.fill();
    reported(&stage, full, "host", "OutOfCapacity");
    local.disk.free();
    stage.wait(&format!("{full} recovers"), || {
        let look = Look::at(&stage, full);
        if look.is_quiet() { Ok(()) } else { Err(format!("{look:?}")) }
    });

    for kind in ["pod", "pvc"] {
        stage.kubectl(&[&["delete", kind, "--wait", KUBECTL_WAITS], &CLAIMS[..]].concat());
    }
    stage.wait("the provisioners remove their volumes", || {
        let left = stage.try_kubectl(&["get", "pv", "-o", "name"])?;
        if left.is_empty() { Ok(()) } else { Err(left) }
    });
    hostpath.remove(&stage);
    local.remove(&stage);
    reference::is_installed_and_reports(&stage);
    stage.stop();
}

fn reported(stage: &Stage, claim: &str, vantage: &str, reason: &str) {
    let began = Instant::now();
    stage.wait(&format!("{vantage} reports {reason} of {claim}"), || {
        let look = Look::at(stage, claim);
        let found = look.conditions.get(vantage).is_some_and(|all| all.iter().any(|one| one[1] == reason));
        if found { Ok(()) } else { Err(format!("{look:?}")) }
    });
    say(&format!("{claim}: {vantage} reports {reason} after {:.1} s", began.elapsed().as_secs_f32()));
}
