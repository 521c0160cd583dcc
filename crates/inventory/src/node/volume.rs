//! What there should be on this node, as it is handed out.

use std::path::PathBuf;
use std::sync::Arc;

use jiff::Timestamp;
use volmedic_api::ObjectRef;

/// One volume on this node, with everybody who uses it here.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeVolume {
    /// The CSI driver, or for a volume that the kubelet mounts by itself the name of its plugin, such as
    /// `kubernetes.io/local-volume`.
    pub driver: Arc<str>,
    /// The CSI handle, or for a volume that the kubelet mounts by itself the name of its PersistentVolume.
    pub handle: Arc<str>,
    /// The name of the PersistentVolume; of several that are the same volume, the first in order. None for inline
    /// volumes.
    pub pv: Option<Arc<str>>,
    pub mode: Mode,
    /// Where the kubelet has the volume staged. None for volumes that are not staged at all. It is there, but nothing is
    /// mounted on it, for drivers that cannot stage; some drivers mount one level below it
    /// ([`Layout::deeper_staging`](super::Layout::deeper_staging)).
    pub staging: Option<PathBuf>,
    /// The directory of the node that the volume is, for one of a `hostPath` PersistentVolume. The kubelet mounts nothing
    /// for it; the targets of its uses are only names.
    pub source: Option<PathBuf>,
    /// As the PersistentVolume or the pod asks for it. None if nobody asks, or nobody can be asked.
    pub fs_type: Option<Box<str>>,
    /// At least one, in the order of pods and targets.
    pub uses: Vec<Arc<Use>>,
}

impl NodeVolume {
    /// Whether any pod has it in use, so that it has to be mounted.
    pub fn is_in_use(&self) -> bool {
        self.uses.iter().any(|used| used.phase == Phase::InUse)
    }

    /// The PersistentVolumes by which pods use it here, each once, in order.
    pub fn persistent_volumes(&self) -> Vec<&Arc<str>> {
        let mut names: Vec<&Arc<str>> = self.uses.iter().filter_map(|used| used.pv.as_ref()).collect();
        names.sort_unstable();
        names.dedup();
        names
    }

    /// The pods that use it, each once.
    pub fn pods(&self) -> Vec<ObjectRef> {
        let mut pods: Vec<ObjectRef> = self.uses.iter().map(|used| (*used.pod).clone()).collect();
        pods.dedup();
        pods
    }
}

/// One volume in one pod.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Use {
    pub pod: Arc<ObjectRef>,
    /// The volume's name in the pod; the first, if the pod has the same claim under several. None where it is not known
    /// which of the pod's volumes this is, since the PersistentVolume cannot be read.
    pub volume: Option<Box<str>>,
    /// None for inline volumes, and where it is not known. Its uid is empty while the PersistentVolume was not read.
    pub claim: Option<Arc<ObjectRef>>,
    /// The PersistentVolume by which this pod uses it. None for inline volumes.
    pub pv: Option<Arc<str>>,
    /// Where the volume is to be mounted, or the device to be found.
    pub target: PathBuf,
    /// The bind mounts that the kubelet made of parts of the volume (`subPath`) for containers that run now.
    pub sub_paths: Box<[PathBuf]>,
    pub access: Access,
    pub phase: Phase,
    /// What the kubelet says about it in the pod's status. None if it never said anything, which it does as long as the
    /// volume is healthy.
    pub kubelet: Option<Box<KubeletSaid>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Mode {
    Filesystem,
    Block,
}

/// How the volume is meant to be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    ReadWrite,
    /// By somebody's wish, so being read-only is no finding.
    ReadOnly,
    /// Not known, since the PersistentVolume cannot be read. Being read-only may be somebody's wish.
    Unknown,
}

impl Access {
    /// Whether being read-only is a finding.
    pub fn must_write(self) -> bool {
        self == Self::ReadWrite
    }
}

/// How far the pod is. Volumes are mounted before the first container starts and unmounted after the last has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    /// No container has started yet; the volume may or may not be mounted.
    Coming,
    /// A container runs or ran, so the volume has to be mounted.
    InUse,
    /// The pod is finished or is being deleted; the volume may or may not be mounted. So for a moment is a pod whose
    /// directory is gone: the kubelet may have cleaned up before the API server knows that the pod is finished.
    Going,
}

/// What the kubelet wrote about one volume into the pod's status.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KubeletSaid {
    /// Empty for a volume that has recovered. As they came: nothing of it is checked.
    pub conditions: Vec<KubeletCondition>,
    pub since: Option<Timestamp>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KubeletCondition {
    /// Degraded, Inaccessible or DataLoss.
    pub status: Box<str>,
    pub reason: Box<str>,
    pub message: Box<str>,
}

/// A change of the set of volumes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change {
    Added(Key),
    Removed(Key),
    /// Something about it is different: who uses it, how far they are, how it is meant to be used.
    Changed(Key),
    /// Too much changed to be reported one by one. Read the whole state.
    Resync,
}

/// Which volume.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key {
    pub driver: Arc<str>,
    pub handle: Arc<str>,
}
