//! A cluster with everything that heals: a driver that can, the agent with its relay, and the hub with its healer, each
//! with the rights that are shipped.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use k8s_openapi::api::core::v1::Event;
use kube::Api;
use kube::api::ListParams;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use tokio::runtime::Runtime;
use tokio::time::timeout;
use volmedic_driver::mounter;
use volmedic_driver::record::MounterRecord;
use volmedic_testkit::sidecars::Companion;
use volmedic_testkit::{IMAGE, NODE};

use crate::agent::say;
use crate::stage::{DRIVER, PATIENCE, PROGRAM, Stage};

const HOME: &str = "default";

/// Dropped from top to bottom: the roles go before the cluster they work on.
pub(super) struct Clinic {
    hub: Option<Companion>,
    agent: Option<Companion>,
    _logs: Logs,
    runtime: Runtime,
    pub(super) stage: Stage,
}

impl Clinic {
    pub(super) fn open() -> Self {
        let stage = Stage::start_healing();
        let logs = Logs(stage.folder().join("logs"));
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let mut clinic = Self { hub: None, agent: None, _logs: logs, runtime, stage };
        clinic.install();
        clinic.start_agent();
        clinic
    }

    fn install(&self) {
        let files = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy/chart/files");
        self.stage.create(&json!([crate::kind::definition()]));
        let policies = ["admission-agent.yaml", "admission-health.yaml", "admission-hub.yaml"];
        for part in
            ["crds", "rbac-agent.yaml", "rbac-hub.yaml", "rbac-healer.yaml"].into_iter().chain(policies)
        {
            self.stage.kubectl(&["apply", "-n", HOME, "-f", files.join(part).to_str().unwrap()]);
        }
        // The relay works under the agent's account.
        let bindings: Vec<Value> = ["ClusterRole", "Role"]
            .iter()
            .map(|kind| {
                json!({
                    "apiVersion": "rbac.authorization.k8s.io/v1",
                    "kind": format!("{kind}Binding"),
                    "metadata": {"name": "volmedic-relay-in-agent", "namespace": HOME},
                    "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": "volmedic-relay"},
                    "subjects": [{"kind": "ServiceAccount", "name": "volmedic-agent", "namespace": HOME}],
                })
            })
            .collect();
        self.stage.create(&bindings.into());
        self.stage.kubectl(&[
            "wait",
            "--for=condition=Established",
            "--timeout=60s",
            "crd",
            "csiaddonsnodes.csiaddons.openshift.io",
        ]);
    }

    /// The agent runs beside the cluster, in the name of a pod on the node, whose address is the node's.
    fn start_agent(&mut self) {
        let labels = json!({"app": "volmedic-agent"});
        self.stage.create(&json!([{
            "apiVersion": "apps/v1",
            "kind": "DaemonSet",
            "metadata": {"name": "volmedic-agent", "namespace": HOME},
            "spec": {"selector": {"matchLabels": labels}, "template": {
                "metadata": {"labels": labels},
                "spec": {"hostNetwork": true, "serviceAccountName": "volmedic-agent", "terminationGracePeriodSeconds": 1,
                         "containers": [{"name": "main", "image": IMAGE, "imagePullPolicy": "Never"}]},
            }},
        }]));
        let stage = &self.stage;
        let pod = stage.wait("the agent's pod runs", || {
            let path = "jsonpath={.items[*].metadata.name} {.items[*].status.phase}";
            let found = stage.try_kubectl(&["get", "pods", "-l", "app=volmedic-agent", "-o", path])?;
            let name = found.strip_suffix(" Running").map(str::to_owned);
            name.ok_or(found)
        });
        let bound = format!("--bound-object-name={pod}");
        let token = ["create", "token", "volmedic-agent", "--duration=1h", "--bound-object-kind=Pod", &bound];
        let kubeconfig = self.file("relay.kubeconfig");
        stage.write_kubeconfig(&kubeconfig, &stage.kubectl(&token));
        let mut command = Command::new(PROGRAM);
        command.env("POD_NAME", &pod).env("POD_NAMESPACE", HOME);
        command.arg("agent").arg(format!("--node-name={NODE}"));
        command.arg(format!("--kubelet-root-dir={}", self.file("kubelet").display()));
        command.arg(format!("--state-dir={}", self.file("agent").display()));
        command.arg(format!("--kubeconfig={}", kubeconfig.display()));
        command.args(["--monitor-interval=2s", "--probe-timeout=3s", "--http-endpoint=127.0.0.1:0"]);
        command.arg(format!("--addons-address=unix://{}", stage.addons().display()));
        command.arg("--relay-endpoint=:0");
        self.agent = Some(stage.companion("agent", command));
    }

    /// Starts the hub with its healer, which is quick in all it does unless a test sets something else.
    pub(super) fn start_hub(&mut self, arguments: &[&str]) {
        let stage = &self.stage;
        let kubeconfig = self.file("hub.kubeconfig");
        if !kubeconfig.exists() {
            let of_hub = ["create", "token", "volmedic-hub", "--duration=1h"];
            stage.write_kubeconfig(&kubeconfig, &stage.kubectl(&of_hub));
        }
        let mut command = Command::new(PROGRAM);
        command.env("POD_NAMESPACE", HOME);
        command.args(["hub", "--leader-election=false", "--http-endpoint=127.0.0.1:0"]);
        command.args(["--heal", "--heal-relays"]);
        command.arg(format!("--kubeconfig={}", kubeconfig.display()));
        command.args(arguments);
        self.hub = Some(stage.companion("hub", command));
    }

    /// Ends the hub the hard way.
    pub(super) fn kill_hub(&mut self) {
        drop(self.hub.take().expect("a hub runs"));
    }

    fn file(&self, name: &str) -> PathBuf {
        self.stage.folder().join(name)
    }

    /// Waits until a gauge of a program has this value.
    pub(super) fn gauge(&self, program: &str, name: &str, wanted: u64) {
        self.stage.wait(&format!("{name} of the {program} is {wanted}"), || {
            let metrics = self.stage.metrics_of(program).map_err(|error| error.to_string())?;
            let mut found = metrics.lines().filter_map(|line| line.strip_prefix(name));
            let value = found.find_map(|rest| rest.trim().parse::<u64>().ok());
            if value == Some(wanted) { Ok(()) } else { Err(format!("{value:?}")) }
        });
    }

    /// What a person does who has found the cause.
    pub(super) fn heal(&self, claim: &str) {
        let mut command = Command::new("timeout");
        command.args(["60", PROGRAM, "heal", claim, "--namespace", HOME]);
        command.arg(format!("--kubeconfig={}", self.stage.plane().kubeconfig().display()));
        let output = command.output().unwrap();
        assert!(output.status.success(), "{output:?}");
    }

    /// How often the driver was asked about each PersistentVolume, through the relay.
    pub(super) fn asked(&self) -> BTreeMap<String, usize> {
        let log = fs::read_to_string(self.file("logs/agent.log")).unwrap();
        let mut asked = BTreeMap::new();
        for line in log.lines().filter(|line| line.contains("a heal was relayed")) {
            let (_, rest) = line.split_once("persistent_volume=\"").unwrap();
            *asked.entry(rest.split_once('"').unwrap().0.to_owned()).or_default() += 1;
        }
        asked
    }

    /// The same since it was like this, without those that were not asked about.
    fn asked_since(&self, before: &BTreeMap<String, usize>) -> BTreeMap<String, usize> {
        let mut asked = self.asked();
        for (volume, times) in before {
            *asked.entry(volume.clone()).or_default() -= times;
        }
        asked.retain(|_, times| *times > 0);
        asked
    }

    /// Waits until each of the claims that are repaired without asking was asked about since then, if it is one of these.
    pub(super) fn checked(&self, before: &BTreeMap<String, usize>, which: impl Fn(&str) -> bool) {
        let all = self.mendable();
        let wanted: Vec<_> = all.iter().filter(|(claim, _)| which(claim)).map(|(_, volume)| volume).collect();
        self.stage.wait("the volumes are checked", || {
            let asked = self.asked_since(before);
            let missing: Vec<_> = wanted.iter().filter(|volume| !asked.contains_key(**volume)).collect();
            if missing.is_empty() { Ok(()) } else { Err(format!("not asked about: {missing:?}")) }
        });
    }

    /// The same for all of them; and nobody else was, and nobody twice.
    pub(super) fn all_checked(&self, before: &BTreeMap<String, usize>) {
        self.checked(before, |_| true);
        let once = self.mendable().into_values().map(|volume| (volume, 1)).collect();
        assert_eq!(self.asked_since(before), once);
    }

    /// All claims that are repaired without asking, with their PersistentVolumes.
    fn mendable(&self) -> BTreeMap<String, String> {
        let claims = self.stage.kubectl(&["get", "pvc", "-o", "json"]);
        let claims: Value = serde_json::from_str(&claims).unwrap();
        let auto = |claim: &&Value| claim["metadata"]["annotations"]["volmedic.dev/heal"] == "auto";
        let text = |value: &Value| value.as_str().unwrap().to_owned();
        let named = |claim: &Value| (text(&claim["metadata"]["name"]), text(&claim["spec"]["volumeName"]));
        claims["items"].as_array().unwrap().iter().filter(auto).map(named).collect()
    }

    /// Sets an annotation of ours on a claim.
    pub(super) fn annotate(&self, claim: &str, key: &str, value: &str) {
        let annotation = format!("volmedic.dev/{key}={value}");
        self.stage.kubectl(&["annotate", "pvc", claim, "--overwrite", &annotation]);
    }

    /// The process behind a volume.
    pub(super) fn mounter(&self, handle: &str) -> Option<MounterRecord> {
        mounter::find(&self.stage.state().volume(handle)).unwrap()
    }

    /// All events. Asked for so often that kubectl would keep the machine busy.
    pub(super) fn events(&self) -> Vec<Event> {
        let listing = async {
            let client = self.stage.plane().client().await.unwrap();
            Api::<Event>::namespaced(client, HOME).list(&ListParams::default()).await.unwrap().items
        };
        self.runtime.block_on(async { timeout(PATIENCE, listing).await.expect("the API server answers") })
    }

    /// The one registration of the driver.
    pub(super) fn registration(&self) -> Value {
        let all = self.stage.kubectl(&["get", "csiaddonsnodes", "-o", "json"]);
        let all: Value = serde_json::from_str(&all).unwrap();
        let of_driver = |object: &&Value| object["spec"]["driver"]["name"] == DRIVER;
        all["items"].as_array().unwrap().iter().find(of_driver).cloned().unwrap_or_default()
    }

    /// A claim for a small volume of kind fuse, healed in this way.
    pub(super) fn claim(name: &str, mode: Option<&str>) -> Value {
        let mut claim = json!({
            "apiVersion": "v1",
            "kind": "PersistentVolumeClaim",
            "metadata": {"name": name, "namespace": HOME},
            "spec": {"accessModes": ["ReadWriteOnce"], "storageClassName": "volmedic-fuse",
                     "resources": {"requests": {"storage": "4Mi"}}},
        });
        if let Some(mode) = mode {
            claim["metadata"]["annotations"] = json!({"volmedic.dev/heal": mode});
        }
        claim
    }

    pub(super) fn handle(&self, claim: &str) -> String {
        crate::agent::handle(&self.stage, claim)
    }

    /// The handles of all claims whose names begin like this.
    pub(super) fn handles(&self, prefix: &str) -> Vec<String> {
        let path = r#"jsonpath={range .items[*]}{.spec.claimRef.name} {.spec.csi.volumeHandle}{"\n"}{end}"#;
        let all = self.stage.kubectl(&["get", "pv", "-o", path]);
        let pairs = all.lines().filter_map(|line| line.split_once(' '));
        pairs.filter(|(claim, _)| claim.starts_with(prefix)).map(|(_, handle)| handle.to_owned()).collect()
    }

    /// Ends the process behind a volume the hard way; answers which it was, if there was one.
    pub(super) fn kill_mounter(&self, handle: &str) -> Option<i32> {
        let found = self.mounter(handle)?;
        let _ = kill_process(Pid::from_raw(found.pid)?, Signal::KILL);
        Some(found.pid)
    }

    /// Ends everything in order; each program must have lived until now.
    pub(super) fn close(mut self) {
        for mut companion in self.hub.take().into_iter().chain(self.agent.take()) {
            companion.check().unwrap();
            companion.stop().unwrap();
        }
        assert!(self.registration().is_null(), "the relay left its registration behind");
        self.stage.stop();
    }
}

/// After a failed test: what both said of healing.
struct Logs(PathBuf);

impl Drop for Logs {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            return;
        }
        for program in ["hub", "agent"] {
            let log = fs::read_to_string(self.0.join(format!("{program}.log"))).unwrap_or_default();
            let of_healing = log.lines().filter(|line| line.to_lowercase().contains("heal"));
            say(&format!("--- {program} ---\n{}", of_healing.collect::<Vec<_>>().join("\n")));
        }
    }
}
