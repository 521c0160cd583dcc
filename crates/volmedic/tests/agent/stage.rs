//! A node without a kubelet: a driver with real volumes, pods that use them, and the directories that a kubelet would
//! have made.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::{Event, PersistentVolume, PersistentVolumeClaim, Pod};
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::{Api, Client};
use serde_json::{Value, json};
use volmedic_api::resource::{NodeReport, NodeVolumeHealth};
use volmedic_driver::fault::{Fault, Faults};
use volmedic_inventory::node::Layout;
use volmedic_testkit::{ControlPlane, objects};

use crate::calls::Calls;
use crate::ground::Ground;
use crate::process::{Controller as Process, PATIENCE, program};
use crate::rights::Rights;
use crate::server;

pub(crate) const ABNORMAL: &str = "VolumeConditionAbnormal";
pub(crate) const NORMAL: &str = "VolumeConditionNormal";
const MIB: i64 = 1 << 20;

/// A volume of the driver, staged and bound to a claim of the same name.
#[derive(Debug, Clone)]
pub(crate) struct Volume {
    pub(crate) claim: String,
    pub(crate) id: String,
    pub(crate) pv: String,
    staging: String,
}

pub(crate) struct Stage {
    pub(crate) plane: Arc<ControlPlane>,
    pub(crate) client: Client,
    pub(crate) namespace: String,
    pub(crate) node: String,
    pub(crate) driver: String,
    pub(crate) kubelet: Layout,
    pub(crate) kubeconfig: PathBuf,
    pub(crate) ground: Ground,
    calls: Calls,
}

impl Stage {
    pub(crate) async fn new() -> Self {
        let plane = server::shared();
        install_resources(&plane);
        Self::on(plane, &[]).await
    }

    /// With these arguments for the driver. Nothing but what comes with Kubernetes is installed.
    pub(crate) async fn on(plane: Arc<ControlPlane>, arguments: &[&str]) -> Self {
        let client = plane.client().await.expect("a client");
        let namespace = plane.namespace("agent").await.expect("a namespace");
        let driver = format!("{namespace}.csi.example.net");
        let node = format!("{namespace}-node");
        let mut ground = Ground::new();
        let name = format!("--name={driver}");
        // Nothing here hangs; what takes long on a busy machine is not to be called so.
        ground.start(&[&[name.as_str(), "--check-deadline=30"], arguments].concat());
        let calls = Calls::to(&ground).await;
        let kubelet = Layout::new(ground.path().join("kubelet"));
        let kubeconfig = PathBuf::new();
        let mut stage = Self { plane, client, namespace, node, driver, kubelet, kubeconfig, ground, calls };
        let shipped = shipped(&stage.plane);
        stage.kubeconfig = stage.account("agent", &shipped).await;
        stage
    }

    /// A service account with these rights; answers its kubeconfig.
    pub(crate) async fn account(&self, name: &str, rights: &Rights) -> PathBuf {
        let config = rights.grant(&self.plane, &self.client, &self.namespace, name).await;
        let path = self.ground.path().join(format!("{name}.kubeconfig"));
        fs::write(&path, config.to_string()).expect("the kubeconfig can be written");
        path
    }

    /// A kubeconfig with this token.
    pub(crate) fn kubeconfig_with(&self, name: &str, token: &str) -> PathBuf {
        let admin = fs::read(self.plane.kubeconfig()).expect("the admin's kubeconfig");
        let mut config: Value = serde_json::from_slice(&admin).expect("JSON");
        config["users"][0]["user"] = json!({ "token": token });
        let path = self.ground.path().join(format!("{name}.kubeconfig"));
        fs::write(&path, config.to_string()).expect("the kubeconfig can be written");
        path
    }

    pub(crate) fn state_dir(&self) -> PathBuf {
        self.ground.path().join("agent")
    }

