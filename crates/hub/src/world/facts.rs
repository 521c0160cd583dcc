//! Whom to believe about a claim.

use volmedic_api::resource::{
    ConditionStatus, ControllerReport, HealthCondition, NodeReport, NodeVantage, VantageKind,
};
use volmedic_health::{Condition, Conditions, Reason, Status, WellKnown};

use super::{Marks, Stored, World};
use crate::ClaimKey;
use crate::agents::Life;
use crate::controllers::Word;
use crate::facts::{Facts, Seen, Since, View, VolumeId, What};
use crate::merge::{AGENT_SILENT, CONTROLLER_SILENT};
use crate::shape::ToldCondition;

/// Pods that a message names one by one.
const NAMED: usize = 3;

/// The reason of a condition that says a volume may have found no room in its node's report.
const NOT_LISTED: &str = "ReportOverflow";

/// All that it takes to bring one claim's object up to date.
#[derive(Debug)]
pub(crate) struct Case {
    /// None when there is no such claim.
    pub(crate) uid: Option<Box<str>>,
    pub(crate) facts: Facts,
    pub(crate) stored: Option<Stored>,
    /// The PersistentVolume and what it is marked with.
    pub(crate) marks: Option<(Box<str>, Marks)>,
}

impl World {
    pub(crate) fn case(&self, key: &ClaimKey) -> Case {
        let marks = self.volume_of(key).map(|volume| (volume.id.name.clone(), volume.marks.clone()));
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
        let mut views: Vec<View> = self.controller(key).into_iter().chain(self.cluster(key)).collect();
        let mut undetermined = Vec::new();
        for (node, pods) in self.users.of(key).filter(|(node, _)| self.nodes.contains(*node)) {
            views.extend(self.kubelet(key, node, pods.iter().map(AsRef::as_ref), volume.as_ref()));
            let life = self.agents.life(node);
            if life == Some(Life::Undetermined) || !self.heard.contains(&super::Source::Leases) {
                undetermined.push(node.into());
            }
            views.extend(self.agent(node, volume.as_ref(), life));
        }
        let mut unheard = self.unheard();
        let lease = self.report(key).and_then(|report| report.lease.as_ref());
        if lease.is_some() && !self.heard.contains(&super::Source::Controllers) {
            unheard.push(VantageKind::Controller);
        }
        Facts {
            volume,
            views,
            unheard,
            undetermined,
            undetermined_controller: self.controllers.word(lease) == Word::Undetermined,
            reports_seen: self.reports_seen,
            pushed: None,
        }
    }

    /// What the driver's controller says: where the API server keeps it in the claim, there; else to us.
    fn controller(&self, key: &ClaimKey) -> Option<View> {
        let seen = match self.report(key) {
            Some(report) => self.reported(report)?,
            None => self.kept_in_claim(key)?,
        };
        // Which nodes are down we judge ourselves, for all drivers alike.
        let down = Reason::from(WellKnown::NodeDown);
        let is_down = |seen: &Seen| matches!(&seen.what, What::Wrong(condition) if condition.reason == down);
        let seen = seen.into_iter().filter(|seen| !is_down(seen)).collect();
        Some(View { kind: VantageKind::Controller, node: None, verified: None, seen })
    }

    fn kept_in_claim(&self, key: &ClaimKey) -> Option<Vec<Seen>> {
        let told = self.claims.get(key)?.body.status.health_status.as_ref()?;
        let since = told.time().map_or(Since::Unsaid, Since::NotAfter);
        let conditions = Conditions::new(told.conditions());
        Some(conditions.into_iter().map(|condition| Seen { what: What::Wrong(condition), since }).collect())
    }

    /// What a controller wrote into the object, if it is the one of this claim's driver.
    fn report(&self, key: &ClaimKey) -> Option<&ControllerReport> {
        let (claim, stored) = (self.claims.get(key)?, self.stored.get(key)?);
        stored.owner.as_ref().filter(|owner| **owner == claim.uid)?;
        let report = stored.status.as_ref()?.controller_report.as_ref()?;
        let (driver, _) = self.volume_of(key)?.id.csi.as_ref()?;
        (**driver == *report.driver).then_some(report)
    }

    /// Nothing, if it is not to be believed any more.
    fn reported(&self, report: &ControllerReport) -> Option<Vec<Seen>> {
        if report.lease.is_some() && !self.heard.contains(&super::Source::Controllers) {
            return None;
        }
        let at_latest = |mut seen: Seen| {
            if let Since::Exactly(at) = seen.since {
                seen.since = Since::NotAfter(at);
            }
            seen
        };
        let mut seen: Vec<Seen> = report.health_conditions.iter().filter_map(seen).map(at_latest).collect();
        match self.controllers.word(report.lease.as_ref()) {
            Word::Gone => None,
            Word::Stands | Word::Undetermined => Some(seen),
            // That it is well now, nobody says.
            Word::Silent { .. } if seen.is_empty() => None,
            Word::Silent { since } => {
                let message = format!(
                    "the controller of driver {} is silent since {since:.0}; what it said last stands for a day",
                    report.driver
                );
                let what = What::Unknown { reason: CONTROLLER_SILENT.to_owned(), message };
                seen.push(Seen { what, since: Since::Exactly(since) });
                Some(seen)
            }
        }
    }

