//! A whole cluster with a real node: what runs on it, and that nothing of it stays, however it ends.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use kube::Api;
use kube::api::{Patch, PatchParams};
use kube::core::{ApiResource, DynamicObject};
use leftovers::Snapshot;
use owner::Owner;
use serde_json::json;
use volmedic_testkit::cluster::{self, Name, Options};
use volmedic_testkit::kubernetes::{self, Version};
use volmedic_testkit::{Cluster, ControlPlane, IMAGE, NODE, Part, objects};

mod leftovers;
#[path = "../common/owner.rs"]
mod owner;

/// One after the other: each checks what is on the machine before and after.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    volmedic_testkit::packages::require_root("it starts a node");
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A cluster that outlives commands, but not this test, even if it fails.
struct Named(Name);

impl Named {
    fn new(prefix: &str) -> Self {
        Self(format!("{prefix}-{}", std::process::id()).parse().expect("a name"))
    }
}

impl Drop for Named {
    fn drop(&mut self) {
        if let Err(error) = cluster::down(&self.0) {
            let _ = writeln!(std::io::stderr(), "the cluster {} could not be ended: {error:#}", self.0);
        }
    }
}

#[test]
fn a_real_pod_runs_on_the_real_node_and_nothing_of_it_stays() {
    let _alone = alone();
    let before = Snapshot::take();
    let cluster = Cluster::start().unwrap();
    let plane = cluster.plane();
    let program = PathBuf::from(cluster.kubectl().get_program());
    run_pod(plane.kubeconfig(), &program);
    let kubectl = |arguments: &[&str]| said(cluster.kubectl().args(arguments));

    assert_eq!(kubectl(&["logs", "probe"]), "written by a real pod\n");
    assert_eq!(
        kubectl(&["exec", "probe", "--", "cat", "/var/run/secrets/kubernetes.io/serviceaccount/namespace"]),
        "default"
    );
    // From inside of the pod, over its own network, with the mounted token and the mounted authority.
    let who =
        ["exec", "probe", "--", "/kube", "kubectl", "auth", "whoami", "-o", "jsonpath={.status.userInfo}"];
    let me: serde_json::Value = serde_json::from_str(&kubectl(&who)).unwrap();
    assert_eq!(me["username"], "system:serviceaccount:default:default");
    assert_eq!(me["extra"]["authentication.kubernetes.io/node-name"], json!([NODE]));

    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(health_of_a_claim_survives(plane)).unwrap();

    before.something_was_added(&["process", "mount", "control group", "link", "address", "file"]);
    // A machine may have been set up to run pods before.
    if !before.forwards() {
        before.something_was_added(&["setting"]);
    }
    cluster.stop().unwrap();
    before.nothing_was_added();
}

async fn health_of_a_claim_survives(plane: &ControlPlane) -> anyhow::Result<()> {
    let client = plane.client().await?;
    let namespace = plane.namespace("gate").await?;
    objects::bound_claim(&client, &namespace, "data", "csi.example.com", "vol-1").await?;
    let resource = ApiResource::erase::<k8s_openapi::api::core::v1::PersistentVolumeClaim>(&());
    let claims = Api::<DynamicObject>::namespaced_with(client, &namespace, &resource);
    let health = json!({"healthConditions": [{"status": "Degraded", "reason": "SlowIO"}]});
    let write =
        json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "status": {"healthStatus": health}});
    claims.patch_status("data", &PatchParams::apply("test"), &Patch::Apply(write)).await?;
    let kept = claims.get("data").await?;
    assert_eq!(kept.data["status"]["healthStatus"]["healthConditions"], health["healthConditions"]);
    Ok(())
}

