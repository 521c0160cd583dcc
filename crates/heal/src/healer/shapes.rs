//! The few fields that the healer uses of each kind of object. They are read through `Arrived`, so that one object that
//! cannot be read, such as one with a time that no date type holds, hides no other.

use std::collections::BTreeMap;

use kube::core::{ClusterResourceScope, NamespaceResourceScope};
use serde::Deserialize;
use volmedic_api::Shape;
use volmedic_api::slim::PodSpec;

use crate::place::Place;

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Node {
    pub(super) spec: NodeSpec,
    pub(super) status: NodeStatus,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct NodeSpec {
    pub(super) unschedulable: Option<bool>,
    pub(super) taints: Option<Vec<Taint>>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Taint {
    pub(super) key: String,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct NodeStatus {
    pub(super) conditions: Option<Vec<NodeCondition>>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct NodeCondition {
    #[serde(rename = "type")]
    pub(super) kind: String,
    pub(super) status: String,
}

impl Shape for Node {
    type Scope = ClusterResourceScope;
    const KIND: &'static str = "Node";
    const PLURAL: &'static str = "nodes";
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Claim {
    pub(super) metadata: Notes,
    pub(super) spec: ClaimSpec,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Notes {
    pub(super) annotations: Option<BTreeMap<String, String>>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct ClaimSpec {
    pub(super) volume_name: Option<String>,
}

impl Claim {
    pub(super) fn annotation(&self, key: &str) -> Option<&str> {
        self.metadata.annotations.as_ref()?.get(key).map(String::as_str)
    }
}

impl Shape for Claim {
    type Scope = NamespaceResourceScope;
    const KIND: &'static str = "PersistentVolumeClaim";
    const PLURAL: &'static str = "persistentvolumeclaims";
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Volume {
    pub(super) spec: VolumeSpec,
    pub(super) status: VolumeStatus,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct VolumeSpec {
    pub(super) csi: Option<CsiSource>,
    pub(super) local: Option<LocalSource>,
    pub(super) claim_ref: Option<ClaimRef>,
    pub(super) storage_class_name: Option<String>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct CsiSource {
    pub(super) driver: String,
    pub(super) volume_handle: String,
    pub(super) volume_attributes: Option<BTreeMap<String, String>>,
}

/// Only that the volume is a local one.
#[derive(Clone, Debug, Default, Deserialize)]
pub(super) struct LocalSource {}

impl VolumeSpec {
    /// By what the hub names the volume of this PersistentVolume; `None` for what is neither of a CSI driver nor local.
    pub(super) fn driver_and_handle<'a>(&'a self, pv: &'a str) -> Option<(&'a str, &'a str)> {
        match (&self.csi, &self.local) {
            (Some(csi), _) => Some((&csi.driver, &csi.volume_handle)),
            (None, Some(LocalSource {})) => Some((Place::LOCAL_VOLUME, pv)),
            (None, None) => None,
        }
    }
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct ClaimRef {
    pub(super) namespace: String,
    pub(super) name: String,
    pub(super) uid: String,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct VolumeStatus {
    pub(super) phase: String,
}

impl Shape for Volume {
    type Scope = ClusterResourceScope;
    const KIND: &'static str = "PersistentVolume";
    const PLURAL: &'static str = "persistentvolumes";
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Attachment {
    pub(super) spec: AttachmentSpec,
    pub(super) status: AttachmentStatus,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct AttachmentSpec {
    pub(super) attacher: String,
    pub(super) node_name: String,
    pub(super) source: AttachmentSource,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct AttachmentSource {
    pub(super) persistent_volume_name: Option<String>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct AttachmentStatus {
    pub(super) attached: bool,
}

impl Shape for Attachment {
    type Scope = ClusterResourceScope;
    const KIND: &'static str = "VolumeAttachment";
    const PLURAL: &'static str = "volumeattachments";
    const GROUP: &'static str = "storage.k8s.io";
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Driver {
    pub(super) spec: DriverSpec,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct DriverSpec {
    pub(super) attach_required: Option<bool>,
}

impl Shape for Driver {
    type Scope = ClusterResourceScope;
    const KIND: &'static str = "CSIDriver";
    const PLURAL: &'static str = "csidrivers";
    const GROUP: &'static str = "storage.k8s.io";
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct CsiNode {
    pub(super) spec: CsiNodeSpec,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct CsiNodeSpec {
    pub(super) drivers: Option<Vec<RegisteredDriver>>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct RegisteredDriver {
    pub(super) name: String,
}

impl Shape for CsiNode {
    type Scope = ClusterResourceScope;
    const KIND: &'static str = "CSINode";
    const PLURAL: &'static str = "csinodes";
    const GROUP: &'static str = "storage.k8s.io";
}

/// A pod that may have to be recreated, with what makes a new one.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct WorkloadPod {
    pub(super) metadata: WorkloadMeta,
    pub(super) spec: PodSpec,
    pub(super) status: WorkloadPodStatus,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct WorkloadMeta {
    pub(super) labels: Option<BTreeMap<String, String>>,
    pub(super) annotations: Option<BTreeMap<String, String>>,
    pub(super) owner_references: Option<Vec<OwnerReference>>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct OwnerReference {
    pub(super) api_version: String,
    pub(super) kind: String,
    pub(super) name: String,
    pub(super) uid: String,
    pub(super) controller: Option<bool>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct WorkloadPodStatus {
    pub(super) phase: String,
    pub(super) conditions: Option<Vec<NodeCondition>>,
}

impl Shape for WorkloadPod {
    type Scope = NamespaceResourceScope;
    const KIND: &'static str = "Pod";
    const PLURAL: &'static str = "pods";
}
