use serde_json::{Value, json};

use super::*;
use crate::fake::arrived;

fn record(object: &Value) -> Record {
    let object = arrived(object);
    Record::new(&object, object.body.as_ref().unwrap(), None)
}

fn pod(volumes: &Value, containers: &Value) -> Value {
    json!({
        "metadata": {"name": "web", "namespace": "ns", "uid": "u1"},
        "spec": {"volumes": volumes, "containers": containers},
        "status": {"phase": "Running"},
    })
}

/// `name source mode` of each volume, with `!` for read-only.
fn shown(record: &Record) -> Vec<String> {
    let show = |wanted: &Wanted| {
        let source = match &wanted.source {
            Source::Claim(claim) => format!("claim {claim}"),
            Source::Inline { driver, fs_type } => {
                format!("inline {driver} {}", fs_type.as_deref().unwrap_or("-"))
            }
        };
        format!("{} {source} {:?}{}", wanted.name, wanted.mode, if wanted.read_only { "!" } else { "" })
    };
    record.wanted.iter().map(show).collect()
}

#[test]
fn volumes_with_storage_behind_them_that_a_container_uses() {
    let volumes = json!([
        {"name": "data", "persistentVolumeClaim": {"claimName": "db"}},
        {"name": "ro", "persistentVolumeClaim": {"claimName": "shared", "readOnly": true}},
        {"name": "scratch", "ephemeral": {"volumeClaimTemplate": {"spec": {}}}},
        {"name": "inline", "csi": {"driver": "d", "fsType": "ext4", "readOnly": true, "volumeAttributes": {"a": "b"}}},
        {"name": "raw", "persistentVolumeClaim": {"claimName": "raw"}},
        {"name": "unused", "persistentVolumeClaim": {"claimName": "unused"}},
        {"name": "token", "projected": {"sources": []}},
        {"name": "tmp", "emptyDir": {}},
    ]);
    let mount = |name: &str| json!({"name": name, "mountPath": format!("/{name}"), "readOnly": true});
    let mut object = pod(
        &volumes,
        &json!([{"name": "main", "volumeMounts": [mount("data"), mount("ro"), mount("token"), mount("tmp")],
                 "volumeDevices": [{"name": "raw", "devicePath": "/dev/x"}]}]),
    );
    object["spec"]["initContainers"] = json!([{"name": "first", "volumeMounts": [mount("scratch")]}]);
    object["spec"]["ephemeralContainers"] = json!([{"name": "debug", "volumeMounts": [mount("inline")]}]);
    assert_eq!(
        shown(&record(&object)),
        [
            "data claim db Filesystem",
            "ro claim shared Filesystem!",
            "scratch claim web-scratch Filesystem",
            "inline inline d ext4 Filesystem!",
            "raw claim raw Block",
        ]
    );
}

#[test]
fn parts_of_volumes_count_while_their_container_runs() {
    let volumes = json!([{"name": "data", "persistentVolumeClaim": {"claimName": "db"}}]);
    let containers = json!([
        {"name": "a", "volumeMounts": [
            {"name": "data", "mountPath": "/a"},
            {"name": "data", "mountPath": "/b", "subPath": "b"},
            {"name": "other", "mountPath": "/c", "subPath": "c"},
            {"name": "data", "mountPath": "/d", "subPathExpr": "$(POD)"},
            {"name": "data", "mountPath": "/e", "subPath": ""}]},
        {"name": "b", "volumeMounts": [{"name": "data", "mountPath": "/a", "subPath": "x"}]},
    ]);
    let mut object = pod(&volumes, &containers);
    object["status"]["containerStatuses"] = json!([
        {"name": "a", "state": {"running": {"startedAt": "2026-03-01T10:00:00Z"}}},
        {"name": "b", "state": {"waiting": {"reason": "CrashLoopBackOff"}}},
    ]);
    let record = record(&object);
    assert_eq!(*record.wanted[0].sub_paths, [("a".into(), 1), ("a".into(), 3)]);
    assert_eq!(record.phase, Phase::InUse);
}

#[test]
fn an_image_of_a_pod_from_a_file_has_the_kubelets_uid_too() {
    let mut object = pod(&json!([]), &json!([]));
    assert_eq!(record(&object).kubelet_uid(), "u1");
    object["metadata"]["annotations"] = json!({"kubernetes.io/config.mirror": "0123abcd", "kubernetes.io/config.hash": "0123abcd", "other": "x"});
    assert_eq!(record(&object).kubelet_uid(), "0123abcd");
}

#[test]
fn what_the_kubelet_says_is_kept_within_bounds() {
    let volumes = json!([
        {"name": "ledger", "persistentVolumeClaim": {"claimName": "a"}},
        {"name": "scratch", "persistentVolumeClaim": {"claimName": "b"}},
        {"name": "quiet", "persistentVolumeClaim": {"claimName": "c"}},
    ]);
    let mounts = json!([{"name": "ledger"}, {"name": "scratch"}, {"name": "quiet"}]);
    let mut object = pod(&volumes, &json!([{"name": "main", "volumeMounts": mounts}]));
    object["status"]["volumeHealth"] = json!([
        {"name": "ledger", "lastTransitionTime": "2026-08-21T10:02:00Z", "healthConditions": [
            {"status": "Degraded", "reason": "MirrorLegLost", "message": "é".repeat(2000)},
            {"status": "Degraded", "reason": "SlowIO"}]},
        {"name": "scratch", "lastTransitionTime": null},
        {"name": "nobody", "healthConditions": [{"status": "DataLoss", "reason": "X"}]},
    ]);
    let record = record(&object);
    let [ledger, scratch, quiet] = [0, 1, 2].map(|index| record.wanted[index].kubelet.as_deref());
    let ledger = ledger.unwrap();
    assert_eq!(ledger.since, Some("2026-08-21T10:02:00Z".parse().unwrap()));
    let reasons: Vec<_> = ledger.conditions.iter().map(|said| (&*said.status, &*said.reason)).collect();
    assert_eq!(reasons, [("Degraded", "MirrorLegLost"), ("Degraded", "SlowIO")]);
    assert_eq!(ledger.conditions[0].message.len(), LONGEST_TEXT);
    assert_eq!(scratch, Some(&KubeletSaid { conditions: Vec::new(), since: None }));
    assert_eq!(quiet, None);

    let many: Vec<_> =
        (0..40).map(|index| json!({"status": "Degraded", "reason": format!("R{index}")})).collect();
    object["status"]["volumeHealth"] = json!([{"name": "ledger", "healthConditions": many}]);
    assert_eq!(self::record(&object).wanted[0].kubelet.as_ref().unwrap().conditions.len(), MOST_CONDITIONS);
}
