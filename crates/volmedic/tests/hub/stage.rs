//! A control plane with everything installed, a hub, and what its tests need of the world.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::{Duration, Instant};

use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod};
use k8s_openapi::jiff::Timestamp;
use kube::api::{ApiResource, DynamicObject, ListParams, Patch, PatchParams};
use kube::{Api, Client};
use serde_json::{Value, json};
use volmedic_api::resource::{
    Coverage, CoverageGroup, NodeReport, NodeVantage, NodeVolumeHealth, VolumeHealth,
};
use volmedic_testkit::{ControlPlane, objects};

use crate::process::{Controller as Process, PATIENCE, program};

pub(crate) const DRIVER: &str = "disk.example.net";
/// Where everything of ours runs, as the shipped manifests have it.
pub(crate) const HOME: &str = "default";

/// Files of deploy/, in the order in which they are installed.
pub(crate) const CRDS: &str = "crds";
pub(crate) const POLICY: &str = "admission-agent.yaml";
/// Installed together with the other one: the hub expects both.
const HEALTH_POLICY: &str = "admission-health.yaml";
pub(crate) const RBAC: [&str; 2] = ["rbac-hub.yaml", "rbac-agent.yaml"];

pub(crate) struct Stage {
    pub(crate) plane: Arc<ControlPlane>,
    pub(crate) client: Client,
    pub(crate) namespace: String,
    /// The claims that were made in it.
    claims: Mutex<Vec<String>>,
}

/// The one that tests share, with a hub on it that they share too: a hub is for the whole cluster.
pub(crate) async fn shared() -> Stage {
    static PLANE: OnceLock<Arc<ControlPlane>> = OnceLock::new();
    let plane = PLANE.get_or_init(|| {
        let plane = bare();
        install(&plane, &everything());
        plane
    });
    let stage = Stage::on(plane.clone()).await;
    let kubeconfig = stage.kubeconfig().await;
    let hub = HUB.get_or_init(|| tied_to_this_process(move || start(tied(), HOME, &kubeconfig, &QUICK)));
    hub.wait_log("merging what is known").await;
    stage
}

static HUB: OnceLock<Process> = OnceLock::new();

/// The hub that tests share.
pub(crate) fn shared_hub() -> &'static Process {
    HUB.get().expect("it was started with the stage")
}

/// A command that is killed when the thread that started it ends. Nothing that is static is ever dropped.
fn tied() -> Command {
    let mut command = Command::new("setpriv");
    command.arg("--pdeathsig=KILL").arg(program());
    command
}

/// Does something on a thread that lasts as long as this process.
fn tied_to_this_process<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    let (send, receive) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        let _ = send.send(work());
        loop {
            std::thread::park();
        }
    });
    receive.recv().expect("the thread answers")
}

/// Short times, for tests that wait for them.
pub(crate) const QUICK: [&str; 2] = ["--node-grace-period=2s", "--leader-election=false"];

pub(crate) fn everything() -> Vec<&'static str> {
    [CRDS, POLICY].into_iter().chain(RBAC).collect()
}

pub(crate) fn bare() -> Arc<ControlPlane> {
    Arc::new(ControlPlane::options().start().expect("there is a control plane to test against"))
}

/// Installs files of the chart and waits until the API server serves what they define.
pub(crate) fn install(plane: &ControlPlane, files: &[&str]) {
    static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
    let _turn = ONE_AT_A_TIME.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy/chart/files");
    for file in files {
        let path = folder.join(file);
        kubectl(plane, &["apply", "-n", HOME, "-f", &path.display().to_string()]);
        if *file == POLICY {
            let path = folder.join(HEALTH_POLICY);
            kubectl(plane, &["apply", "-f", &path.display().to_string()]);
        }
        if *file == CRDS {
            kubectl(
                plane,
                &[
                    "wait",
                    "--for=condition=Established",
                    "--timeout=180s",
                    "crd/volumehealths.volmedic.dev",
                    "crd/nodevolumehealths.volmedic.dev",
                ],
            );
        }
    }
}

