//! How careful the healer is.

use std::collections::BTreeSet;

use jiff::SignedDuration;
use volmedic_health::Remedy;

/// How careful the healer is. The defaults would rather do too little.
#[derive(Debug, Clone)]
pub struct Policy {
    /// Trouble must have lasted this long before anything is done about it.
    pub debounce: SignedDuration,
    /// After a volume was repaired it is left alone for this long, even if it is unhealthy again.
    pub cooldown: SignedDuration,
    /// The pause after the first try; it doubles with every further one.
    pub first_pause: SignedDuration,
    pub longest_pause: SignedDuration,
    /// Number of tries without lasting success after which a volume is given up.
    pub tries: u32,
    /// A volume that stayed healthy for this long starts over with its tries.
    pub steady: SignedDuration,
    /// Maximum number at the same time on one node.
    pub node_budget: usize,
    /// Maximum number at the same time altogether.
    pub cluster_budget: usize,
    /// More than this share of a driver's volumes unhealthy at the same time, in percent, is an outage and not trouble of volumes.
    pub brake_percent: u32,
    /// Fewer unhealthy volumes than this never make an outage.
    pub brake_least: usize,
    /// What a person must decide or change is checked again this often.
    pub look_again: SignedDuration,
    /// For how long a person's consent counts.
    pub approval: SignedDuration,
    /// Maximum number of volumes that are kept in mind; beyond, the healthy and the given up go first.
    pub most_cases: usize,
    /// Whether node plugins are asked to heal; without relays nobody can ask them.
    pub node_healer: bool,
    /// How pods are recreated; `None` where that is not switched on.
    pub recreate: Option<Recreate>,
}

/// How careful the healer is when it recreates pods.
#[derive(Debug, Clone)]
pub struct Recreate {
    /// Trouble must have lasted this long, seen by this process.
    pub debounce: SignedDuration,
    /// Number of attempts without lasting success after which the volume is given up.
    pub tries: u32,
    /// The pause after the first attempt that failed; it doubles with every further one.
    pub first_pause: SignedDuration,
    /// Maximum number of volumes whose pods are recreated at the same time.
    pub budget: usize,
    /// How long an eviction that is refused, as by a PodDisruptionBudget, is asked for again before the attempt ends.
    pub patience: SignedDuration,
    /// How long an attempt may take, from the first eviction to a healthy volume under a new pod.
    pub deadline: SignedDuration,
    /// A volume under a new pod counts as healthy when it was not reported as unhealthy for this time, where the node's
    /// agent does not say which volumes it has probed.
    pub settle: SignedDuration,
    /// Kinds of owners that re-create their pods, each as `Kind.group`.
    pub owners: BTreeSet<Box<str>>,
}

/// Owners that re-create a pod that was evicted. A Job does so only while it may fail again, and begins its work from
/// the start, so it is not among them.
const OWNERS: [&str; 9] = [
    "ReplicationController.",
    "ReplicaSet.apps",
    "StatefulSet.apps",
    "DaemonSet.apps",
    "CloneSet.apps.kruise.io",
    "StatefulSet.apps.kruise.io",
    "DaemonSet.apps.kruise.io",
    "StrimziPodSet.core.strimzi.io",
    "Cluster.postgresql.cnpg.io",
];

impl Default for Recreate {
    fn default() -> Self {
        Self {
            debounce: SignedDuration::from_mins(1),
            tries: 3,
            first_pause: SignedDuration::from_mins(10),
            budget: 2,
            patience: SignedDuration::from_mins(2),
            deadline: SignedDuration::from_mins(10),
            settle: SignedDuration::from_secs(90),
            owners: OWNERS.map(Into::into).into(),
        }
    }
}

impl Default for Policy {
    fn default() -> Self {
        Self {
            debounce: SignedDuration::from_secs(10),
            cooldown: SignedDuration::from_mins(2),
            first_pause: SignedDuration::from_secs(30),
            longest_pause: SignedDuration::from_hours(1),
            tries: 5,
            steady: SignedDuration::from_mins(30),
            node_budget: 2,
            cluster_budget: 10,
            brake_percent: 20,
            brake_least: 10,
            look_again: SignedDuration::from_secs(30),
            approval: SignedDuration::from_hours(1),
            most_cases: 100_000,
            node_healer: true,
            recreate: None,
        }
    }
}

impl Policy {
    /// How long to wait after the attempt with this number.
    pub fn pause(&self, tries: u32) -> SignedDuration {
        doubled(self.first_pause, tries, self.longest_pause)
    }

    /// The same for attempts that recreated pods.
    pub fn recreate_pause(&self, tries: u32) -> SignedDuration {
        let first = self.recreate.as_ref().map_or(self.first_pause, |recreate| recreate.first_pause);
        doubled(first, tries, self.longest_pause.max(first))
    }

    /// Whether a remedy is switched on at all. Whether it may be used for a claim is for the rules to say.
    pub fn has(&self, remedy: Remedy) -> bool {
        match remedy {
            Remedy::NodeHealer => self.node_healer,
            Remedy::RecreatePods => self.recreate.is_some(),
            _ => false,
        }
    }
}

fn doubled(first: SignedDuration, tries: u32, longest: SignedDuration) -> SignedDuration {
    let doublings = tries.saturating_sub(1).min(20);
    first.checked_mul(1_i32 << doublings).unwrap_or(longest).min(longest)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_to_the_longest_and_never_overflow() {
        let policy = Policy::default();
        let seconds: Vec<_> =
            [0, 1, 2, 3, 4, 7, 8, 9, 1000, u32::MAX].map(|n| policy.pause(n).as_secs()).into();
        assert_eq!(seconds, [30, 30, 60, 120, 240, 1920, 3600, 3600, 3600, 3600]);
        let huge = Policy { first_pause: SignedDuration::MAX, ..policy };
        assert_eq!(huge.pause(9), huge.longest_pause);
    }
}
