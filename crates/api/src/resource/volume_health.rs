use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{HealthCondition, limit, schema};

/// How the volume of a claim is, merged from all vantages. It has the claim's name and goes with it. Volmedic's
/// hub writes it; it exists while something is wrong with the volume, and for a while afterwards.
#[derive(Debug, Clone, PartialEq, Eq, CustomResource, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "volmedic.dev",
    version = "v1alpha1",
    kind = "VolumeHealth",
    plural = "volumehealths",
    singular = "volumehealth",
    shortname = "vh",
    category = "storage",
    namespaced,
    status = "VolumeHealthStatus",
    derive = "PartialEq",
    doc = "How the volume of a claim is, merged from all vantages.",
    printcolumn(name = "Health", type_ = "string", json_path = ".status.headline.health"),
    printcolumn(name = "Status", type_ = "string", json_path = ".status.headline.status"),
    printcolumn(name = "Reason", type_ = "string", json_path = ".status.headline.reason"),
    printcolumn(name = "Seen by", type_ = "string", json_path = ".status.headline.vantage"),
    printcolumn(name = "Since", type_ = "date", json_path = ".status.headline.since"),
    printcolumn(name = "Volume", type_ = "string", json_path = ".status.persistentVolumeName", priority = 1),
    printcolumn(name = "Message", type_ = "string", json_path = ".status.headline.message", priority = 1),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp"),
    validation = Rule::new("self.metadata.name == self.spec.persistentVolumeClaimName").message("a VolumeHealth has the name of its claim")
)]
#[serde(rename_all = "camelCase")]
pub struct VolumeHealthSpec {
    /// The claim, in the same namespace.
    #[schemars(
        length(min = 1, max = limit::NAME),
        extend("x-kubernetes-validations" = [{"rule": "self == oldSelf", "message": "the claim of a VolumeHealth never changes"}])
    )]
    pub persistent_volume_claim_name: String,
}

/// How a volume is, as a whole or from one place.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize, JsonSchema,
)]
pub enum HealthWord {
    Healthy,
    #[default]
    HealthUnknown,
    HealthWarning,
    HealthFailure,
}

impl HealthWord {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Healthy => "Healthy",
            Self::HealthUnknown => "HealthUnknown",
            Self::HealthWarning => "HealthWarning",
            Self::HealthFailure => "HealthFailure",
        }
    }
}

/// How bad a condition is, in CSI's words.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
pub enum StatusWord {
    Unrecognized,
    Degraded,
    Inaccessible,
    DataLoss,
}

/// The worst that anybody sees.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [{
    "rule": "!(self.health in ['HealthWarning', 'HealthFailure']) || has(self.status)",
    "message": "what is wrong has a status"
}]))]
pub struct Headline {
    /// Healthy, or how serious the worst of all conditions is.
    pub health: HealthWord,
    /// How bad it is, where something is wrong.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::optional_status")]
    pub status: Option<StatusWord>,
    /// Why, in one CamelCase word that machines can act on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::optional_reason")]
    pub reason: Option<String>,
    /// What exactly was seen.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = limit::MESSAGE))]
    pub message: String,
    /// Since when it is so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::optional_time")]
    pub since: Option<Time>,
    /// Who sees it: the name of one of the vantages.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 300))]
    pub vantage: Option<String>,
}

/// From where a volume is seen: by the driver's controller, by the driver on a node, by Volmedic's own checks on a
/// node, by the kubelet of a node, by the cluster (a node went down), or by somebody who reports to the hub.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
pub enum VantageKind {
    Controller,
    Node,
    Host,
    Kubelet,
    Cluster,
    Pushed,
}

/// How the volume looks from one place.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [{
    "rule": "(self.kind in ['Node', 'Host', 'Kubelet']) == has(self.node)",
    "message": "who looks from a node names it, and nobody else does"
}, {
    "rule": "(self.kind == 'Pushed') == has(self.source)",
    "message": "who reports to the hub is named, and nobody else is"
}]))]
pub struct VantageHealth {
    /// The kind and, where there are several, which one: `controller`, `host/worker-7`, `pushed/smart-scan`.
    #[schemars(length(min = 1, max = 300))]
    pub name: String,
    pub kind: VantageKind,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = limit::NAME))]
    pub node: Option<String>,
    /// Who pushed it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 63))]
    pub source: Option<String>,
    /// Absent where it need not be said. `false` where the API server does not check that a node speaks only for
    /// itself, so that any agent could have written this.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub verified: Option<bool>,
    pub health: HealthWord,
    /// Since when it looks like this.
    #[schemars(schema_with = "schema::time")]
    pub since: Time,
    /// When it is no longer believed unless it is reported again. Only what is pushed has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::optional_time")]
    pub expires: Option<Time>,
    /// What it was made of when it was last written. Only what comes from a node's report has it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed: Option<Observed>,
    /// What is wrong; empty where nothing is.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = limit::CONDITIONS), extend("x-kubernetes-list-type" = "atomic"))]
    pub health_conditions: Vec<HealthCondition>,
}

/// How new the nodes' reports were that the hub had seen when it wrote something. A hub that has seen less, as can be for
/// a moment when two run, leaves that alone.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Observed {
    /// The newest resourceVersion of them.
    #[schemars(schema_with = "schema::version")]
    pub version: u64,
    #[schemars(schema_with = "schema::time")]
    pub time: Time,
}

/// A headline that stood for a while.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PastHeadline {
    /// When it became so.
    #[schemars(schema_with = "schema::time")]
    pub time: Time,
    pub health: HealthWord,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::optional_status")]
    pub status: Option<StatusWord>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::optional_reason")]
    pub reason: Option<String>,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = limit::MESSAGE))]
    pub message: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 300))]
    pub vantage: Option<String>,
}

