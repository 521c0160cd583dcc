//! The few fields that the hub uses of each kind of object, named as in their JSON.

use std::collections::BTreeMap;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, OwnerReference, Time};
use kube::core::{ClusterResourceScope, NamespaceResourceScope};
use serde::Deserialize;
use serde::de::IgnoredAny;
use volmedic_api::resource::{GROUP, NodeReport, VERSION, VolumeHealthStatus};
use volmedic_api::{CONTROLLER_COVERAGE, ControllerCoverage, Shape, Unreadable};
use volmedic_health::{Condition, Reason, Status};

/// A PersistentVolumeClaim.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
pub struct Claim {
    #[serde(default)]
    pub metadata: ClaimMeta,
    #[serde(default)]
    pub spec: ClaimSpec,
    #[serde(default)]
    pub status: ClaimStatus,
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct ClaimMeta {
    #[serde(rename = "creationTimestamp")]
    pub creation_timestamp: Option<Time>,
    pub annotations: Option<ClaimAnnotations>,
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct ClaimAnnotations {
    /// The driver that was asked to make the volume. The volume itself may not be there, or may not be read.
    #[serde(rename = "volume.kubernetes.io/storage-provisioner")]
    pub provisioner: Option<String>,
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct ClaimSpec {
    pub volume_name: Option<String>,
    pub storage_class_name: Option<String>,
    pub access_modes: Option<Vec<String>>,
    pub volume_mode: Option<String>,
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct ClaimStatus {
    /// Pending, Bound or Lost.
    pub phase: String,
    pub health_status: Option<KubeletHealth>,
    /// Resizes that are under way or fail.
    pub conditions: Option<Vec<ClaimCondition>>,
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct ClaimCondition {
    #[serde(rename = "type")]
    pub kind: String,
    pub status: String,
    pub message: Option<String>,
    pub last_transition_time: Option<Time>,
}

/// What a field of the API says of one volume.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct KubeletHealth {
    pub health_conditions: Option<Vec<KubeletCondition>>,
    pub last_transition_time: Option<Time>,
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct KubeletCondition {
    pub status: String,
    pub reason: String,
    pub message: Option<String>,
    /// Only backends have the following.
    pub access_mode: Option<String>,
    pub volume_mode: Option<String>,
    pub last_transition_time: Option<Time>,
}

impl KubeletHealth {
    pub(crate) fn conditions(&self) -> impl Iterator<Item = Condition> {
        self.health_conditions.iter().flatten().map(KubeletCondition::condition)
    }

    pub(crate) fn time(&self) -> Option<Timestamp> {
        self.last_transition_time.as_ref().map(|time| time.0)
    }
}

impl KubeletCondition {
    /// A word that we do not know is never health.
    pub(crate) fn condition(&self) -> Condition {
        let status = Status::of_word(&self.status);
        Condition::new(status, Reason::new(&self.reason), self.message.as_deref().unwrap_or_default())
    }
}

impl Shape for Claim {
    type Scope = NamespaceResourceScope;
    const KIND: &'static str = "PersistentVolumeClaim";
    const PLURAL: &'static str = "persistentvolumeclaims";
}

/// A PersistentVolume of any kind.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
pub struct Volume {
    #[serde(default)]
    pub metadata: VolumeMeta,
    #[serde(default)]
    pub spec: VolumeSpec,
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct VolumeMeta {
    pub labels: Option<BTreeMap<String, String>>,
    pub annotations: Option<BTreeMap<String, String>>,
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct VolumeSpec {
    pub csi: Option<CsiSource>,
    pub local: Option<LocalSource>,
    pub claim_ref: Option<ClaimRef>,
}

/// Only that the volume is a local one.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
pub struct LocalSource {}

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct CsiSource {
    pub driver: String,
    pub volume_handle: String,
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct ClaimRef {
    pub namespace: String,
    pub name: String,
    pub uid: String,
}

impl Shape for Volume {
    type Scope = ClusterResourceScope;
    const KIND: &'static str = "PersistentVolume";
    const PLURAL: &'static str = "persistentvolumes";
}

/// A pod, with what the kubelet says of its volumes.
#[derive(Debug, Clone, Default, Deserialize)]
pub struct Pod {
    #[serde(default)]
    pub metadata: PodMeta,
    #[serde(default)]
    pub spec: PodSpec,
    #[serde(default)]
    pub status: PodStatus,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct PodMeta {
    /// When it should be gone, if it is being deleted.
    pub deletion_timestamp: Option<Time>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct PodSpec {
    pub node_name: Option<String>,
    pub volumes: Option<Vec<PodVolume>>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct PodVolume {
    pub name: String,
    pub persistent_volume_claim: Option<ClaimSource>,
    pub ephemeral: Option<IgnoredAny>,
    pub csi: Option<InlineCsi>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct ClaimSource {
    pub claim_name: String,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct InlineCsi {
    pub driver: String,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct PodStatus {
    pub phase: String,
    pub volume_health: Option<Vec<PodVolumeHealth>>,
}

#[derive(Debug, Clone, Default, Deserialize)]
pub struct PodVolumeHealth {
    pub name: String,
    #[serde(flatten)]
    pub reported: KubeletHealth,
}

impl Shape for Pod {
    type Scope = NamespaceResourceScope;
    const KIND: &'static str = "Pod";
    const PLURAL: &'static str = "pods";
}

/// A CSINode, with what the kubelet says of the drivers' backends.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
pub struct CsiNode {
    #[serde(default)]
    pub spec: CsiNodeSpec,
    #[serde(default)]
    pub status: CsiNodeStatus,
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct CsiNodeSpec {
    /// The drivers that are registered with the kubelet.
    pub drivers: Option<Vec<CsiNodeDriver>>,
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct CsiNodeDriver {
    pub name: String,
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct CsiNodeStatus {
    pub storage_health: Option<Vec<StorageHealth>>,
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct StorageHealth {
    /// The driver.
    pub name: String,
    pub health_conditions: Option<Vec<KubeletCondition>>,
}

impl Shape for CsiNode {
    type Scope = ClusterResourceScope;
    const KIND: &'static str = "CSINode";
    const PLURAL: &'static str = "csinodes";
    const GROUP: &'static str = "storage.k8s.io";
}

/// A VolumeAttachment.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct Attachment {
    pub spec: AttachmentSpec,
    pub status: AttachmentStatus,
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct AttachmentSpec {
    pub node_name: String,
    pub source: AttachmentSource,
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct AttachmentSource {
    pub persistent_volume_name: Option<String>,
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct AttachmentStatus {
    pub attached: bool,
    pub attach_error: Option<AttachmentError>,
    pub detach_error: Option<AttachmentError>,
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct AttachmentError {
    pub time: Option<Time>,
    pub message: Option<String>,
}

impl Shape for Attachment {
    type Scope = ClusterResourceScope;
    const KIND: &'static str = "VolumeAttachment";
    const PLURAL: &'static str = "volumeattachments";
    const GROUP: &'static str = "storage.k8s.io";
}

/// The sign of life of an agent.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
pub struct Lease {
    #[serde(default)]
    pub spec: LeaseSpec,
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct LeaseSpec {
    pub holder_identity: Option<String>,
    pub lease_duration_seconds: Option<u32>,
    pub renew_time: Option<MicroTime>,
}

impl Shape for Lease {
    type Scope = NamespaceResourceScope;
    const KIND: &'static str = "Lease";
    const PLURAL: &'static str = "leases";
    const GROUP: &'static str = "coordination.k8s.io";
}

/// The Lease of a driver's controller, with what it says about its probing.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct ControllerLease {
    pub metadata: ControllerLeaseMeta,
    pub spec: LeaseSpec,
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct ControllerLeaseMeta {
    pub labels: Option<BTreeMap<String, String>>,
    pub annotations: Option<BTreeMap<String, String>>,
}

impl ControllerLease {
    /// What the controller says it probes; `None` if it says nothing, as those older than version 0.2.
    pub fn coverage(&self) -> Option<Result<ControllerCoverage, Unreadable>> {
        let text = self.metadata.annotations.as_ref()?.get(CONTROLLER_COVERAGE)?;
        Some(ControllerCoverage::parse(text))
    }
}

impl Shape for ControllerLease {
    type Scope = NamespaceResourceScope;
    const KIND: &'static str = "Lease";
    const PLURAL: &'static str = "leases";
    const GROUP: &'static str = "coordination.k8s.io";
}

/// A NodeVolumeHealth.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct StoredReport {
    pub spec: StoredReportSpec,
}

#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct StoredReportSpec {
    #[serde(default)]
    pub report: NodeReport,
}

impl Shape for StoredReport {
    type Scope = ClusterResourceScope;
    const KIND: &'static str = "NodeVolumeHealth";
    const PLURAL: &'static str = "nodevolumehealths";
    const GROUP: &'static str = GROUP;
    const VERSION: &'static str = VERSION;
}

/// A VolumeHealth.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct StoredHealth {
    #[serde(default)]
    pub metadata: StoredMeta,
    pub status: Option<VolumeHealthStatus>,
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct StoredMeta {
    pub uid: String,
    pub resource_version: String,
    pub owner_references: Option<Vec<OwnerReference>>,
    pub creation_timestamp: Option<Time>,
    pub deletion_timestamp: Option<Time>,
}

impl StoredMeta {
    /// The claim that owns it.
    pub(crate) fn owner(&self) -> Option<&str> {
        let owners = self.owner_references.iter().flatten();
        owners.filter(|owner| owner.kind == "PersistentVolumeClaim").map(|owner| owner.uid.as_str()).next()
    }
}

impl Shape for StoredHealth {
    type Scope = NamespaceResourceScope;
    const KIND: &'static str = "VolumeHealth";
    const PLURAL: &'static str = "volumehealths";
    const GROUP: &'static str = GROUP;
    const VERSION: &'static str = VERSION;
}
