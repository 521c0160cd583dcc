//! JuiceFS by its own CSI driver in the mode in which the driver's pod mounts: a FUSE file system in production use. Each
//! volume has its own metadata, in badger, and its objects in files.

use std::path::Path;

use serde_json::{Value, json};
use volmedic_testkit::foreign::{self, Foreign};
use volmedic_testkit::{NODE, sidecars};

use super::{
    Disk, container, host_folder, image, keep_containers, objects, processes, rolled_out, tool, writer,
};
use crate::stage::{KUBECTL_WAITS, Stage};

pub(super) const DRIVER: &str = "csi.juicefs.com";
pub(super) const CONTAINER: &str = "juicefs-plugin";
pub(super) const PROGRAM: &str = "juicefs-csi-driver";
const NAMESPACE: &str = "kube-system";
const WORKLOAD: &str = "daemonset/juicefs-csi-node";
const IMAGE: &str = "volmedic.test/juicefs:1";
/// Where the driver's pod sees the disk.
const INSIDE: &str = "/objects";

pub(super) struct JuiceFs {
    driver: Foreign,
    pub(super) disk: Disk,
}

impl JuiceFs {
    /// Its node plugin. Volumes are provisioned statically, as its documents describe for file systems that exist.
    pub(super) fn install(stage: &Stage) -> Self {
        let kubelet = stage.kubelet().to_str().unwrap();
        let hidden = "JuiceFS mounts nothing below a hidden folder; set VOLMEDIC_CACHE to a folder that is not below one";
        assert!(!kubelet.contains("/."), "{hidden}: {kubelet}");
        let (driver, client) = (foreign::juicefs_driver().unwrap(), foreign::juicefs().unwrap());
        let registrar = sidecars::build().unwrap().registrar;
        let disk = Disk::mount(stage, "juicefs");
        let (bash, mount, umount) = (tool("bash"), tool("mount"), tool("umount"));
        let mut image = image(
            IMAGE,
            &[
                ("bin/juicefs-csi-driver", &driver.program),
                ("usr/local/bin/juicefs", &client.program),
                ("registrar", &registrar),
                ("bin/bash", &bash),
                ("bin/mount", &mount),
                ("bin/umount", &umount),
            ],
        );
        image.link("bin/mount.juicefs", "/usr/local/bin/juicefs");
        stage.import(&image);
        let mut all = objects(stage, &driver.file("deploy/k8s.yaml"));
        // What the node plugin needs; the rest is for its controller, its dashboard and pods that mount.
        all.retain(|object| {
            let name = object["metadata"]["name"].as_str().unwrap();
            let kind = object["kind"].as_str().unwrap();
            name.starts_with("juicefs-csi-node") || kind == "CSIDriver" || name == "juicefs-csi-driver-config"
        });
        for object in &mut all {
            if object["kind"] == "DaemonSet" {
                adapt(object, stage, disk.folder());
            }
        }
        stage.create(&all.into());
        rolled_out(stage, NAMESPACE, WORKLOAD);
        stage.wait("the kubelet knows the driver", || {
            let known = stage.kubectl(&["get", "csinode", NODE, "-o", "jsonpath={.spec.drivers[*].name}"]);
            if known.split(' ').any(|name| name == DRIVER) {
                Ok(())
            } else {
                Err(format!("it knows {known:?}"))
            }
        });
        Self { driver, disk }
    }

