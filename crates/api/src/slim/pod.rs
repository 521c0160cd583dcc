use kube::core::NamespaceResourceScope;
use serde::Deserialize;
use serde::de::IgnoredAny;

use crate::Shape;

#[derive(Clone, Debug, Default, Deserialize)]
pub struct Pod {
    #[serde(default)]
    pub spec: PodSpec,
    #[serde(default)]
    pub status: PodStatus,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PodSpec {
    /// None until it is scheduled; never changes afterwards.
    pub node_name: Option<String>,
    pub volumes: Option<Vec<PodVolume>>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PodVolume {
    pub name: String,
    pub persistent_volume_claim: Option<ClaimSource>,
    /// A generic ephemeral volume. Its claim is named after pod and volume.
    pub ephemeral: Option<IgnoredAny>,
    pub csi: Option<InlineCsi>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ClaimSource {
    pub claim_name: String,
}

#[derive(Clone, Debug, Default, Deserialize)]
pub struct InlineCsi {
    pub driver: String,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct PodStatus {
    /// Pending, Running, Succeeded, Failed or Unknown.
    pub phase: String,
}

impl Shape for Pod {
    type Scope = NamespaceResourceScope;
    const KIND: &'static str = "Pod";
    const PLURAL: &'static str = "pods";
}
