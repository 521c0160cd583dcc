//! What the shipped manifest grants, and accounts that have it, or all of it but one thing.

use std::path::PathBuf;
use std::process::Output;
use std::sync::OnceLock;

use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding, PolicyRule, Role, RoleBinding};
use kube::api::{ApiResource, DynamicObject, PostParams};
use kube::{Api, Client};
use serde_json::{Value, json};
use volmedic_testkit::ControlPlane;

/// The rules of a manifest of the chart.
#[derive(Debug, Clone)]
pub(crate) struct Rights {
    pub(crate) cluster: Vec<PolicyRule>,
    pub(crate) namespace: Vec<PolicyRule>,
}

/// One verb on one resource.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Right {
    pub(crate) resource: String,
    pub(crate) verb: String,
}

impl Rights {
    /// As shipped. `kubectl` reads it, as it would for a user.
    pub(crate) fn shipped(plane: &ControlPlane) -> Self {
        static SHIPPED: OnceLock<Rights> = OnceLock::new();
        SHIPPED.get_or_init(|| Self::read(plane, "rbac-controller.yaml")).clone()
    }

    /// Those of a manifest in deploy/ that has one role.
    pub(crate) fn read(plane: &ControlPlane, manifest: &str) -> Self {
        // Not every role needs anything in a namespace only.
        let rules = |kind: &str| rules(plane, manifest, |object| object["kind"] == kind);
        let cluster = rules("ClusterRole").expect("the manifest has a ClusterRole");
        Self { cluster, namespace: rules("Role").unwrap_or_default() }
    }

    /// Those of one role among several in a manifest of the chart.
    #[allow(dead_code, reason = "only some of the tests that share this ask for it")]
    pub(crate) fn named(plane: &ControlPlane, manifest: &str, name: &str) -> Self {
        let rules = |kind: &str| {
            let found = rules(plane, manifest, |it| it["kind"] == kind && it["metadata"]["name"] == name);
            found.unwrap_or_default()
        };
        let rights = Self { cluster: rules("ClusterRole"), namespace: rules("Role") };
        assert!(!rights.all().is_empty(), "{manifest} has no role {name}");
        rights
    }

    /// Both together.
    #[allow(dead_code, reason = "only some of the tests that share this ask for it")]
    pub(crate) fn and(mut self, more: Self) -> Self {
        self.cluster.extend(more.cluster);
        self.namespace.extend(more.namespace);
        self
    }

    /// Every single right, in order.
    pub(crate) fn all(&self) -> Vec<Right> {
        let mut all = Vec::new();
        for rule in self.cluster.iter().chain(&self.namespace) {
            for resource in rule.resources.iter().flatten() {
                all.extend(
                    rule.verbs.iter().map(|verb| Right { resource: resource.clone(), verb: verb.clone() }),
                );
            }
        }
        all.sort();
        all
    }

    /// All but one.
    pub(crate) fn without(&self, right: &Right) -> Self {
        let strip = |rules: &[PolicyRule]| rules.iter().flat_map(|rule| strip(rule, right)).collect();
        Self { cluster: strip(&self.cluster), namespace: strip(&self.namespace) }
    }

    /// Makes a service account that has these rights, and answers a kubeconfig for it.
    pub(crate) async fn grant(
        &self,
        plane: &ControlPlane,
        client: &Client,
        namespace: &str,
        account: &str,
    ) -> Value {
        let token = plane.token(namespace, account, None).await.expect("a token");
        let name = format!("{namespace}-{account}");
        let subject = json!([{"kind": "ServiceAccount", "namespace": namespace, "name": account}]);
        let reference =
            |kind: &str| json!({"apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": name});
        let object = |more: Value| {
            let mut object = json!({"metadata": {"name": name}});
            let (Value::Object(object), Value::Object(more)) = (&mut object, more) else { unreachable!() };
            object.extend(more);
            Value::Object(object.clone())
        };
        let bound = |kind| object(json!({"roleRef": reference(kind), "subjects": subject}));
        for (kind, object) in [
            (ApiResource::erase::<ClusterRole>(&()), object(json!({"rules": self.cluster}))),
            (ApiResource::erase::<ClusterRoleBinding>(&()), bound("ClusterRole")),
        ] {
            create(Api::all_with(client.clone(), &kind), object).await;
        }
        for (kind, object) in [
            (ApiResource::erase::<Role>(&()), object(json!({"rules": self.namespace}))),
            (ApiResource::erase::<RoleBinding>(&()), bound("Role")),
        ] {
            create(Api::namespaced_with(client.clone(), namespace, &kind), object).await;
        }
        let admin = std::fs::read(plane.kubeconfig()).expect("the admin's kubeconfig");
        let mut config: Value = serde_json::from_slice(&admin).expect("JSON");
        config["users"][0]["user"] = json!({"token": token});
        config
    }
}

/// The rules of the first object like this in a manifest of the chart.
fn rules(plane: &ControlPlane, manifest: &str, wanted: impl Fn(&Value) -> bool) -> Option<Vec<PolicyRule>> {
    let manifest: PathBuf =
        [env!("CARGO_MANIFEST_DIR"), "../../deploy/chart/files", manifest].iter().collect();
    let kubectl =
        plane.kubectl().args(["create", "--dry-run=client", "-o", "json", "-f"]).arg(manifest).output();
    let Output { status, stdout, stderr } = kubectl.expect("kubectl runs");
    assert!(status.success(), "kubectl refuses the manifest: {}", String::from_utf8_lossy(&stderr));
    let documents = serde_json::Deserializer::from_slice(&stdout).into_iter::<Value>();
    let documents: Vec<Value> = documents.collect::<Result<_, _>>().expect("JSON from kubectl");
    let flat = |document: Value| match document["items"].as_array() {
        Some(items) => items.clone(),
        None => vec![document],
    };
    let mut objects = documents.into_iter().flat_map(flat);
    let found = objects.find(wanted);
    found.map(|found| serde_json::from_value(found["rules"].clone()).expect("rules"))
}

/// The rule without one verb on one resource: its other verbs on it, and all its verbs on the others.
fn strip(rule: &PolicyRule, right: &Right) -> Vec<PolicyRule> {
    let each = rule.resources.iter().flatten().map(|resource| PolicyRule {
        resources: Some(vec![resource.clone()]),
        verbs: rule
            .verbs
            .iter()
            .filter(|verb| (resource, *verb) != (&right.resource, &right.verb))
            .cloned()
            .collect(),
        ..rule.clone()
    });
    each.filter(|rule| !rule.verbs.is_empty()).collect()
}

async fn create(api: Api<DynamicObject>, object: Value) {
    let object: DynamicObject = serde_json::from_value(object).expect("an object");
    api.create(&PostParams::default(), &object).await.expect("it is created");
}
