use kube::core::ClusterResourceScope;
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
