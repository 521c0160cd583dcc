//! Why the health of a claim's volume is unknown: one word for machines, and what to do about it.

/// Why it is unknown. The sentence that goes with it names the node, the driver or the agent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Unknown {
    /// The claim is not bound to a volume.
    NotBound,
    /// The claim is bound, but its PersistentVolume is not there, or is bound to another claim.
    NoVolume,
    /// The objects that would say it could not be read.
    CannotRead,
    /// No vantage probes the volume.
    NotProbed,
    /// No vantage can probe the volume as Volmedic is installed, and the agent says so. It is a known limit and no failure.
    CannotBeProbed,
    /// The controller runs, but cannot reach its driver.
    DriverUnreachable,
    /// The Lease of the agent on the node is not renewed.
    AgentNotResponding,
    /// The Lease of the driver's controller sidecar is not renewed.
    ControllerNotResponding,
    /// More is wrong on the node than its report can hold, so the volume may be among what was left out.
    ReportOverflow,
}

impl Unknown {
    pub const ALL: [Self; 9] = [
        Self::NotBound,
        Self::NoVolume,
        Self::CannotRead,
        Self::NotProbed,
        Self::CannotBeProbed,
        Self::DriverUnreachable,
        Self::AgentNotResponding,
        Self::ControllerNotResponding,
        Self::ReportOverflow,
    ];

    pub fn name(self) -> &'static str {
        match self {
            Self::NotBound => "NotBound",
            Self::NoVolume => "NoVolume",
            Self::CannotRead => "CannotRead",
            Self::NotProbed => "NotProbed",
            Self::CannotBeProbed => "CannotBeProbed",
            Self::DriverUnreachable => "DriverUnreachable",
            Self::AgentNotResponding => "AgentNotResponding",
            Self::ControllerNotResponding => "ControllerNotResponding",
            Self::ReportOverflow => "ReportOverflow",
        }
    }

    /// Reads the word back. Objects that hubs up to version 0.1 wrote have older words.
    pub fn of_name(name: &str) -> Option<Self> {
        match name {
            "AgentSilent" => Some(Self::AgentNotResponding),
            "ControllerSilent" => Some(Self::ControllerNotResponding),
            name => Self::ALL.into_iter().find(|unknown| unknown.name() == name),
        }
    }

    /// The next step for the person who reads this, as a sentence.
    pub fn advice(self) -> &'static str {
        match self {
            Self::NotBound => "See why with `kubectl describe pvc`; a claim may wait for its first pod.",
            Self::NoVolume => "See `kubectl describe pvc`; the volume may have been deleted by hand.",
            Self::CannotRead => "Ask for the right to `list` what could not be read, or use another context.",
            Self::NotProbed => {
                "Run the agent on the nodes that use it, or `volmedic controller` beside a driver that reports health; \
                 `volmedic doctor` shows what is missing."
            }
            Self::CannotBeProbed => {
                "`volmedic doctor` lists such volumes and how to change that; a directory of the node needs agent.hostRoot."
            }
            Self::DriverUnreachable => {
                "Check the pod of the driver's controller plugin, and the log of Volmedic's sidecar beside it."
            }
            Self::AgentNotResponding => {
                "Check the node and the agent's pod there: `kubectl get pods -A -o wide`; delete the agent's Lease to stop waiting for it."
            }
            Self::ControllerNotResponding => {
                "Check the driver's controller plugin and Volmedic's sidecar beside it."
            }
            Self::ReportOverflow => {
                "Repair what is worst on that node first; the report then has room for the rest."
            }
        }
    }
}

/// What to do about any reason for which a volume's health is unknown, also one that a driver or an agent gave.
pub fn advice(reason: &str) -> &'static str {
    Unknown::of_name(reason).map_or(
        "Check that the storage driver runs and answers; `volmedic doctor` shows what probes it.",
        Unknown::advice,
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_word_is_read_back_and_so_are_older_ones() {
        for unknown in Unknown::ALL {
            assert_eq!(Unknown::of_name(unknown.name()), Some(unknown));
            assert!(unknown.advice().ends_with('.'), "{unknown:?}");
        }
        assert_eq!(Unknown::of_name("AgentSilent"), Some(Unknown::AgentNotResponding));
        assert_eq!(Unknown::of_name("IOHung"), None);
        assert!(advice("NotSeen").starts_with("Check that the storage driver"));
    }
}
