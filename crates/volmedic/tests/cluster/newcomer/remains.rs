//! What stays in a cluster and on its node, in the words of docs/install.md.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use serde_json::Value;
use volmedic_testkit::NODE;

use super::NAMESPACE;
use crate::stage::{DRIVER, Stage};

/// Kinds that come and go with nothing of ours, or that are lists of others.
const PASSING: [&str; 4] = ["events", "events.events.k8s.io", "componentstatuses", "pods"];

/// Every object, by kind, namespace and name, with its labels and annotations.
pub(crate) struct Objects(BTreeMap<(String, String, String), BTreeSet<String>>);

impl Objects {
    pub(crate) fn of(stage: &Stage) -> Self {
        let kinds = stage.kubectl(&["api-resources", "--verbs=list", "-o", "name"]);
        let kinds: Vec<&str> = kinds.lines().filter(|kind| !PASSING.contains(kind)).collect();
        let text = stage.kubectl(&["get", &kinds.join(","), "--all-namespaces", "-o", "json"]);
        let list: Value = serde_json::from_str(&text).unwrap();
        let word = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let objects = list["items"].as_array().unwrap().iter().map(|object| {
            let metadata = &object["metadata"];
            let keys = |field: &str| {
                let entries = metadata[field].as_object().into_iter().flatten();
                entries.map(|(key, _)| key.clone()).collect::<Vec<_>>()
            };
            let mut marks: BTreeSet<String> =
                [keys("labels"), keys("annotations")].concat().into_iter().collect();
            if object["kind"] == "PersistentVolumeClaim" && object["status"]["healthStatus"].is_object() {
                marks.insert("status.healthStatus".to_owned());
            }
            ((word(&object["kind"]), word(&metadata["namespace"]), word(&metadata["name"])), marks)
        });
        Self(objects.collect())
    }

    /// What is there now and was not before Volmedic was installed; what a sidecar left is not compared, but named.
    pub(crate) fn since(&self, before: &Self) -> BTreeSet<String> {
        let mut found = BTreeSet::new();
        for (key, marks) in &self.0 {
            let (kind, namespace, name) = key;
            // The controller runs from before the installation on, and writes more into its Lease with its first pass.
            let of_driver = DRIVER.replace('.', "-");
            if kind == "Lease" && name.ends_with(&of_driver) && name.starts_with("external-health-monitor") {
                found.insert(name.replace(&of_driver, "<driver>"));
                continue;
            }
            match before.0.get(key) {
                None => found.extend(in_words(kind, namespace, name)),
                Some(old) => found.extend(marks.difference(old).cloned()),
            }
        }
        if Path::new("/var/lib/volmedic").exists() {
            found.insert("/var/lib/volmedic".to_owned());
        }
        found
    }
}

/// How docs/install.md names an object; one that it has no name for is named in full.
fn in_words(kind: &str, namespace: &str, name: &str) -> Option<String> {
    match kind {
        // "With all that is stored." The API server adds the last by itself for every definition.
        "VolumeHealth" | "NodeVolumeHealth" => None,
        "APIService" if name.ends_with(".volmedic.dev") => None,
        // Kubernetes puts them into every namespace.
        "ServiceAccount" if namespace == NAMESPACE && name == "default" => None,
        "ConfigMap" if namespace == NAMESPACE && name == "kube-root-ca.crt" => None,
        // The kubelet's own, which it may create after its first pods.
        "Lease" if namespace == "kube-node-lease" => None,
        "CustomResourceDefinition" | "Namespace" => Some(name.to_owned()),
        "Lease" if namespace == NAMESPACE => Some(name.replace(NODE, "<node>")),
        _ => Some(format!("{kind} {namespace}/{name}")),
    }
}
