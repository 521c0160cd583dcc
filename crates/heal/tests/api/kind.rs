//! The kind CSIAddonsNode, for tests.

use std::time::{Duration, Instant};

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{ListParams, Patch, PatchParams, Request};
use kube::{Api, Client};
use serde_json::{Value, json};

const NAME: &str = "csiaddonsnodes.csiaddons.openshift.io";

/// The kind that csi-addons installs, of the same shape.
pub(crate) fn definition() -> Value {
    let text = |extra: Value| {
        let mut schema = json!({"type": "string"});
        schema.as_object_mut().expect("an object").extend(extra.as_object().expect("an object").clone());
        schema
    };
    let immutable =
        json!({"x-kubernetes-validations": [{"rule": "self == oldSelf", "message": "cannot change"}]});
    let driver = json!({
        "type": "object",
        "required": ["name", "endpoint", "nodeID"],
        "properties": {
            "name": text(immutable.clone()), "endpoint": text(json!({})), "nodeID": text(immutable),
        },
    });
    let status = json!({
        "type": "object",
        "properties": {
            "state": {"type": "string"}, "message": {"type": "string"}, "reason": {"type": "string"},
            "capabilities": {"type": "array", "items": {"type": "string"}},
        },
    });
    let schema = json!({"openAPIV3Schema": {"type": "object", "properties": {
        "spec": {"type": "object", "required": ["driver"], "properties": {"driver": driver}},
        "status": status,
    }}});
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": NAME,
                     "annotations": {"api-approved.kubernetes.io": "unapproved, for tests"}},
        "spec": {
            "group": "csiaddons.openshift.io", "scope": "Namespaced",
            "names": {"kind": "CSIAddonsNode", "listKind": "CSIAddonsNodeList", "plural": "csiaddonsnodes",
                      "singular": "csiaddonsnode"},
            "versions": [{"name": "v1alpha1", "served": true, "storage": true, "subresources": {"status": {}},
                          "schema": schema}],
        },
    })
}

/// Installs it, and waits until it is served.
#[allow(dead_code, reason = "some of the tests that share this have other ways")]
pub(crate) async fn define(client: &Client) {
    let definitions = Api::<CustomResourceDefinition>::all(client.clone());
    let params = PatchParams::apply("test").force();
    definitions.patch(NAME, &params, &Patch::Apply(definition())).await.expect("the definition is applied");
    // As text: tests put objects there that cannot be read.
    let list =
        || Request::new("/apis/csiaddons.openshift.io/v1alpha1/csiaddonsnodes").list(&ListParams::default());
    let deadline = Instant::now() + Duration::from_mins(3);
    while client.request_text(list().expect("a request")).await.is_err() {
        assert!(Instant::now() < deadline, "the kind is never served");
        tokio::time::sleep(Duration::from_millis(30)).await;
    }
}
