//! The few fields that are shown of each kind of object, named as in their JSON.

use std::collections::BTreeMap;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, OwnerReference, Time};
use kube::core::{ClusterResourceScope, NamespaceResourceScope};
use serde::Deserialize;
use serde::de::IgnoredAny;
use volmedic_api::Shape;
use volmedic_api::resource::{GROUP, NodeReport, VERSION, VolumeHealthStatus};
use volmedic_health::{Condition, Conditions, Reason, Status};

/// A claim.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Claim {
    pub(crate) metadata: ClaimMeta,
    pub(crate) spec: ClaimSpec,
    pub(crate) status: ClaimStatus,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(crate) struct ClaimMeta {
    pub(crate) annotations: Option<ClaimAnnotations>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(crate) struct ClaimAnnotations {
    /// The driver that made the volume, said where the volume itself may not be read.
    #[serde(rename = "volume.kubernetes.io/storage-provisioner")]
    pub(crate) provisioner: Option<String>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct ClaimSpec {
    pub(crate) volume_name: Option<String>,
    pub(crate) storage_class_name: Option<String>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct ClaimStatus {
    /// Pending, Bound or Lost.
    pub(crate) phase: String,
    pub(crate) health_status: Option<Told>,
}

impl Shape for Claim {
    type Scope = NamespaceResourceScope;
    const KIND: &'static str = "PersistentVolumeClaim";
    const PLURAL: &'static str = "persistentvolumeclaims";
}

/// What a field of the API says of one volume.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct Told {
    pub(crate) health_conditions: Option<Vec<ToldCondition>>,
    pub(crate) last_transition_time: Option<Time>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct ToldCondition {
    status: String,
    reason: String,
    message: Option<String>,
    pub(crate) last_transition_time: Option<Time>,
}

impl Told {
    pub(crate) fn conditions(&self) -> Conditions {
        Conditions::new(self.health_conditions.iter().flatten().map(ToldCondition::condition))
    }

    pub(crate) fn time(&self) -> Option<Timestamp> {
        self.last_transition_time.as_ref().map(|time| time.0)
    }
}

impl ToldCondition {
    /// A word that we do not know is never health.
    pub(crate) fn condition(&self) -> Condition {
        let status = Status::of_word(&self.status);
        Condition::new(status, Reason::new(&self.reason), self.message.as_deref().unwrap_or_default())
    }
}

/// A pod: which claims it uses where, and what the kubelet says of them.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Pod {
    pub(crate) spec: PodSpec,
    pub(crate) status: PodStatus,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct PodSpec {
    pub(crate) node_name: Option<String>,
    pub(crate) volumes: Option<Vec<PodVolume>>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct PodVolume {
    pub(crate) name: String,
    pub(crate) persistent_volume_claim: Option<ClaimSource>,
    pub(crate) ephemeral: Option<IgnoredAny>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct ClaimSource {
    pub(crate) claim_name: String,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct PodStatus {
    pub(crate) phase: String,
    pub(crate) volume_health: Option<Vec<PodVolumeHealth>>,
}

#[derive(Debug, Clone, Default, Deserialize)]
pub(crate) struct PodVolumeHealth {
    pub(crate) name: String,
    #[serde(flatten)]
    pub(crate) told: Told,
}

impl Shape for Pod {
    type Scope = NamespaceResourceScope;
    const KIND: &'static str = "Pod";
    const PLURAL: &'static str = "pods";
}

/// A node's drivers, and what its kubelet says of the storage behind them.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(crate) struct CsiNode {
    pub(crate) spec: CsiNodeSpec,
    pub(crate) status: CsiNodeStatus,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(crate) struct CsiNodeSpec {
    pub(crate) drivers: Option<Vec<Named>>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Named {
    pub(crate) name: String,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct CsiNodeStatus {
    pub(crate) storage_health: Option<Vec<StorageHealth>>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct StorageHealth {
    /// The driver.
    pub(crate) name: String,
    pub(crate) health_conditions: Option<Vec<ToldCondition>>,
}

impl Shape for CsiNode {
    type Scope = ClusterResourceScope;
    const KIND: &'static str = "CSINode";
    const PLURAL: &'static str = "csinodes";
    const GROUP: &'static str = "storage.k8s.io";
}

/// A driver that is registered. Its name is all we want.
#[derive(Debug, Clone, Default, Deserialize)]
pub(crate) struct CsiDriver {}

impl Shape for CsiDriver {
    type Scope = ClusterResourceScope;
    const KIND: &'static str = "CSIDriver";
    const PLURAL: &'static str = "csidrivers";
    const GROUP: &'static str = "storage.k8s.io";
}

/// A sign of life.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Lease {
    pub(crate) metadata: LeaseMeta,
    pub(crate) spec: LeaseSpec,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(crate) struct LeaseMeta {
    pub(crate) labels: Option<BTreeMap<String, String>>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct LeaseSpec {
    pub(crate) holder_identity: Option<String>,
    pub(crate) lease_duration_seconds: Option<u32>,
    pub(crate) renew_time: Option<MicroTime>,
}

impl Shape for Lease {
    type Scope = NamespaceResourceScope;
    const KIND: &'static str = "Lease";
    const PLURAL: &'static str = "leases";
    const GROUP: &'static str = "coordination.k8s.io";
}

/// A VolumeHealth.
#[derive(Debug, Clone, Deserialize)]
pub(crate) struct Stored {
    #[serde(default)]
    pub(crate) metadata: StoredMeta,
    pub(crate) status: Option<VolumeHealthStatus>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct StoredMeta {
    owner_references: Option<Vec<OwnerReference>>,
}

impl StoredMeta {
    /// The uid of the claim that owns it.
    pub(crate) fn owner(&self) -> Option<&str> {
        let mut owners = self.owner_references.iter().flatten();
        owners.find(|owner| owner.kind == Claim::KIND).map(|owner| owner.uid.as_str())
    }
}

impl Shape for Stored {
    type Scope = NamespaceResourceScope;
    const KIND: &'static str = "VolumeHealth";
    const PLURAL: &'static str = "volumehealths";
    const GROUP: &'static str = GROUP;
    const VERSION: &'static str = VERSION;
}

/// A NodeVolumeHealth.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Report {
    pub(crate) spec: ReportSpec,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(crate) struct ReportSpec {
    pub(crate) report: NodeReport,
}

impl Shape for Report {
    type Scope = ClusterResourceScope;
    const KIND: &'static str = "NodeVolumeHealth";
    const PLURAL: &'static str = "nodevolumehealths";
    const GROUP: &'static str = GROUP;
    const VERSION: &'static str = VERSION;
}

/// An event, ours or another's.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct Event {
    pub(crate) metadata: EventMeta,
    pub(crate) involved_object: Involved,
    pub(crate) reason: Option<String>,
    pub(crate) message: Option<String>,
    #[serde(rename = "type")]
    pub(crate) kind: Option<String>,
    pub(crate) source: Option<EventSource>,
    pub(crate) count: Option<i32>,
    pub(crate) first_timestamp: Option<Time>,
    pub(crate) last_timestamp: Option<Time>,
    #[serde(rename = "eventTime")]
    pub(crate) precise_time: Option<MicroTime>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(crate) struct EventMeta {
    pub(crate) annotations: Option<EventAnnotations>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(crate) struct EventAnnotations {
    #[serde(rename = "volmedic.dev/story")]
    pub(crate) story: Option<String>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Involved {
    pub(crate) kind: String,
    pub(crate) name: String,
    pub(crate) uid: String,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(crate) struct EventSource {
    pub(crate) component: Option<String>,
}

impl Event {
    /// When it was last so.
    pub(crate) fn at(&self) -> Option<Timestamp> {
        let event = || self.precise_time.as_ref().map(|time| time.0);
        self.last_timestamp.as_ref().map(|time| time.0).or_else(event).or_else(|| self.since())
    }

    /// When it was first so.
    pub(crate) fn since(&self) -> Option<Timestamp> {
        self.first_timestamp.as_ref().map(|time| time.0).or(self.precise_time.as_ref().map(|time| time.0))
    }
}

impl Shape for Event {
    type Scope = NamespaceResourceScope;
    const KIND: &'static str = "Event";
    const PLURAL: &'static str = "events";
}
