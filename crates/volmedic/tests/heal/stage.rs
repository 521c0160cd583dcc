//! A hub with its healer, and wards: a node with a driver that can heal and a relay in front of it.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::{Duration, Instant};

use k8s_openapi::api::apps::v1::DaemonSet;
use k8s_openapi::api::authentication::v1::{TokenRequest, TokenRequestSpec};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{Event, Node, PersistentVolumeClaim, Pod, ServiceAccount};
use k8s_openapi::api::storage::v1::{CSINode, VolumeAttachment};
use kube::api::{ListParams, Patch, PatchParams, PostParams};
use kube::{Api, Client, ResourceExt};
use serde_json::{Value, json};
use volmedic_api::resource::{Heal, NodeVolumeHealth};
use volmedic_api::{
    Found, PROBE_ANSWERS, ProbeAnswer, ProbeRequest, answers_text, probe_answers, probe_requests,
};
use volmedic_heal::relay::{Access, Metrics, Options, Relay, Validity};
use volmedic_testkit::{ControlPlane, objects};

use crate::driver::{Fake, Serving};
use crate::ground::{self, DRIVER, HOME, Stage};
use crate::kind;
use crate::process::{Controller as Process, PATIENCE, program};

const AUDIENCE: &str = "volmedic-relay";

/// Short times. What is never is not tested here: the brake is off unless a test switches it on.
pub(crate) const QUICK: [&str; 8] = [
    "--heal-debounce=1s",
    "--heal-pause=500ms",
    "--heal-longest-pause=2s",
    "--heal-cooldown=2s",
    "--heal-look-again=500ms",
    "--heal-tries=3",
    "--heal-deadline=20s",
    "--heal-brake-percent=100",
];
pub(crate) const ALONE: &str = "--leader-election=false";

/// A control plane on which healing is installed.
#[derive(Clone)]
pub(crate) struct Clinic {
    pub(crate) plane: Arc<ControlPlane>,
    folder: PathBuf,
}

impl Clinic {
    pub(crate) async fn open() -> Self {
        Self::on(ground::bare()).await
    }

    pub(crate) async fn on(plane: Arc<ControlPlane>) -> Self {
        let files: Vec<&str> = ground::everything().into_iter().chain(["rbac-healer.yaml"]).collect();
        ground::install(&plane, &files);
        let client = plane.client().await.unwrap();
        kind::define(&client).await;
        // Goes with the control plane.
        let folder = plane.kubeconfig().parent().unwrap().join("relays");
        std::fs::create_dir_all(&folder).unwrap();
        let labels = json!({"app": "relay"});
        let set = json!({
            "metadata": {"name": "relay"},
            "spec": {"selector": {"matchLabels": labels}, "template": {
                "metadata": {"labels": labels}, "spec": {"containers": [{"name": "main", "image": "x"}]}}},
        });
        create::<DaemonSet>(&Api::namespaced(client.clone(), HOME), set).await;
        let clinic = Self { plane, folder };
        std::fs::write(clinic.file("token"), clinic.token().await).unwrap();
        clinic
    }

    /// The one that tests share, with a hub that only observes unless a claim says otherwise, and logs what it checks.
    pub(crate) async fn shared() -> (Self, &'static Process) {
        static CLINIC: tokio::sync::OnceCell<Clinic> = tokio::sync::OnceCell::const_new();
        static HUB: OnceLock<Process> = OnceLock::new();
        let clinic = CLINIC.get_or_init(Self::open).await.clone();
        let kubeconfig = clinic.ward_stage().await.kubeconfig().await;
        let hub = HUB.get_or_init(|| {
            let mut command = Command::new("setpriv");
            command.arg("--pdeathsig=KILL").arg(program());
            let (clinic, arguments) = (clinic.clone(), [&QUICK[..], &[ALONE, "--log-level=debug"]].concat());
            // Nothing that is static is ever dropped: it ends with the thread that started it, which ends with us.
            let (send, receive) = std::sync::mpsc::channel();
            std::thread::spawn(move || {
                send.send(clinic.launch(command, &kubeconfig, &arguments)).unwrap();
                loop {
                    std::thread::park();
                }
            });
            receive.recv().unwrap()
        });
        hub.wait_log("healing is on").await;
        (clinic, hub)
    }

    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    /// For relays.
    async fn token(&self) -> String {
        let client = self.plane.client().await.unwrap();
        let accounts = Api::<ServiceAccount>::namespaced(client, HOME);
        let spec = TokenRequestSpec { audiences: vec![AUDIENCE.to_owned()], ..Default::default() };
        let request = TokenRequest { spec, ..Default::default() };
        let made =
            accounts.create_token_request("volmedic-hub", &PostParams::default(), &request).await.unwrap();
        made.status.unwrap().token
    }