/// Runs kubectl with all rights and answers what it printed.
pub(crate) fn kubectl(plane: &ControlPlane, arguments: &[&str]) -> String {
    let (worked, text) = try_kubectl(plane, arguments);
    assert!(worked, "kubectl {arguments:?}: {text}");
    text
}

pub(crate) fn try_kubectl(plane: &ControlPlane, arguments: &[&str]) -> (bool, String) {
    let output = plane.kubectl().args(arguments).stdin(Stdio::null()).output().expect("kubectl starts");
    let text =
        [&*String::from_utf8_lossy(&output.stdout), &*String::from_utf8_lossy(&output.stderr)].concat();
    (output.status.success(), text)
}

pub(crate) fn start_hub(kubeconfig: &Path, arguments: &[&str]) -> Process {
    start_hub_in(HOME, kubeconfig, arguments)
}

/// With its Lease, and the agents', in another namespace.
pub(crate) fn start_hub_in(namespace: &str, kubeconfig: &Path, arguments: &[&str]) -> Process {
    start(Command::new(program()), namespace, kubeconfig, arguments)
}

fn start(mut command: Command, namespace: &str, kubeconfig: &Path, arguments: &[&str]) -> Process {
    command
        .arg("hub")
        .arg(format!("--kubeconfig={}", kubeconfig.display()))
        .args(["--leader-election-namespace", namespace, "--http-endpoint=127.0.0.1:0"])
        .args(arguments);
    Process::spawn(&mut command)
}

