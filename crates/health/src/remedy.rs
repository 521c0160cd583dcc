//! What would help, as data. Deciding whether to do it is the healer's business.

use std::fmt;
use std::str::FromStr;

/// What would help against a condition.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Remedy {
    /// The node plugin can be asked to check and heal the volume: restart a mounter, mount again.
    NodeHealer,
    /// The volume must be mounted again, which only re-creating every pod that uses it on the node does.
    RecreatePods,
    /// The claim needs more room.
    Expand,
    /// The node must be proven to be off before its volumes are moved.
    FenceNode,
    /// The workload's owner must delete something.
    FreeSpace,
    /// A disk must be put back or replaced.
    ReplaceHardware,
    /// It comes back by itself when what it depends on comes back.
    Wait,
    /// Only a person can tell what is right here.
    AskOperator,
}

impl Remedy {
    /// All remedies, gentlest first.
    pub const ALL: [Self; 8] = [
        Self::NodeHealer,
        Self::RecreatePods,
        Self::Expand,
        Self::FenceNode,
        Self::FreeSpace,
        Self::ReplaceHardware,
        Self::Wait,
        Self::AskOperator,
    ];

    /// Whether a healer may try this on its own when it was switched on. Nothing else is ever automatic.
    pub fn is_automatic(self) -> bool {
        match self {
            Self::NodeHealer | Self::RecreatePods => true,
            Self::Expand
            | Self::FenceNode
            | Self::FreeSpace
            | Self::ReplaceHardware
            | Self::Wait
            | Self::AskOperator => false,
        }
    }

    /// The name for machines: in stored attempts, metrics and flags.
    pub fn name(self) -> &'static str {
        match self {
            Self::NodeHealer => "NodeHealer",
            Self::RecreatePods => "RecreatePods",
            Self::Expand => "Expand",
            Self::FenceNode => "FenceNode",
            Self::FreeSpace => "FreeSpace",
            Self::ReplaceHardware => "ReplaceHardware",
            Self::Wait => "Wait",
            Self::AskOperator => "AskOperator",
        }
    }
}

/// A word that names no remedy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NoRemedy;

impl FromStr for Remedy {
    type Err = NoRemedy;

    fn from_str(word: &str) -> Result<Self, NoRemedy> {
        Self::ALL.into_iter().find(|remedy| remedy.name() == word).ok_or(NoRemedy)
    }
}

impl fmt::Display for Remedy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NodeHealer => "ask the node plugin to heal it",
            Self::RecreatePods => "recreate the pods that use it on this node",
            Self::Expand => "expand the claim",
            Self::FenceNode => "fence the node",
            Self::FreeSpace => "free space in the volume",
            Self::ReplaceHardware => "replace or reconnect the disk",
            Self::Wait => "wait for what it depends on",
            Self::AskOperator => "ask a person",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_remedy_is_found_by_its_name() {
        for remedy in Remedy::ALL {
            assert_eq!(remedy.name().parse(), Ok(remedy));
        }
        assert_eq!("".parse::<Remedy>(), Err(NoRemedy));
    }
}