    pub(super) fn version(&self) -> &'static str {
        self.driver.version
    }

    /// A file system of its own, a claim on it, and a pod that uses it.
    #[expect(clippy::unused_self, reason = "there is no volume without the driver")]
    pub(super) fn volume(&self, name: &str) -> [Value; 4] {
        let secret = format!("{name}-secret");
        [
            json!({
                "apiVersion": "v1",
                "kind": "Secret",
                "metadata": {"name": secret, "namespace": "default"},
                "stringData": {
                    "name": name,
                    "metaurl": format!("badger://{INSIDE}/meta-{name}"),
                    "storage": "file",
                    "bucket": format!("{INSIDE}/data-{name}/"),
                    "trash-days": "0",
                },
            }),
            json!({
                "apiVersion": "v1",
                "kind": "PersistentVolume",
                "metadata": {"name": name},
                "spec": {
                    "capacity": {"storage": "64Mi"},
                    "accessModes": ["ReadWriteMany"],
                    "persistentVolumeReclaimPolicy": "Retain",
                    "claimRef": {"namespace": "default", "name": name},
                    "csi": {
                        "driver": DRIVER,
                        "volumeHandle": name,
                        "fsType": "juicefs",
                        "nodePublishSecretRef": {"name": secret, "namespace": "default"},
                    },
                },
            }),
            json!({
                "apiVersion": "v1",
                "kind": "PersistentVolumeClaim",
                "metadata": {"name": name, "namespace": "default"},
                "spec": {
                    "accessModes": ["ReadWriteMany"],
                    "storageClassName": "",
                    "volumeName": name,
                    "resources": {"requests": {"storage": "64Mi"}},
                },
            }),
            writer(name),
        ]
    }

    #[expect(clippy::unused_self, reason = "there is no pod without the driver")]
    pub(super) fn pod(&self, stage: &Stage) -> String {
        let path = "jsonpath={.items[0].metadata.name}";
        stage.kubectl(&["get", "pods", "-n", NAMESPACE, "-l", "app=juicefs-csi-node", "-o", path])
    }

    /// The process that serves a volume, and the one that starts it again when it ends.
    pub(super) fn mounter(&self, stage: &Stage, volume: &str) -> Vec<i32> {
        let of = |program| self.processes(stage, volume, program);
        [of("mount.juicefs"), of("juicefs")].concat()
    }

    /// Only the one that serves it.
    pub(super) fn server(&self, stage: &Stage, volume: &str) -> Vec<i32> {
        self.processes(stage, volume, "juicefs")
    }

    fn processes(&self, stage: &Stage, volume: &str, program: &str) -> Vec<i32> {
        let all = processes::find(stage, NAMESPACE, &self.pod(stage), CONTAINER, program);
        let of_volume = |number: &i32| {
            let line = std::fs::read(format!("/proc/{number}/cmdline")).unwrap_or_default();
            String::from_utf8_lossy(&line).contains(volume)
        };
        all.into_iter().filter(of_volume).collect()
    }

    pub(super) fn remove(self, stage: &Stage) {
        let arguments = ["delete", WORKLOAD, "-n", NAMESPACE, "--wait", KUBECTL_WAITS];
        stage.kubectl(&arguments);
        stage.kubectl(&["delete", "csidriver", DRIVER]);
        drop(self.disk);
    }
}

/// Its workload on this cluster, with the flag by which the driver's pod mounts.
fn adapt(workload: &mut Value, stage: &Stage, disk: &Path) {
    keep_containers(workload, &[(CONTAINER, IMAGE), ("node-driver-registrar", IMAGE)]);
    for (volume, folder) in [("jfs-dir", "volume"), ("jfs-root-dir", "config"), ("jfs-fuse-fd", "fuse")] {
        // Below the kubelet's folder, from which mounts are shared with the host here.
        host_folder(workload, volume, &stage.kubelet().join("juicefs").join(folder));
    }
    let volumes = workload["spec"]["template"]["spec"]["volumes"].as_array_mut().unwrap();
    volumes.push(json!({"name": "objects", "hostPath": {"path": disk}}));
    let socket = stage.kubelet().join(format!("csi-plugins/{DRIVER}/csi.sock"));
    let registrar = container(workload, "node-driver-registrar");
    registrar["command"] = json!(["/registrar", DRIVER, socket, format!("/registration/{DRIVER}-reg.sock")]);
    registrar.as_object_mut().unwrap().remove("args");
    let plugin = container(workload, CONTAINER);
    plugin["command"] = json!(["/bin/juicefs-csi-driver"]);
    plugin["resources"] = json!({});
    let arguments = plugin["args"].as_array_mut().unwrap();
    arguments.push(json!("--by-process=true"));
    plugin["volumeMounts"].as_array_mut().unwrap().push(json!({"name": "objects", "mountPath": INSIDE}));
}
