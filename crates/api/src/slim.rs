//! The few fields we use of each kind of object, named as in their JSON.
//!
//! Everything here lives only between the arrival of an object and its conversion to a compact record.

mod node;
mod persistent_volume;
mod pod;

pub use node::{Node, NodeCondition, NodeSpec, NodeStatus, Taint};
pub use persistent_volume::{ClaimRef, CsiSource, PersistentVolume, VolumeSpec, VolumeStatus};
pub use pod::{ClaimSource, InlineCsi, Pod, PodSpec, PodStatus, PodVolume};
