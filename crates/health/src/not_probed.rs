//! Why a volume is not probed from some vantage, in one CamelCase word that machines can act on.
//!
//! A volume that is not probed is not healthy: nothing is known of it. These words are no findings, so they are not
//! reasons of conditions that a probe found.

use std::fmt;
use std::str::FromStr;

use crate::UnknownWord;

/// Makes the enum, its list and its lookups from one table.
macro_rules! not_probed {
    ($($name:ident, $meaning:literal, $advice:literal;)*) => {
        /// Why a volume is not probed.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum NotProbed {
            $(#[doc = $meaning] $name,)*
        }

        impl NotProbed {
            pub const ALL: &'static [Self] = &[$(Self::$name,)*];

            pub fn name(self) -> &'static str {
                match self { $(Self::$name => stringify!($name),)* }
            }

            /// What it means, as a sentence.
            pub fn meaning(self) -> &'static str {
                match self { $(Self::$name => $meaning,)* }
            }

            /// How to change it, as a sentence.
            pub fn advice(self) -> &'static str {
                match self { $(Self::$name => $advice,)* }
            }
        }

        impl FromStr for NotProbed {
            type Err = UnknownWord;

            fn from_str(word: &str) -> Result<Self, UnknownWord> {
                match word {
                    $(stringify!($name) => Ok(Self::$name),)*
                    _ => Err(UnknownWord::new("reason for a missing probe", word)),
                }
            }
        }
    };
}

not_probed! {
    NotProbedYet, "The first probe of the volume has not ended yet.",
        "Wait for one interval of the probes.";
    BeingMounted, "A pod that uses the volume is starting, and the volume is being mounted.",
        "Wait until the pod has started.";
    NotMounted, "A pod waits for the volume, and the kubelet has not mounted it for minutes.",
        "Read the pod's events, such as FailedMount and FailedAttachVolume.";
    BeingUnmounted, "The pods that used the volume have ended, and the volume is being unmounted.",
        "Nothing to do; if it lasts, read the kubelet's log.";
    DriverNotRegistered, "The volume's CSI driver is not registered with the kubelet of the node.",
        "Check that the driver's node plugin runs on the node.";
    DriverNotResponding, "The CSI driver's node plugin does not respond.",
        "Check the driver's node plugin on the node.";
    DriverUnreachable, "The CSI driver's controller plugin cannot be reached or does not answer.",
        "Check the driver's controller plugin and its log.";
    DriverReportsNoHealth, "The CSI driver's controller plugin reports nothing about the health of volumes.",
        "Rely on the agents' checks, or use a driver that reports health.";
    AccessDenied, "The volume refuses access to the agent, so only its mount is checked.",
        "Let root on the node read the volume's directory, for example without root_squash.";
    OnlyDeviceState, "The agent may not read the raw block volume, so only the state of its device is checked.",
        "Set agent.privileged in the chart.";
    HostPathNotVisible, "The volume is a directory of the node that the agent cannot see.",
        "Set agent.hostRoot in the chart, or give the agent --host-root.";
    KindNotSupported, "The host checks do not know this kind of volume.",
        "Use a CSI driver that reports health.";
    NoHelper, "No helper process was free to probe the volume, because too many wait for hung volumes.",
        "Repair the hung volumes of the node, or raise --max-stuck-helpers and --max-helpers.";
    ProbeFailed, "The probes of the volume failed without a result.",
        "Read the agent's log.";
    NotReadable, "The agent may not read the PersistentVolume or its claim, so it does not know what to probe.",
        "Apply deploy/chart/files/rbac-agent.yaml.";
}

impl NotProbed {
    /// Whether it is a limit of how Volmedic is installed, or of what it can check at all. An operator knows it from `doctor`
    /// and decides once, so it is no alert.
    pub fn is_known_limit(self) -> bool {
        matches!(self, Self::HostPathNotVisible | Self::KindNotSupported)
    }
}

impl fmt::Display for NotProbed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_has_a_name_that_is_read_back_and_two_sentences() {
        for why in NotProbed::ALL {
            assert_eq!(why.name().parse(), Ok(*why));
            assert!(why.name().len() <= 64, "it is stored: {why}");
            for sentence in [why.meaning(), why.advice()] {
                assert!(sentence.ends_with('.') && sentence.len() <= 200, "{why}: {sentence}");
            }
        }
        let error = "Haunted".parse::<NotProbed>().expect_err("no such word");
        assert_eq!(error.to_string(), r#"this version knows no reason for a missing probe "Haunted""#);
    }
}
