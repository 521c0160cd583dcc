//! What the kubelet itself says of faults: every fault that can be undone under a pod that goes on running. A table for
//! the documentation, not a test of ours: what the kubelet does is not asserted, only that it has nothing left to say
//! when a fault is over.

use std::time::{Duration, Instant};

use serde_json::Value;
use volmedic_driver::fault::Fault;

use crate::agent::{handle, say};
use crate::stage::{KUBECTL_WAITS, Stage};
use crate::{KINDS, Kind, all_ready, delete_pods};

/// It asks every two seconds; the driver knows a volume that hangs as such after five more.
const ENOUGH: Duration = Duration::from_secs(15);
const FAULTS: [Fault; 15] = [
    Fault::TargetUnmounted,
    Fault::StagingUnmounted,
    Fault::WrongMount,
    Fault::ReadOnly,
    Fault::Full,
    Fault::NoInodes,
    Fault::ImageDeleted,
    Fault::MounterEio,
    Fault::MounterFrozen,
    Fault::DriveBad,
    Fault::DriveSuspect,
    Fault::DriveUnknown,
    Fault::DriveMissing,
    Fault::VolumeFailed,
    Fault::ReleaseFailed,
];

#[test]
#[ignore = "minutes, for a table: cargo test -p volmedic --test cluster -- --ignored --nocapture"]
fn what_the_kubelet_says() {
    let stage = Stage::start_as_shipped();
    stage.create(&KINDS.iter().flat_map(|kind| [kind.claim(), kind.pod("reader", "true")]).collect());
    all_ready(&stage, "reader");
    say("| fault | volume | kubelet, pod.status.volumeHealth | after s |\n|---|---|---|---:|");
    std::thread::scope(|scope| {
        for kind in &KINDS {
            let stage = &stage;
            scope.spawn(move || rows(stage, kind));
        }
    });
    delete_pods(&stage, "reader");
    stage.kubectl(&["delete", "pvc", "--all", KUBECTL_WAITS]);
    stage.wait("nothing of the volumes is left", || {
        let traces = stage.traces();
        if traces.is_empty() { Ok(()) } else { Err(format!("{traces:#?}")) }
    });
    stage.stop();
}

fn rows(stage: &Stage, kind: &Kind) {
    let (pod, handle) = (format!("reader-{}", kind.name), handle(stage, kind.name));
    let of_kind = |fault: &&Fault| fault.kinds().iter().any(|one| one.name() == kind.name);
    for fault in FAULTS.iter().filter(of_kind) {
        stage.fault("inject", fault.name(), &handle);
        let began = Instant::now();
        let mut said = kubelet_says(stage, &pod);
        while said.is_empty() && began.elapsed() < ENOUGH {
            std::thread::sleep(Duration::from_millis(100));
            said = kubelet_says(stage, &pod);
        }
        let what = if said.is_empty() { "nothing" } else { &said };
        say(&format!("| {fault} | {} | {what} | {:.1} |", kind.name, began.elapsed().as_secs_f32()));
        stage.fault("clear", fault.name(), &handle);
        stage.wait(&format!("{fault} on {} is over", kind.name), || {
            let left = kubelet_says(stage, &pod);
            if left.is_empty() { Ok(()) } else { Err(left) }
        });
    }
}

/// What the kubelet has in the pod's status of its one volume, as status and reason.
fn kubelet_says(stage: &Stage, pod: &str) -> String {
    let path = r#"jsonpath={.status.volumeHealth[?(@.name=="data")].healthConditions}"#;
    let text = stage.kubectl(&["get", "pod", pod, "-o", path]);
    let conditions: Value = serde_json::from_str(&text).unwrap_or_default();
    let word = |one: &Value, name: &str| one[name].as_str().unwrap_or_default().to_owned();
    let all = conditions.as_array().into_iter().flatten();
    all.map(|one| format!("{}/{}", word(one, "status"), word(one, "reason"))).collect::<Vec<_>>().join(", ")
}
