//! The reference driver as `deploy/driver` installs it: it registers by itself, and its own sidecar reports on its volumes.

use std::path::Path;

use serde_json::Value;
use volmedic_testkit::image::Image;
use volmedic_testkit::{NODE, sidecars};

use super::measure::Look;
use super::{claim, container, host_folder, image, objects, rolled_out, tool, writer};
use crate::agent::handle;
use crate::ready;
use crate::stage::{DRIVER, KUBECTL_WAITS, PROGRAM, Stage};

const NAMESPACE: &str = "volmedic-driver";
const WORKLOAD: &str = "statefulset/volmedic-driver";
const CLAIM: &str = "reference";

/// On a cluster with Volmedic, whose chart has made the role of controllers.
pub(super) fn is_installed_and_reports(stage: &Stage) {
    let version = env!("CARGO_PKG_VERSION");
    let programs = [
        ("volmedic", Path::new(PROGRAM).to_owned()),
        ("bin/mkfs.ext4", tool("mkfs.ext4")),
        ("bin/e2fsck", tool("e2fsck")),
    ];
    let programs = programs.each_ref().map(|(path, program)| (*path, program.as_path()));
    let mut driver = image(&format!("volmedic-driver:{version}"), &programs);
    driver.entrypoint = vec!["/volmedic".to_owned()];
    driver.command = Vec::new();
    stage.import(&driver);
    let mut provisioner = Image::new("registry.k8s.io/sig-storage/csi-provisioner:v5.1.0");
    provisioner.entrypoint = vec!["/csi-provisioner".to_owned()];
    provisioner.program("csi-provisioner", &sidecars::build().unwrap().provisioner).unwrap();
    stage.import(&provisioner);

    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy/driver");
    let mut all = Vec::new();
    for file in ["csidriver.yaml", "storageclasses.yaml", "workload.yaml"] {
        all.extend(objects(stage, &folder.join(file)));
    }
    for object in &mut all {
        if object["kind"] == "StatefulSet" {
            host_folder(object, "state", stage.state().root());
            let arguments = container(object, "volmedic")["args"].as_array_mut().unwrap();
            arguments.extend(["--monitor-interval=2s", "--list-volumes-interval=2s"].map(Value::from));
        }
    }
    stage.create(&all.into());
    rolled_out(stage, NAMESPACE, WORKLOAD);
    stage.wait("the kubelet knows the reference driver", || {
        let known = stage.kubectl(&["get", "csinode", NODE, "-o", "jsonpath={.spec.drivers[*].name}"]);
        if known.split(' ').any(|name| name == DRIVER) { Ok(()) } else { Err(format!("it knows {known:?}")) }
    });
    stage.create(&vec![claim(CLAIM, "volmedic-ext4"), writer(CLAIM)].into());
    ready(stage, CLAIM);

    let volume = handle(stage, CLAIM);
    stage.fault("inject", "drive-bad", &volume);
    stage.wait("its sidecar reports the bad drive", || {
        let look = Look::at(stage, CLAIM);
        let of_controller = look.conditions.get("controller");
        let found = of_controller.is_some_and(|all| all.iter().any(|one| one[1] == "DriveBad"));
        if found { Ok(()) } else { Err(format!("{look:?}")) }
    });
    stage.fault("clear", "drive-bad", &volume);
    stage.wait("its sidecar reports the recovery", || {
        let look = Look::at(stage, CLAIM);
        if look.is_quiet() { Ok(()) } else { Err(format!("{look:?}")) }
    });

    for kind in ["pod", "pvc"] {
        stage.kubectl(&["delete", kind, CLAIM, "--wait", KUBECTL_WAITS]);
    }
    stage.wait("its volume is removed", || {
        let left = stage.try_kubectl(&["get", "pv", "-o", "jsonpath={.items[*].spec.claimRef.name}"])?;
        if left.split(' ').any(|claim| claim == CLAIM) { Err(left) } else { Ok(()) }
    });
    stage.kubectl(&["delete", "namespace", NAMESPACE, "--wait", KUBECTL_WAITS]);
    assert_eq!(std::fs::read_dir(stage.state().volumes()).unwrap().count(), 0, "nothing of it stays");
}
