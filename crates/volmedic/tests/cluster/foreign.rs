//! Drivers and provisioners of other projects on the real cluster, each as its own documents install it, and Volmedic
//! beside them as the chart installs it: what is reported when something happens to a volume, and by whom.
//!
//! `cargo xtask world` runs everything in here and writes the results into docs/driver-matrix.md.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};
use serde_json::{Value, json};
use volmedic_testkit::image::Image;
use volmedic_testkit::{IMAGE, cluster, helm};

use crate::agent::say;
use crate::stage::{PROGRAM, Stage};

mod conformance;
mod heal;
mod hostpath;
mod juicefs;
mod local_path;
mod measure;
mod processes;
mod reference;
mod short;
mod world;

const NAMESPACE: &str = "volmedic";
/// Of each folder of volumes. Small, so that it is filled in no time.
const SPACE: &str = "256m";

/// A file system for the volumes of one driver, so that filling it fills nothing else.
struct Disk {
    folder: PathBuf,
}

impl Disk {
    fn mount(stage: &Stage, name: &str) -> Self {
        let folder = stage.folder().join("disks").join(name);
        fs::create_dir_all(&folder).unwrap();
        let disk = Self { folder };
        disk.attach();
        disk
    }

    fn attach(&self) {
        let options = std::ffi::CString::new(format!("size={SPACE},mode=0777")).unwrap();
        mount("volmedic-disk", &self.folder, "tmpfs", MountFlags::empty(), Some(options.as_c_str())).unwrap();
    }

    fn folder(&self) -> &Path {
        &self.folder
    }

    /// Writes until nothing is left. Others write there, too, so how much that is cannot be known before.
    fn fill(&self) {
        let (mut file, zeros) = (fs::File::create(self.filler()).unwrap(), vec![0; 1 << 20]);
        let full = loop {
            if let Err(error) = file.write_all(&zeros) {
                break error;
            }
        };
        assert_eq!(full.kind(), std::io::ErrorKind::StorageFull, "{full}");
    }

    fn free(&self) {
        fs::remove_file(self.filler()).unwrap();
    }

    fn filler(&self) -> PathBuf {
        self.folder.join("filler")
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        // The cluster clears away what resists.
        let _ = unmount(&self.folder, UnmountFlags::DETACH);
    }
}

/// The objects in a file of a driver's own, with the kubelet's folder as it is here. Its authors' own script replaces it
/// in the same way.
fn objects(stage: &Stage, file: &Path) -> Vec<Value> {
    let text = stage.kubectl(&[
        "create",
        "--dry-run=client",
        "--validate=false",
        "-o",
        "json",
        "-f",
        file.to_str().unwrap(),
    ]);
    let text = text.replace("/var/lib/kubelet", stage.kubelet().to_str().unwrap());
    let documents = serde_json::Deserializer::from_str(&text).into_iter::<Value>().map(Result::unwrap);
    documents
        .flat_map(|document| match document["items"].as_array() {
            Some(items) => items.clone(),
            None => vec![document],
        })
        .collect()
}

/// An image with busybox and these programs, each under its path in there.
fn image(name: &str, programs: &[(&str, &Path)]) -> Image {
    let replaced: Vec<&str> = programs.iter().filter_map(|(path, _)| path.strip_prefix("bin/")).collect();
    let mut image = cluster::busybox(name, &replaced).unwrap();
    for (path, program) in programs {
        image.program(path, program).unwrap();
    }
    image
}

/// A program of this machine.
fn tool(name: &str) -> PathBuf {
    let places = ["/usr/bin", "/bin", "/usr/sbin", "/sbin"].map(|folder| Path::new(folder).join(name));
    places.into_iter().find(|place| place.is_file()).unwrap_or_else(|| panic!("{name} is not installed"))
}

/// The containers of a workload that stay, by name, each with this image. Health of volumes is asked for by Volmedic, and
/// the other sidecars are on no module proxy.
fn keep_containers(workload: &mut Value, kept: &[(&str, &str)]) {
    let containers = workload["spec"]["template"]["spec"]["containers"].as_array_mut().unwrap();
    containers.retain(|container| kept.iter().any(|(name, _)| container["name"] == *name));
    assert_eq!(containers.len(), kept.len(), "not all of {kept:?} are in the manifest");
    for container in containers {
        let (_, image) = kept.iter().find(|(name, _)| container["name"] == *name).unwrap();
        let container = container.as_object_mut().unwrap();
        container.insert("image".into(), json!(image));
        container.insert("imagePullPolicy".into(), json!("Never"));
        // It asks the sidecar `livenessprobe`.
        container.remove("livenessProbe");
    }
}

