//! A node without a kubelet: a driver with real volumes, pods that use them, the directories that a kubelet would have
//! made, and an agent.

use std::fs;
use std::io;
use std::net::SocketAddr;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::Pod;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use kube::{Api, Client};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::RwLock;
use volmedic_driver::fault::{Fault, Faults, Kind};
use volmedic_inventory::node::Layout;
use volmedic_testkit::objects;

use crate::calls::Calls;
use crate::ground::Ground;
use crate::process::{Controller as Process, program};
use crate::reported::{PATIENCE, Reported};
use crate::rights::Rights;
use crate::role::{self, Manner};
use crate::server;

const MIB: i64 = 1 << 20;
/// What is said of volumes that somebody uses right now.
const BUSY: [&str; 3] = ["stop it first", "end whatever uses it", "end that first"];
/// What is said of a loop device that another test program took while it was detached. Such a program gives it back.
pub(crate) const TAKEN: &str = "belongs to another program by now";

/// The maker of a volume takes the first free loop device. A test that has detached one, and wants it back, keeps all others
/// of this program from that meanwhile.
pub(crate) static FREE_DEVICES: RwLock<()> = RwLock::const_new(());

/// A volume of the driver, staged and bound to a claim of the same name.
#[derive(Debug, Clone)]
pub(crate) struct Volume {
    pub(crate) kind: Kind,
    pub(crate) claim: String,
    pub(crate) id: String,
    pub(crate) pv: String,
    staging: String,
}

/// How a pod uses its volume.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Usage {
    pub(crate) read_only: bool,
    /// Only a directory in it, which must be there.
    pub(crate) sub_path: Option<&'static str>,
}

/// Dropped in this order: who uses a thing before the thing.
pub(crate) struct Stage {
    agent: Option<Process>,
    driver: DriverProcess,
    pub(crate) ground: Ground,
    pub(crate) client: Client,
    pub(crate) namespace: String,
    pub(crate) node: String,
    pub(crate) reported: Reported,
    name: String,
    manner: Manner,
    kubelet: Layout,
    kubeconfig: PathBuf,
    calls: Calls,
    agent_at: Option<SocketAddr>,
}

struct DriverProcess(Child);

impl Drop for DriverProcess {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Stage {
    /// A node with a driver and no volumes.
    pub(crate) async fn new(manner: Manner) -> Self {
        let plane = server::shared();
        let client = plane.client().await.unwrap();
        let namespace = plane.namespace("gallery").await.unwrap();
        let (name, node) = (format!("{namespace}.csi.example.net"), format!("{namespace}-node"));
        let ground = Ground::new();
        let driver = start_driver(&ground, manner, &name).await;
        let calls = Calls::to(&ground).await;
        let kubelet = Layout::new(ground.path().join("kubelet"));
        let reported = Reported::watch(&client, &namespace).await;
        let rights = Rights::read(&plane, "rbac-agent.yaml");
        let config = rights.grant(&plane, &client, &namespace, "agent").await;
        let kubeconfig = ground.path().join("agent.kubeconfig");
        fs::write(&kubeconfig, config.to_string()).unwrap();
        Self {
            agent: None,
            driver,
            ground,
            client,
            namespace,
            node,
            reported,
            name,
            manner,
            kubelet,
            kubeconfig,
            calls,
            agent_at: None,
        }
    }

    /// Starts the agent, with or without the driver's socket, and waits until it watches.
    pub(crate) async fn watched(mut self, through_the_driver: bool) -> Self {
        let mut command = Command::new(program());
        command.args(["agent", "--monitor-interval=2s", "--workers=64"]);
        command.arg(format!("--probe-timeout={}s", self.manner.probe_timeout()));
        // What is measured is the agent and not its manners towards the API server.
        command.args(["--kube-api-qps=500", "--kube-api-burst=500"]);
        command.args(["--http-endpoint=127.0.0.1:0", "--volume-stats-metrics"]);
        command.arg(format!("--node-name={}", self.node));
        command.arg(format!("--kubelet-root-dir={}", self.kubelet.root().display()));
        command.arg(format!("--kubeconfig={}", self.kubeconfig.display()));
        command.arg(format!("--state-dir={}", self.ground.path().join("agent").display()));
        if through_the_driver {
            command.arg(format!("--csi-address={}", self.ground.socket().display()));
        }
        let agent = Process::spawn(&mut command);
        agent.wait_log("watching").await;
        if through_the_driver {
            agent.wait_log("connected to the driver").await;
        }
        self.agent_at = Some(agent.address().await);
        self.agent = Some(agent);
        self
    }

