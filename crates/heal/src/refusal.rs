//! Why nothing is done, or not yet. Each is a sentence; the same one reaches the event, the log and `volmedic heal`.

use std::fmt;

use jiff::Timestamp;
use volmedic_health::Remedy;

use crate::mode::{Rules, Source};

/// What the cluster says of a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NodeState {
    Up,
    Down,
    /// Closed for maintenance: whatever looks broken there may be somebody's work.
    Cordoned,
    /// Nothing is known of it.
    Unknown,
}

/// Why nothing is done, or not yet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Refusal {
    Off {
        by: Source,
        remedy: Remedy,
    },
    Observe {
        by: Source,
        remedy: Remedy,
    },
    AwaitingApproval {
        by: Source,
        remedy: Remedy,
    },
    /// It has not lasted long enough.
    Debounce {
        until: Timestamp,
    },
    /// It was tried, and the pause after that is not over.
    Pause {
        until: Timestamp,
        tries: u32,
    },
    GaveUp {
        tries: u32,
        remedy: Remedy,
    },
    NotImplemented,
    NeedsChange {
        why: Box<str>,
    },
    NeedsPerson {
        why: Box<str>,
    },
    NodeBudget {
        limit: usize,
    },
    ClusterBudget {
        limit: usize,
    },
    Brake {
        scope: Option<Box<str>>,
        unhealthy: usize,
        of: usize,
    },
    Node(NodeState),
    InFlight,
    NoRelay,
    /// What a new mount needs is not there yet.
    NotReady {
        why: Box<str>,
    },
    /// A pod that uses the volume must not be evicted.
    NotEvictable {
        why: Box<str>,
    },
    /// Another pod of the same workload is being recreated.
    WorkloadBusy,
    NotBound {
        why: Box<str>,
    },
    /// Right before acting it could not be seen again, and nothing is done about what cannot be seen.
    NotSeen {
        why: Box<str>,
    },
    /// A new probe right before acting found the volume healthy.
    ProbedHealthy {
        remedy: Remedy,
    },
    /// A new probe right before acting did not confirm what was reported, or there was none in time.
    NotConfirmed {
        remedy: Remedy,
        why: Box<str>,
    },
    Filtered {
        why: Box<str>,
    },
    /// Too many volumes are kept in mind already.
    Crowded,
    NotLeading,
}

/// Reported once until the volume was healthy for long, not once per episode: a volume that falls unhealthy every minute would
/// otherwise be given up every minute.
pub(crate) const LASTING: [&str; 4] = ["gave_up", "needs_person", "needs_change", "not_implemented"];
/// Reported once per episode.
const PASSING: [&str; 11] = [
    "observe",
    "awaiting_approval",
    "brake",
    "node_up",
    "node_down",
    "node_cordoned",
    "not_bound",
    "not_ready",
    "not_evictable",
    "probed_healthy",
    "not_confirmed",
];

/// The label of what people are informed of, from text that may be anybody's.
pub(crate) fn reported_label(text: &str) -> Option<&'static str> {
    LASTING.into_iter().chain(PASSING).find(|label| *label == text)
}

impl Refusal {
    /// A label for metrics and for reporting each kind once; a closed list.
    pub fn label(&self) -> &'static str {
        match self {
            Self::Off { .. } => "off",
            Self::Observe { .. } => "observe",
            Self::AwaitingApproval { .. } => "awaiting_approval",
            Self::Debounce { .. } => "debounce",
            Self::Pause { .. } => "pause",
            Self::GaveUp { .. } => "gave_up",
            Self::NotImplemented => "not_implemented",
            Self::NeedsChange { .. } => "needs_change",
            Self::NeedsPerson { .. } => "needs_person",
            Self::NodeBudget { .. } => "node_budget",
            Self::ClusterBudget { .. } => "cluster_budget",
            Self::Brake { .. } => "brake",
            Self::Node(NodeState::Up) => "node_up",
            Self::Node(NodeState::Down) => "node_down",
            Self::Node(NodeState::Cordoned) => "node_cordoned",
            Self::Node(NodeState::Unknown) => "node_unknown",
            Self::InFlight => "in_flight",
            Self::NoRelay => "no_relay",
            Self::NotReady { .. } => "not_ready",
            Self::NotEvictable { .. } => "not_evictable",
            Self::WorkloadBusy => "workload_busy",
            Self::NotBound { .. } => "not_bound",
            Self::NotSeen { .. } => "not_seen",
            Self::ProbedHealthy { .. } => "probed_healthy",
            Self::NotConfirmed { .. } => "not_confirmed",
            Self::Filtered { .. } => "filtered",
            Self::Crowded => "crowded",
            Self::NotLeading => "not_leading",
        }
    }

    /// Whether people are informed, once per episode. What passes by itself, or was asked for, is not worth an event.
    pub fn is_reported(&self) -> bool {
        match self {
            Self::Observe { .. }
            | Self::AwaitingApproval { .. }
            | Self::GaveUp { .. }
            | Self::NotImplemented
            | Self::NeedsChange { .. }
            | Self::NeedsPerson { .. }
            | Self::Brake { .. }
            | Self::Node(NodeState::Up | NodeState::Down | NodeState::Cordoned)
            | Self::NotReady { .. }
            | Self::NotEvictable { .. }
            | Self::ProbedHealthy { .. }
            | Self::NotConfirmed { .. }
            | Self::NotBound { .. } => true,
            // Right after the start nobody knows any node.
            Self::Node(NodeState::Unknown)
            | Self::Off { .. }
            | Self::Debounce { .. }
            | Self::Pause { .. }
            | Self::NodeBudget { .. }
            | Self::ClusterBudget { .. }
            | Self::InFlight
            | Self::NoRelay
            | Self::WorkloadBusy
            | Self::NotSeen { .. }
            | Self::Filtered { .. }
            | Self::Crowded
            | Self::NotLeading => false,
        }
    }
}

