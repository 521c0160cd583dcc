use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::volume_health::is_zero;
use super::{HealthCondition, limit, schema};

/// What the agent on one node says about the volumes that are used there. It has the node's name, and only that
/// node's agent may write it. It changes only when something it says changes; that the agent lives is shown by its Lease.
#[derive(Debug, Clone, PartialEq, Eq, CustomResource, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "volmedic.dev",
    version = "v1alpha1",
    kind = "NodeVolumeHealth",
    plural = "nodevolumehealths",
    singular = "nodevolumehealth",
    shortname = "nvh",
    category = "storage",
    derive = "PartialEq",
    doc = "What the agent on one node says about the volumes that are used there.",
    printcolumn(name = "Volumes", type_ = "integer", json_path = ".spec.report.counts.volumes"),
    printcolumn(name = "Degraded", type_ = "integer", json_path = ".spec.report.counts.degraded"),
    printcolumn(name = "Inaccessible", type_ = "integer", json_path = ".spec.report.counts.inaccessible"),
    printcolumn(name = "Data loss", type_ = "integer", json_path = ".spec.report.counts.dataLoss"),
    printcolumn(name = "Unknown", type_ = "integer", json_path = ".spec.report.counts.unknown"),
    printcolumn(name = "Agent", type_ = "string", json_path = ".spec.report.agent.version", priority = 1),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp"),
    validation = Rule::new("self.metadata.name == self.spec.nodeName").message("a NodeVolumeHealth has the name of its node")
)]
#[serde(rename_all = "camelCase")]
pub struct NodeVolumeHealthSpec {
    #[schemars(length(min = 1, max = limit::NAME))]
    pub node_name: String,
    #[serde(default)]
    pub report: NodeReport,
}

/// What the agent says.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NodeReport {
    #[serde(default)]
    pub agent: Agent,
    #[serde(default)]
    pub counts: Counts,
    /// The volumes with which something is wrong, or whose health is unknown; worst first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = limit::NODE_VOLUMES), extend("x-kubernetes-list-type" = "atomic"))]
    pub volumes: Vec<NodeVolume>,
    /// Entries that found no room; none of them is worse than those shown.
    #[serde(default, skip_serializing_if = "is_zero")]
    #[schemars(schema_with = "schema::count")]
    pub omitted: u32,
    /// Which checks run on this node, and which do not and why.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = limit::CHECKS), extend("x-kubernetes-list-type" = "atomic"))]
    pub checks: Vec<Check>,
    /// Which volumes of claims are probed on this node, and which are not and why. Absent if the agent does not say, as
    /// agents before version 0.2; then nothing on this node counts as probed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub coverage: Option<Coverage>,
}

/// The evidence for health: what was probed. It holds while the agent's Lease is renewed, and changes only when a volume
/// begins or ceases to be probed.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Coverage {
    /// Maximum age in seconds of the last successful probe of a volume that counts as probed.
    #[serde(default)]
    #[schemars(schema_with = "schema::count")]
    pub within_seconds: u32,
    /// Volumes with the same vantages or the same reason are one group. A volume is in at most one group.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = limit::COVERAGE_GROUPS), extend("x-kubernetes-list-type" = "atomic"))]
    pub groups: Vec<CoverageGroup>,
    /// Volumes that found no room here. They count as not probed.
    #[serde(default, skip_serializing_if = "is_zero")]
    #[schemars(schema_with = "schema::count")]
    pub omitted: u32,
}

/// Volumes of which the agent says the same.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CoverageGroup {
    /// The vantages from which each of them is probed. Empty if none is probed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 2), extend("x-kubernetes-list-type" = "atomic"))]
    pub probed_from: Vec<NodeVantage>,
    /// Why they are not probed, as one CamelCase word.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 64))]
    pub reason: String,
    /// The same as a sentence.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 512))]
    pub message: String,
    /// Names of PersistentVolumes, in order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = limit::COVERED), inner(length(max = limit::NAME)), extend("x-kubernetes-list-type" = "atomic"))]
    pub persistent_volumes: Vec<String>,
}

/// Who writes this.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Agent {
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 64))]
    pub version: String,
}

/// How many volumes are in which state. Each counts once.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct Counts {
    #[schemars(schema_with = "schema::count")]
    pub volumes: u32,
    #[schemars(schema_with = "schema::count")]
    pub healthy: u32,
    #[schemars(schema_with = "schema::count")]
    pub degraded: u32,
    #[schemars(schema_with = "schema::count")]
    pub inaccessible: u32,
    #[schemars(schema_with = "schema::count")]
    pub data_loss: u32,
    #[schemars(schema_with = "schema::count")]
    pub unrecognized: u32,
    #[schemars(schema_with = "schema::count")]
    pub unknown: u32,
}

/// From where on the node: through the driver's node plugin, or by our own checks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
pub enum NodeVantage {
    Node,
    Host,
}

/// A volume with which something is wrong, seen from one vantage.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NodeVolume {
    pub vantage: NodeVantage,
    #[schemars(length(max = limit::NAME))]
    pub driver: String,
    #[schemars(length(max = limit::HANDLE))]
    pub volume_handle: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = limit::NAME))]
    pub persistent_volume_name: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub claim: Option<ClaimName>,
    /// Who uses it on this node.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = limit::PODS), extend("x-kubernetes-list-type" = "atomic"))]
    pub pods: Vec<PodName>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = limit::CONDITIONS), extend("x-kubernetes-list-type" = "atomic"))]
    pub health_conditions: Vec<HealthCondition>,
    /// What else was seen that speaks for it, such as lines of the kernel's log.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = limit::EVIDENCE), inner(length(max = 512)), extend("x-kubernetes-list-type" = "atomic"))]
    pub evidence: Vec<String>,
}

/// A claim.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ClaimName {
    #[schemars(length(max = 63))]
    pub namespace: String,
    #[schemars(length(max = limit::NAME))]
    pub name: String,
}

/// A pod, this very one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PodName {
    #[schemars(length(max = 63))]
    pub namespace: String,
    #[schemars(length(max = limit::NAME))]
    pub name: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 64))]
    pub uid: String,
}

/// A check that an agent could run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Check {
    #[schemars(length(max = 64))]
    pub name: String,
    pub running: bool,
    /// Why it does not run.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 512))]
    pub why: String,
}
