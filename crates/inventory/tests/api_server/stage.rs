//! A node with a kubelet's directory and no kubelet.

use std::fs::{create_dir_all, remove_dir_all, write};
use std::os::unix::fs::symlink;

use k8s_openapi::api::core::v1::{PersistentVolume, Pod};
use kube::api::{Patch, PatchParams, PostParams};
use kube::{Api, Client};
use serde_json::{Value, json};
use tempfile::TempDir;
use volmedic_inventory::Metrics;
use volmedic_inventory::node::{Change, Inventory, Layout, NodeVolume, Options};
use volmedic_testkit::{ControlPlane, objects};

pub(crate) const CSI: &str = "kubernetes.io~csi";

pub(crate) struct Stage {
    pub(crate) client: Client,
    pub(crate) namespace: String,
    pub(crate) node: String,
    pub(crate) driver: String,
    pub(crate) kubelet: Layout,
    _folder: TempDir,
}

impl Stage {
    pub(crate) async fn new(name: &str) -> Self {
        Self::on(ControlPlane::shared(), name).await
    }

    pub(crate) async fn on(plane: &ControlPlane, name: &str) -> Self {
        let client = plane.client().await.unwrap();
        let namespace = plane.namespace(name).await.unwrap();
        let folder = tempfile::tempdir().unwrap();
        let kubelet = Layout::new(folder.path());
        let node = format!("{namespace}-node");
        Self { client, node, driver: format!("{name}.example.net"), namespace, kubelet, _folder: folder }
    }

    pub(crate) fn options(&self) -> Options {
        Options { node: self.node.clone().into(), kubelet_root: self.kubelet.root().into(), boot: None }
    }

    pub(crate) fn start(&self) -> Inventory {
        Inventory::start(&self.client, &self.options(), &Metrics::default())
    }

    pub(crate) fn pods(&self) -> Api<Pod> {
        Api::namespaced(self.client.clone(), &self.namespace)
    }

    /// A claim, and a PersistentVolume of our driver with the claim's name as handle. Returns the latter's name.
    pub(crate) async fn claim(&self, name: &str) -> String {
        let bound =
            objects::bound_claim(&self.client, &self.namespace, name, &self.driver, name).await.unwrap();
        bound.volume.metadata.name.unwrap()
    }

    pub(crate) async fn change_volume(&self, name: &str, patch: Value) {
        let volumes = Api::<PersistentVolume>::all(self.client.clone());
        volumes.patch(name, &PatchParams::default(), &Patch::Merge(patch)).await.unwrap();
    }

    /// A pod on the node with these volumes, each used by its one container; those called `raw` as a device. Returns
    /// its uid.
    pub(crate) async fn pod(&self, name: &str, volumes: &Value, annotations: &Value) -> String {
        let (mut mounts, mut devices) = (Vec::new(), Vec::new());
        for volume in volumes.as_array().unwrap() {
            let (name, path) = (&volume["name"], format!("/{}", volume["name"].as_str().unwrap()));
            if name == "raw" {
                devices.push(json!({"name": name, "devicePath": path}));
            } else {
                mounts.push(json!({"name": name, "mountPath": path}));
            }
        }
        let container =
            json!({"name": "main", "image": "none", "volumeMounts": mounts, "volumeDevices": devices});
        let pod = json!({
            "metadata": {"name": name, "annotations": annotations},
            "spec": {"nodeName": self.node, "volumes": volumes, "containers": [container],
                     "automountServiceAccountToken": false},
        });
        let pod = serde_json::from_value(pod).unwrap();
        self.pods().create(&PostParams::default(), &pod).await.unwrap().metadata.uid.unwrap()
    }

    /// A pod with one claim under the name `data`.
    pub(crate) async fn pod_with(&self, name: &str, claim: &str) -> String {
        self.pod(name, &json!([uses("data", claim)]), &json!({})).await
    }

    pub(crate) async fn set_status(&self, pod: &str, status: Value) {
        let patch = Patch::Merge(json!({"status": status}));
        self.pods().patch_status(pod, &PatchParams::default(), &patch).await.unwrap();
    }

    /// The pod's container runs.
    pub(crate) async fn run(&self, pod: &str) {
        let running = json!({"running": {"startedAt": "2026-03-01T10:00:00Z"}});
        let container = json!({"name": "main", "image": "none", "imageID": "", "ready": true, "restartCount": 0, "state": running});
        self.set_status(pod, json!({"phase": "Running", "containerStatuses": [container]})).await;
    }

    /// What a kubelet sets up for a pod and a volume of a CSI driver.
    pub(crate) fn set_up(&self, uid: &str, volume: &str, handle: &str, lifecycle: &str) {
        create_dir_all(self.kubelet.publish(uid, volume).unwrap()).unwrap();
        let note = json!({"driverName": self.driver, "volumeHandle": handle, "specVolID": volume,
                          "nodeName": self.node, "volumeLifecycleMode": lifecycle});
        write(self.kubelet.vol_data(uid, volume).unwrap(), note.to_string()).unwrap();
        if lifecycle == "Persistent" {
            create_dir_all(self.kubelet.staging(&self.driver, handle).unwrap()).unwrap();
        }
    }

    pub(crate) fn set_up_block(&self, uid: &str, volume: &str, handle: &str) {
        let map = self.kubelet.block_map(uid, CSI, volume).unwrap();
        create_dir_all(map.parent().unwrap()).unwrap();
        symlink(self.kubelet.block_publish(volume, uid).unwrap(), map).unwrap();
        let note = self.kubelet.block_vol_data(volume).unwrap();
        create_dir_all(note.parent().unwrap()).unwrap();
        write(note, json!({"driverName": self.driver, "volumeHandle": handle}).to_string()).unwrap();
    }

    /// The pod's directory is gone.
    pub(crate) fn tear_down(&self, uid: &str) {
        remove_dir_all(self.kubelet.pods().join(uid)).unwrap();
    }
}

/// A volume of a pod.
pub(crate) fn uses(name: &str, claim: &str) -> Value {
    json!({"name": name, "persistentVolumeClaim": {"claimName": claim}})
}

/// `handle: pod/volume phase access, ...` of each volume.
pub(crate) fn shown(inventory: &Inventory) -> Vec<String> {
    let show = |volume: &NodeVolume| {
        let uses = volume.uses.iter().map(|used| {
            let name = used.volume.as_deref().unwrap_or("?");
            format!("{}/{name} {:?} {:?}", used.pod.name, used.phase, used.access)
        });
        format!("{}: {}", volume.handle, uses.collect::<Vec<_>>().join(", "))
    };
    inventory.volumes().all().iter().map(|volume| show(volume)).collect()
}

/// `+`, `-` or `~` and the handle.
pub(crate) fn changes(inventory: &Inventory) -> Vec<String> {
    let show = |change| match change {
        Change::Added(key) => format!("+{}", key.handle),
        Change::Removed(key) => format!("-{}", key.handle),
        Change::Changed(key) => format!("~{}", key.handle),
        Change::Resync => "resync".to_owned(),
    };
    inventory.volumes().changes().into_iter().map(show).collect()
}