#[test]
fn a_cluster_whose_parts_were_killed_is_replaced_and_then_ended_without_a_trace() {
    let _alone = alone();
    let before = Snapshot::take();
    let named = Named::new("test");
    let name = &named.0;
    let first = cluster::up(name, Options::default()).unwrap();
    assert!(!first.already);
    run_pod(&first.kubeconfig, Path::new(cluster::kubectl(name).unwrap().get_program()));
    assert!(cluster::up(name, Options::default()).unwrap().already, "it runs, so nothing is to be done");
    let refused = cluster::up(name, Options::default().control_plane_only()).unwrap_err().to_string();
    assert!(refused.contains("runs already, as v1.37.1 with a node"), "{refused}");

    let status = cluster::status(name).unwrap().unwrap();
    assert!(status.healthy(), "{status:?}");
    for (part, pid) in status.parts {
        if matches!(part, Part::Containerd | Part::Kubelet | Part::ApiServer) {
            said(Command::new("kill").arg("-9").arg(pid.unwrap().to_string()));
        }
    }
    // The pod still runs, under a shim that nobody looks after.
    before.something_was_added(&["process", "mount", "control group", "link"]);
    assert!(!cluster::status(name).unwrap().unwrap().healthy());

    assert!(!cluster::up(name, Options::default()).unwrap().already);
    assert!(cluster::status(name).unwrap().unwrap().healthy());
    let mut pods = cluster::kubectl(name).unwrap();
    assert_eq!(said(pods.args(["get", "pods", "-o", "name"])), "", "it is a new cluster");
    assert!(!cluster::log(name, Part::Kubelet, 5).unwrap().is_empty());
    assert!(cluster::down(name).unwrap());
    before.nothing_was_added();
    assert!(!cluster::down(name).unwrap(), "there is none any more");
    assert!(cluster::status(name).unwrap().is_none());
}

#[test]
fn a_start_that_is_killed_at_any_moment_is_cleared_away() {
    let _alone = alone();
    let named = Named::new("killed");
    let name = &named.0;
    for part in [Part::Etcd, Part::Containerd, Part::Kubelet] {
        let before = Snapshot::take();
        let mut command = Command::new(env!("CARGO_BIN_EXE_testkit-owner"));
        let mut starter = command.args(["up", &name.to_string()]).spawn().unwrap();
        let end = Instant::now() + Duration::from_mins(5);
        while cluster::log(name, part, 1).is_err() {
            assert!(Instant::now() < end, "{part} was never started");
            std::thread::sleep(Duration::from_millis(10));
        }
        starter.kill().unwrap();
        starter.wait().unwrap();
        // Its programs may not have come that far; its addresses are there before any of them.
        before.something_was_added(&["address"]);
        assert!(cluster::down(name).unwrap());
        before.nothing_was_added();
    }
}

#[test]
fn a_cluster_dies_with_its_owner_and_the_next_start_clears_the_rest_away() {
    let _alone = alone();
    let before = Snapshot::take();
    let mut owner = Owner::start("cluster");
    run_pod(&owner.kubeconfig, &kubernetes::program(Version::DEFAULT).unwrap());
    owner.kill();
    owner.parts_must_end();
    // Starting anything looks for what others left.
    drop(ControlPlane::options().start().unwrap());
    before.nothing_was_added();
}

/// Runs the pod `probe` with the cluster's own program in it, and waits until it is ready.
fn run_pod(kubeconfig: &Path, program: &Path) {
    let pod = json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "probe"},
        "spec": {
            "containers": [{
                "name": "main",
                "image": IMAGE,
                "imagePullPolicy": "Never",
                "command": ["sh", "-c", "echo written by a real pod; trap 'exit 0' TERM; sleep 3600 & wait $!"],
                "volumeMounts": [{"name": "kube", "mountPath": "/kube", "readOnly": true}],
            }],
            "volumes": [{"name": "kube", "hostPath": {"path": program, "type": "File"}}],
        },
    });
    let kubectl = || {
        let mut command = Command::new(program);
        command.arg("kubectl").arg("--kubeconfig").arg(kubeconfig);
        command
    };
    let file = tempfile::NamedTempFile::new().expect("a temporary file");
    std::fs::write(file.path(), pod.to_string()).expect("a temporary file can be written");
    // The service account of a fresh cluster takes the controller manager a moment.
    let end = Instant::now() + Duration::from_mins(3);
    loop {
        let made = output(kubectl().arg("create").arg("-f").arg(file.path()));
        if made.status.success() {
            break;
        }
        let why = String::from_utf8_lossy(&made.stderr);
        assert!(Instant::now() < end && why.contains("serviceaccount \"default\" not found"), "{why}");
        std::thread::sleep(Duration::from_millis(100));
    }
    said(kubectl().args(["wait", "--for=condition=Ready", "pod/probe", "--timeout=300s"]));
}

/// The standard output of a command that must succeed.
fn said(command: &mut Command) -> String {
    let output = output(command);
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?} failed: {error}");
    String::from_utf8(output.stdout).expect("text")
}

fn output(command: &mut Command) -> Output {
    command.stdin(Stdio::null()).output().expect("the program starts")
}
