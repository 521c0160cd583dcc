//! A pod that writes to its volume through one file that it never lets go of, and dies of the first error.

use std::fs;
use std::path::PathBuf;

use serde_json::{Value, json};
use volmedic_testkit::IMAGE;

use super::clinic::Clinic;

/// Numbers, one in a line, through the open file; and a name written again each time.
const SCRIPT: &str = "trap 'exit 0' TERM; exec 3>>/data/log; n=0
while echo $n >&3 && echo $n > /data/last; do n=$((n+1)); usleep 100000; done; exit 1";

pub(super) struct Writer {
    pub(super) claim: &'static str,
    pub(super) handle: String,
    /// The pod and its container as they were at the beginning.
    born: String,
    /// Where the driver keeps what the pod writes, which can be read whatever becomes of the mounts.
    log: PathBuf,
}

impl Writer {
    pub(super) fn object(claim: &str) -> Value {
        json!({
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": format!("writer-{claim}"), "namespace": "default"},
            "spec": {
                "terminationGracePeriodSeconds": 2,
                "containers": [{
                    "name": "main", "image": IMAGE, "imagePullPolicy": "Never", "command": ["sh", "-c", SCRIPT],
                    "volumeMounts": [{"name": "data", "mountPath": "/data"}],
                }],
                "volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": claim}}],
            },
        })
    }

    /// Waits until it writes.
    pub(super) fn of(clinic: &Clinic, claim: &'static str) -> Self {
        let stage = &clinic.stage;
        let path = "jsonpath={.status.phase}";
        stage.wait(&format!("writer-{claim} runs"), || {
            let phase = stage.try_kubectl(&["get", "pod", &format!("writer-{claim}"), "-o", path])?;
            if phase == "Running" { Ok(()) } else { Err(phase) }
        });
        let handle = clinic.handle(claim);
        let log = stage.state().volume(&handle).files().join("log");
        let mut writer = Self { claim, handle, born: String::new(), log };
        writer.goes_on(clinic);
        writer.born = writer.life(clinic);
        writer
    }

    pub(super) fn pod(&self) -> String {
        format!("pod/writer-{}", self.claim)
    }

    pub(super) fn pvc(&self) -> String {
        format!("pvc/{}", self.claim)
    }

    /// How many lines it has written.
    fn written(&self) -> usize {
        fs::read_to_string(&self.log).unwrap_or_default().lines().count()
    }

    /// Waits until it has written more than when this was asked.
    pub(super) fn goes_on(&self, clinic: &Clinic) {
        let before = self.written();
        clinic.stage.wait(&format!("the pod of {} writes on", self.claim), || {
            let now = self.written();
            if now > before + 2 { Ok(()) } else { Err(format!("{now} lines, and {before} before")) }
        });
    }

    /// Which pod and container, and how often it was restarted.
    fn life(&self, clinic: &Clinic) -> String {
        let path = "jsonpath={.metadata.uid} {.status.containerStatuses[0].containerID} \
                    {.status.containerStatuses[0].restartCount}";
        clinic.stage.kubectl(&["get", &self.pod(), "-o", path])
    }

    /// It was never restarted, met no error, and lost nothing.
    pub(super) fn is_unharmed(&self, clinic: &Clinic) {
        let life = self.life(clinic);
        assert_eq!(life, self.born);
        assert!(life.ends_with(" 0"), "{life}");
        let text = fs::read_to_string(&self.log).unwrap();
        let whole = text.rsplit_once('\n').map_or("", |(whole, _)| whole);
        let numbers: Vec<usize> = whole.lines().map(|line| line.parse().unwrap()).collect();
        assert_eq!(numbers, (0..numbers.len()).collect::<Vec<_>>());
    }
}