    async fn ward_stage(&self) -> Stage {
        Stage::on(self.plane.clone()).await
    }

    /// A hub of its own, which is ready to heal when this returns.
    pub(crate) async fn hub(&self, arguments: &[&str]) -> Process {
        let kubeconfig = self.ward_stage().await.kubeconfig().await;
        let hub = self.launch(Command::new(program()), &kubeconfig, arguments);
        hub.wait_log("healing is on").await;
        hub
    }

    pub(crate) fn launch(&self, mut command: Command, kubeconfig: &Path, arguments: &[&str]) -> Process {
        command
            .args(["hub", "--heal", "--heal-relays", "--heal-relay-loopback", "--http-endpoint=127.0.0.1:0"])
            .args(["--leader-election-namespace", HOME])
            .arg(format!("--kubeconfig={}", kubeconfig.display()))
            .arg(format!("--heal-relay-token-file={}", self.file("token").display()))
            .args(arguments);
        Process::spawn(&mut command)
    }

    /// Runs `volmedic heal` and answers its exit code and what it printed, first to people and then to its log.
    pub(crate) async fn heal(&self, arguments: &[&str]) -> (i32, String, String) {
        let mut command = Command::new(program());
        command
            .arg("heal")
            .arg(format!("--kubeconfig={}", self.plane.kubeconfig().display()))
            .args(arguments);
        command.stdin(Stdio::null());
        // Relays work on this thread meanwhile.
        let done = tokio::task::spawn_blocking(move || command.output().unwrap()).await.unwrap();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        (done.status.code().unwrap(), text(&done.stdout), text(&done.stderr))
    }

    /// A relay on a node, in a pod of its own.
    pub(crate) async fn relay(&self, client: &Client, node: &str, fake: &Fake, kubelet: &Path) -> Relay {
        let pod = relay_pod(client, &format!("relay-{node}"), node).await;
        let options = Options {
            node: node.to_owned(),
            node_id: node.to_owned(),
            pod: pod.name_any(),
            namespace: HOME.to_owned(),
            listen: "127.0.0.1:0".parse().unwrap(),
            several_drivers: false,
            kubelet_root: kubelet.to_owned(),
            certificates: Validity::default(),
            access: Access::Checked { audience: AUDIENCE.to_owned() },
            deadline: Duration::from_secs(30),
        };
        let client = self.plane.client_for(HOME, "volmedic-relay").await.unwrap();
        Relay::start(&client, fake.connect(), options, Metrics::default()).await.unwrap()
    }

    pub(crate) async fn ward(&self, prepare: impl FnOnce(Fake) -> Fake) -> Ward {
        Ward::open(self, prepare, &[]).await
    }

    /// With claims whose volumes were attached before the relay came, each with its own word on healing.
    pub(crate) async fn ward_with(&self, attached: &[(&str, &str)]) -> Ward {
        Ward::open(self, |fake| fake, attached).await
    }
}

/// A node with a driver and a relay, and claims in a namespace of its own.
pub(crate) struct Ward {
    pub(crate) stage: Stage,
    pub(crate) node: String,
    pub(crate) fake: Fake,
    relay: Option<Relay>,
    folder: tempfile::TempDir,
    driver: Option<Serving>,
    probes: Arc<Mutex<Probes>>,
}

/// What the agent on the node answers when the hub asks for a new probe.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Probes {
    /// The same as it last reported.
    AsReported,
    Healthy,
    NoAnswer,
}

impl Ward {
    async fn open(clinic: &Clinic, prepare: impl FnOnce(Fake) -> Fake, attached: &[(&str, &str)]) -> Self {
        let stage = clinic.ward_stage().await;
        let node = stage.make_node("n").await;
        csi_node(&stage.client, &node).await;
        let folder = tempfile::tempdir().unwrap();
        let fake = prepare(Fake::new(DRIVER, folder.path()));
        let driver = fake.serve();
        let probes = Arc::new(Mutex::new(Probes::AsReported));
        tokio::spawn(answer_probes(stage.client.clone(), node.clone(), probes.clone()));
        let mut ward = Self { stage, node, fake, relay: None, folder, driver: Some(driver), probes };
        for (claim, mode) in attached {
            ward.claim(claim, Some(mode)).await;
            ward.attach(claim).await;
        }
        ward.relay = Some(clinic.relay(&ward.stage.client, &ward.node, &ward.fake, ward.folder.path()).await);
        ward
    }

