//! A real API server that takes, refuses and completes what would be installed, and keeps nothing of it.

use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::sync::OnceLock;

use serde_json::{Value, json};
use volmedic_testkit::ControlPlane;

use crate::chart;

pub(crate) const NAMESPACE: &str = "volmedic";
/// Enforced there: the strictest that a pod can pass.
pub(crate) const STRICT: &str = "strict";
/// Where node-stage secrets live, and where the reference driver runs.
const OTHERS: [&str; 2] = ["rook-ceph", "volmedic-driver"];

/// The objects of the chart with these values, as the API server would store them.
pub(crate) fn taken(values: &Value) -> Vec<Value> {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), chart().render(NAMESPACE, values).unwrap()).unwrap();
    taken_file(file.path())
}

/// As [`taken`], for a file with objects.
pub(crate) fn taken_file(file: &Path) -> Vec<Value> {
    let answer = kubectl(&[
        "apply",
        "--server-side",
        "--dry-run=server",
        "--output=json",
        "--filename",
        file.to_str().unwrap(),
    ]);
    let text = answer.unwrap_or_else(|error| panic!("{}: {error}", file.display()));
    let list: Value = serde_json::from_str(&text).unwrap();
    match list["items"].as_array() {
        Some(items) => items.clone(),
        None => vec![list],
    }
}

/// Whether a pod like this would be let into the namespace; if not, why not.
pub(crate) fn let_in(namespace: &str, spec: &Value) -> Result<(), String> {
    let pod = json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "candidate", "namespace": namespace},
        "spec": spec,
    });
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), pod.to_string()).unwrap();
    kubectl(&["create", "--dry-run=server", "--filename", file.path().to_str().unwrap()]).map(drop)
}

/// The one object of this kind and name.
pub(crate) fn find<'a>(objects: &'a [Value], kind: &str, name: &str) -> &'a Value {
    let is_it = |object: &&Value| object["kind"] == kind && object["metadata"]["name"] == name;
    let found: Vec<&Value> = objects.iter().filter(is_it).collect();
    assert_eq!(found.len(), 1, "{kind}/{name}");
    found[0]
}

/// What kubectl says, or what went wrong.
fn kubectl(arguments: &[&str]) -> Result<String, String> {
    static READY: OnceLock<()> = OnceLock::new();
    READY.get_or_init(prepare);
    run(arguments)
}

fn run(arguments: &[&str]) -> Result<String, String> {
    let kubectl = ControlPlane::shared().kubectl();
    let mut command = Command::new("timeout");
    command.arg("120").arg(kubectl.get_program()).args(kubectl.get_args()).args(arguments);
    let Output { status, stdout, stderr } = command.stdin(Stdio::null()).output().unwrap();
    let said = String::from_utf8_lossy(&stderr).into_owned();
    if status.success() { Ok(String::from_utf8(stdout).unwrap()) } else { Err(format!("{status}: {said}")) }
}

/// Namespaces, and what others would have installed.
fn prepare() {
    let namespace = |name: &str, enforced: &str| {
        let labels = json!({"pod-security.kubernetes.io/enforce": enforced});
        json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}})
    };
    let account = |namespace: &str, name: &str| {
        let metadata = json!({"name": name, "namespace": namespace});
        json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata})
    };
    let mut items = vec![namespace(NAMESPACE, "privileged"), namespace(STRICT, "restricted")];
    items.extend(OTHERS.map(|name| namespace(name, "privileged")));
    for place in [NAMESPACE, STRICT] {
        items.extend(["volmedic-hub", "volmedic-agent"].map(|name| account(place, name)));
    }
    items.push(account(NAMESPACE, "volmedic-test"));
    items.extend(
        ["ServiceMonitor", "PodMonitor", "PrometheusRule"]
            .map(|kind| of_others("monitoring.coreos.com", kind, "Namespaced")),
    );
    items.push(of_others("security.openshift.io", "SecurityContextConstraints", "Cluster"));
    let file = tempfile::NamedTempFile::new().unwrap();
    let list = json!({"apiVersion": "v1", "kind": "List", "items": items});
    std::fs::write(file.path(), list.to_string()).unwrap();
    run(&["apply", "--server-side", "--filename", file.path().to_str().unwrap()]).unwrap();
    let known = ["wait", "--for=condition=Established", "--timeout=60s", "crd", "--all"];
    run(&known).unwrap();
}

/// A resource of the Prometheus operator or of OpenShift, with any content: the API server cannot judge it.
fn of_others(group: &str, kind: &str, scope: &str) -> Value {
    let plural = format!("{}s", kind.trim_end_matches('s').to_lowercase());
    let anything = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("{plural}.{group}")},
        "spec": {
            "group": group,
            "scope": scope,
            "names": {"kind": kind, "plural": plural},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": anything}}],
        },
    })
}