    /// Nodes that are down while the claim is used there.
    fn cluster(&self, key: &ClaimKey) -> Option<View> {
        let down = self.users.of(key).filter_map(|(node, pods)| Some((node, pods, self.down.get(node)?)));
        let (mut sentences, mut since) = (Vec::new(), None);
        for (node, pods, down) in down {
            let shown: Vec<&str> = pods.iter().take(NAMED).map(AsRef::as_ref).collect();
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
        let condition =
            Condition::new(Status::Inaccessible, WellKnown::NodeDown.into(), &sentences.join("; "));
        let seen = Seen { what: What::Wrong(condition), since: Since::Exactly(since?) };
        Some(View { kind: VantageKind::Cluster, node: None, verified: None, seen: vec![seen] })
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
            for told in self.users.told(key, pod) {
                spoke = true;
                let since = told.time().map_or(Since::Unsaid, Since::NotAfter);
                seen.extend(told.conditions().map(|condition| (condition, since)));
            }
        }
        let driver = volume.and_then(|volume| volume.csi.as_ref()).map(|(driver, _)| driver);
        for backend in self.backends.get(node).into_iter().flatten() {
            if driver.is_some_and(|driver| **driver == *backend.name) {
                let concerning =
                    backend.health_conditions.iter().flatten().filter(|one| self.concerns(key, one));
                for one in concerning {
                    spoke = true;
                    let since = one.last_transition_time.as_ref();
                    let since = since.map_or(Since::Unsaid, |time| Since::NotAfter(time.0));
                    seen.push((one.condition(), since));
                }
            }
        }
        // Two pods may tell the same at two times: the order in which they are looked at must not matter.
        seen.sort_by(|(a, at), (b, bt)| (&a.message, order(*at)).cmp(&(&b.message, order(*bt))));
        let kept = Conditions::new(seen.iter().map(|(condition, _)| condition.clone()));
        let since = |kept: &Condition| {
            let times = seen.iter().filter(|(condition, _)| condition.is_same(kept)).map(|(_, since)| *since);
            times.min_by_key(|since| order(*since)).unwrap_or(Since::Unsaid)
        };
        let seen = kept.iter().map(|kept| Seen { what: What::Wrong(kept.clone()), since: since(kept) });
        let view = View {
            kind: VantageKind::Kubelet,
            node: Some(node.into()),
            verified: None,
            seen: seen.collect(),
        };
        spoke.then_some(view)
    }

    /// Whether trouble of a backend concerns a claim: it may be about some kinds of volume only.
    fn concerns(&self, key: &ClaimKey, told: &ToldCondition) -> bool {
        let Some(claim) = self.claims.get(key) else { return false };
        let spec = &claim.body.spec;
        let mode = spec.volume_mode.as_deref().unwrap_or("Filesystem");
        let fits_mode = told.volume_mode.as_deref().is_none_or(|told| told == mode);
        let modes = spec.access_modes.as_deref().unwrap_or_default();
        fits_mode && told.access_mode.as_ref().is_none_or(|told| modes.contains(told))
    }

    /// What our agent on a node says of this one volume.
    fn agent(&self, node: &str, volume: Option<&VolumeId>, life: Option<Life>) -> Vec<View> {
        let Some(report) = self.reports.get(node) else { return Vec::new() };
        let view = |kind, seen| View { kind, node: Some(node.into()), verified: self.unverified(), seen };
        let entries = report.volumes.iter();
        let entries =
            entries.filter(|entry| volume.is_some_and(|v| v.is(&entry.driver, &entry.volume_handle)));
        let (mut by_driver, mut by_us) = (Vec::new(), Vec::new());
        for entry in entries {
            let seen = entry.health_conditions.iter().filter_map(seen);
            match entry.vantage {
                NodeVantage::Node => by_driver.extend(seen),
                NodeVantage::Host => by_us.extend(seen),
            }
        }
        if let Some(Life::Silent { since }) = life {
            let message =
                format!("the agent on node {node} is silent since {since:.0}; what it said last stands");
            by_us.push(Seen {
                what: What::Unknown { reason: AGENT_SILENT.to_owned(), message },
                since: Since::Exactly(since),
            });
        }
        if report.omitted > 0 && by_us.is_empty() && by_driver.is_empty() {
            // It may be among those that found no room; that is not health.
            let message = format!(
                "more is wrong on node {node} than its report can hold, and this volume is not in it"
            );
            let what = What::Unknown { reason: NOT_LISTED.to_owned(), message };
            by_us.push(Seen { what, since: Since::Unsaid });
        }
        let mut views = vec![view(VantageKind::Host, by_us)];
        if !by_driver.is_empty() {
            views.push(view(VantageKind::Node, by_driver));
        }
        views
    }

    /// Said only where it matters.
    fn unverified(&self) -> Option<bool> {
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
fn seen(told: &HealthCondition) -> Option<Seen> {
    let since = Since::Exactly(told.last_transition_time.0);
    match told.condition() {
        Some(condition) => Some(Seen { what: What::Wrong(condition), since }),
        None if told.status == ConditionStatus::Unknown => Some(Seen {
            what: What::Unknown { reason: told.reason.clone(), message: told.message.clone() },
            since,
        }),
        None => None,
    }
}

fn order(since: Since) -> (bool, Option<jiff::Timestamp>) {
    match since {
        Since::Exactly(at) | Since::NotAfter(at) => (false, Some(at)),
        Since::Unsaid => (true, None),
    }
}
