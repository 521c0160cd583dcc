//! One test's own corner of the cluster: a namespace, a node with a driver, kubelet's folder, a token.

use std::future::Future;
use std::path::PathBuf;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use k8s_openapi::api::apps::v1::DaemonSet;
use k8s_openapi::api::authentication::v1::{TokenRequest, TokenRequestSpec};
use k8s_openapi::api::core::v1::{Pod, ServiceAccount};
use k8s_openapi::api::storage::v1::{CSIDriver, CSINode, VolumeAttachment};
use kube::api::{Patch, PatchParams, PostParams};
use kube::{Api, Client, ResourceExt};
use serde_json::{Value, json};
use volmedic_api::addons::{CsiAddonsNode, RELAY_CERTIFICATES};
use volmedic_heal::healer::{Dialer, Relayed, Trust};
use volmedic_heal::relay::{Access, Metrics, Options, Relay, Validity};
use volmedic_testkit::{ControlPlane, objects};

use crate::driver::Fake;
use crate::kind::define;

pub(crate) const AUDIENCE: &str = "volmedic-relay";
pub(crate) const PATIENCE: Duration = Duration::from_mins(3);
const HEALER: &str = "volmedic-hub";

pub(crate) struct Stage {
    pub(crate) plane: &'static ControlPlane,
    pub(crate) client: Client,
    pub(crate) namespace: String,
    pub(crate) node: String,
    pub(crate) driver: String,
    pub(crate) folder: tempfile::TempDir,
    /// Of the agent's pod that was made last.
    pod_uid: Mutex<String>,
}

impl Stage {
    pub(crate) async fn new() -> Self {
        Self::on(ControlPlane::shared()).await
    }

    pub(crate) async fn on(plane: &'static ControlPlane) -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let client = plane.client().await.unwrap();
        define(&client).await;
        let namespace = plane.namespace("heal").await.unwrap();
        let (node, driver) = (format!("worker-{number}"), format!("d{number}.example.net"));
        objects::node(&client, &node).await.unwrap();
        let drivers = json!([{"name": driver, "nodeID": format!("id-of-{node}")}]);
        let csi_node = json!({"metadata": {"name": node}, "spec": {"drivers": drivers}});
        create::<CSINode>(&Api::all(client.clone()), csi_node).await;
        let folder = tempfile::tempdir().unwrap();
        let pod_uid = Mutex::default();
        let stage = Self { plane, client, namespace, node, driver, folder, pod_uid };
        stage.apply_rights();
        std::fs::create_dir_all(stage.kubelet()).unwrap();
        let token = stage.token(HEALER, Some(AUDIENCE)).await;
        std::fs::write(stage.token_file(), token).unwrap();
        stage
    }

    /// The shipped manifest, for this namespace.
    fn apply_rights(&self) {
        let manifest: PathBuf =
            [env!("CARGO_MANIFEST_DIR"), "../../deploy/chart/files/rbac-healer.yaml"].iter().collect();
        let text = std::fs::read_to_string(manifest).unwrap();
        let mut ours = String::new();
        for document in text.split("\n---\n") {
            // What concerns the whole cluster has one name for all tests.
            let cluster_wide = document.contains("kind: ClusterRole");
            let name = format!("-{}\n", self.namespace);
            let document =
                document.replace("namespace: default #", &format!("namespace: {} #", self.namespace));
            let renamed = document
                .replace("name: volmedic-healer\nr", &format!("name: volmedic-healer{name}r"))
                .replace("name: volmedic-relay\nr", &format!("name: volmedic-relay{name}r"))
                .replace("name: volmedic-healer\nsubjects", &format!("name: volmedic-healer{name}subjects"))
                .replace("name: volmedic-relay\nsubjects", &format!("name: volmedic-relay{name}subjects"));
            ours += &if cluster_wide { renamed } else { document };
            ours += "\n---\n";
        }
        let file = self.folder.path().join("rights.yaml");
        std::fs::write(&file, ours).unwrap();
        let mut kubectl = self.plane.kubectl();
        kubectl.args(["apply", "--server-side", "-n", &self.namespace, "-f"]).arg(&file);
        let done = kubectl.output().unwrap();
        assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    }

    pub(crate) fn kubelet(&self) -> PathBuf {
        self.folder.path().join("kubelet")
    }

    pub(crate) fn token_file(&self) -> PathBuf {
        self.folder.path().join("token")
    }

    pub(crate) fn fake(&self) -> Fake {
        Fake::new(&self.driver, self.folder.path())
    }

    /// A token of an account, which is made if need be.
    pub(crate) async fn token(&self, account: &str, audience: Option<&str>) -> String {
        let accounts = Api::<ServiceAccount>::namespaced(self.client.clone(), &self.namespace);
        let metadata = kube::api::ObjectMeta { name: Some(account.to_owned()), ..Default::default() };
        let wanted = ServiceAccount { metadata, ..Default::default() };
        // It may be there already; if it is not, the next request fails.
        let _ = accounts.create(&PostParams::default(), &wanted).await;
        let audiences = audience.map(|audience| vec![audience.to_owned()]).unwrap_or_default();
        let spec = TokenRequestSpec { audiences, ..Default::default() };
        let request = TokenRequest { spec, ..Default::default() };
        let made = accounts.create_token_request(account, &PostParams::default(), &request).await.unwrap();
        made.status.unwrap().token
    }

