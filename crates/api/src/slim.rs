//! The few fields we use of each kind of object, named as in their JSON.
//!
//! Everything here lives only between the arrival of an object and its conversion to a compact record.

mod node;
mod node_pod;
mod node_volume;
mod persistent_volume;
mod pod;

pub use node::{Node, NodeCondition, NodeSpec, NodeStatus, Taint};
pub use node_pod::{
    Container, ContainerState, ContainerStatus, HealthCondition, MirrorAnnotations, NodeClaimSource,
    NodeInlineCsi, NodePod, NodePodMeta, NodePodSpec, NodePodStatus, NodePodVolume, PodVolumeHealth, Started,
    VolumeDevice, VolumeMount,
};
pub use node_volume::{
    HostPathSource, NodeClaim, NodeClaimSpec, NodeCsiSource, NodePersistentVolume, NodeVolumeSpec,
    OtherSource,
};
pub use persistent_volume::{ClaimRef, CsiSource, PersistentVolume, VolumeSpec, VolumeStatus};
pub use pod::{ClaimSource, InlineCsi, Pod, PodSpec, PodStatus, PodVolume};