impl Refusal {
    /// Which remedy is refused, as far as it is about one and not about the volume.
    pub fn remedy(&self) -> Option<Remedy> {
        match self {
            Self::Off { remedy, .. }
            | Self::Observe { remedy, .. }
            | Self::AwaitingApproval { remedy, .. }
            | Self::GaveUp { remedy, .. }
            | Self::ProbedHealthy { remedy }
            | Self::NotConfirmed { remedy, .. } => Some(*remedy),
            Self::NotReady { .. } | Self::NotEvictable { .. } | Self::WorkloadBusy => {
                Some(Remedy::RecreatePods)
            }
            Self::NotImplemented | Self::NeedsChange { .. } | Self::NeedsPerson { .. } | Self::NoRelay => {
                Some(Remedy::NodeHealer)
            }
            Self::Debounce { .. }
            | Self::Pause { .. }
            | Self::NodeBudget { .. }
            | Self::ClusterBudget { .. }
            | Self::Brake { .. }
            | Self::Node(_)
            | Self::InFlight
            | Self::NotBound { .. }
            | Self::NotSeen { .. }
            | Self::Filtered { .. }
            | Self::Crowded
            | Self::NotLeading => None,
        }
    }

    /// Whether the next remedy of the ladder has to wait, too: time or a person may still let this one go ahead.
    pub(crate) fn holds_ladder(&self) -> bool {
        matches!(
            self,
            Self::AwaitingApproval { .. }
                | Self::Debounce { .. }
                | Self::Pause { .. }
                | Self::NodeBudget { .. }
                | Self::ClusterBudget { .. }
                | Self::InFlight
                | Self::WorkloadBusy
        )
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Off { by, remedy: Remedy::RecreatePods } => write!(f, "recreating pods is off {by}"),
            Self::Off { by, remedy: _ } => write!(f, "healing is off {by}"),
            Self::Observe { by, remedy: Remedy::RecreatePods } => write!(
                f,
                "recreating pods only observes {by}; it would evict the pods that use the volume on this node, one by \
                 one. Set the claim's annotation {} to auto or approve, or run `volmedic heal` for it",
                Rules::RECREATE_ANNOTATION
            ),
            Self::Observe { by, remedy: _ } => write!(
                f,
                "healing only observes {by}; it would ask the node plugin to heal the volume. Set the claim's annotation \
                 volmedic.dev/heal to auto or approve, or run `volmedic heal` for it"
            ),
            Self::AwaitingApproval { by, remedy } => {
                let (what, annotation) = match remedy {
                    Remedy::RecreatePods => ("recreating pods", Rules::RECREATE_APPROVED),
                    _ => ("healing", Rules::APPROVED),
                };
                write!(
                    f,
                    "{what} needs a person's consent {by}; set the claim's annotation {annotation} to the current time, \
                     as 2026-01-31T12:00:00Z, or run `volmedic heal` for it"
                )
            }
            Self::Debounce { until } => {
                write!(f, "it may pass by itself; it is checked again at {until:.0}")
            }
            Self::Pause { until, tries } => {
                write!(f, "{tries} tries were made; the next one is not before {until:.0}")
            }
            Self::GaveUp { tries, remedy: Remedy::RecreatePods } => write!(
                f,
                "its pods were recreated {tries} times without lasting success, so it was given up; find the cause, then \
                 run `volmedic heal` for the claim"
            ),
            Self::GaveUp { tries, remedy: _ } => write!(
                f,
                "{tries} tries brought no lasting success, so it was given up; find the cause, then run `volmedic heal` \
                 for the claim or recreate the pods that use it"
            ),
            Self::NotImplemented => {
                f.write_str("the driver on this node cannot heal, and is not asked again before it was replaced")
            }
            Self::NeedsChange { why } => {
                write!(f, "the driver refused the request ({why}), and the PersistentVolume has not changed since")
            }
            Self::NeedsPerson { why } => write!(
                f,
                "the driver failed in a way that it does not explain ({why}); read its log on this node, then run \
                 `volmedic heal` for the claim"
            ),
            Self::NodeBudget { limit } => write!(f, "{limit} volumes are being healed on this node already"),
            Self::ClusterBudget { limit } => write!(f, "{limit} volumes are being healed in the cluster already"),
            Self::Brake { scope, unhealthy, of } => {
                write!(f, "{unhealthy} of {of} volumes ")?;
                match scope {
                    Some(driver) => write!(f, "of {driver} ")?,
                    None => f.write_str("in the cluster ")?,
                }
                f.write_str(
                    "are unhealthy at the same time, which looks like an outage of the storage behind them and not like trouble of \
                     single volumes; no volume is touched until fewer are unhealthy",
                )
            }
            Self::Node(state) => f.write_str(match state {
                NodeState::Up => "the node is up",
                NodeState::Down => "the node is down",
                NodeState::Cordoned => "the node is cordoned, so somebody may be at work there",
                NodeState::Unknown => "the cluster does not know the node",
            }),
            Self::InFlight => f.write_str("the volume is being checked or healed right now"),
            Self::NoRelay => f.write_str(
                "no trusted relay serves the driver on this node; the agent there needs --addons-address, and the driver \
                 the capability VOLUME_HEALER",
            ),
            Self::NotReady { why } => {
                write!(f, "its pods are not recreated yet, because a new mount would not help: {why}")
            }
            Self::NotEvictable { why } => write!(f, "its pods are not recreated: {why}"),
            Self::WorkloadBusy => f.write_str("another pod of the same workload is being recreated"),
            Self::NotBound { why } => write!(f, "the PersistentVolume is not to be healed: {why}"),
            Self::NotSeen { why } => {
                write!(f, "it could not be seen again right before acting ({why}), so nothing was done")
            }
            Self::ProbedHealthy { remedy } => write!(
                f,
                "it was reported as unhealthy, but a new probe right before {} found it healthy, so nothing was done",
                doing(*remedy)
            ),
            Self::NotConfirmed { remedy, why } => write!(
                f,
                "a new probe right before {} did not confirm what is reported ({why}), so nothing was done",
                doing(*remedy)
            ),
            Self::Filtered { why } => write!(f, "the operator's filters leave it out: {why}"),
            Self::Crowded => f.write_str("too many volumes are unhealthy to keep them all in memory"),
            Self::NotLeading => f.write_str("another replica leads"),
        }
    }
}