    pub(crate) fn agents_log(&self) -> String {
        self.agent.as_ref().map(Process::log).unwrap_or_default()
    }

    /// What the agent counts.
    pub(crate) async fn metrics(&self) -> String {
        let asked = async {
            let mut stream = tokio::net::TcpStream::connect(self.agent_at.unwrap()).await?;
            stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: here\r\nConnection: close\r\n\r\n").await?;
            let mut answer = String::new();
            stream.read_to_string(&mut answer).await.map(|_| answer)
        };
        tokio::time::timeout(PATIENCE, asked).await.unwrap().unwrap()
    }

    /// Waits until the agent has checked the volume: what it was like before is what a fault is compared with.
    pub(crate) async fn checked(&self, volume: &Volume) -> Result<(), String> {
        let claim = format!("persistentvolumeclaim=\"{}\"", volume.claim);
        let deadline = Instant::now() + PATIENCE;
        while !self
            .metrics()
            .await
            .lines()
            .any(|line| line.starts_with("kubelet_volume_stats_capacity_bytes") && line.contains(&claim))
        {
            if Instant::now() > deadline {
                return Err(format!("nobody looks at {}\n{}", volume.claim, self.agents_log()));
            }
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
        Ok(())
    }

    /// A volume of this kind, staged.
    pub(crate) async fn volume(&self, claim: &str, kind: Kind) -> Volume {
        let (bytes, parameters) = match kind {
            Kind::Fuse => (64 * MIB, [("kind", "fuse")]),
            Kind::Xfs => (320 * MIB, [("fsType", "xfs")]),
            Kind::Btrfs => (128 * MIB, [("fsType", "btrfs")]),
            Kind::Ext4 | Kind::Block => (64 * MIB, [("fsType", "ext4")]),
        };
        let name = format!("{}-{claim}", self.namespace);
        let block = kind == Kind::Block;
        let _free = FREE_DEVICES.read().await;
        let id = self.calls.clone().create(&name, bytes, &parameters, block).await.unwrap();
        let bound =
            objects::bound_claim(&self.client, &self.namespace, claim, &self.name, &id).await.unwrap();
        let pv = bound.volume.metadata.name.unwrap();
        let staging =
            if block { self.kubelet.block_staging(&pv) } else { self.kubelet.staging(&self.name, &id) };
        let staging = staging.unwrap();
        fs::create_dir_all(&staging).unwrap();
        let staging = staging.to_str().unwrap().to_owned();
        let volume = Volume { kind, claim: claim.to_owned(), id, pv, staging };
        self.stage(&volume).await;
        volume
    }

    pub(crate) async fn stage(&self, volume: &Volume) {
        let block = volume.kind == Kind::Block;
        self.calls.clone().stage(&volume.id, &volume.staging, block).await.unwrap();
    }

    pub(crate) fn pods(&self) -> Api<Pod> {
        Api::namespaced(self.client.clone(), &self.namespace)
    }

    /// A pod that was scheduled here and does not run yet; answers its uid.
    pub(crate) async fn pending(&self, name: &str, volume: &Volume, usage: Usage) -> String {
        let claim = &volume.claim;
        let mut container = json!({"name": "main", "image": "none"});
        if volume.kind == Kind::Block {
            container["volumeDevices"] = json!([{"name": "data", "devicePath": "/dev/data"}]);
        } else {
            container["volumeMounts"] = json!([{"name": "data", "mountPath": "/data"}]);
        }
        if let Some(path) = usage.sub_path {
            container["volumeMounts"][0]["subPath"] = json!(path);
        }
        let source = json!({"name": "data", "persistentVolumeClaim": {"claimName": claim, "readOnly": usage.read_only}});
        let pod = json!({
            "metadata": {"name": name},
            "spec": {
                "nodeName": self.node,
                "automountServiceAccountToken": false,
                "volumes": [source],
                "containers": [container],
            },
        });
        let pod = serde_json::from_value(pod).unwrap();
        self.pods().create(&PostParams::default(), &pod).await.unwrap().metadata.uid.unwrap()
    }

    pub(crate) async fn set_status(&self, pod: &str, status: Value) {
        let patch = Patch::Merge(json!({"status": status}));
        self.pods().patch_status(pod, &PatchParams::default(), &patch).await.unwrap();
    }

    /// Says that the pod runs.
    pub(crate) async fn runs(&self, pod: &str) {
        let container = json!({"name": "main", "image": "none", "imageID": "", "ready": true, "restartCount": 0,
                               "state": {"running": {}}});
        self.set_status(pod, json!({"phase": "Running", "containerStatuses": [container]})).await;
    }

    /// A pod that runs with this volume; answers its uid.
    pub(crate) async fn pod(&self, name: &str, volume: &Volume, usage: Usage) -> String {
        let uid = self.pending(name, volume, usage).await;
        self.publish(&uid, volume, usage.read_only).await;
        if let Some(path) = usage.sub_path {
            let part = self.target(&uid, volume).join(path);
            let place = self.kubelet.sub_path(&uid, &volume.pv, "main", 0).unwrap();
            fs::create_dir_all(&part).unwrap();
            fs::create_dir_all(&place).unwrap();
            rustix::mount::mount_bind(&part, &place).unwrap();
        }
        self.runs(name).await;
        uid
    }

    /// Where the volume is for a pod.
    pub(crate) fn target(&self, uid: &str, volume: &Volume) -> PathBuf {
        let block = volume.kind == Kind::Block;
        let target = if block {
            self.kubelet.block_publish(&volume.pv, uid)
        } else {
            self.kubelet.publish(uid, &volume.pv)
        };
        target.unwrap()
    }

    /// What the kubelet does for a pod and a volume.
    pub(crate) async fn publish(&self, uid: &str, volume: &Volume, read_only: bool) {
        let target = self.target(uid, volume);
        fs::create_dir_all(target.parent().unwrap()).unwrap();
        let note = json!({"driverName": self.name, "volumeHandle": volume.id, "specVolID": volume.pv,
                          "nodeName": self.node, "volumeLifecycleMode": "Persistent"});
        let block = volume.kind == Kind::Block;
        if block {
            let place = self.kubelet.block_vol_data(&volume.pv).unwrap();
            fs::create_dir_all(place.parent().unwrap()).unwrap();
            fs::write(place, note.to_string()).unwrap();
            // The pod's own directory has a link, by which the kubelet finds the volume again.
            let link = self.kubelet.block_map(uid, "kubernetes.io~csi", &volume.pv).unwrap();
            fs::create_dir_all(link.parent().unwrap()).unwrap();
            if fs::symlink_metadata(&link).is_err() {
                std::os::unix::fs::symlink(&target, &link).unwrap();
            }
        } else {
            fs::write(self.kubelet.vol_data(uid, &volume.pv).unwrap(), note.to_string()).unwrap();
        }
        let path = target.to_str().unwrap();
        self.calls.clone().publish(&volume.id, &volume.staging, path, block, read_only).await.unwrap();
    }

    /// What the kubelet does when a pod has ended: it tries until nobody uses the volume.
    pub(crate) async fn unpublish(&self, uid: &str, volume: &Volume) {
        let target = self.target(uid, volume);
        let deadline = Instant::now() + PATIENCE;
        while let Err(why) = self.calls.clone().unpublish(&volume.id, target.to_str().unwrap()).await {
            let busy = BUSY.iter().any(|busy| why.message().contains(busy));
            assert!(busy && Instant::now() < deadline, "unpublishing {}: {why}", volume.claim);
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        match fs::remove_dir_all(self.kubelet.pods().join(uid)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => panic!("{error}"),
            _ => {}
        }
    }

    /// The mount and the pod's directories in one step, so that nobody sees one without the other for long, however slow the
    /// machine is. The driver does not know yet.
    pub(crate) fn remove(&self, uid: &str, volume: &Volume) {
        rustix::mount::unmount(self.target(uid, volume), rustix::mount::UnmountFlags::DETACH).unwrap();
        fs::remove_dir_all(self.kubelet.pods().join(uid)).unwrap();
    }

    /// The pod is gone in one step, as if its kubelet had said that nothing of it runs.
    pub(crate) async fn delete(&self, pod: &str) {
        let now = DeleteParams::default().grace_period(0);
        self.pods().delete(pod, &now).await.unwrap();
    }

    /// Takes everything away that was made for a volume and its only pod.
    pub(crate) async fn take_down(&self, pod: &str, uid: &str, volume: &Volume) -> Result<(), String> {
        self.delete(pod).await;
        self.unpublish(uid, volume).await;
        let mut calls = self.calls.clone();
        calls.unstage(&volume.id, &volume.staging).await.map_err(|why| format!("unstaging: {why}"))?;
        calls.delete(&volume.id).await.map_err(|why| format!("deleting: {why}"))
    }

    /// Hurts a volume, or the driver.
    pub(crate) async fn harm(&self, fault: Fault, volume: Option<&Volume>) -> Result<(), String> {
        let done = self.work(volume, move |faults, volume| faults.inject(fault, volume)).await;
        done.map_err(|error| format!("injecting {fault}: {error}"))
    }

    pub(crate) async fn repair(&self, fault: Fault, volume: Option<&Volume>) -> Result<(), String> {
        let done = self.work(volume, move |faults, volume| faults.clear(fault, volume)).await;
        done.map_err(|error| format!("clearing {fault}: {error}"))
    }

    /// Some of it is refused while the volume is probed, which happens all the time.
    async fn work(
        &self,
        volume: Option<&Volume>,
        work: impl Fn(&Faults, Option<&str>) -> volmedic_driver::Result<()> + Clone + Send + 'static,
    ) -> Result<(), String> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let (faults, id) = (self.faults(), volume.map(|volume| volume.id.clone()));
            let work = work.clone();
            let done = tokio::task::spawn_blocking(move || work(&faults, id.as_deref())).await;
            match done.unwrap().map_err(|error| error.to_string()) {
                Err(error)
                    if (error.contains(TAKEN) || BUSY.iter().any(|busy| error.contains(busy)))
                        && Instant::now() < deadline =>
                {
                    tokio::time::sleep(Duration::from_millis(20)).await;
                }
                done => return done,
            }
        }
    }

    fn faults(&self) -> Faults {
        Faults::at(self.ground.state())
    }

    /// After the driver was killed.
    pub(crate) async fn start_driver_again(&mut self) {
        self.driver.0.wait().unwrap();
        self.driver = start_driver(&self.ground, self.manner, &self.name).await;
    }
}

async fn start_driver(ground: &Ground, manner: Manner, name: &str) -> DriverProcess {
    let socket = ground.socket();
    let _ = fs::remove_file(&socket);
    let state = ground.path().join("state");
    let root = ground.path().join("kubelet");
    let log = fs::File::options().create(true).append(true).open(ground.path().join("driver.log")).unwrap();
    let child = Command::new(std::env::current_exe().unwrap())
        .args(role::arguments(manner, name, state, socket.clone(), root))
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(log)
        .spawn();
    let mut driver = DriverProcess(child.unwrap());
    let deadline = Instant::now() + PATIENCE;
    while UnixStream::connect(&socket).is_err() {
        let ended = driver.0.try_wait().unwrap();
        assert!(ended.is_none() && Instant::now() < deadline, "no driver ({ended:?})\n{}", ground.log());
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    driver
}
