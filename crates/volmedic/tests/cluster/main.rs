//! The reference driver on a real cluster: claims become volumes in running pods, the health of one is reported on its
//! claim and its pod, and nothing of them stays. Needs root, Go for the first run, and the packages of a node.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on should say where")]

use std::collections::BTreeSet;
use std::fs;

use serde_json::{Value, json};
use stage::{KUBECTL_WAITS, Stage};
use volmedic_testkit::IMAGE;

mod agent;
mod beside;
mod foreign;
mod heal;
#[path = "../../../heal/tests/api/kind.rs"]
mod kind;
mod newcomer;
mod recreate;
mod stage;

/// One kind of volume: its name here, its storage class, how a pod sees it.
struct Kind {
    name: &'static str,
    class: &'static str,
    /// The type in the pod's mount table; raw block has none.
    mounted: Option<&'static str>,
}

const KINDS: [Kind; 4] = [
    Kind { name: "ext4", class: "volmedic-ext4", mounted: Some("ext4") },
    Kind { name: "xfs", class: "volmedic-xfs", mounted: Some("xfs") },
    Kind { name: "fuse", class: "volmedic-fuse", mounted: Some("fuse.volmedic") },
    Kind { name: "block", class: "volmedic-ext4", mounted: None },
];

impl Kind {
    fn claim(&self) -> Value {
        // As large as the smallest that xfs can be made in.
        json!({
            "apiVersion": "v1",
            "kind": "PersistentVolumeClaim",
            "metadata": {"name": self.name, "namespace": "default"},
            "spec": {
                "accessModes": ["ReadWriteOnce"],
                "storageClassName": self.class,
                "volumeMode": if self.mounted.is_some() { "Filesystem" } else { "Block" },
                "resources": {"requests": {"storage": "320Mi"}},
            },
        })
    }

    /// A pod with the volume at `/data`, which runs `script` before it is ready.
    fn pod(&self, role: &str, script: &str) -> Value {
        let place = if self.mounted.is_some() {
            json!({"volumeMounts": [{"name": "data", "mountPath": "/data"}]})
        } else {
            json!({"volumeDevices": [{"name": "data", "devicePath": "/data"}]})
        };
        let mut container = json!({
            "name": "main",
            "image": IMAGE,
            "imagePullPolicy": "Never",
            "command": ["sh", "-c", format!("{script}; touch /ready; trap 'exit 0' TERM; sleep 3600 & wait $!")],
            "readinessProbe": {"exec": {"command": ["test", "-e", "/ready"]}, "periodSeconds": 1},
        });
        container.as_object_mut().unwrap().extend(place.as_object().unwrap().clone());
        json!({
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": format!("{role}-{}", self.name), "namespace": "default"},
            "spec": {
                "terminationGracePeriodSeconds": 5,
                "containers": [container],
                "volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": self.name}}],
            },
        })
    }

    fn word(&self) -> String {
        format!("kept on {}", self.name)
    }

    fn writer(&self) -> Value {
        let word = self.word();
        let script = match self.mounted {
            Some(_) => format!("set -e; echo -n '{word}' > /data/word; sync"),
            None => format!("set -e; echo -n '{word}' | dd of=/data conv=fsync"),
        };
        self.pod("writer", &script)
    }

    /// What a pod that has the volume finds on it.
    fn read(&self, stage: &Stage, role: &str) -> String {
        let length = self.word().len().to_string();
        let file = if self.mounted.is_some() { "/data/word" } else { "/data" };
        let pod = format!("{role}-{}", self.name);
        stage.kubectl(&["exec", &pod, "--", "head", "-c", &length, file])
    }
}

#[test]
fn claims_become_volumes_in_running_pods_and_nothing_of_them_stays() {
    let mut stage = Stage::start();
    assert_eq!(stage.traces(), Vec::<String>::new());

    let objects = KINDS.iter().flat_map(|kind| [kind.claim(), kind.writer()]).collect();
    stage.create(&objects);
    all_ready(&stage, "writer");
    for kind in &KINDS {
        assert_eq!(kind.read(&stage, "writer"), kind.word());
        if let Some(mounted) = kind.mounted {
            let pod = format!("writer-{}", kind.name);
            let mounts = stage.kubectl(&["exec", &pod, "--", "cat", "/proc/mounts"]);
            let data = mounts.lines().find(|line| line.split(' ').nth(1) == Some("/data")).unwrap();
            assert_eq!(data.split(' ').nth(2), Some(mounted), "{data}");
        }
    }
    the_driver_has_what_the_cluster_has(&stage);
    let traces = stage.traces();
    for kind in ["persistentvolume/", "mount ", "loop ", "mounter ", "file "] {
        assert!(traces.iter().any(|trace| trace.starts_with(kind)), "no {kind} among {traces:#?}");
    }

    // In other pods, after the volumes were unmounted and mounted again.
    delete_pods(&stage, "writer");
    stage.create(&KINDS.iter().map(|kind| kind.pod("reader", "true")).collect());
    all_ready(&stage, "reader");
    for kind in &KINDS {
        assert_eq!(kind.read(&stage, "reader"), kind.word());
    }

    health_is_reported(&stage, "ext4");
    agent::watches(&mut stage);

    delete_pods(&stage, "reader");
    stage.kubectl(&["delete", "pvc", "--all", KUBECTL_WAITS]);
    stage.wait("nothing of the volumes is left", || {
        let traces = stage.traces();
        if traces.is_empty() { Ok(()) } else { Err(format!("{traces:#?}")) }
    });
    stage.stop();
}

