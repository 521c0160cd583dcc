//! What is known of one claim's volume right now, from every vantage. The input of the merge.

use std::sync::Arc;

use jiff::Timestamp;
use volmedic_api::resource::VantageKind;
use volmedic_health::{Condition, Vantage};

use crate::unknown::Unknown;

/// All there is to know of one claim.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Facts {
    pub volume: Option<VolumeId>,
    /// At most one for each vantage that probed the volume, or that did and no longer can.
    pub views: Vec<View>,
    /// Why no vantage probes it, where none does.
    pub unprobed: Option<Unprobed>,
    /// Kinds of vantage that we have not heard of at all yet. What is stored of them stands.
    pub unheard: Vec<VantageKind>,
    /// Nodes whose agents may or may not be running: it is not known yet. What is stored of them stands.
    pub undetermined: Vec<Box<str>>,
    /// The same of the driver's controller.
    pub undetermined_controller: bool,
    /// How new the nodes' reports are that we have seen, in versions of the API server.
    pub reports_seen: u64,
    /// The driver's controller sidecar reports that a node is down on which the claim is used.
    pub controller_reports_nodes: bool,
    /// A report that just came in.
    pub pushed: Option<Pushed>,
}

/// Stands for the driver of a volume that no CSI driver serves.
pub const NO_DRIVER: &str = "kubernetes.io/in-tree";

/// Stands for the driver of a local volume, as agents name it. Its handle is the name of the PersistentVolume.
pub const LOCAL_VOLUME: &str = "kubernetes.io/local-volume";

/// Which volume a claim is bound to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VolumeId {
    /// The name of the PersistentVolume.
    pub name: Arc<str>,
    /// Driver and handle; `None` for volumes that no CSI driver serves.
    pub csi: Option<(Arc<str>, Arc<str>)>,
}

impl VolumeId {
    /// Whether an agent that names this driver and handle means this volume. Volumes without a CSI driver go by the
    /// name of their plugin and of the PersistentVolume.
    pub fn is(&self, driver: &str, handle: &str) -> bool {
        match &self.csi {
            Some((own_driver, own_handle)) => **own_driver == *driver && **own_handle == *handle,
            None => driver.starts_with("kubernetes.io/") && handle == &*self.name,
        }
    }
}

/// What one vantage says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct View {
    pub kind: VantageKind,
    /// The node, for those who look from one.
    pub node: Option<Box<str>>,
    /// Whether it is certain that who is named said it, where that is a question.
    pub verified: Option<bool>,
    /// Empty if it probed the volume and nothing is wrong.
    pub seen: Vec<Seen>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Seen {
    pub what: What,
    pub since: Since,
    /// It counts from this time on, because for some seconds it is part of starting or stopping. What is stored already
    /// counts as long as it is seen.
    pub counts_from: Option<Timestamp>,
}

impl Seen {
    /// What counts immediately.
    pub fn new(what: What, since: Since) -> Self {
        Self { what, since, counts_from: None }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum What {
    Wrong(Condition),
    /// It is unknown.
    Unknown {
        reason: String,
        message: String,
    },
}

/// Why no vantage probes a volume.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unprobed {
    pub reason: Unknown,
    pub message: String,
    /// How to change it, as a sentence.
    pub advice: &'static str,
}

impl Unprobed {
    pub(crate) fn new(reason: Unknown, message: String) -> Self {
        Self { reason, message, advice: reason.advice() }
    }
}

/// Since when.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Since {
    /// Who says it knows.
    Exactly(Timestamp),
    /// Not later than this; what is stored may know better.
    NotAfter(Timestamp),
    /// Nobody said.
    Unsaid,
}

/// What somebody reported to us.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pushed {
    pub source: Box<str>,
    pub conditions: Vec<Condition>,
    pub expires: Timestamp,
}

/// The name of a vantage: its kind and, where there are several, which one.
pub(crate) fn vantage_name(kind: VantageKind, which: Option<&str>) -> String {
    let which = || which.unwrap_or_default().into();
    let vantage = match kind {
        VantageKind::Controller => Vantage::Controller,
        VantageKind::Node => Vantage::Node(which()),
        VantageKind::Host => Vantage::Host(which()),
        VantageKind::Kubelet => Vantage::Kubelet(which()),
        VantageKind::Cluster => Vantage::Cluster,
        VantageKind::Pushed => Vantage::Pushed(which()),
    };
    vantage.name()
}
