use kube::core::ClusterResourceScope;
use serde::Deserialize;

use crate::Shape;

#[derive(Clone, Debug, Default, Deserialize)]
pub struct PersistentVolume {
    #[serde(default)]
    pub spec: VolumeSpec,
    #[serde(default)]
    pub status: VolumeStatus,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct VolumeSpec {
    /// None for volumes that no CSI driver serves.
    pub csi: Option<CsiSource>,
    pub claim_ref: Option<ClaimRef>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CsiSource {
    pub driver: String,
    pub volume_handle: String,
}

/// The claim that a volume is bound to, or promised to while it has no uid.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct ClaimRef {
    pub namespace: String,
    pub name: String,
    pub uid: String,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct VolumeStatus {
    /// Pending, Available, Bound, Released or Failed.
    pub phase: String,
}

impl Shape for PersistentVolume {
    type Scope = ClusterResourceScope;
    const KIND: &'static str = "PersistentVolume";
    const PLURAL: &'static str = "persistentvolumes";
}