fn all_ready(stage: &Stage, role: &str) {
    for kind in &KINDS {
        ready(stage, &format!("{role}-{}", kind.name));
    }
}

fn ready(stage: &Stage, pod: &str) {
    let ready = r#"jsonpath={.status.conditions[?(@.type=="Ready")].status}"#;
    stage.wait(&format!("{pod} is ready"), || {
        match stage.try_kubectl(&["get", "pod", pod, "-o", ready])?.as_str() {
            "True" => Ok(()),
            other => Err(format!("Ready is {other:?}")),
        }
    });
}

fn delete_pods(stage: &Stage, role: &str) {
    let pods = KINDS.iter().map(|kind| format!("pod/{role}-{}", kind.name)).collect::<Vec<_>>();
    let mut arguments = vec!["delete", KUBECTL_WAITS, "--ignore-not-found"];
    arguments.extend(pods.iter().map(String::as_str));
    stage.kubectl(&arguments);
}

fn the_driver_has_what_the_cluster_has(stage: &Stage) {
    let handles = stage.kubectl(&["get", "pv", "-o", "jsonpath={.items[*].spec.csi.volumeHandle}"]);
    let handles: BTreeSet<String> = handles.split(' ').map(str::to_owned).collect();
    let volumes = fs::read_dir(stage.state().volumes()).unwrap();
    let volumes: BTreeSet<String> =
        volumes.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    assert_eq!(handles, volumes);
    assert_eq!(handles.len(), KINDS.len());
}

/// A drive that goes bad is reported on the claim by our controller, and on the pod by the kubelet, which asks the driver's
/// node service; its recovery is reported too.
fn health_is_reported(stage: &Stage, claim: &str) {
    let volume = stage.kubectl(&["get", "pvc", claim, "-o", "jsonpath={.spec.volumeName}"]);
    let handle = stage.kubectl(&["get", "pv", &volume, "-o", "jsonpath={.spec.csi.volumeHandle}"]);
    let reported = |reason: &str| {
        stage.wait(&format!("{reason} is reported on {claim}"), || {
            let shown = stage.try_kubectl(&["describe", "pvc", claim])?;
            let line = shown.lines().find(|line| line.contains(reason)).map(str::to_owned);
            line.ok_or(shown)
        })
    };
    stage.fault("inject", "drive-bad", &handle);
    let abnormal = reported("VolumeConditionAbnormal");
    assert!(abnormal.contains("Warning") && abnormal.contains("Inaccessible/DriveBad"), "{abnormal}");
    stored(stage, &format!("pvc/{claim}"), "{.status.healthStatus.healthConditions}");
    let (pod, said) =
        (format!("pod/reader-{claim}"), r#"{.status.volumeHealth[?(@.name=="data")].healthConditions}"#);
    stored(stage, &pod, said);

    stage.fault("clear", "drive-bad", &handle);
    let normal = reported("VolumeConditionNormal");
    assert!(normal.contains("Normal"), "{normal}");
    stage.wait("the kubelet knows that the drive is healthy", || {
        let left = stage.try_kubectl(&["get", &pod, "-o", &format!("jsonpath={said}")])?;
        if left.is_empty() || left == "[]" { Ok(()) } else { Err(left) }
    });
    // Nobody else's volume was unhealthy.
    let unhealthy =
        r#"jsonpath={range .items[?(@.reason=="VolumeConditionAbnormal")]}{.involvedObject.name} {end}"#;
    let names = stage.kubectl(&["get", "events", "-o", unhealthy]);
    assert_eq!(names.split_whitespace().collect::<BTreeSet<_>>(), BTreeSet::from([claim]));
}

/// The conditions at `path` of an object become those of a bad drive, and nothing else.
fn stored(stage: &Stage, object: &str, path: &str) {
    stage.wait(&format!("{path} of {object} tells of the drive"), || {
        let text = stage.try_kubectl(&["get", object, "-o", &format!("jsonpath={path}")])?;
        let conditions: Value = serde_json::from_str(&text).map_err(|error| format!("{text:?}: {error}"))?;
        let [only] = conditions.as_array().unwrap().as_slice() else { return Err(text) };
        let found = (only["status"] == "Inaccessible" && only["reason"] == "DriveBad").then_some(());
        found.ok_or(text)
    });
}
