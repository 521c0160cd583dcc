//! rancher's local-path-provisioner, by its own manifest: hostPath volumes, and no CSI driver.

use std::path::PathBuf;

use serde_json::{Value, json};
use volmedic_testkit::IMAGE as BUSYBOX;
use volmedic_testkit::foreign::{self, Foreign};

use super::{Disk, claim, container, image, objects, rolled_out, writer};
use crate::stage::{KUBECTL_WAITS, Stage};

pub(super) const NAMESPACE: &str = "local-path-storage";
pub(super) const CONTAINER: &str = "local-path-provisioner";
pub(super) const WORKLOAD: &str = "deployment/local-path-provisioner";
const CLASS: &str = "local-path";
/// Of the same provisioner: the kind of volume that the kubelet mounts. Its README names the annotation.
const LOCAL_CLASS: &str = "local-path-local";
const IMAGE: &str = "volmedic.test/local-path:1";

pub(super) struct LocalPath {
    driver: Foreign,
    pub(super) disk: Disk,
}

impl LocalPath {
    pub(super) fn install(stage: &Stage) -> Self {
        let driver = foreign::local_path().unwrap();
        let disk = Disk::mount(stage, "local-path");
        stage.import(&image(IMAGE, &[("bin/local-path-provisioner", &driver.program)]));
        let mut all = objects(stage, &driver.file("deploy/local-path-storage.yaml"));
        for object in &mut all {
            match object["kind"].as_str().unwrap() {
                "Deployment" => {
                    let container = container(object, CONTAINER);
                    container["image"] = json!(IMAGE);
                    container["imagePullPolicy"] = json!("Never");
                }
                "ConfigMap" => {
                    let data = object["data"].as_object_mut().unwrap();
                    for text in data.values_mut() {
                        let adapted = text.as_str().unwrap();
                        let folder = disk.folder().to_str().unwrap();
                        let adapted = adapted.replace("/opt/local-path-provisioner", folder);
                        let adapted = adapted.replace("image: busybox\n", &format!("image: {BUSYBOX}\n"));
                        *text = json!(adapted);
                    }
                }
                _ => {}
            }
        }
        let class = all.iter().find(|object| object["kind"] == "StorageClass").unwrap();
        let mut local = class.clone();
        local["metadata"] = json!({"name": LOCAL_CLASS, "annotations": {"defaultVolumeType": "local"}});
        all.push(local);
        stage.create(&all.into());
        rolled_out(stage, NAMESPACE, WORKLOAD);
        Self { driver, disk }
    }

    pub(super) fn version(&self) -> &'static str {
        self.driver.version
    }

    /// A claim and a pod that uses it; the kubelet mounts it, or the container runtime does.
    pub(super) fn volume(name: &str, local: bool) -> [Value; 2] {
        [claim(name, if local { LOCAL_CLASS } else { CLASS }), writer(name)]
    }

    /// Where a claim's files are.
    pub(super) fn data(stage: &Stage, claim: &str, local: bool) -> PathBuf {
        let volume = stage.kubectl(&["get", "pvc", claim, "-o", "jsonpath={.spec.volumeName}"]);
        let path = if local { "jsonpath={.spec.local.path}" } else { "jsonpath={.spec.hostPath.path}" };
        PathBuf::from(stage.kubectl(&["get", "pv", &volume, "-o", path]))
    }

    /// Removes everything of it, after its claims and pods.
    pub(super) fn remove(self, stage: &Stage) {
        let class = format!("storageclass/{CLASS}");
        let local = format!("storageclass/{LOCAL_CLASS}");
        let namespace = format!("namespace/{NAMESPACE}");
        let roles = "clusterrole/local-path-provisioner-role";
        let binding = "clusterrolebinding/local-path-provisioner-bind";
        stage.kubectl(&["delete", "--wait", KUBECTL_WAITS, &class, &local, &namespace, roles, binding]);
        drop(self.disk);
    }
}
