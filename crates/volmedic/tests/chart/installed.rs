//! A release as Helm keeps it: installed, upgraded and taken away, on an API server of its own.

use std::process::{Command, Stdio};

use serde_json::{Value, json};
use volmedic_testkit::ControlPlane;

use crate::chart;
use crate::rendered::mine;

const NAMESPACE: &str = "volmedic";

#[test]
fn an_upgrade_keeps_the_certificate_and_a_removal_keeps_what_is_stored() {
    let plane = ControlPlane::options().start().unwrap();
    let values = json!({"push": {"enabled": true}, "heal": {"enabled": true}, "controllers": [mine()]});
    let notes = chart().install(plane.kubeconfig(), NAMESPACE, &values).unwrap();
    for line in [
        "kubectl get volumehealth -A",
        "kubectl -n volmedic port-forward deployment/volmedic-hub 8090",
        "kubectl -n kube-system patch deployment/my-csi-controller --patch-file sidecar.yaml",
        "kubectl label namespace volmedic pod-security.kubernetes.io/enforce=privileged",
    ] {
        assert!(notes.contains(line), "{line} in:\n{notes}");
    }
    let secret = || read(&plane, &["get", "secret", "volmedic-hub-tls", "-n", NAMESPACE])["data"].clone();
    let before = secret();
    for part in ["ca.crt", "tls.crt", "tls.key"] {
        assert!(before[part].as_str().is_some_and(|text| !text.is_empty()), "{part}");
    }

    let more = json!({"push": {"enabled": true}, "heal": {"enabled": true}, "hub": {"replicas": 3}});
    chart().install(plane.kubeconfig(), NAMESPACE, &more).unwrap();
    let hub = read(&plane, &["get", "deployment", "volmedic-hub", "-n", NAMESPACE]);
    assert_eq!(hub["spec"]["replicas"], 3);
    assert!(secret() == before, "the certificate is another one than before");
    let left = read(&plane, &["get", "clusterrolebindings", "-l", "app.kubernetes.io/component=controller"]);
    assert_eq!(left["items"], json!([]), "a controller that is no longer wanted has no rights");

    chart().uninstall(plane.kubeconfig(), NAMESPACE).unwrap();
    let kinds = "clusterroles,clusterrolebindings,roles,rolebindings,serviceaccounts,deployments,daemonsets,services,\
                 secrets,networkpolicies,validatingadmissionpolicies,customresourcedefinitions";
    let ours = ["get", kinds, "--all-namespaces", "-l", "app.kubernetes.io/name=volmedic"];
    let left = read(&plane, &ours);
    let names =
        left["items"].as_array().unwrap().iter().map(|object| object["metadata"]["name"].as_str().unwrap());
    assert_eq!(names.collect::<Vec<_>>(), ["nodevolumehealths.volmedic.dev", "volumehealths.volmedic.dev"]);
}

fn read(plane: &ControlPlane, arguments: &[&str]) -> Value {
    let kubectl = plane.kubectl();
    let mut command = Command::new("timeout");
    command
        .arg("60")
        .arg(kubectl.get_program())
        .args(kubectl.get_args())
        .args(arguments)
        .args(["-o", "json"]);
    let output = command.stdin(Stdio::null()).output().unwrap();
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}
