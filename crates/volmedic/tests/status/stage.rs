//! Control planes with a small cluster in each, as objects: nodes, drivers, claims, pods, and what is said of them.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use k8s_openapi::jiff::{SignedDuration, Timestamp};
use kube::api::{ApiResource, DynamicObject, GroupVersionKind, Patch, PatchParams, PostParams};
use kube::{Api, Client};
use serde_json::{Value, json};
use volmedic_testkit::{ControlPlane, Feature, objects, server_has};

use crate::reported::{redact, text, volmedic};

pub(crate) const DISK: &str = "disk.example.net";
pub(crate) const FILES: &str = "files.example.net";
/// Its controller says on its Lease that the driver reports health.
pub(crate) const CLOUD: &str = "cloud.example.net";
/// Long ago, so that ages are in days and grow no wider in a test's time.
pub(crate) const LONG_AGO: &str = "2026-08-21T10:00:00Z";

/// For anything that should be quick; a busy machine may take its time.
pub(crate) const PATIENCE: Duration = Duration::from_mins(2);

pub(crate) struct Stage {
    pub(crate) plane: ControlPlane,
    pub(crate) client: Client,
}

/// Everything installed, and of every kind of trouble one. Nobody changes anything in it.
pub(crate) fn whole() -> &'static Stage {
    static WHOLE: OnceLock<Stage> = OnceLock::new();
    WHOLE.get_or_init(|| build(true, |stage| Box::pin(furnish(stage))))
}

/// Nothing installed, and a server that keeps no health in claims: events are all there is.
pub(crate) fn bare() -> &'static Stage {
    static BARE: OnceLock<Stage> = OnceLock::new();
    BARE.get_or_init(|| build(false, |stage| Box::pin(furnish_bare(stage))))
}

type Work<'a> = std::pin::Pin<Box<dyn Future<Output = ()> + 'a>>;

/// On a thread of its own: a runtime cannot be started within another.
pub(crate) fn build(installed: bool, furnish: impl FnOnce(&Stage) -> Work<'_> + Send) -> Stage {
    std::thread::scope(|scope| {
        let built = scope.spawn(|| {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            let plane = ControlPlane::options().gate("CSIVolumeHealth", installed).start().unwrap();
            runtime.block_on(async {
                let client = plane.client().await.unwrap();
                let stage = Stage { plane, client };
                if installed {
                    stage.install(&[
                        "crds",
                        "admission-agent.yaml",
                        "admission-health.yaml",
                        "rbac-hub.yaml",
                        "rbac-agent.yaml",
                    ]);
                    stage.wait_hubs_rights(true);
                    stage.wait_allowed("volmedic-agent", "default", ["list", "pods"], true);
                    stage.wait_allowed("volmedic-agent", "default", ["get", "leases"], true);
                }
                furnish(&stage).await;
                // It was made on a runtime that ends here.
                let Stage { plane, .. } = stage;
                let client = plane.client().await.unwrap();
                Stage { plane, client }
            })
        });
        built.join().unwrap()
    })
}