    /// The agent's pod, of a DaemonSet, running on the node, reachable on loopback.
    pub(crate) async fn agent(&self, name: &str) -> Pod {
        let sets = Api::<DaemonSet>::namespaced(self.client.clone(), &self.namespace);
        let labels = json!({"app": "agent"});
        let container = json!({"name": "main", "image": "x"});
        let set = json!({
            "metadata": {"name": "agent"},
            "spec": {"selector": {"matchLabels": labels},
                     "template": {"metadata": {"labels": labels}, "spec": {"containers": [container]}}},
        });
        let set = match sets.get_opt("agent").await.unwrap() {
            Some(set) => set,
            None => create(&sets, set).await,
        };
        objects::pod_as(&self.client, &self.namespace, name, &self.node, &[], "default").await.unwrap();
        let pods = Api::<Pod>::namespaced(self.client.clone(), &self.namespace);
        let owner = json!([{"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "agent", "uid": set.uid(),
                            "controller": true}]);
        let patch = Patch::Merge(json!({"metadata": {"ownerReferences": owner}}));
        pods.patch(name, &PatchParams::default(), &patch).await.unwrap();
        let status =
            json!({"status": {"phase": "Running", "podIP": "127.0.0.1", "podIPs": [{"ip": "127.0.0.1"}]}});
        let pod = pods.patch_status(name, &PatchParams::default(), &Patch::Merge(status)).await.unwrap();
        *self.pod_uid.lock().unwrap() = pod.uid().unwrap();
        pod
    }

    pub(crate) fn relay_options(&self, pod: &str) -> Options {
        Options {
            node: self.node.clone(),
            node_id: format!("id-of-{}", self.node),
            pod: pod.to_owned(),
            namespace: self.namespace.clone(),
            listen: "127.0.0.1:0".parse().unwrap(),
            several_drivers: false,
            kubelet_root: self.kubelet(),
            certificates: Validity::default(),
            access: Access::Checked { audience: AUDIENCE.to_owned() },
            deadline: Duration::from_mins(2),
        }
    }

    /// A relay in the agent's pod, with the rights that are shipped and no others, once it is registered.
    pub(crate) async fn relay(&self, fake: &Fake, metrics: &Metrics) -> Relay {
        self.relay_with(fake, metrics, |_| {}).await
    }

    pub(crate) async fn relay_with(
        &self,
        fake: &Fake,
        metrics: &Metrics,
        change: impl FnOnce(&mut Options),
    ) -> Relay {
        self.agent("agent-x").await;
        let mut options = self.relay_options("agent-x");
        change(&mut options);
        let client = self.plane.client_for(&self.namespace, "volmedic-relay").await.unwrap();
        let relay = Relay::start(&client, fake.connect(), options, metrics.clone()).await.unwrap();
        eventually("the relay is registered", async || self.registration().await.is_some()).await;
        relay
    }

    pub(crate) fn registrations(&self) -> Api<CsiAddonsNode> {
        Api::namespaced(self.client.clone(), &self.namespace)
    }

    pub(crate) fn registration_name(&self) -> String {
        format!("id-of-{}-{}-daemonset-agent", self.node, self.namespace)
    }

    pub(crate) async fn registration(&self) -> Option<CsiAddonsNode> {
        self.registrations().get_opt(&self.registration_name()).await.unwrap()
    }

    /// As the registry finds it.
    pub(crate) async fn relayed(&self, relay: &Relay) -> Relayed {
        let registration = self.registration().await.unwrap();
        let certificates = registration.annotation(RELAY_CERTIFICATES).split(',');
        Relayed {
            driver: self.driver.as_str().into(),
            node: self.node.as_str().into(),
            namespace: self.namespace.as_str().into(),
            pod: "agent-x".into(),
            pod_uid: self.pod_uid.lock().unwrap().as_str().into(),
            address: relay.address(),
            generation: "1".into(),
            certificates: certificates.map(Into::into).collect(),
        }
    }

    pub(crate) fn trust(&self) -> Trust {
        Trust { token: Some(self.token_file()), unverified: None }
    }

    pub(crate) fn dialer(&self) -> Dialer {
        Dialer::new(self.client.clone(), self.trust())
    }

    /// A bound volume, published for one pod as far as kubelet's folder shows. Answers its PersistentVolume's name.
    pub(crate) async fn volume(&self, claim: &str, handle: &str) -> String {
        objects::bound_claim(&self.client, &self.namespace, claim, &self.driver, handle).await.unwrap();
        let pv = format!("pv-{}-{claim}", self.namespace);
        self.publish(&pv, "uid-1");
        pv
    }

    pub(crate) fn publish(&self, pv: &str, pod_uid: &str) -> PathBuf {
        let target = self.kubelet().join(format!("pods/{pod_uid}/volumes/kubernetes.io~csi/{pv}/mount"));
        std::fs::create_dir_all(&target).unwrap();
        target
    }

    pub(crate) async fn attach(&self, pv: &str, attached: bool) {
        let attachments = Api::<VolumeAttachment>::all(self.client.clone());
        let name = format!("csi-{pv}");
        let object = json!({
            "metadata": {"name": name},
            "spec": {"attacher": self.driver, "nodeName": self.node, "source": {"persistentVolumeName": pv}},
        });
        create(&attachments, object).await;
        let status = Patch::Merge(json!({"status": {"attached": attached}}));
        attachments.patch_status(&name, &PatchParams::default(), &status).await.unwrap();
    }

    pub(crate) async fn csi_driver(&self, attach_required: bool) {
        let object = json!({"metadata": {"name": self.driver}, "spec": {"attachRequired": attach_required}});
        create::<CSIDriver>(&Api::all(self.client.clone()), object).await;
    }
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
        tokio::time::sleep(Duration::from_millis(30)).await;
    }
}
