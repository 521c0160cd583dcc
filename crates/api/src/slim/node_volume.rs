use kube::core::{ClusterResourceScope, NamespaceResourceScope};
use serde::Deserialize;

use crate::Shape;
use crate::slim::ClaimRef;

/// A PersistentVolume as the node that mounts it has to know it: whose it is, and how it is meant to be used.
#[derive(Clone, Debug, Default, Deserialize)]
pub struct NodePersistentVolume {
    #[serde(default)]
    pub spec: NodeVolumeSpec,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct NodeVolumeSpec {
    /// None for volumes that no CSI driver serves.
    pub csi: Option<NodeCsiSource>,
    pub nfs: Option<OtherSource>,
    pub iscsi: Option<OtherSource>,
    pub fc: Option<OtherSource>,
    pub rbd: Option<OtherSource>,
    pub cephfs: Option<OtherSource>,
    pub local: Option<OtherSource>,
    pub host_path: Option<HostPathSource>,
    pub claim_ref: Option<ClaimRef>,
    pub access_modes: Option<Vec<String>>,
    pub mount_options: Option<Vec<String>>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct NodeCsiSource {
    pub driver: String,
    pub volume_handle: String,
    pub fs_type: Option<String>,
    pub read_only: Option<bool>,
}

/// A directory of the node.
#[derive(Clone, Debug, Default, Deserialize)]
pub struct HostPathSource {
    #[serde(default)]
    pub path: String,
}

/// A claim as the node has to know it: its volume.
#[derive(Clone, Debug, Default, Deserialize)]
pub struct NodeClaim {
    #[serde(default)]
    pub spec: NodeClaimSpec,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct NodeClaimSpec {
    /// Empty or absent while it is not bound.
    pub volume_name: Option<String>,
}

impl Shape for NodeClaim {
    type Scope = NamespaceResourceScope;
    const KIND: &'static str = "PersistentVolumeClaim";
    const PLURAL: &'static str = "persistentvolumeclaims";
}

/// What all sources that the kubelet mounts by itself have in common.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct OtherSource {
    pub fs_type: Option<String>,
    pub read_only: Option<bool>,
}

impl Shape for NodePersistentVolume {
    type Scope = ClusterResourceScope;
    const KIND: &'static str = "PersistentVolume";
    const PLURAL: &'static str = "persistentvolumes";
}
