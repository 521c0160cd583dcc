//! What health is about, and from where it was seen.

use std::fmt;
use std::sync::Arc;

/// One volume: a driver and the handle it knows the volume by. Several PVs, claims and pods may share it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Volume {
    pub driver: Arc<str>,
    pub handle: Arc<str>,
}

/// What a sight is about.
///
/// A driver that cannot be reached is one fact about its backend, not one fact about each of its hundred
/// thousand volumes; so backends are subjects of their own.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Subject {
    Volume(Volume),
    /// The storage behind a driver, as a whole.
    Backend(Arc<str>),
}

impl Subject {
    pub fn volume(driver: impl Into<Arc<str>>, handle: impl Into<Arc<str>>) -> Self {
        Self::Volume(Volume { driver: driver.into(), handle: handle.into() })
    }

    pub fn backend(driver: impl Into<Arc<str>>) -> Self {
        Self::Backend(driver.into())
    }

    pub fn driver(&self) -> &Arc<str> {
        match self {
            Self::Volume(volume) => &volume.driver,
            Self::Backend(driver) => driver,
        }
    }
}

impl fmt::Display for Volume {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "volume {} of {}", self.handle, self.driver)
    }
}

impl fmt::Display for Subject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Volume(volume) => volume.fmt(f),
            Self::Backend(driver) => write!(f, "storage backend of {driver}"),
        }
    }
}

/// From where something was seen.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Vantage {
    /// The CSI controller plugin.
    Controller,
    /// The CSI node plugin on the named node.
    Node(Arc<str>),
    /// Our own checks on the named node.
    Host(Arc<str>),
    /// The cluster itself: a node that went down.
    Cluster,
    /// A detector that reports to us.
    Pushed(Arc<str>),
}

impl Vantage {
    /// The node this vantage looks from, if it looks from one.
    pub fn node(&self) -> Option<&str> {
        match self {
            Self::Node(name) | Self::Host(name) => Some(name),
            Self::Controller | Self::Cluster | Self::Pushed(_) => None,
        }
    }
}

impl fmt::Display for Vantage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Controller => f.write_str("the driver's controller"),
            Self::Node(name) => write!(f, "the driver on node {name}"),
            Self::Host(name) => write!(f, "host checks on node {name}"),
            Self::Cluster => f.write_str("the cluster"),
            Self::Pushed(source) => write!(f, "reporter {source}"),
        }
    }
}
