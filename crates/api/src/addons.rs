//! `CSIAddonsNode` of csi-addons: where a process stands that can ask a driver on a node.
//!
//! A caller that may create these objects writes what it likes into them, so nothing here is to be believed before it was
//! checked against the pod that it names.

use std::borrow::Cow;
use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference, Time};
use kube::Resource;
use kube::core::NamespaceResourceScope;
use serde::{Deserialize, Deserializer, Serialize};

use crate::Shape;

/// The pod that wrote the object, by its uid.
pub const CREATED_BY: &str = "sidecar.csiaddons.openshift.io/createdByPodUID";
/// Written again whenever the writer or its driver has restarted, so that watchers notice.
pub const UPDATED_AT: &str = "sidecar.csiaddons.openshift.io/lastUpdatedAt";
/// Ours: the endpoint serves our relay, in this version of it.
pub const RELAY: &str = "volmedic.dev/relay";
pub const RELAY_VERSION: &str = "v1";
/// Ours: the SHA-256 of the certificate that the relay shows, and of the one that it will show next, as
/// `sha256:<hex>,sha256:<hex>`.
pub const RELAY_CERTIFICATES: &str = "volmedic.dev/relay-certificates";

/// The fields we use. Fields that are missing are empty, and unknown ones are passed over.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct CsiAddonsNode {
    #[serde(default)]
    pub api_version: String,
    #[serde(default)]
    pub kind: String,
    /// Read without `managedFields`: an account that may write the object can put a time in there that the API server
    /// accepts and no date type holds.
    #[serde(default, deserialize_with = "without_managed_fields")]
    pub metadata: ObjectMeta,
    #[serde(default)]
    pub spec: CsiAddonsNodeSpec,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Meta {
    name: Option<String>,
    namespace: Option<String>,
    uid: Option<String>,
    resource_version: Option<String>,
    generation: Option<i64>,
    creation_timestamp: Option<Time>,
    deletion_timestamp: Option<Time>,
    labels: Option<BTreeMap<String, String>>,
    annotations: Option<BTreeMap<String, String>>,
    finalizers: Option<Vec<String>>,
    owner_references: Option<Vec<OwnerReference>>,
}

fn without_managed_fields<'de, D: Deserializer<'de>>(deserializer: D) -> Result<ObjectMeta, D::Error> {
    let Meta {
        name,
        namespace,
        uid,
        resource_version,
        generation,
        creation_timestamp,
        deletion_timestamp,
        labels,
        annotations,
        finalizers,
        owner_references,
    } = Meta::deserialize(deserializer)?;
    Ok(ObjectMeta {
        name,
        namespace,
        uid,
        resource_version,
        generation,
        creation_timestamp,
        deletion_timestamp,
        labels,
        annotations,
        finalizers,
        owner_references,
        ..ObjectMeta::default()
    })
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(default)]
pub struct CsiAddonsNodeSpec {
    pub driver: CsiAddonsNodeDriver,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(default, rename_all = "camelCase")]
pub struct CsiAddonsNodeDriver {
    pub name: String,
    /// `pod://<pod>.<namespace>:<port>`
    pub endpoint: String,
    /// What the driver calls the node.
    #[serde(rename = "nodeID")]
    pub node_id: String,
}

impl CsiAddonsNode {
    pub const GROUP: &'static str = "csiaddons.openshift.io";
    pub const VERSION: &'static str = "v1alpha1";
    pub const KIND: &'static str = "CSIAddonsNode";
    pub const PLURAL: &'static str = "csiaddonsnodes";

    pub fn new(
        name: &str,
        namespace: &str,
        owner: OwnerReference,
        annotations: BTreeMap<String, String>,
        driver: CsiAddonsNodeDriver,
    ) -> Self {
        Self {
            api_version: format!("{}/{}", Self::GROUP, Self::VERSION),
            kind: Self::KIND.to_owned(),
            metadata: ObjectMeta {
                name: Some(name.to_owned()),
                namespace: Some(namespace.to_owned()),
                owner_references: Some(vec![owner]),
                annotations: Some(annotations),
                ..ObjectMeta::default()
            },
            spec: CsiAddonsNodeSpec { driver },
        }
    }

