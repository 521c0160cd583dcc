//! Whom to believe about a claim.

use std::sync::Arc;

use volmedic_api::resource::{ConditionStatus, HealthCondition, NodeReport, VantageKind};
use volmedic_health::{Condition, Conditions, Status, WellKnown};

use super::evidence::Evidence;
use super::records::Phase;
use super::{Marks, Source, Stored, Uid, World};
use crate::ClaimKey;
use crate::agents::Life;
use crate::controllers::Word;
use crate::facts::{Facts, Seen, Since, Unprobed, View, VolumeId, What};
use crate::shape::KubeletCondition;
use crate::unknown::Unknown;

/// Pods that a message names one by one.
const NAMED: usize = 3;

/// All that it takes to bring one claim's object up to date.
#[derive(Debug)]
pub(crate) struct Case {
    /// None when there is no such claim.
    pub(crate) uid: Option<Uid>,
    pub(crate) facts: Facts,
    pub(crate) stored: Option<Stored>,
    /// The PersistentVolume and what it is marked with.
    pub(crate) marks: Option<(Arc<str>, Marks)>,
}

impl World {
    pub(crate) fn case(&self, key: &ClaimKey) -> Case {
        let marks = self.volume_of(key).map(|volume| (volume.id.name.clone(), volume.marks()));
        Case {
            uid: self.claims.get(key).map(|claim| claim.uid.clone()),
            facts: self.facts(key),
            stored: self.stored.get(key).cloned(),
            marks,
        }
    }

    /// What is known of a claim's volume. A node is heard only if a pod on it uses the volume, and while it exists.
    pub fn facts(&self, key: &ClaimKey) -> Facts {
        let volume = self.volume_of(key).map(|volume| volume.id.clone());
        let Evidence { mut views, why: no_controller } = self.controller(key, volume.as_ref());
        views.extend(self.cluster(key));
        let (mut undetermined, mut not_from_nodes) = (Vec::new(), Vec::new());
        for (node, pods) in self.users.of(key).filter(|(node, _)| self.is_there(node)) {
            views.extend(self.kubelet(key, node, pods.iter().map(|(_, pod)| &**pod), volume.as_ref()));
            let life = self.agents.life(node);
            if life == Some(Life::Undetermined) || !self.heard.contains(&Source::Leases) {
                undetermined.push(node.into());
            }
            let evidence = self.agent(key, node, volume.as_ref(), life);
            views.extend(evidence.views);
            not_from_nodes.extend(evidence.why);
        }
        let mut unheard = self.unheard();
        if !self.heard.contains(&Source::Controllers) {
            unheard.push(VantageKind::Controller);
        }
        let controller = self.lease_of_controller(key, volume.as_ref());
        let undetermined_controller =
            controller.is_some_and(|lease| self.controllers.word(Some(lease)) == Word::Undetermined);
        // The cluster probes nothing, and what is seen may not count yet.
        let counts =
            |view: &View| view.seen.is_empty() || view.seen.iter().any(|seen| seen.counts_from.is_none());
        let is_probed = views.iter().any(|view| view.kind != VantageKind::Cluster && counts(view));
        let volume_driver = volume.as_ref().and_then(|volume| Some(volume.csi.as_ref()?.0.clone()));
        let unprobed = (!is_probed).then(|| self.unprobed(key, not_from_nodes, no_controller));
        Facts {
            volume,
            views,
            unprobed,
            unheard,
            undetermined,
            undetermined_controller,
            controller_reports_nodes: self.controller_reports_nodes(volume_driver.as_deref()),
            reports_seen: self.reports_seen,
            pushed: None,
        }
    }

    /// Why no vantage probes a volume: one word and one sentence.
    fn unprobed(&self, key: &ClaimKey, from_nodes: Vec<Unprobed>, controller: Option<Unprobed>) -> Unprobed {
        let bound = self.claims.get(key).is_some_and(|claim| claim.phase != Phase::Pending);
        if self.volume_of(key).is_none() {
            let (reason, message) = match bound {
                false => (Unknown::NotBound, "the claim is not bound to a volume"),
                true if !self.heard.contains(&Source::Volumes) => {
                    (Unknown::CannotRead, "PersistentVolumes were not read, so it is unknown what probes it")
                }
                true => (
                    Unknown::NoVolume,
                    "the claim is bound, but there is no PersistentVolume that is bound to it",
                ),
            };
            return Unprobed::new(reason, message.to_owned());
        }
        let controller = controller
            .unwrap_or_else(|| Unprobed::new(Unknown::NotProbed, "no controller checks it".to_owned()));
        let nodes = from_nodes.len();
        // An agent or a driver that fails explains more than one that was never there.
        let Some(first) = from_nodes.into_iter().max_by_key(|why| why.reason) else {
            let nobody = if self.heard.contains(&Source::Pods) {
                "no pod uses it"
            } else {
                "pods were not read, so it is unknown who uses it"
            };
            return Unprobed { message: format!("{nobody}, and {}", controller.message), ..controller };
        };
        let more = match nodes - 1 {
            0 => String::new(),
            1 => " (as on one more node)".to_owned(),
            more => format!(" (as on {more} more nodes)"),
        };
        let message = format!("{}{more}, and {}", first.message, controller.message);
        let worse = if controller.reason > first.reason { controller } else { first };
        Unprobed { message, ..worse }
    }