async fn furnish(stage: &Stage) {
    for node in ["worker-1", "worker-2", "worker-3", "worker-4"] {
        objects::node(&stage.client, node).await.unwrap();
    }
    let down = json!([{"type": "Ready", "status": "Unknown", "reason": "NodeStatusUnknown", "message": "",
        "lastHeartbeatTime": LONG_AGO, "lastTransitionTime": LONG_AGO}]);
    stage.status("v1", "Node", "", "worker-4", json!({ "conditions": down })).await;
    for driver in [DISK, FILES] {
        objects::csi_driver(&stage.client, driver).await.unwrap();
    }
    stage.csi_node("worker-1", &[DISK]).await;
    stage.namespace("shop").await;
    stage.namespace("calm").await;
    stage.lease("volmedic-hub", "hub-0", true).await;
    stage.lease("volmedic-agent-worker-1", "agent-1", true).await;
    stage.lease("volmedic-agent-worker-2", "agent-2", false).await;
    stage.lease("external-health-monitor-leader-disk-example-net", "disk-controller-0", true).await;

    for (claim, node) in [
        ("data-0", "worker-1"),
        ("data-1", "worker-1"),
        ("data-2", "worker-2"),
        ("data-3", "worker-3"),
        ("data-4", "worker-4"),
    ] {
        stage.claim("shop", claim, DISK).await;
        objects::pod(&stage.client, "shop", &claim.replace("data", "db"), node, &[claim]).await.unwrap();
    }
    stage.claim("shop", "idle", DISK).await;
    stage.claim("shop", "files-idle", FILES).await;
    stage.claim("shop", "full", DISK).await;
    stage.controller_reports("full", "Degraded", "OutOfCapacity", "99 % of bytes used").await;
    let waiting = json!({"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}, "storageClassName": "fast"});
    stage
        .create(
            "v1",
            "PersistentVolumeClaim",
            "shop",
            json!({"metadata": {"name": "waiting"}, "spec": waiting}),
        )
        .await;
    stage.claim("calm", "well", DISK).await;
    stage.claim("calm", "spare", CLOUD).await;
    stage.lease("external-health-monitor-leader-cloud-example-net", "cloud-controller-0", true).await;
    let reports = "volmedic.dev/tells-health=ControllerListVolumeHealth";
    let coverage = json!({"driver": CLOUD, "probedBy": "ControllerListVolumeHealth", "withinSeconds": 195});
    stage.kubectl(&[
        "annotate",
        "lease",
        "-n",
        "default",
        "external-health-monitor-leader-cloud-example-net",
        &format!("volmedic.dev/coverage={coverage}"),
    ]);
    stage.kubectl(&[
        "label",
        "lease",
        "-n",
        "default",
        "external-health-monitor-leader-cloud-example-net",
        reports,
    ]);
    objects::pod(&stage.client, "calm", "quiet", "worker-1", &["well"]).await.unwrap();

    // The drawing of it depends on how long it lasted, so that is measured from now.
    let hours_ago = |hours: i64| format!("{:.0}", Timestamp::now() - SignedDuration::from_hours(hours));
    let hung = hours_ago(3);
    let wrong = json!({"type": "HealthFailure", "status": "True", "errorCode": "Inaccessible", "reason": "IOHung",
        "message": "reading its root did not come back within 10 s", "lastTransitionTime": hung});
    stage
        .node_report("worker-1", json!({
            "agent": {"version": env!("CARGO_PKG_VERSION")},
            "counts": {"volumes": 3, "healthy": 2, "inaccessible": 1},
            "volumes": [{"vantage": "Host", "driver": DISK, "volumeHandle": "shop.data-0", "healthConditions": [wrong],
                "evidence": ["kernel: nbd3: Connection timed out"]}],
            "coverage": {"withinSeconds": 130, "groups": [
                {"probedFrom": ["Host"], "persistentVolumes": ["pv-calm-well", "pv-shop-data-0", "pv-shop-data-1"]}]},
            "checks": [{"name": "mounts", "running": true}, {"name": "kernel-log", "running": false, "why": "/dev/kmsg cannot be opened"}],
        }))
        .await;
    stage
        .node_report(
            "worker-2",
            json!({"agent": {"version": "0.0.9"}, "counts": {"volumes": 1, "healthy": 1}}),
        )
        .await;
    let past = |time: &str, health: &str, reason: Option<&str>| {
        let mut past = json!({"time": time, "health": health, "vantage": "host/worker-1"});
        if let Some(reason) = reason {
            past["reason"] = reason.into();
            past["status"] = (if health == "HealthFailure" { "Inaccessible" } else { "Degraded" }).into();
        }
        past
    };
    stage
        .health("shop", "data-0", json!({
            "headline": {"health": "HealthFailure", "status": "Inaccessible", "reason": "IOHung",
                "message": "reading its root did not come back within 10 s", "since": hung, "vantage": "host/worker-1"},
            "vantages": [
                {"name": "host/worker-1", "kind": "Host", "node": "worker-1", "health": "HealthFailure", "since": hung,
                 "healthConditions": [wrong]},
                {"name": "pushed/array-watcher", "kind": "Pushed", "source": "array-watcher", "health": "HealthWarning",
                 "since": hung, "expires": "2036-08-21T10:00:00Z", "healthConditions": [
                    {"type": "HealthWarning", "status": "True", "errorCode": "Degraded", "reason": "ArrayRebuilds",
                     "message": "one disk of four is rebuilt", "lastTransitionTime": hung}]},
            ],
            "history": [past(&hung, "HealthFailure", Some("IOHung")), past(&hours_ago(27), "Healthy", None),
                past(&hours_ago(51), "HealthWarning", Some("DiskDegrading"))],
            "heals": [{"time": hours_ago(2), "outcome": "Failed", "remedy": "NodeHealer", "node": "worker-1",
                "message": "the node plugin did not answer"}],
        }))
        .await;
    stage
        .event(
            "shop",
            "told-0",
            "Pod",
            "db-0",
            "VolumeConditionAbnormal",
            "volmedic-agent",
            "volume shop.data-0 of disk.example.net is Inaccessible/IOHung",
        )
        .await;
    // As when a pod starts before its volume is attached.
    let failed = "MountVolume.SetUp failed for volume \"data\"";
    stage.event("calm", "failed-0", "Pod", "quiet", "FailedMount", "kubelet", failed).await;
    stage.ours("hub", "volmedic-hub", "hub-0").await;
    stage.ours("agent", "volmedic-agent", "agent-1").await;
}

async fn furnish_bare(stage: &Stage) {
    objects::node(&stage.client, "worker-1").await.unwrap();
    objects::csi_driver(&stage.client, DISK).await.unwrap();
    stage.namespace("shop").await;
    for claim in ["ill", "mended", "unseen"] {
        stage.claim("shop", claim, DISK).await;
    }
    objects::pod(&stage.client, "shop", "app", "worker-1", &["unseen"]).await.unwrap();
    let monitor = "csi-pv-monitor-controller-disk.example.net";
    stage
        .event(
            "shop",
            "a",
            "PersistentVolumeClaim",
            "ill",
            "VolumeConditionAbnormal",
            monitor,
            "the disk does not answer",
        )
        .await;
    stage
        .event(
            "shop",
            "b",
            "PersistentVolumeClaim",
            "mended",
            "VolumeConditionNormal",
            monitor,
            "The Volume returns to the healthy state",
        )
        .await;
}

impl Stage {
    /// What the controller of [`DISK`] reports on a claim in `shop`, stored where it would store it on this release.
    async fn controller_reports(&self, claim: &str, status: &str, reason: &str, message: &str) {
        if server_has(Feature::ClaimHealth) {
            let condition = json!({"status": status, "reason": reason, "message": message});
            let health = json!({"lastTransitionTime": LONG_AGO, "healthConditions": [condition]});
            let health = json!({ "healthStatus": health });
            return self.status("v1", "PersistentVolumeClaim", "shop", claim, health).await;
        }
        let condition = json!({"type": "HealthWarning", "status": "True", "errorCode": status, "reason": reason,
            "message": message, "lastTransitionTime": LONG_AGO});
        let lease =
            json!({"namespace": "default", "name": "external-health-monitor-leader-disk-example-net"});
        let report =
            json!({"driver": DISK, "lease": lease, "since": LONG_AGO, "healthConditions": [condition]});
        self.health("shop", claim, json!({ "controllerReport": report })).await;
    }

    /// Applies files of the chart.
    pub(crate) fn install(&self, files: &[&str]) {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy/chart/files");
        for file in files {
            self.kubectl(&["apply", "-n", "default", "-f", &folder.join(file).display().to_string()]);
            if *file == "crds" {
                let names = ["crd/volumehealths.volmedic.dev", "crd/nodevolumehealths.volmedic.dev"];
                self.kubectl(&["wait", "--for=condition=Established", "--timeout=120s", names[0], names[1]]);
            }
        }
    }

    /// Waits until the API server knows of both roles of the hub, or of neither.
    pub(crate) fn wait_hubs_rights(&self, granted: bool) {
        self.wait_allowed("volmedic-hub", "default", ["list", "nodes"], granted);
        self.wait_allowed("volmedic-hub", "default", ["list", "leases"], granted);
    }

    /// Waits until the API server judges so: it learns of roles and bindings a moment after they are stored.
    pub(crate) fn wait_allowed(&self, account: &str, namespace: &str, right: [&str; 2], allowed: bool) {
        let who = format!("--as=system:serviceaccount:default:{account}");
        let [verb, resource] = right;
        let deadline = Instant::now() + PATIENCE;
        loop {
            // It fails where the answer is no.
            let asked =
                self.plane.kubectl().args(["auth", "can-i", verb, resource, "-n", namespace, &who]).output();
            let output = asked.unwrap();
            let said = text(&output.stdout);
            // A reason may follow, such as a role that a binding names and that is gone.
            if said.split_whitespace().next() == Some(if allowed { "yes" } else { "no" }) {
                return;
            }
            let why = text(&output.stderr);
            assert!(Instant::now() < deadline, "{account}, {verb} {resource} in {namespace}: {said}{why}");
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    pub(crate) fn kubectl(&self, arguments: &[&str]) -> String {
        let output = self.plane.kubectl().args(arguments).stdin(Stdio::null()).output().unwrap();
        let said = text(&output.stderr);
        assert!(output.status.success(), "kubectl {arguments:?}: {said}");
        text(&output.stdout)
    }

    fn api(&self, version: &str, kind: &str, namespace: &str) -> Api<DynamicObject> {
        let (group, version) = version.split_once('/').unwrap_or(("", version));
        let plural = match kind {
            "CSINode" => "csinodes".to_owned(),
            kind => format!("{}s", kind.to_lowercase()),
        };
        let resource =
            ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk(group, version, kind), &plural);
        if namespace.is_empty() {
            Api::all_with(self.client.clone(), &resource)
        } else {
            Api::namespaced_with(self.client.clone(), namespace, &resource)
        }
    }

    pub(crate) async fn create(
        &self,
        version: &str,
        kind: &str,
        namespace: &str,
        mut object: Value,
    ) -> DynamicObject {
        object["apiVersion"] = version.into();
        object["kind"] = kind.into();
        let object: DynamicObject = serde_json::from_value(object).unwrap();
        self.api(version, kind, namespace).create(&PostParams::default(), &object).await.unwrap()
    }

    pub(crate) async fn status(&self, version: &str, kind: &str, namespace: &str, name: &str, status: Value) {
        let patch = Patch::Merge(json!({ "status": status }));
        self.api(version, kind, namespace).patch_status(name, &PatchParams::default(), &patch).await.unwrap();
    }

    pub(crate) async fn namespace(&self, name: &str) {
        self.create("v1", "Namespace", "", json!({"metadata": {"name": name}})).await;
        self.create("v1", "ServiceAccount", name, json!({"metadata": {"name": "default"}})).await;
    }

    /// Bound, with the handle `namespace.name`.
    pub(crate) async fn claim(&self, namespace: &str, name: &str, driver: &str) {
        objects::bound_claim(&self.client, namespace, name, driver, &format!("{namespace}.{name}"))
            .await
            .unwrap();
    }

    async fn csi_node(&self, node: &str, drivers: &[&str]) {
        let drivers: Vec<Value> = drivers.iter().map(|name| json!({"name": name, "nodeID": node})).collect();
        self.create(
            "storage.k8s.io/v1",
            "CSINode",
            "",
            json!({"metadata": {"name": node}, "spec": {"drivers": drivers}}),
        )
        .await;
    }

    /// Held by somebody who just renewed it, or did so long ago.
    pub(crate) async fn lease(&self, name: &str, holder: &str, alive: bool) {
        let renewed =
            if alive { format!("{:.6}", Timestamp::now()) } else { LONG_AGO.replace('Z', ".000000Z") };
        // Long enough for the slowest machine.
        let spec = json!({"holderIdentity": holder, "leaseDurationSeconds": 3600, "renewTime": renewed});
        self.create(
            "coordination.k8s.io/v1",
            "Lease",
            "default",
            json!({"metadata": {"name": name}, "spec": spec}),
        )
        .await;
    }

    pub(crate) async fn node_report(&self, node: &str, report: Value) {
        // Only a token that is bound to a pod on the node may write it, so the policy looks away for a moment.
        let policy = ["delete", "validatingadmissionpolicybinding", "volmedic-agent", "--ignore-not-found"];
        self.kubectl(&policy);
        let object = json!({"metadata": {"name": node}, "spec": {"nodeName": node, "report": report}});
        let (version, kind) = ("volmedic.dev/v1alpha1", "NodeVolumeHealth");
        let object: DynamicObject = {
            let mut object = object;
            object["apiVersion"] = version.into();
            object["kind"] = kind.into();
            serde_json::from_value(object).unwrap()
        };
        let deadline = Instant::now() + PATIENCE;
        let api = self.api(version, kind, "");
        while let Err(error) = api.create(&PostParams::default(), &object).await {
            assert!(Instant::now() < deadline, "the report cannot be written: {error}");
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
        self.install(&["admission-agent.yaml"]);
    }

    pub(crate) async fn health(&self, namespace: &str, claim: &str, status: Value) {
        let owner = self.api("v1", "PersistentVolumeClaim", namespace).get(claim).await.unwrap();
        let owner = json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "name": claim, "uid": owner.metadata.uid});
        let object = json!({"metadata": {"name": claim, "ownerReferences": [owner]}, "spec": {"persistentVolumeClaimName": claim}});
        self.create("volmedic.dev/v1alpha1", "VolumeHealth", namespace, object).await;
        self.status("volmedic.dev/v1alpha1", "VolumeHealth", namespace, claim, status).await;
    }

    #[allow(clippy::too_many_arguments, reason = "an event has many parts")]
    pub(crate) async fn event(
        &self,
        namespace: &str,
        name: &str,
        kind: &str,
        on: &str,
        reason: &str,
        from: &str,
        message: &str,
    ) {
        let event = json!({
            "metadata": {"name": name}, "involvedObject": {"kind": kind, "name": on, "namespace": namespace, "apiVersion": "v1"},
            "reason": reason, "message": message, "type": if reason.ends_with("Abnormal") || reason.starts_with("Failed") { "Warning" } else { "Normal" },
            "source": {"component": from}, "firstTimestamp": LONG_AGO, "lastTimestamp": LONG_AGO, "count": 3,
        });
        self.create("v1", "Event", namespace, event).await;
    }

    /// A pod of ours, which is ready.
    pub(crate) async fn ours(&self, role: &str, account: &str, name: &str) {
        let labels = json!({"helm.sh/chart": "volmedic-0.2.0", "app.kubernetes.io/component": role});
        let container = json!({"name": role, "image": "registry.example/volmedic:0.2.0", "args": [role]});
        let spec = json!({"nodeName": "worker-1", "serviceAccountName": account, "containers": [container]});
        self.create(
            "v1",
            "Pod",
            "default",
            json!({"metadata": {"name": name, "labels": labels}, "spec": spec}),
        )
        .await;
        let ready = json!({"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]});
        self.status("v1", "Pod", "default", name, ready).await;
    }

    pub(crate) fn command(&self, arguments: &[&str]) -> Command {
        let mut command = volmedic();
        command.arg(arguments[0]).arg("--kubeconfig").arg(self.plane.kubeconfig()).args(&arguments[1..]);
        command
    }

    pub(crate) fn run(&self, arguments: &[&str]) -> Output {
        self.command(arguments).output().unwrap()
    }

    /// What it prints, redacted; its exit code must be this.
    pub(crate) fn reported(&self, arguments: &[&str], code: i32) -> String {
        let output = self.run(arguments);
        let errors = text(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{errors}\n{}", text(&output.stdout));
        assert_eq!(errors, "", "nothing but the answer");
        redact(&text(&output.stdout))
    }

    /// The kubeconfig of an account, which is made; its own namespace is `namespace`.
    pub(crate) async fn kubeconfig_of(&self, account: &str, namespace: &str) -> PathBuf {
        let token = self.plane.token("default", account, None).await.unwrap();
        let mut config = self.config();
        config["users"][0]["user"] = json!({ "token": token });
        config["contexts"][0]["context"]["namespace"] = namespace.into();
        let path = self.plane.kubeconfig().with_extension(account);
        fs::write(&path, config.to_string()).unwrap();
        path
    }

    pub(crate) fn config(&self) -> Value {
        serde_json::from_slice(&fs::read(self.plane.kubeconfig()).unwrap()).unwrap()
    }
}
