//! What would help, as data. Deciding whether to do it is the healer's business.

use std::fmt;

/// What would help against a condition.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Remedy {
    /// The node plugin can be asked to check and mend (`NodeHealer`): restart a mounter, mount again.
    AskNodePlugin,
    /// The mount must be made anew, which only recreating every pod that uses it on the node does.
    RecreatePods,
    /// The claim needs more room.
    ExpandVolume,
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
    /// Whether a healer may try this on its own when it was switched on. Nothing else is ever automatic.
    pub fn is_automatic(self) -> bool {
        match self {
            Self::AskNodePlugin => true,
            Self::RecreatePods
            | Self::ExpandVolume
            | Self::FreeSpace
            | Self::ReplaceHardware
            | Self::Wait
            | Self::AskOperator => false,
        }
    }
}

impl fmt::Display for Remedy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::AskNodePlugin => "ask the node plugin to mend it",
            Self::RecreatePods => "recreate the pods that use it on this node",
            Self::ExpandVolume => "expand the claim",
            Self::FreeSpace => "free space in the volume",
            Self::ReplaceHardware => "replace or reconnect the disk",
            Self::Wait => "wait for what it depends on",
            Self::AskOperator => "ask a person",
        })
    }
}