    /// What the cluster's own state says: nodes that are down while the claim is used there, a claim that lost its volume,
    /// errors of attaching.
    fn cluster(&self, key: &ClaimKey) -> Option<View> {
        let down = self.users.of(key).filter_map(|(node, pods)| Some((node, pods, self.down.get(node)?)));
        let (mut sentences, mut since) = (Vec::new(), None);
        for (node, pods, down) in down {
            let shown: Vec<&str> = pods.iter().take(NAMED).map(|(_, pod)| &**pod).collect();
            let more = match pods.len().saturating_sub(NAMED) {
                0 => String::new(),
                more => format!(" and {more} more"),
            };
            let plural = if pods.len() == 1 { "pod" } else { "pods" };
            sentences.push(format!(
                "node {node} is down since {:.0}, {}; it is used there by {plural} {}{more}",
                down.since,
                down.why,
                shown.join(", ")
            ));
            since = Some(since.map_or(down.since, |since: jiff::Timestamp| since.min(down.since)));
        }
        let wrong = |reason: WellKnown, message: &str, since| {
            Seen::new(What::Wrong(Condition::new(Status::Inaccessible, reason.into(), message)), since)
        };
        let mut seen = Vec::new();
        if let Some(since) = since {
            seen.push(wrong(WellKnown::NodeDown, &sentences.join("; "), Since::Exactly(since)));
        }
        if let Some(claim) = self.claims.get(key).filter(|claim| claim.phase == Phase::Lost) {
            let message = format!("the PersistentVolume {} of the claim is gone", claim.volume);
            seen.push(wrong(WellKnown::VolumeNotFound, &message, Since::Unsaid));
        }
        if let Some(volume) = self.volume_of(key) {
            seen.extend(self.attach_errors(key, &volume.id));
        }
        seen.extend(self.stuck(key));
        if seen.is_empty() {
            return None;
        }
        Some(View { kind: VantageKind::Cluster, node: None, verified: None, seen })
    }

    /// What the kubelet says of the volume in its pods, and of the backend of the driver.
    fn kubelet<'a>(
        &self,
        key: &ClaimKey,
        node: &str,
        pods: impl Iterator<Item = &'a str>,
        volume: Option<&VolumeId>,
    ) -> Option<View> {
        let (mut spoke, mut seen) = (false, Vec::new());
        for pod in pods {
            for reported in self.users.reported(key, pod) {
                spoke = true;
                let since = reported.time().map_or(Since::Unsaid, Since::NotAfter);
                seen.extend(reported.conditions().map(|condition| (condition, since)));
            }
        }
        let driver = volume.and_then(|volume| volume.csi.as_ref()).map(|(driver, _)| driver);
        for backend in self.backends.get(node).into_iter().flatten() {
            if driver.is_some_and(|driver| **driver == *backend.name) {
                let claim = self.claims.get(key);
                let concerns =
                    |one: &&KubeletCondition| claim.is_some_and(|claim| claim.is_concerned_by(one));
                let concerning = backend.health_conditions.iter().flatten().filter(concerns);
                for one in concerning {
                    spoke = true;
                    let since = one.last_transition_time.as_ref();
                    let since = since.map_or(Since::Unsaid, |time| Since::NotAfter(time.0));
                    seen.push((one.condition(), since));
                }
            }
        }
        // Two pods may say the same at two times: the order in which they are checked must not matter.
        seen.sort_by(|(a, at), (b, bt)| (&a.message, order(*at)).cmp(&(&b.message, order(*bt))));
        let kept = Conditions::new(seen.iter().map(|(condition, _)| condition.clone()));
        let since = |kept: &Condition| {
            let times = seen.iter().filter(|(condition, _)| condition.is_same(kept)).map(|(_, since)| *since);
            times.min_by_key(|since| order(*since)).unwrap_or(Since::Unsaid)
        };
        let seen = kept.iter().map(|kept| Seen::new(What::Wrong(kept.clone()), since(kept)));
        let view = View {
            kind: VantageKind::Kubelet,
            node: Some(node.into()),
            verified: None,
            seen: seen.collect(),
        };
        spoke.then_some(view)
    }

    /// Whether a node exists, as far as nodes were read.
    pub(super) fn is_there(&self, node: &str) -> bool {
        self.nodes.contains(node) || !self.heard.contains(&Source::Nodes)
    }

    /// Said only where it matters.
    pub(super) fn unverified(&self) -> Option<bool> {
        (!self.verified).then_some(false)
    }

    /// Entries in nodes' reports about volumes that no pod on that node uses. Nothing came of them.
    pub fn unbelieved(&self) -> usize {
        let inline = self.users.inline();
        let count = |node: &str, report: &NodeReport| {
            let used: Vec<&VolumeId> =
                self.users.on(node).filter_map(|claim| Some(&self.volume_of(claim)?.id)).collect();
            let entries = report.volumes.iter();
            entries
                .filter(|entry| !inline.contains(&(node, entry.driver.as_str())))
                .filter(|entry| used.iter().all(|volume| !volume.is(&entry.driver, &entry.volume_handle)))
                .count()
        };
        self.reports.iter().map(|(node, report)| count(node, report)).sum()
    }
}

/// What an agent wrote, made valid: it may have been anybody.
pub(super) fn seen(reported: &HealthCondition) -> Option<Seen> {
    let since = Since::Exactly(reported.last_transition_time.0);
    match reported.condition() {
        Some(condition) => Some(Seen::new(What::Wrong(condition), since)),
        None if reported.status == ConditionStatus::Unknown => {
            let what = What::Unknown { reason: reported.reason.clone(), message: reported.message.clone() };
            Some(Seen::new(what, since))
        }
        None => None,
    }
}

fn order(since: Since) -> (bool, Option<jiff::Timestamp>) {
    match since {
        Since::Exactly(at) | Since::NotAfter(at) => (false, Some(at)),
        Since::Unsaid => (true, None),
    }
}