fn doing(remedy: Remedy) -> &'static str {
    match remedy {
        Remedy::RecreatePods => "recreating its pods",
        _ => "healing",
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn all() -> Vec<Refusal> {
        let by = || Source::Default;
        let why = || Box::<str>::from("why");
        let until = "2026-11-16T12:00:00Z".parse().unwrap();
        vec![
            Refusal::Off { by: by(), remedy: Remedy::RecreatePods },
            Refusal::Observe { by: by(), remedy: Remedy::RecreatePods },
            Refusal::AwaitingApproval { by: by(), remedy: Remedy::RecreatePods },
            Refusal::Debounce { until },
            Refusal::Pause { until, tries: 3 },
            Refusal::GaveUp { tries: 5, remedy: Remedy::RecreatePods },
            Refusal::NotImplemented,
            Refusal::NeedsChange { why: why() },
            Refusal::NeedsPerson { why: why() },
            Refusal::NodeBudget { limit: 2 },
            Refusal::ClusterBudget { limit: 9 },
            Refusal::Brake { scope: None, unhealthy: 50, of: 60 },
            Refusal::Node(NodeState::Down),
            Refusal::Node(NodeState::Cordoned),
            Refusal::Node(NodeState::Unknown),
            Refusal::InFlight,
            Refusal::NoRelay,
            Refusal::NotReady { why: why() },
            Refusal::NotEvictable { why: why() },
            Refusal::WorkloadBusy,
            Refusal::NotBound { why: why() },
            Refusal::NotSeen { why: why() },
            Refusal::ProbedHealthy { remedy: Remedy::RecreatePods },
            Refusal::NotConfirmed { remedy: Remedy::NodeHealer, why: why() },
            Refusal::Filtered { why: why() },
            Refusal::Crowded,
            Refusal::NotLeading,
        ]
    }

    #[test]
    fn every_refusal_is_a_sentence_with_a_label_of_its_own() {
        let labels: BTreeSet<_> = all().iter().map(Refusal::label).collect();
        assert_eq!(labels.len(), all().len());
        for refusal in all() {
            let text = refusal.to_string();
            assert!(text.len() > 15 && text.len() < 300 && !text.ends_with('.'), "{text}");
        }
    }

    #[test]
    fn what_is_reported_is_known_again_by_its_label() {
        for refusal in all() {
            assert_eq!(reported_label(refusal.label()).is_some(), refusal.is_reported(), "{refusal:?}");
        }
    }
}