/// Waits until something is so.
pub(crate) async fn until<F, Fut, E>(what: &str, mut check: F)
where
    F: FnMut() -> Fut,
    Fut: Future<Output = Result<bool, E>>,
    E: std::fmt::Display,
{
    let deadline = Instant::now() + PATIENCE;
    loop {
        let answer = check().await;
        if matches!(answer, Ok(true)) {
            return;
        }
        let why = answer.err().map(|error| format!(": {error}")).unwrap_or_default();
        assert!(Instant::now() < deadline, "waited in vain until {what}{why}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

impl Stage {
    pub(crate) async fn on(plane: Arc<ControlPlane>) -> Self {
        let client = plane.client().await.expect("a client");
        let namespace = plane.namespace("hub").await.expect("a namespace");
        Self::new(plane, client, namespace)
    }

    pub(crate) fn new(plane: Arc<ControlPlane>, client: Client, namespace: String) -> Self {
        Self { plane, client, namespace, claims: Mutex::default() }
    }

    /// A control plane of its own with these files of the chart installed.
    pub(crate) async fn own(files: &[&str]) -> Self {
        let plane = bare();
        install(&plane, files);
        Self::on(plane).await
    }

    /// A kubeconfig of the account that the hub is shipped with.
    pub(crate) async fn kubeconfig(&self) -> PathBuf {
        self.kubeconfig_of("volmedic-hub").await
    }

    pub(crate) async fn kubeconfig_of(&self, account: &str) -> PathBuf {
        let token = self.plane.token(HOME, account, None).await.expect("a token");
        let admin = std::fs::read(self.plane.kubeconfig()).expect("the admin's kubeconfig");
        let mut config: Value = serde_json::from_slice(&admin).expect("JSON");
        config["users"][0]["user"] = json!({ "token": token });
        let path = self.plane.kubeconfig().with_extension(format!("{account}-{}", self.namespace));
        std::fs::write(&path, config.to_string()).expect("the kubeconfig can be written");
        path
    }

    /// The name of a node that only this test uses.
    pub(crate) fn node(&self, name: &str) -> String {
        format!("{}-{name}", self.namespace)
    }

    pub(crate) async fn make_node(&self, name: &str) -> String {
        let node = self.node(name);
        objects::node(&self.client, &node).await.expect("a node");
        node
    }

    /// A bound claim, used by a pod of the same name on a node.
    pub(crate) async fn used_claim(&self, name: &str, node: &str) {
        self.claim(name).await;
        self.pod(name, node, name).await;
    }

    pub(crate) async fn claim(&self, name: &str) {
        let bound =
            objects::bound_claim(&self.client, &self.namespace, name, DRIVER, &self.handle(name)).await;
        bound.expect("a bound claim");
        self.claims.lock().unwrap_or_else(std::sync::PoisonError::into_inner).push(name.to_owned());
    }

    pub(crate) async fn pod(&self, name: &str, node: &str, claim: &str) -> Pod {
        objects::pod(&self.client, &self.namespace, name, node, &[claim]).await.expect("a pod")
    }

    pub(crate) fn handle(&self, claim: &str) -> String {
        format!("{}.{claim}", self.namespace)
    }

    /// A client that is the agent on a node: its token is bound to a pod there.
    pub(crate) async fn agent(&self, node: &str) -> Client {
        let name = format!("agent-{node}");
        let pods = Api::<Pod>::namespaced(self.client.clone(), HOME);
        let pod = match pods.get_opt(&name).await.expect("pods") {
            Some(pod) => pod,
            None => {
                objects::pod_as(&self.client, HOME, &name, node, &[], "volmedic-agent").await.expect("a pod")
            }
        };
        self.plane.client_for_pod(HOME, "volmedic-agent", &pod).await.expect("a client for the agent")
    }

    /// A report with one unhealthy volume for each of these: the claim's name, the status and the reason. The volumes of
    /// all claims so far are probed.
    pub(crate) fn report(&self, unhealthy: &[(&str, &str, &str)]) -> NodeReport {
        let volume = |(claim, status, reason): &(&str, &str, &str)| {
            let kind = if *status == "Degraded" { "HealthWarning" } else { "HealthFailure" };
            let condition = json!({
                "type": kind, "status": "True", "errorCode": status, "reason": reason,
                "message": "as the test says", "lastTransitionTime": "2026-08-21T10:00:00Z",
            });
            json!({
                "vantage": "Host", "driver": DRIVER, "volumeHandle": self.handle(claim),
                "claim": {"namespace": self.namespace, "name": claim}, "healthConditions": [condition],
            })
        };
        let volumes: Vec<Value> = unhealthy.iter().map(volume).collect();
        let known = self.claims.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let coverage = probed(known.iter().map(|claim| format!("pv-{}-{claim}", self.namespace)).collect());
        serde_json::from_value(json!({ "volumes": volumes, "coverage": coverage })).expect("a report")
    }

    /// Writes a node's report with the token of that node's agent, which runs and probes the volumes of all claims.
    pub(crate) async fn tell(&self, node: &str, report: &NodeReport) {
        let agent = self.agent(node).await;
        // As text: another test may have stored a claim that a typed list cannot read.
        let request =
            http::Request::get("/api/v1/persistentvolumeclaims").body(Vec::new()).expect("a request");
        let claims = self.client.request::<Value>(request).await.expect("the claims");
        let volume = |claim: &Value| claim["spec"]["volumeName"].as_str().map(str::to_owned);
        let volumes = claims["items"].as_array().into_iter().flatten().filter_map(volume).collect();
        let report = NodeReport { coverage: Some(probed(volumes)), ..report.clone() };
        apply_report(&agent, node, &report).await.expect("an agent may report for its own node");
        let leases = Api::<Lease>::namespaced(self.client.clone(), HOME);
        if leases.get_opt(&format!("volmedic-agent-{node}")).await.expect("leases").is_none() {
            self.beat(node, 3600).await;
        }
    }

    pub(crate) fn healths(&self) -> Api<VolumeHealth> {
        Api::namespaced(self.client.clone(), &self.namespace)
    }

    /// What is stored for a claim: each vantage as `name health status/reason`, worst first; nothing if there is none.
    pub(crate) async fn stored(&self, claim: &str) -> Option<Vec<String>> {
        lines(&self.healths().get_opt(claim).await.expect("the API server answers")?)
    }

    pub(crate) async fn wait_stored(&self, claim: &str, expected: &[&str]) -> VolumeHealth {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let object = self.healths().get_opt(claim).await.expect("the API server answers");
            let found = object.as_ref().and_then(lines);
            if found.as_ref().is_some_and(|found| found == expected) {
                return object.expect("it was there");
            }
            assert!(Instant::now() < deadline, "{claim} has {found:?} stored, not {expected:?}");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    pub(crate) async fn wait_gone(&self, claim: &str) {
        until("the object is gone", || async {
            self.healths().get_opt(claim).await.map(|object| object.is_none())
        })
        .await;
    }

    /// Renews an agent's Lease once.
    pub(crate) async fn beat(&self, node: &str, seconds: i32) {
        let leases = Api::<Lease>::namespaced(self.agent(node).await, HOME);
        let name = format!("volmedic-agent-{node}");
        let mut lease = leases.get_opt(&name).await.expect("leases").unwrap_or_default();
        let spec = lease.spec.get_or_insert_default();
        spec.lease_duration_seconds = Some(seconds);
        spec.renew_time = Some(k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime(Timestamp::now()));
        lease.metadata.name = Some(name.clone());
        let params = kube::api::PostParams::default();
        let written = if lease.metadata.resource_version.is_some() {
            leases.replace(&name, &params, &lease).await
        } else {
            leases.create(&params, &lease).await
        };
        written.expect("an agent may renew its own lease");
    }

    /// Sets a claim's `status.healthStatus` as a controller would.
    pub(crate) async fn controller_says(&self, claim: &str, conditions: Value) {
        let kind = ApiResource::erase::<PersistentVolumeClaim>(&());
        let api: Api<DynamicObject> = Api::namespaced_with(self.client.clone(), &self.namespace, &kind);
        let status = json!({"healthStatus": {"healthConditions": conditions, "lastTransitionTime": "2026-08-21T10:00:00Z"}});
        let patch = Patch::Merge(json!({ "status": status }));
        api.patch_status(claim, &PatchParams::default(), &patch).await.expect("the claim's status");
    }

    /// Name and version of every object of the cluster.
    pub(crate) async fn versions(&self) -> BTreeMap<String, String> {
        let all =
            Api::<VolumeHealth>::all(self.client.clone()).list(&ListParams::default()).await.expect("a list");
        let version = |object: VolumeHealth| {
            let meta = object.metadata;
            (
                format!("{}/{}", meta.namespace.unwrap_or_default(), meta.name.unwrap_or_default()),
                meta.resource_version.unwrap_or_default(),
            )
        };
        all.items.into_iter().map(version).collect()
    }

    /// Waits until nothing moves any more, and answers what there is.
    pub(crate) async fn calm(&self) -> BTreeMap<String, String> {
        let deadline = Instant::now() + PATIENCE;
        let (mut versions, mut calm) = (self.versions().await, 0);
        while calm < 8 {
            assert!(Instant::now() < deadline, "objects keep changing though nothing else does");
            tokio::time::sleep(Duration::from_millis(250)).await;
            let now = self.versions().await;
            calm = if now == versions { calm + 1 } else { 0 };
            versions = now;
        }
        versions
    }
}

/// Says that these volumes are probed by host checks.
fn probed(mut volumes: Vec<String>) -> Coverage {
    volumes.sort_unstable();
    let group = CoverageGroup {
        probed_from: vec![NodeVantage::Host],
        persistent_volumes: volumes,
        ..CoverageGroup::default()
    };
    Coverage { within_seconds: 130, groups: vec![group], omitted: 0 }
}

pub(crate) fn lines(object: &VolumeHealth) -> Option<Vec<String>> {
    let status = object.status.as_ref()?;
    let line = |entry: &volmedic_api::resource::VantageHealth| {
        let conditions: Vec<String> = entry
            .health_conditions
            .iter()
            .map(|one| format!(" {}/{}", one.severity.as_deref().unwrap_or("-"), one.reason))
            .collect();
        format!("{} {}{}", entry.name, entry.health.as_str(), conditions.concat())
    };
    Some(status.vantages.iter().map(line).collect())
}

pub(crate) async fn apply_report(
    client: &Client,
    node: &str,
    report: &NodeReport,
) -> kube::Result<NodeVolumeHealth> {
    let object = json!({
        "apiVersion": "volmedic.dev/v1alpha1",
        "kind": "NodeVolumeHealth",
        "metadata": {"name": node},
        "spec": {"nodeName": node, "report": report},
    });
    let params = PatchParams::apply("volmedic-agent").force();
    Api::<NodeVolumeHealth>::all(client.clone()).patch(node, &params, &Patch::Apply(object)).await
}