    /// A command line with short intervals. Arguments that are given again count.
    pub(crate) fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(program());
        command
            .arg("agent")
            .env("POD_NAMESPACE", &self.namespace)
            .arg(format!("--node-name={}", self.node))
            .arg(format!("--kubelet-root-dir={}", self.kubelet.root().display()));
        let usual = [
            ("--kubeconfig", self.kubeconfig.display().to_string()),
            ("--state-dir", self.state_dir().display().to_string()),
            ("--csi-address", self.ground.socket().display().to_string()),
            ("--monitor-interval", "2s".to_owned()),
            ("--probe-timeout", "30s".to_owned()),
        ];
        for (flag, value) in usual {
            if !arguments.iter().any(|argument| argument.starts_with(flag)) {
                command.arg(format!("{flag}={value}"));
            }
        }
        command.args(arguments);
        command
    }

    pub(crate) fn agent(&self, arguments: &[&str]) -> Process {
        Process::spawn(&mut self.command(arguments))
    }

    /// Starts it and waits until it watches.
    pub(crate) async fn watching(&self, arguments: &[&str]) -> Process {
        let agent = self.agent(arguments);
        agent.wait_log("watching").await;
        agent
    }

    /// A volume of this kind (`ext4`, `xfs`, `btrfs` or `fuse`), staged.
    pub(crate) async fn volume(&mut self, claim: &str, kind: &str) -> Volume {
        let (bytes, parameters) = match kind {
            "fuse" => (64 * MIB, [("kind", "fuse")]),
            "xfs" => (320 * MIB, [("fsType", "xfs")]),
            "btrfs" => (128 * MIB, [("fsType", "btrfs")]),
            kind => (64 * MIB, [("fsType", kind)]),
        };
        let name = format!("{}-{claim}", self.namespace);
        let id = self.calls.create(&name, bytes, &parameters, false).await.unwrap();
        let bound =
            objects::bound_claim(&self.client, &self.namespace, claim, &self.driver, &id).await.unwrap();
        let staging = self.kubelet.staging(&self.driver, &id).unwrap();
        fs::create_dir_all(&staging).unwrap();
        let staging = staging.to_str().unwrap().to_owned();
        self.calls.stage(&id, &staging, false).await.unwrap();
        Volume { claim: claim.to_owned(), id, pv: bound.volume.metadata.name.unwrap(), staging }
    }

    /// A claim on a directory of the node.
    pub(crate) async fn host_path(&self, claim: &str, path: &Path) -> Volume {
        let pv = format!("pv-{}-{claim}", self.namespace);
        let (size, modes) = (json!({"storage": "1Gi"}), json!(["ReadWriteOnce"]));
        let bound = json!({
            "metadata": {"name": claim},
            "spec": {"accessModes": modes, "resources": {"requests": size}, "storageClassName": "", "volumeName": pv},
        });
        let claims = Api::<PersistentVolumeClaim>::namespaced(self.client.clone(), &self.namespace);
        let made =
            claims.create(&PostParams::default(), &serde_json::from_value(bound).unwrap()).await.unwrap();
        let volume = json!({
            "metadata": {"name": pv},
            "spec": {
                "accessModes": modes, "capacity": size, "storageClassName": "",
                "persistentVolumeReclaimPolicy": "Retain",
                "hostPath": {"path": path},
                "claimRef": {"kind": "PersistentVolumeClaim", "apiVersion": "v1", "namespace": self.namespace,
                             "name": claim, "uid": made.metadata.uid},
            },
        });
        let volumes = Api::<PersistentVolume>::all(self.client.clone());
        volumes.create(&PostParams::default(), &serde_json::from_value(volume).unwrap()).await.unwrap();
        Volume { claim: claim.to_owned(), id: pv.clone(), pv, staging: String::new() }
    }

    /// A pod that was scheduled here and does not run yet; answers its uid.
    pub(crate) async fn pending_pod(&self, name: &str, volumes: &[&Volume]) -> String {
        let source = |v: &&Volume| json!({"name": v.claim, "persistentVolumeClaim": {"claimName": v.claim}});
        let mount = |v: &&Volume| json!({"name": v.claim, "mountPath": format!("/{}", v.claim)});
        let pod = json!({
            "metadata": {"name": name},
            "spec": {
                "nodeName": self.node,
                "automountServiceAccountToken": false,
                "terminationGracePeriodSeconds": 30,
                "volumes": volumes.iter().map(source).collect::<Vec<_>>(),
                "containers": [{"name": "main", "image": "none",
                                "volumeMounts": volumes.iter().map(mount).collect::<Vec<_>>()}],
            },
        });
        let pod = serde_json::from_value(pod).unwrap();
        self.pods().create(&PostParams::default(), &pod).await.unwrap().metadata.uid.unwrap()
    }

    /// What the kubelet does for a pod and a volume; answers where the volume is.
    pub(crate) async fn publish(&mut self, uid: &str, volume: &Volume) -> PathBuf {
        let target = self.kubelet.publish(uid, &volume.pv).unwrap();
        fs::create_dir_all(target.parent().unwrap()).unwrap();
        let note = json!({"driverName": self.driver, "volumeHandle": volume.id, "specVolID": volume.pv,
                          "nodeName": self.node, "volumeLifecycleMode": "Persistent"});
        fs::write(self.kubelet.vol_data(uid, &volume.pv).unwrap(), note.to_string()).unwrap();
        let path = target.to_str().unwrap();
        self.calls.publish(&volume.id, &volume.staging, path, false, false).await.unwrap();
        target
    }

    /// What the kubelet does when a pod has ended.
    pub(crate) async fn unpublish(&mut self, uid: &str, volume: &Volume) {
        let target = self.kubelet.publish(uid, &volume.pv).unwrap();
        self.calls.unpublish(&volume.id, target.to_str().unwrap()).await.unwrap();
        fs::remove_dir_all(target.parent().unwrap()).unwrap();
    }

    /// A pod that runs with these volumes; answers its uid.
    pub(crate) async fn pod(&mut self, name: &str, volumes: &[&Volume]) -> String {
        let uid = self.pending_pod(name, volumes).await;
        for volume in volumes {
            self.publish(&uid, volume).await;
        }
        self.set_status(name, json!({"phase": "Running"})).await;
        uid
    }

    pub(crate) fn pods(&self) -> Api<Pod> {
        Api::namespaced(self.client.clone(), &self.namespace)
    }

    pub(crate) async fn set_status(&self, pod: &str, status: Value) {
        let patch = Patch::Merge(json!({"status": status}));
        self.pods().patch_status(pod, &PatchParams::default(), &patch).await.unwrap();
    }

    /// Asks for the end of a pod. It stays, since there is no kubelet to end it.
    pub(crate) async fn delete(&self, pod: &str) {
        self.pods().delete(pod, &DeleteParams::default()).await.unwrap();
    }

    fn faults(&self) -> Faults {
        Faults::at(self.ground.state())
    }

    pub(crate) fn harm(&self, fault: Fault, volume: &Volume) {
        self.faults().inject(fault, Some(&volume.id)).unwrap();
    }

    pub(crate) fn repair(&self, fault: Fault, volume: &Volume) {
        self.faults().clear(fault, Some(&volume.id)).unwrap();
    }

    /// The node's report as it is stored.
    pub(crate) async fn stored(&self) -> Option<NodeVolumeHealth> {
        let api = Api::<NodeVolumeHealth>::all(self.client.clone());
        api.get_opt(&self.node).await.expect("the API server answers")
    }

    /// Waits until the node's report is as it should be.
    pub(crate) async fn report(&self, what: &str, wanted: impl Fn(&NodeReport) -> bool) -> NodeVolumeHealth {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let stored = self.stored().await;
            if let Some(stored) = stored.as_ref().filter(|stored| wanted(&stored.spec.report)) {
                return stored.clone();
            }
            assert!(Instant::now() < deadline, "waited in vain until {what}: {stored:#?}");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    /// What was reported on an object, oldest first.
    pub(crate) async fn events(&self, object: &str) -> Vec<Event> {
        let api: Api<Event> = Api::namespaced(self.client.clone(), &self.namespace);
        let fields = format!("involvedObject.name={object}");
        let mut events = api.list(&ListParams::default().fields(&fields)).await.expect("events").items;
        events.sort_by_key(|event| event.first_timestamp.clone());
        events
    }

    /// All that was reported in the namespace, as reason and message.
    pub(crate) async fn all_reported(&self) -> Vec<(String, String)> {
        let api: Api<Event> = Api::namespaced(self.client.clone(), &self.namespace);
        let events = api.list(&ListParams::default()).await.expect("events").items;
        events.into_iter().map(|e| (e.reason.unwrap_or_default(), e.message.unwrap_or_default())).collect()
    }

    /// Waits for an event on an object with all of these words.
    pub(crate) async fn event(&self, object: &str, reason: &str, words: &[&str]) -> Event {
        let wanted = |event: &Event| {
            let message = event.message.as_deref().unwrap_or_default();
            event.reason.as_deref() == Some(reason) && words.iter().all(|word| message.contains(word))
        };
        let deadline = Instant::now() + PATIENCE;
        loop {
            let events = self.events(object).await;
            if let Some(event) = events.iter().find(|event| wanted(event)) {
                return event.clone();
            }
            let reported: Vec<_> = events.iter().map(|e| (e.reason.clone(), e.message.clone())).collect();
            assert!(
                Instant::now() < deadline,
                "no {reason} with {words:?} on {object}; there is {reported:#?}"
            );
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    /// Waits until this number of further host checks have ended. The agent must serve HTTP.
    pub(crate) async fn looks(&self, agent: &Process, more: u64) {
        self.looks_of(agent, &self.driver, more).await;
    }

    /// The same of the volumes of another driver.
    pub(crate) async fn looks_of(&self, agent: &Process, driver: &str, more: u64) {
        let deadline = Instant::now() + PATIENCE;
        let mut enough = None;
        loop {
            let done = looked(agent, driver).await;
            let enough = *enough.get_or_insert(done + more);
            if done >= enough {
                return;
            }
            assert!(Instant::now() < deadline, "{done} looks, not {enough}");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    /// Waits until an event was counted this often.
    pub(crate) async fn counted(&self, object: &str, reason: &str, count: i32) {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let events = self.events(object).await;
            let event = events.iter().find(|event| event.reason.as_deref() == Some(reason));
            let counted = event.and_then(|event| event.count);
            if counted == Some(count) {
                return;
            }
            assert!(Instant::now() < deadline, "{reason} on {object} was counted {counted:?}, not {count}");
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }
}

/// How many checks by the host ended.
async fn looked(agent: &Process, driver: &str) -> u64 {
    let (_, text) = agent.get("/metrics").await;
    let name = format!(r#"csi_volume_health_probe_total{{driver_name="{driver}",method_name="host","#);
    let counts = text.lines().filter(|line| line.starts_with(&name));
    counts.filter_map(|line| line.rsplit(' ').next()?.parse::<u64>().ok()).sum()
}

/// The rights in deploy/chart/files/rbac-agent.yaml.
pub(crate) fn shipped(plane: &ControlPlane) -> Rights {
    static SHIPPED: OnceLock<Rights> = OnceLock::new();
    SHIPPED.get_or_init(|| Rights::read(plane, "rbac-agent.yaml")).clone()
}

/// Installs deploy/chart/files/crds where they are not, and waits until they are served.
pub(crate) fn install_resources(plane: &ControlPlane) {
    static INSTALLED: Mutex<Vec<PathBuf>> = Mutex::new(Vec::new());
    let mut installed = INSTALLED.lock().unwrap_or_else(PoisonError::into_inner);
    if installed.contains(&plane.kubeconfig().to_owned()) {
        return;
    }
    let crds = apply(plane, "crds");
    kubectl(plane, &["wait", "--for=condition=Established", "--timeout=180s", "-f", &crds]);
    installed.push(plane.kubeconfig().to_owned());
}

/// Applies a file of the chart as it is; answers where it is.
pub(crate) fn apply(plane: &ControlPlane, what: &str) -> String {
    let path = format!("{}/../../deploy/chart/files/{what}", env!("CARGO_MANIFEST_DIR"));
    kubectl(plane, &["apply", "-n", "default", "-f", &path]);
    path
}

fn kubectl(plane: &ControlPlane, arguments: &[&str]) {
    let output = plane.kubectl().args(arguments).output().expect("kubectl starts");
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
}

pub(crate) fn unmount(path: &Path) {
    rustix::mount::unmount(path, rustix::mount::UnmountFlags::DETACH).unwrap();
}