/// A container of a workload, to be changed.
fn container<'a>(workload: &'a mut Value, name: &str) -> &'a mut Value {
    let containers = workload["spec"]["template"]["spec"]["containers"].as_array_mut().unwrap();
    containers.iter_mut().find(|container| container["name"] == name).unwrap()
}

/// A volume of a workload, which is then this folder of the host.
fn host_folder(workload: &mut Value, volume: &str, folder: &Path) {
    let volumes = workload["spec"]["template"]["spec"]["volumes"].as_array_mut().unwrap();
    let volume = volumes.iter_mut().find(|one| one["name"] == volume).unwrap();
    volume.as_object_mut().unwrap().remove("configMap");
    volume["hostPath"] = json!({"path": folder, "type": "DirectoryOrCreate"});
}

/// A claim of a storage class.
fn claim(name: &str, class: &str) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {
            "accessModes": ["ReadWriteOnce"],
            "storageClassName": class,
            "resources": {"requests": {"storage": "64Mi"}},
        },
    })
}

/// A pod that writes into its claim's volume all the time, and goes on when it cannot.
fn writer(name: &str) -> Value {
    let script = "trap 'exit 0' TERM; while :; do date > /data/alive; sleep 1 & wait $!; done";
    json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {
            "terminationGracePeriodSeconds": 2,
            "containers": [{
                "name": "main",
                "image": IMAGE,
                "imagePullPolicy": "Never",
                "command": ["sh", "-c", script],
                "readinessProbe": {"exec": {"command": ["test", "-e", "/data/alive"]}, "periodSeconds": 1},
                "volumeMounts": [{"name": "data", "mountPath": "/data"}],
            }],
            "volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": name}}],
        },
    })
}

/// Where a pod's volume of a CSI driver is on the host.
fn target(stage: &Stage, pod: &str) -> PathBuf {
    let uid = stage.kubectl(&["get", "pod", pod, "-o", "jsonpath={.metadata.uid}"]);
    let volume = stage.kubectl(&["get", "pvc", pod, "-o", "jsonpath={.spec.volumeName}"]);
    stage.kubelet().join(format!("pods/{uid}/volumes/kubernetes.io~csi/{volume}/mount"))
}

/// Volmedic as the chart installs it, without a value that is about a driver, but with an interval of seconds. The
/// program is the one under test.
fn install_volmedic(stage: &Stage) {
    install_volmedic_with(stage, &json!({}));
}

/// The same with more values of the chart.
fn install_volmedic_with(stage: &Stage, more: &Value) {
    let version = env!("CARGO_PKG_VERSION");
    let mut image = Image::new(&format!("volmedic:{version}"));
    image.entrypoint = vec!["/volmedic".to_owned()];
    image.program("volmedic", Path::new(PROGRAM)).unwrap();
    stage.import(&image);
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    stage.kubectl(&["apply", "-f", root.join("deploy/namespace.yaml").to_str().unwrap()]);
    let mut values = json!({
        "agent": {"kubeletDir": stage.kubelet(), "stateDir": stage.folder().join("agent"), "monitorInterval": "5s"},
        "controller": {"monitorInterval": "5s", "listVolumesInterval": "5s"},
        "controllers": [{"driver": "hostpath"}],
    });
    values.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    helm::Chart::of(&root).unwrap().install(&stage.kubeconfig(), NAMESPACE, &values).unwrap();
    for workload in ["deployment/volmedic-hub", "daemonset/volmedic-agent"] {
        rolled_out(stage, NAMESPACE, workload);
    }
}

fn rolled_out(stage: &Stage, namespace: &str, workload: &str) {
    stage.wait(&format!("{workload} is rolled out"), || {
        let status = ["rollout", "status", workload, "-n", namespace, "--timeout=5s"];
        stage.try_kubectl(&status).map_err(|error| {
            let logs = ["logs", workload, "-n", namespace, "--all-containers", "--tail=20"];
            format!("{error}\n{}", stage.try_kubectl(&logs).unwrap_or_else(|error| error))
        })
    });
    say(&format!("{workload} runs"));
}
