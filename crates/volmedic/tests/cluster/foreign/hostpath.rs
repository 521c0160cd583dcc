//! kubernetes-csi's hostpath driver, by the manifests of its own release.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::json;
use volmedic_testkit::foreign::{self, Foreign};
use volmedic_testkit::{NODE, sidecars};

use super::{Disk, claim, container, host_folder, image, keep_containers, objects, rolled_out, tool, writer};
use crate::agent::handle;
use crate::stage::{KUBECTL_WAITS, Stage};

pub(super) const DRIVER: &str = "hostpath.csi.k8s.io";
pub(super) const POD: &str = "csi-hostpathplugin-0";
pub(super) const CONTAINER: &str = "hostpath";
pub(super) const PROGRAM: &str = "hostpathplugin";
pub(super) const WORKLOAD: &str = "statefulset/csi-hostpathplugin";
const CLASS: &str = "csi-hostpath-sc";
const IMAGE: &str = "volmedic.test/hostpath:1";
/// Where the driver sees its volumes. Its check of mounts finds a volume only if the path inside of the host's file system ends
/// with this and the volume's name; with the folder of its own manifests it reports every volume as not mounted.
const DATA: &str = "csi-data-dir";
/// The folder of this release's manifests for the newest Kubernetes that it knows.
const MANIFESTS: &str = "deploy/kubernetes-1.20/hostpath";

pub(super) struct Hostpath {
    driver: Foreign,
    pub(super) disk: Disk,
}

impl Hostpath {
    /// Without csi-attacher, which is on no module proxy: its driver has nothing to attach.
    pub(super) fn install(stage: &Stage) -> Self {
        let (driver, sidecars) = (foreign::hostpath().unwrap(), sidecars::build().unwrap());
        let disk = Disk::mount(stage, "hostpath");
        let data = disk.folder().join(DATA);
        let (mount, umount, findmnt) = (tool("mount"), tool("umount"), tool("findmnt"));
        stage.import(&image(
            IMAGE,
            &[
                ("hostpathplugin", &driver.program),
                ("csi-provisioner", &sidecars.provisioner),
                ("registrar", &sidecars.registrar),
                ("bin/mount", &mount),
                ("bin/umount", &umount),
                ("bin/findmnt", &findmnt),
            ],
        ));
        let rights = foreign::provisioner().unwrap().file("deploy/kubernetes/rbac.yaml");
        let file = |name: &str| driver.file(&format!("{MANIFESTS}/{name}"));
        let mut all = objects(stage, &rights);
        all.extend(objects(stage, &file("csi-hostpath-driverinfo.yaml")));
        all.extend(objects(stage, &file("csi-hostpath-plugin.yaml")));
        all.extend(objects(stage, &driver.file("examples/csi-storageclass.yaml")));
        for object in &mut all {
            if object["kind"] == "CSIDriver" {
                object["spec"]["attachRequired"] = json!(false);
            }
            if object["kind"] == "StatefulSet" {
                adapt(object, stage.kubelet(), &data);
            }
        }
        stage.create(&all.into());
        rolled_out(stage, "default", WORKLOAD);
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

    /// Volmedic's controller beside the driver's, by the patch that the chart has made.
    pub(super) fn add_sidecar(stage: &Stage) {
        let patch = stage.kubectl(&[
            "get",
            "configmap",
            "volmedic-sidecar-hostpath",
            "-n",
            super::NAMESPACE,
            "-o",
            "jsonpath={.data.patch\\.yaml}",
        ]);
        let file = stage.folder().join("sidecar.yaml");
        fs::write(&file, patch).unwrap();
        stage.kubectl(&["patch", WORKLOAD, "--patch-file", file.to_str().unwrap()]);
        rolled_out(stage, "default", WORKLOAD);
    }

    pub(super) fn version(&self) -> &'static str {
        self.driver.version
    }

    /// A claim and a pod that uses it.
    pub(super) fn volume(name: &str) -> [serde_json::Value; 2] {
        [claim(name, CLASS), writer(name)]
    }

    /// Where the driver keeps a claim's files.
    pub(super) fn data(&self, stage: &Stage, claim: &str) -> PathBuf {
        self.disk.folder().join(DATA).join(handle(stage, claim))
    }

    /// Removes everything of it, after its claims and pods.
    pub(super) fn remove(self, stage: &Stage) {
        for objects in [
            &["statefulset/csi-hostpathplugin", "csidriver/hostpath.csi.k8s.io"][..],
            &["storageclass/csi-hostpath-sc", "lease/external-health-monitor-leader-hostpath-csi-k8s-io"],
        ] {
            let mut arguments = vec!["delete", "--ignore-not-found", "--wait", KUBECTL_WAITS];
            arguments.extend(objects);
            stage.kubectl(&arguments);
        }
        drop(self.disk);
    }
}

/// Its workload on this cluster.
fn adapt(workload: &mut serde_json::Value, kubelet: &Path, data: &Path) {
    keep_containers(
        workload,
        &[(CONTAINER, IMAGE), ("node-driver-registrar", IMAGE), ("csi-provisioner", IMAGE)],
    );
    host_folder(workload, "csi-data-dir", data);
    let registrar = container(workload, "node-driver-registrar");
    let socket = kubelet.join("plugins/csi-hostpath/csi.sock");
    registrar["command"] = json!(["/registrar", DRIVER, socket, format!("/registration/{DRIVER}-reg.sock")]);
    registrar.as_object_mut().unwrap().remove("args");
    container(workload, "csi-provisioner")["command"] = json!(["/csi-provisioner"]);
    let plugin = container(workload, CONTAINER);
    plugin["command"] = json!(["/hostpathplugin"]);
    // Its check of mounts expects them there, wherever the kubelet's folder is.
    plugin["volumeMounts"].as_array_mut().unwrap().push(json!({
        "name": "mountpoint-dir",
        "mountPath": "/var/lib/kubelet/pods",
        "mountPropagation": "Bidirectional",
    }));
}
