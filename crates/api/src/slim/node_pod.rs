use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::core::NamespaceResourceScope;
use serde::Deserialize;
use serde::de::IgnoredAny;

use crate::Shape;

/// A pod as the node that runs it has to know it. A caller that watches the pods of a whole cluster takes
/// [`Pod`](crate::slim::Pod), which costs far less.
#[derive(Clone, Debug, Default, Deserialize)]
pub struct NodePod {
    #[serde(default)]
    pub metadata: NodePodMeta,
    #[serde(default)]
    pub spec: NodePodSpec,
    #[serde(default)]
    pub status: NodePodStatus,
}

#[derive(Clone, Debug, Default, Deserialize)]
pub struct NodePodMeta {
    pub annotations: Option<MirrorAnnotations>,
}

/// A pod from a file on the node has an image of itself in the API, with another uid than the kubelet works with.
#[derive(Clone, Debug, Default, Deserialize)]
pub struct MirrorAnnotations {
    /// The kubelet's own uid of the pod. None for pods that came from the API server.
    #[serde(rename = "kubernetes.io/config.mirror")]
    pub mirror: Option<String>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct NodePodSpec {
    pub volumes: Option<Vec<NodePodVolume>>,
    pub init_containers: Option<Vec<Container>>,
    pub containers: Option<Vec<Container>>,
    pub ephemeral_containers: Option<Vec<Container>>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct NodePodVolume {
    pub name: String,
    pub persistent_volume_claim: Option<NodeClaimSource>,
    /// A generic ephemeral volume. Its claim is named after pod and volume.
    pub ephemeral: Option<IgnoredAny>,
    pub csi: Option<NodeInlineCsi>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct NodeClaimSource {
    pub claim_name: String,
    pub read_only: Option<bool>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct NodeInlineCsi {
    pub driver: String,
    pub fs_type: Option<String>,
    pub read_only: Option<bool>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Container {
    pub name: String,
    pub volume_mounts: Option<Vec<VolumeMount>>,
    pub volume_devices: Option<Vec<VolumeDevice>>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct VolumeMount {
    pub name: String,
    pub sub_path: Option<String>,
    pub sub_path_expr: Option<String>,
}

#[derive(Clone, Debug, Default, Deserialize)]
pub struct VolumeDevice {
    pub name: String,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct NodePodStatus {
    /// Pending, Running, Succeeded, Failed or Unknown.
    pub phase: String,
    pub init_container_statuses: Option<Vec<ContainerStatus>>,
    pub container_statuses: Option<Vec<ContainerStatus>>,
    pub ephemeral_container_statuses: Option<Vec<ContainerStatus>>,
    /// What the kubelet itself found out about the pod's volumes, where it is configured to.
    pub volume_health: Option<Vec<PodVolumeHealth>>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct ContainerStatus {
    pub name: String,
    pub state: ContainerState,
    pub last_state: ContainerState,
}

/// At most one of them is set; none means waiting.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct ContainerState {
    pub running: Option<Started>,
    pub terminated: Option<Started>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Started {
    /// None where the kubelet does not know.
    pub started_at: Option<Time>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct PodVolumeHealth {
    /// The volume's name in the pod.
    pub name: String,
    /// None or empty for a volume that has recovered.
    pub health_conditions: Option<Vec<HealthCondition>>,
    pub last_transition_time: Option<Time>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct HealthCondition {
    /// Degraded, Inaccessible or DataLoss.
    pub status: String,
    pub reason: String,
    pub message: String,
}

impl Shape for NodePod {
    type Scope = NamespaceResourceScope;
    const KIND: &'static str = "Pod";
    const PLURAL: &'static str = "pods";
}
