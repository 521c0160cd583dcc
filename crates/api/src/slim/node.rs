use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::core::ClusterResourceScope;
use serde::Deserialize;

use crate::Shape;

#[derive(Clone, Debug, Default, Deserialize)]
pub struct Node {
    #[serde(default)]
    pub spec: NodeSpec,
    #[serde(default)]
    pub status: NodeStatus,
}

#[derive(Clone, Debug, Default, Deserialize)]
pub struct NodeSpec {
    pub taints: Option<Vec<Taint>>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Taint {
    pub key: String,
    /// NoSchedule, PreferNoSchedule or NoExecute.
    pub effect: String,
}

#[derive(Clone, Debug, Default, Deserialize)]
pub struct NodeStatus {
    pub conditions: Option<Vec<NodeCondition>>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct NodeCondition {
    #[serde(rename = "type")]
    pub kind: String,
    /// True, False or Unknown.
    pub status: String,
    pub reason: String,
    pub last_transition_time: Option<Time>,
}

impl Shape for Node {
    type Scope = ClusterResourceScope;
    const KIND: &'static str = "Node";
    const PLURAL: &'static str = "nodes";
}
