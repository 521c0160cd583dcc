//! Our own resources: what is known of a claim's volume, and what an agent says about its node.
//!
//! Every list and every text has a bound in the schema, so that the API server itself refuses what would grow without
//! measure. `deploy/chart/files/crds` is made from these types.

mod condition;
mod node_volume_health;
mod schema;
mod volume_health;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::CustomResourceExt;

pub use condition::{ConditionStatus, ConditionType, HealthCondition};
pub use node_volume_health::{
    Agent, Check, ClaimName, Counts, Coverage, CoverageGroup, NodeReport, NodeVantage, NodeVolume,
    NodeVolumeHealth, NodeVolumeHealthSpec, PodName,
};
pub use volume_health::{
    Condition, ControllerReport, Headline, Heal, HealOutcome, HealthWord, LeaseName, Observed, PastHeadline,
    ReportedCondition, StatusWord, VantageHealth, VantageKind, VolumeHealth, VolumeHealthSpec,
    VolumeHealthStatus,
};

/// The API group of all of them.
pub const GROUP: &str = "volmedic.dev";
pub const VERSION: &str = "v1alpha1";

/// Bounds that the schemas set; who writes keeps to them.
pub mod limit {
    /// Conditions of one volume from one vantage: what a driver may tell, and that nobody looks any more.
    pub const CONDITIONS: usize = 17;
    /// Vantages that one claim shows; the worst.
    pub const VANTAGES: usize = 64;
    /// Past headlines, newest first.
    pub const HISTORY: usize = 20;
    /// Conditions that the hub reported as events.
    pub const REPORTED: usize = 32;
    /// Past heals, newest first.
    pub const HEALS: usize = 64;
    /// Volumes in one node's report; the worst.
    pub const NODE_VOLUMES: usize = 500;
    /// Groups of volumes in the statement of what a node's agent probes.
    pub const COVERAGE_GROUPS: usize = 64;
    /// Volumes in one such group. All groups together are also bounded in bytes.
    pub const COVERED: usize = 1500;
    /// Pods named for one volume.
    pub const PODS: usize = 16;
    pub const EVIDENCE: usize = 8;
    pub const CHECKS: usize = 64;
    /// Names of objects, drivers and nodes.
    pub const NAME: usize = 253;
    /// The CSI specification allows 128 bytes; some drivers need more.
    pub const HANDLE: usize = 2048;
    pub const MESSAGE: usize = 1024;
    pub const REASON: usize = 256;
}

/// A point in time as the API server stores it: whole seconds.
pub fn time(at: jiff::Timestamp) -> Time {
    Time(jiff::Timestamp::from_second(at.as_second()).unwrap_or(at))
}

/// Our definitions, each with the name of its file.
pub fn definitions() -> [(&'static str, CustomResourceDefinition); 2] {
    [("nodevolumehealths.yaml", NodeVolumeHealth::crd()), ("volumehealths.yaml", VolumeHealth::crd())]
}

#[cfg(test)]
mod tests;