    /// A claim in use on the node, with its own word on healing.
    pub(crate) async fn claim(&self, name: &str, mode: Option<&str>) {
        self.stage.used_claim(name, &self.node).await;
        publish(self.folder.path(), &self.pv(name));
        if let Some(mode) = mode {
            self.annotate(name, "volmedic.dev/heal", mode).await;
        }
    }

    pub(crate) fn claims(&self) -> Api<PersistentVolumeClaim> {
        Api::namespaced(self.stage.client.clone(), &self.stage.namespace)
    }

    pub(crate) async fn annotate(&self, claim: &str, key: &str, value: &str) {
        let patch = Patch::Merge(json!({"metadata": {"annotations": {key: value}}}));
        self.claims().patch(claim, &PatchParams::default(), &patch).await.unwrap();
    }

    /// The agent on the node says that the mounters of these are dead, and of no others.
    pub(crate) async fn unhealthy(&self, claims: &[&str]) {
        let unhealthy: Vec<_> = claims.iter().map(|claim| (*claim, "Inaccessible", "MounterDead")).collect();
        self.stage.tell(&self.node, &self.stage.report(&unhealthy)).await;
    }

    /// What the agent on the node answers from now on.
    pub(crate) fn new_probes(&self, probes: Probes) {
        *self.probes.lock().unwrap() = probes;
    }

    pub(crate) async fn patch_node(&self, spec: Value) {
        let nodes = Api::<Node>::all(self.stage.client.clone());
        let patch = Patch::Merge(json!({ "spec": spec }));
        nodes.patch(&self.node, &PatchParams::default(), &patch).await.unwrap();
    }

    /// How often the driver was asked for a claim's volume.
    pub(crate) fn asked(&self, claim: &str) -> usize {
        let handle = self.stage.handle(claim);
        self.fake.asked().iter().filter(|asked| asked.volume_id == handle).count()
    }

    /// A claim's volume counts as attached to the node.
    pub(crate) async fn attach(&self, claim: &str) {
        attach(&self.stage.client, &self.pv(claim), &self.node).await;
    }

    fn pv(&self, claim: &str) -> String {
        format!("pv-{}-{claim}", self.stage.namespace)
    }

    /// The node plugin ends and starts over.
    pub(crate) fn restart_driver(&mut self) {
        drop(self.driver.take());
        self.driver = Some(self.fake.serve());
    }

    /// Reasons and messages of the healer's events on an object, in the order in which they were written.
    pub(crate) async fn events(&self, kind: &str, name: &str) -> Vec<(String, String)> {
        let events = Api::<Event>::namespaced(self.stage.client.clone(), &self.stage.namespace);
        let fields = format!("involvedObject.kind={kind},involvedObject.name={name}");
        let mut found = events.list(&ListParams::default().fields(&fields)).await.unwrap().items;
        found.retain(|event| event.reason.as_deref().is_some_and(|reason| reason.starts_with("Healing")));
        found.sort_by_key(|event| event.resource_version().and_then(|version| version.parse::<u64>().ok()));
        let reported = |event: Event| (event.reason.unwrap_or_default(), event.message.unwrap_or_default());
        found.into_iter().map(reported).collect()
    }

    pub(crate) async fn reasons(&self, claim: &str) -> Vec<String> {
        self.events("PersistentVolumeClaim", claim).await.into_iter().map(|(reason, _)| reason).collect()
    }

    /// Waits for an event on the claim whose message has this in it.
    pub(crate) async fn wait_reported(&self, claim: &str, reason: &str, text: &str) {
        eventually(&format!("{claim} gets {reason} {text}"), async || {
            let events = self.events("PersistentVolumeClaim", claim).await;
            events.iter().any(|(reported, message)| reported == reason && message.contains(text))
        })
        .await;
    }

    /// The attempts that its object keeps, newest first.
    pub(crate) async fn heals(&self, claim: &str) -> Vec<Heal> {
        let object = self.stage.healths().get_opt(claim).await.unwrap();
        object.and_then(|object| object.status).map(|status| status.heals).unwrap_or_default()
    }

    pub(crate) async fn end(mut self) {
        if let Some(relay) = self.relay.take() {
            relay.stop().await;
        }
    }
}

