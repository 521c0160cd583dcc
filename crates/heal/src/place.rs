//! A volume where it is used: the same volume on two nodes is repaired twice, but never at the same time.

use std::fmt;
use std::sync::Arc;

use volmedic_health::Volume;

/// One volume on one node.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Place {
    pub driver: Arc<str>,
    pub handle: Arc<str>,
    /// By its name in Kubernetes, which need not be what the driver calls it.
    pub node: Arc<str>,
}

impl Place {
    /// Stands for the driver of a local volume, which the kubelet mounts by itself. Its handle is the name of the
    /// PersistentVolume.
    pub const LOCAL_VOLUME: &'static str = "kubernetes.io/local-volume";

    pub fn new(driver: impl Into<Arc<str>>, handle: impl Into<Arc<str>>, node: impl Into<Arc<str>>) -> Self {
        Self { driver: driver.into(), handle: handle.into(), node: node.into() }
    }

    pub fn volume(&self) -> Volume {
        Volume { driver: self.driver.clone(), handle: self.handle.clone() }
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "volume {} of {} on node {}", self.handle, self.driver, self.node)
    }
}
