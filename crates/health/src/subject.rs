//! What health is about, and from where it was seen.

use std::fmt::{self, Write};
use std::str::FromStr;
use std::sync::Arc;

use crate::UnknownWord;

/// So much of a handle is shown in a sentence. The CSI specification allows 128 bytes.
const MAX_SHOWN: usize = 128;

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

/// In a sentence a handle is one word on one line, whatever its maker had in mind.
impl fmt::Display for Volume {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("volume ")?;
        for letter in self.handle.chars().take(MAX_SHOWN) {
            f.write_char(if letter.is_control() || letter.is_whitespace() { '\u{fffd}' } else { letter })?;
        }
        if self.handle.chars().nth(MAX_SHOWN).is_some() {
            f.write_char('…')?;
        }
        write!(f, " of {}", self.driver)
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
    /// The kubelet of the named node, which asks the CSI node plugin by itself.
    Kubelet(Arc<str>),
    /// The cluster itself: a node that went down.
    Cluster,
    /// A detector that reports to us.
    Pushed(Arc<str>),
}

impl Vantage {
    /// The node this vantage looks from, if it looks from one.
    pub fn node(&self) -> Option<&str> {
        match self {
            Self::Node(name) | Self::Host(name) | Self::Kubelet(name) => Some(name),
            Self::Controller | Self::Cluster | Self::Pushed(_) => None,
        }
    }

    /// The name that is stored, and that machines read: `controller`, `node/worker-1`, `pushed/scan`. `FromStr` reads it.
    pub fn name(&self) -> String {
        match self {
            Self::Controller => "controller".to_owned(),
            Self::Node(name) => format!("node/{name}"),
            Self::Host(name) => format!("host/{name}"),
            Self::Kubelet(name) => format!("kubelet/{name}"),
            Self::Cluster => "cluster".to_owned(),
            Self::Pushed(source) => format!("pushed/{source}"),
        }
    }
}

impl FromStr for Vantage {
    type Err = UnknownWord;

    fn from_str(name: &str) -> Result<Self, UnknownWord> {
        Ok(match name.split_once('/') {
            None if name == "controller" => Self::Controller,
            None if name == "cluster" => Self::Cluster,
            Some(("node", name)) => Self::Node(name.into()),
            Some(("host", name)) => Self::Host(name.into()),
            Some(("kubelet", name)) => Self::Kubelet(name.into()),
            // Up to version 0.1, histories and `status -o json` said `reporter`.
            Some(("pushed" | "reporter", source)) => Self::Pushed(source.into()),
            _ => return Err(UnknownWord::new("vantage", name)),
        })
    }
}

/// For sentences. [`Vantage::name`] is for machines.
impl fmt::Display for Vantage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Controller => f.write_str("the driver's controller"),
            Self::Node(name) => write!(f, "the driver on node {name}"),
            Self::Host(name) => write!(f, "host checks on node {name}"),
            Self::Kubelet(name) => write!(f, "the kubelet on node {name}"),
            Self::Cluster => f.write_str("the cluster"),
            Self::Pushed(source) => write!(f, "reporter {source}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_handle_in_a_sentence_is_one_short_word() {
        let check = |handle: &str, expected: &str| {
            let volume = Volume { driver: "d".into(), handle: handle.into() };
            assert_eq!(volume.to_string(), expected);
        };
        check("vol-1", "volume vol-1 of d");
        check("0001-0009-rook/ü:x", "volume 0001-0009-rook/ü:x of d");
        check("a\nFAKE \u{1b}[31m", "volume a\u{fffd}FAKE\u{fffd}\u{fffd}[31m of d");
        check(&"x".repeat(128), &format!("volume {} of d", "x".repeat(128)));
        check(&"ü".repeat(129), &format!("volume {}… of d", "ü".repeat(128)));
    }

    #[test]
    fn vantages_survive_the_round_trip_through_names() {
        for vantage in [
            Vantage::Controller,
            Vantage::Cluster,
            Vantage::Node("a/b".into()),
            Vantage::Host("".into()),
            Vantage::Kubelet("worker-1".into()),
            Vantage::Pushed("smart/d".into()),
        ] {
            assert_eq!(vantage.name().parse(), Ok(vantage));
        }
        assert_eq!("reporter/scan".parse(), Ok(Vantage::Pushed("scan".into())), "as older versions wrote it");
        for name in ["", "node", "elsewhere/x", "Controller"] {
            assert!(name.parse::<Vantage>().is_err(), "{name}");
        }
    }
}