/// Answers the hub's requests for new probes as the agent on the node. Ends with the test.
async fn answer_probes(client: Client, node: String, probes: Arc<Mutex<Probes>>) {
    let leases = Api::<Lease>::namespaced(client.clone(), HOME);
    let reports = Api::<NodeVolumeHealth>::all(client);
    let name = format!("volmedic-agent-{node}");
    loop {
        tokio::time::sleep(Duration::from_millis(50)).await;
        let probes = *probes.lock().unwrap();
        if probes == Probes::NoAnswer {
            continue;
        }
        let Ok(Some(mut lease)) = leases.get_opt(&name).await else { continue };
        let (requests, answered) = {
            let annotations = lease.metadata.annotations.as_ref();
            (probe_requests(annotations), probe_answers(annotations))
        };
        if requests.iter().all(|request| answered.iter().any(|answer| answer.id == request.id)) {
            continue;
        }
        let Ok(Some(report)) = reports.get_opt(&node).await else { continue };
        let answer = |request: &ProbeRequest| {
            let volumes = report.spec.report.volumes.iter();
            let unhealthy = volumes.filter(|volume| volume.volume_handle == request.volume_handle);
            let reasons: Vec<String> = unhealthy
                .flat_map(|volume| &volume.health_conditions)
                .map(|one| one.reason.clone())
                .collect();
            let found = if reasons.is_empty() || probes == Probes::Healthy {
                Found::Healthy
            } else {
                Found::Unhealthy
            };
            ProbeAnswer::new(&request.id, found, reasons, "as it reported")
        };
        let answers = answers_text(requests.iter().map(answer).collect());
        lease.metadata.annotations.get_or_insert_default().insert(PROBE_ANSWERS.to_owned(), answers);
        // The hub may write at the same time; then it is read again.
        let _ = leases.replace(&name, &PostParams::default(), &lease).await;
    }
}

/// The kubelet on a node has the driver.
pub(crate) async fn csi_node(client: &Client, node: &str) {
    let drivers = json!([{"name": DRIVER, "nodeID": node}]);
    let object = json!({"metadata": {"name": node}, "spec": {"drivers": drivers}});
    create::<CSINode>(&Api::all(client.clone()), object).await;
}

/// A PersistentVolume counts as attached to a node.
pub(crate) async fn attach(client: &Client, pv: &str, node: &str) {
    let attachments = Api::<VolumeAttachment>::all(client.clone());
    let name = format!("csi-{pv}");
    let object = json!({
        "metadata": {"name": name},
        "spec": {"attacher": DRIVER, "nodeName": node, "source": {"persistentVolumeName": pv}},
    });
    create(&attachments, object).await;
    let status = Patch::Merge(json!({"status": {"attached": true}}));
    attachments.patch_status(&name, &PatchParams::default(), &status).await.unwrap();
}

/// Where kubelet would have published a volume for a pod.
pub(crate) fn publish(kubelet: &Path, pv: &str) {
    std::fs::create_dir_all(kubelet.join(format!("pods/uid-1/volumes/kubernetes.io~csi/{pv}/mount")))
        .unwrap();
}

/// A pod of the relays' DaemonSet, running on a node, with an address on loopback.
pub(crate) async fn relay_pod(client: &Client, name: &str, node: &str) -> Pod {
    objects::pod_as(client, HOME, name, node, &[], "volmedic-agent").await.unwrap();
    let set = Api::<DaemonSet>::namespaced(client.clone(), HOME).get("relay").await.unwrap();
    let pods = Api::<Pod>::namespaced(client.clone(), HOME);
    let owner = json!([{"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "relay", "uid": set.uid(),
                        "controller": true}]);
    let patch = Patch::Merge(json!({"metadata": {"ownerReferences": owner}}));
    pods.patch(name, &PatchParams::default(), &patch).await.unwrap();
    let status = json!({"phase": "Running", "podIP": "127.0.0.1", "podIPs": [{"ip": "127.0.0.1"}]});
    let patch = Patch::Merge(json!({ "status": status }));
    pods.patch_status(name, &PatchParams::default(), &patch).await.unwrap()
}

pub(crate) async fn create<K>(api: &Api<K>, object: Value) -> K
where
    K: kube::Resource<DynamicType = ()>
        + Clone
        + std::fmt::Debug
        + serde::de::DeserializeOwned
        + serde::Serialize,
{
    let object: K = serde_json::from_value(object).unwrap();
    api.create(&PostParams::default(), &object).await.unwrap()
}

/// Waits for a condition; a failure after the deadline names it.
pub(crate) async fn eventually<F: Future<Output = bool>>(what: &str, mut condition: impl FnMut() -> F) {
    let deadline = Instant::now() + PATIENCE;
    while !condition().await {
        assert!(Instant::now() < deadline, "never: {what}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}