    /// Empty if it has none.
    pub fn annotation(&self, name: &str) -> &str {
        self.metadata
            .annotations
            .as_ref()
            .and_then(|all| all.get(name))
            .map(String::as_str)
            .unwrap_or_default()
    }

    pub fn owners(&self) -> &[OwnerReference] {
        self.metadata.owner_references.as_deref().unwrap_or_default()
    }

    /// Somebody asked for its deletion; it is still there.
    pub fn is_going(&self) -> bool {
        self.metadata.deletion_timestamp.is_some()
    }
}

impl Shape for CsiAddonsNode {
    type Scope = NamespaceResourceScope;
    const KIND: &'static str = Self::KIND;
    const PLURAL: &'static str = Self::PLURAL;
    const GROUP: &'static str = Self::GROUP;
    const VERSION: &'static str = Self::VERSION;
}

impl Resource for CsiAddonsNode {
    type DynamicType = ();
    type Scope = NamespaceResourceScope;

    fn kind((): &()) -> Cow<'_, str> {
        Self::KIND.into()
    }

    fn group((): &()) -> Cow<'_, str> {
        Self::GROUP.into()
    }

    fn version((): &()) -> Cow<'_, str> {
        Self::VERSION.into()
    }

    fn plural((): &()) -> Cow<'_, str> {
        Self::PLURAL.into()
    }

    fn meta(&self) -> &ObjectMeta {
        &self.metadata
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        &mut self.metadata
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_sidecar_of_csi_addons_writes_is_read() {
        let text = r#"{"apiVersion":"csiaddons.openshift.io/v1alpha1","kind":"CSIAddonsNode","metadata":{"name":"n",
            "namespace":"stor","annotations":{"sidecar.csiaddons.openshift.io/createdByPodUID":"u-1"},
            "ownerReferences":[{"apiVersion":"apps/v1","kind":"DaemonSet","name":"blk-node","uid":"u-2"}]},
            "spec":{"driver":{"name":"blk.example.net","endpoint":"pod://blk-x.stor:9070","nodeID":"worker-7"}},
            "status":{"state":"Connected","capabilities":["service.NODE_SERVICE"]}}"#;
        let node: CsiAddonsNode = serde_json::from_str(text).unwrap();
        assert_eq!(node.spec.driver.node_id, "worker-7");
        assert_eq!((node.annotation(CREATED_BY), node.annotation(RELAY)), ("u-1", ""));
        assert_eq!(node.owners()[0].kind, "DaemonSet");
        let written = serde_json::to_value(&node).unwrap();
        assert_eq!(written["spec"]["driver"]["nodeID"], "worker-7");
        assert!(serde_json::from_str::<CsiAddonsNode>("{}").unwrap().spec.driver.name.is_empty());
    }

    /// The API server accepts this time from every account that may write the object.
    #[test]
    fn a_managed_field_with_a_time_that_no_date_type_holds_spoils_nothing() {
        let text = r#"{"metadata":{"name":"n","labels":{"a":"b"},"finalizers":["f"],"managedFields":[{"manager":"m",
            "operation":"Update","time":"9999-12-31T23:59:59Z"}]},"spec":{"driver":{"name":"d"}}}"#;
        let node: CsiAddonsNode = serde_json::from_str(text).unwrap();
        assert_eq!((node.metadata.name.as_deref(), node.spec.driver.name.as_str()), (Some("n"), "d"));
        // What others wrote is kept when the object is written back.
        assert_eq!(node.metadata.labels.unwrap()["a"], "b");
        assert_eq!(node.metadata.finalizers.unwrap(), ["f"]);
    }

    #[test]
    fn it_is_served_where_csi_addons_serves_it() {
        assert_eq!(
            CsiAddonsNode::url_path(&(), Some("stor")),
            "/apis/csiaddons.openshift.io/v1alpha1/namespaces/stor/csiaddonsnodes"
        );
    }
}