/// A condition that the hub reports as events on the claim, because no other component does: one event when it begins, and
/// one when it ends. It is stored together with the condition, so that another hub neither repeats nor omits an event.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ReportedCondition {
    /// The name of the vantage that sees it.
    #[schemars(length(min = 1, max = 300))]
    pub vantage: String,
    /// How bad it is, in CSI's words.
    #[schemars(length(min = 1, max = 64))]
    pub severity: String,
    #[schemars(schema_with = "schema::reason")]
    pub reason: String,
    /// Since when it is so.
    #[schemars(schema_with = "schema::time")]
    pub since: Time,
    /// When its start was reported.
    #[schemars(schema_with = "schema::time")]
    pub time: Time,
    /// When its end was reported.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::optional_time")]
    pub ended: Option<Time>,
    /// It ended because its report was not repeated in time, so that it is unknown whether the volume recovered.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub expired: bool,
}

/// How an attempt to heal went.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
pub enum HealOutcome {
    Started,
    Succeeded,
    Failed,
    Skipped,
}

/// An attempt to heal the volume. The healer writes these.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Heal {
    #[schemars(schema_with = "schema::time")]
    pub time: Time,
    pub outcome: HealOutcome,
    /// What was done.
    #[schemars(length(max = 128))]
    pub remedy: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = limit::NAME))]
    pub node: Option<String>,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = limit::MESSAGE))]
    pub message: String,
    /// How it went or what stood in the way, as one word for machines.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 64))]
    pub code: String,
    /// Which try it was since the volume was last well for long; 0 for what was no try.
    #[serde(default, skip_serializing_if = "is_zero")]
    #[schemars(schema_with = "schema::count")]
    pub attempt: u32,
    /// It is not tried again before this time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::optional_time")]
    pub not_before: Option<Time>,
}

/// What the driver's controller says. Its sidecar writes this where the API server does not keep it in the claim, and
/// nobody else does; the hub makes the vantage `controller` of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ControllerReport {
    /// Whose controller. It is believed only about volumes of this driver.
    #[schemars(length(min = 1, max = limit::NAME))]
    pub driver: String,
    /// The Lease that the sidecar renews while it lives.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lease: Option<LeaseName>,
    /// What is wrong; empty after a recovery.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = limit::CONDITIONS), extend("x-kubernetes-list-type" = "atomic"))]
    pub health_conditions: Vec<HealthCondition>,
    /// Since when it says so.
    #[schemars(schema_with = "schema::time")]
    pub since: Time,
}

/// A Lease.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct LeaseName {
    #[schemars(length(min = 1, max = 63))]
    pub namespace: String,
    #[schemars(length(min = 1, max = limit::NAME))]
    pub name: String,
}

impl LeaseName {
    /// Whether it has the name of a Lease that the controller of this driver holds: the one of external-health-monitor, by
    /// which it leads, or its own. An account that may renew another Lease is not that controller.
    pub fn is_of(&self, driver: &str) -> bool {
        let plain = |c: char| if c.is_ascii_alphanumeric() { c } else { '-' };
        let driver: String = driver.chars().map(plain).collect();
        let ending = if driver.ends_with('-') { "X" } else { "" };
        let led = format!("external-health-monitor-leader-{driver}{ending}");
        let own = format!("volmedic-controller-{driver}{ending}").to_lowercase();
        self.name == led || self.name == own
    }
}

/// A condition as tools wait for it: `kubectl wait --for=condition=Healthy`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Condition {
    #[serde(rename = "type")]
    #[schemars(length(min = 1, max = 316))]
    pub kind: String,
    pub status: super::ConditionStatus,
    #[schemars(schema_with = "schema::reason")]
    pub reason: String,
    #[serde(default)]
    #[schemars(length(max = limit::MESSAGE))]
    pub message: String,
    #[schemars(schema_with = "schema::time")]
    pub last_transition_time: Time,
}

/// What is known of the volume.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct VolumeHealthStatus {
    #[serde(default)]
    pub headline: Headline,
    /// The PersistentVolume that the claim is bound to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = limit::NAME))]
    pub persistent_volume_name: Option<String>,
    /// The CSI driver that serves it, if one does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = limit::NAME))]
    pub driver: Option<String>,
    /// What that driver calls it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = limit::HANDLE))]
    pub volume_handle: Option<String>,
    /// Every vantage that says something of it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(
        length(max = limit::VANTAGES),
        extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"])
    )]
    pub vantages: Vec<VantageHealth>,
    /// What the driver's controller says, where the API server does not keep it in the claim.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub controller_report: Option<ControllerReport>,
    /// Vantages that found no room; none of them sees anything worse than those shown.
    #[serde(default, skip_serializing_if = "is_zero")]
    #[schemars(schema_with = "schema::count")]
    pub omitted_vantages: u32,
    /// What the headline was, newest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = limit::HISTORY), extend("x-kubernetes-list-type" = "atomic"))]
    pub history: Vec<PastHeadline>,
    /// What the hub reported as events on the claim, newest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = limit::REPORTED), extend("x-kubernetes-list-type" = "atomic"))]
    pub reported: Vec<ReportedCondition>,
    /// The last attempts to heal it, newest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = limit::HEALS), extend("x-kubernetes-list-type" = "atomic"))]
    pub heals: Vec<Heal>,
    /// `Healthy`, for tools that wait for it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 8), extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub conditions: Vec<Condition>,
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde asks for a reference")]
pub(super) fn is_zero(count: &u32) -> bool {
    *count == 0
}
