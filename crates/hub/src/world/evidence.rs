//! Which vantages probe a claim's volume, by what their owners say and whether they run. Without such evidence there is
//! no health.

use std::collections::BTreeSet;
use std::sync::Arc;

use volmedic_api::resource::{ControllerReport, Coverage, LeaseName, NodeReport, NodeVantage, VantageKind};
use volmedic_api::{ControllerCoverage, Probed};
use volmedic_health::{Conditions, NotProbed, Reason, WellKnown};

use super::facts::seen;
use super::{Source, World};
use crate::ClaimKey;
use crate::agents::{Life, Now};
use crate::controllers::{FoundController, Word};
use crate::facts::{Seen, Since, Unprobed, View, VolumeId, What};
use crate::shape;
use crate::unknown::Unknown;

/// The controller of a driver, as its Lease describes it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Controller {
    pub lease: LeaseName,
    /// What it says it probes. Controllers older than version 0.2 do not say it, and are not found.
    pub coverage: ControllerCoverage,
}

/// Leases of controllers that are checked; a cluster has a handful of drivers.
const LEASES: usize = 256;

const RUN_AGENT: &str = "Run Volmedic's agent on that node (its DaemonSet); it needs nothing of the driver.";
const UPDATE_AGENT: &str = "Update the agent to the version of the hub.";
const NO_DRIVER: &str = "Nothing to repair; the agent checks it as soon as a pod uses it.";
const RUN_CONTROLLER: &str = "Nothing to repair. To probe volumes that no pod uses, run `volmedic controller` beside a driver that reports health.";

/// What a node's coverage says of one volume.
enum Covered<'a> {
    From(&'a [NodeVantage]),
    /// It is not probed: why, as a word and as a sentence.
    Not(&'a str, &'a str),
    /// It is not mentioned.
    Unlisted,
    /// It may be among those that found no room.
    Omitted,
    /// The agent is older than this part of the report.
    Unsaid,
}

fn covered<'a>(report: &'a NodeReport, volume: &str) -> Covered<'a> {
    let Some(Coverage { within_seconds: _, groups, omitted }) = &report.coverage else {
        return Covered::Unsaid;
    };
    let has = |names: &[String]| names.binary_search_by(|name| (**name).cmp(volume)).is_ok();
    match groups.iter().find(|group| has(&group.persistent_volumes)) {
        Some(group) if !group.probed_from.is_empty() => Covered::From(&group.probed_from),
        Some(group) => Covered::Not(&group.reason, &group.message),
        None if *omitted > 0 => Covered::Omitted,
        None => Covered::Unlisted,
    }
}

/// Whether two reports of a node say the same of whether a volume is probed.
pub(super) fn is_covered_alike(one: &NodeReport, other: &NodeReport, volume: &str) -> bool {
    let words = |report| match covered(report, volume) {
        Covered::From(vantages) => (0, vantages.to_vec(), String::new()),
        Covered::Not(word, why) => (1, Vec::new(), format!("{word} {why}")),
        Covered::Unlisted => (2, Vec::new(), String::new()),
        Covered::Omitted => (3, Vec::new(), String::new()),
        Covered::Unsaid => (4, Vec::new(), String::new()),
    };
    words(one) == words(other)
}

/// A report as it is kept: names in order, so that one is found quickly. The schema demands the order of nobody.
pub(super) fn in_order(report: &NodeReport) -> NodeReport {
    let mut report = report.clone();
    for group in report.coverage.iter_mut().flat_map(|coverage| &mut coverage.groups) {
        if !group.persistent_volumes.is_sorted() {
            group.persistent_volumes.sort_unstable();
        }
    }
    report
}

/// What one possible vantage adds: its view if it probes the volume, else why it does not.
#[derive(Default)]
pub(super) struct Evidence {
    pub(super) views: Vec<View>,
    pub(super) why: Option<Unprobed>,
}

impl Evidence {
    fn none(reason: Unknown, message: String) -> Self {
        Self { views: Vec::new(), why: Some(Unprobed::new(reason, message)) }
    }
}

impl World {
    /// What our agent on a node says of one volume. What is wrong counts even if the agent is gone; that nothing is
    /// wrong counts only if the agent runs and says that it probes this volume.
    pub(super) fn agent(
        &self,
        key: &ClaimKey,
        node: &str,
        volume: Option<&VolumeId>,
        life: Option<Life>,
    ) -> Evidence {
        if !self.heard.contains(&Source::Reports) {
            let message =
                format!("the report of node {node} was not read, so it is unknown what is probed there");
            return Evidence::none(Unknown::CannotRead, message);
        }
        let not_responding = |since: jiff::Timestamp| {
            format!("the agent on node {node} is not responding since {since:.0}; its last report is kept")
        };
        let Some((report, volume)) = self.reports.get(node).zip(volume) else {
            let (reason, message) = match life {
                _ if volume.is_none() => (Unknown::NoVolume, "the claim has no volume".to_owned()),
                _ if !self.heard.contains(&Source::Leases) => (
                    Unknown::CannotRead,
                    format!(
                        "the agent's Lease of node {node} was not read, so it is unknown whether one runs"
                    ),
                ),
                None => {
                    let message = format!("no agent runs on node {node}, where it is used");
                    let why = Unprobed { advice: RUN_AGENT, ..Unprobed::new(Unknown::NotProbed, message) };
                    return Evidence { views: Vec::new(), why: Some(why) };
                }
                Some(Life::Silent { since }) => (Unknown::AgentNotResponding, not_responding(since)),
                Some(Life::Alive | Life::Undetermined) => {
                    (Unknown::NotProbed, format!("the agent on node {node} has not stored a report yet"))
                }
            };
            return Evidence::none(reason, message);
        };
        let entries = report.volumes.iter();
        let entries = entries.filter(|entry| volume.is(&entry.driver, &entry.volume_handle));
        let (mut by_driver, mut by_host) = (Vec::new(), Vec::new());
        for entry in entries {
            let seen = entry.health_conditions.iter().filter_map(seen);
            match entry.vantage {
                NodeVantage::Node => by_driver.extend(seen),
                NodeVantage::Host => by_host.extend(seen),
            }
        }
        let covered = covered(report, &volume.name);
        if let Covered::Not(word, text) = covered {
            by_host.extend(self.not_mounted(node, volume, word, text));
        }
        let mut why = None;
        if let Covered::Not(word, text) = covered
            && word == NotProbed::BeingUnmounted.name()
            && let Some(stuck) = self.not_unmounted(key, node)
        {
            by_host.push(stuck);
            why = Some(not_probed(&format!("the agent on node {node} does not probe it"), word, text));
        }
        if let Some(Life::Silent { since }) = life {
            if matches!(covered, Covered::Not(..)) && by_host.is_empty() && by_driver.is_empty() {
                why = Some(Unprobed::new(Unknown::AgentNotResponding, not_responding(since)));
            } else {
                by_host.push(unknown(
                    Unknown::AgentNotResponding,
                    not_responding(since),
                    Since::Exactly(since),
                ));
            }
        }
        let nothing_wrong = by_host.is_empty() && by_driver.is_empty();
        let mut probed_from: &[NodeVantage] = &[];
        match (covered, life) {
            (_, Some(Life::Silent { .. })) => {}
            (Covered::From(_), _) if report.omitted > 0 && nothing_wrong => {
                // It may be among those that found no room; that is not health.
                let message = format!(
                    "more is wrong on node {node} than its report can hold, and this volume is not in it"
                );
                by_host.push(unknown(Unknown::ReportOverflow, message, Since::Unsaid));
            }
            (Covered::From(vantages), Some(Life::Alive)) => probed_from = vantages,
            (Covered::From(_), _) if !self.heard.contains(&Source::Leases) => {
                let message = format!(
                    "the agent's Lease of node {node} was not read, so it is unknown whether it still runs"
                );
                why = Some(Unprobed::new(Unknown::CannotRead, message));
            }
            (Covered::From(_), Some(Life::Undetermined)) => {
                let message = format!("it is not known yet whether the agent on node {node} still runs");
                why = Some(Unprobed::new(Unknown::NotProbed, message));
            }
            (_, None) => {
                let message =
                    format!("no agent runs on node {node}, where it is used; there is only an old report");
                why = Some(Unprobed { advice: RUN_AGENT, ..Unprobed::new(Unknown::NotProbed, message) });
            }
            (Covered::Not(..), _) if !nothing_wrong => {}
            (Covered::Not(word, text), _) => {
                why = Some(not_probed(&format!("the agent on node {node} does not probe it"), word, text));
            }
            (Covered::Unlisted, _) => {
                let message = format!("the agent on node {node} does not probe it yet");
                why = Some(Unprobed::new(Unknown::NotProbed, message));
            }
            (Covered::Omitted, _) => {
                let message = format!(
                    "node {node} has more volumes than its report can name, so it is unknown whether this one is probed"
                );
                why = Some(Unprobed::new(Unknown::NotProbed, message));
            }
            (Covered::Unsaid, _) => {
                let version = match report.agent.version.as_str() {
                    "" => String::new(),
                    version => format!(", of version {version},"),
                };
                let message =
                    format!("the agent on node {node}{version} does not report what it probes; update it");
                why = Some(Unprobed { advice: UPDATE_AGENT, ..Unprobed::new(Unknown::NotProbed, message) });
            }
        }
        let mut views = Vec::new();
        for (vantage, kind, seen) in [
            (NodeVantage::Host, VantageKind::Host, by_host),
            (NodeVantage::Node, VantageKind::Node, by_driver),
        ] {
            if !seen.is_empty() || probed_from.contains(&vantage) {
                views.push(View { kind, node: Some(node.into()), verified: self.unverified(), seen });
            }
        }
        Evidence { views, why }
    }

    /// What the driver's controller says: where the API server keeps it in the claim, there; else to us. That it says
    /// nothing counts as health only while it runs, reaches its driver, and the driver reports health.
    pub(super) fn controller(&self, key: &ClaimKey, volume: Option<&VolumeId>) -> Evidence {
        let report = self.report(key);
        let mut seen: Vec<Seen> = match report {
            Some(report) => self.reported(report),
            None => self.kept_in_claim(key),
        };
        // Which nodes are down we judge ourselves, for all drivers alike.
        let down = Reason::from(WellKnown::NodeDown);
        seen.retain(|seen| !matches!(&seen.what, What::Wrong(condition) if condition.reason == down));
        let view =
            |seen| View { kind: VantageKind::Controller, node: None, verified: self.unverified(), seen };
        if !seen.is_empty() {
            return Evidence { views: vec![view(seen)], why: None };
        }
        let Some((driver, handle)) = volume.and_then(|volume| volume.csi.as_ref()) else {
            let why = Unprobed::new(Unknown::NotProbed, "no CSI driver serves it".to_owned());
            return Evidence { views: Vec::new(), why: Some(Unprobed { advice: NO_DRIVER, ..why }) };
        };
        match self.controller_state(driver, handle, report.and_then(|report| report.lease.as_ref())) {
            Ok(()) => Evidence { views: vec![view(Vec::new())], why: None },
            Err(why) => Evidence { views: Vec::new(), why: Some(why) },
        }
    }

    /// Whether a driver's controller probes this volume; else why not.
    fn controller_state(
        &self,
        driver: &str,
        handle: &str,
        named: Option<&LeaseName>,
    ) -> Result<(), Unprobed> {
        let no = |reason, message| Err(Unprobed::new(reason, message));
        if !self.heard.contains(&Source::Controllers) {
            return no(Unknown::CannotRead, format!("the Lease of the controller of {driver} was not read"));
        }
        let found = self.drivers.get(driver);
        let Some(lease) = found.map(|found| &found.lease).or(named) else {
            let message = format!("driver {driver} has no controller sidecar that reports what it probes");
            return Err(Unprobed { advice: RUN_CONTROLLER, ..Unprobed::new(Unknown::NotProbed, message) });
        };
        match self.controllers.word(Some(lease)) {
            Word::Stands => {}
            Word::Undetermined => {
                let message =
                    format!("it is not known yet whether the controller sidecar of {driver} still runs");
                return no(Unknown::NotProbed, message);
            }
            Word::Silent { since } => {
                let message =
                    format!("the controller sidecar of {driver} is not responding since {since:.0}");
                return no(Unknown::ControllerNotResponding, message);
            }
            Word::Gone => {
                return no(
                    Unknown::ControllerNotResponding,
                    format!("the controller sidecar of {driver} is gone"),
                );
            }
        }
        let Some(Controller { coverage, .. }) = found else {
            let message =
                format!("the controller sidecar of {driver} does not report what it probes; update it");
            return no(Unknown::NotProbed, message);
        };
        match coverage.probed(handle) {
            Probed::Yes => Ok(()),
            Probed::None(outage) if outage.reason == NotProbed::DriverUnreachable.name() => no(
                Unknown::DriverUnreachable,
                format!(
                    "the controller sidecar of {driver} cannot reach its driver since {:.0}: {}",
                    outage.since.0, outage.message
                ),
            ),
            Probed::None(outage) => {
                let begin = format!("the controller sidecar of {driver} does not probe it");
                Err(not_probed(&begin, &outage.reason, &outage.message))
            }
            Probed::NotThis => {
                let message =
                    format!("the controller sidecar of {driver} has not probed it, or its probes fail");
                no(Unknown::NotProbed, message)
            }
        }
    }

    /// What the controller said of this claim's driver; empty if nothing is wrong, or it said nothing.
    fn kept_in_claim(&self, key: &ClaimKey) -> Vec<Seen> {
        let kept = self.claims.get(key).and_then(|claim| claim.kept.as_deref());
        let Some(kept) = kept else { return Vec::new() };
        let since = kept.time().map_or(Since::Unsaid, Since::NotAfter);
        let conditions = Conditions::new(kept.conditions());
        conditions.into_iter().map(|condition| Seen::new(What::Wrong(condition), since)).collect()
    }

    /// What a controller wrote into the object, if it is the one of this claim's driver: it names a Lease of that driver.
    /// Admission requires that this Lease is in the namespace of the account that wrote the report.
    pub(super) fn report(&self, key: &ClaimKey) -> Option<&ControllerReport> {
        let (claim, stored) = (self.claims.get(key)?, self.stored.get(key)?);
        stored.owner.as_ref().filter(|owner| **owner == claim.uid)?;
        let report = stored.status.as_ref()?.controller_report.as_ref()?;
        let (driver, _) = self.volume_of(key)?.id.csi.as_ref()?;
        let is_its_lease = report.lease.as_ref().is_some_and(|lease| lease.is_of(driver));
        (**driver == *report.driver && is_its_lease).then_some(report)
    }

    /// What is wrong by such a report, as far as it is still to be believed.
    fn reported(&self, report: &ControllerReport) -> Vec<Seen> {
        if report.lease.is_some() && !self.heard.contains(&Source::Controllers) {
            return Vec::new();
        }
        let at_latest = |mut seen: Seen| {
            if let Since::Exactly(at) = seen.since {
                seen.since = Since::NotAfter(at);
            }
            seen
        };
        let mut all: Vec<Seen> = report.health_conditions.iter().filter_map(seen).map(at_latest).collect();
        match self.controllers.word(report.lease.as_ref()) {
            Word::Gone => all.clear(),
            Word::Silent { since } if !all.is_empty() => {
                let message = format!(
                    "the controller of driver {} is not responding since {since:.0}; its last report is kept for a day",
                    report.driver
                );
                all.push(unknown(Unknown::ControllerNotResponding, message, Since::Exactly(since)));
            }
            Word::Stands | Word::Undetermined | Word::Silent { .. } => {}
        }
        all
    }

    /// The Lease by which the controller of a claim's driver is known to run.
    pub(super) fn lease_of_controller(
        &self,
        key: &ClaimKey,
        volume: Option<&VolumeId>,
    ) -> Option<&LeaseName> {
        let named = self.report(key).and_then(|report| report.lease.as_ref());
        let (driver, _) = volume?.csi.as_ref()?;
        named.or_else(|| self.drivers.get(&**driver).map(|found| &found.lease))
    }

    /// The Leases that reports of controllers name and that were not found otherwise.
    pub fn controller_leases(&mut self) -> BTreeSet<LeaseName> {
        let reports =
            self.stored.values().filter_map(|stored| stored.status.as_ref()?.controller_report.as_ref());
        let mut named = BTreeSet::new();
        for lease in reports.filter_map(|report| report.lease.as_ref()) {
            if named.len() < LEASES && !named.contains(lease) {
                named.insert(lease.clone());
            }
        }
        let found: BTreeSet<LeaseName> = self.drivers.values().map(|found| found.lease.clone()).collect();
        self.controllers.retain(&named.union(&found).cloned().collect());
        named.difference(&found).cloned().collect()
    }

    /// What was found of such a Lease; nothing, if there is none.
    pub fn put_controller_lease(&mut self, now: Now, lease: &LeaseName, found: Option<&shape::Lease>) {
        if self.controllers.put(now, lease, found) {
            self.touch_controlled(Some(lease));
        }
    }

    /// It could not be asked for, which is no silence.
    pub fn miss_controller_lease(&mut self, now: Now, lease: &LeaseName) {
        self.controllers.postpone(now, lease);
    }

    /// The controllers that were found, each with its driver and its Lease; those that are missing are gone.
    pub fn set_controllers(&mut self, now: Now, found: Vec<FoundController>) {
        let mut drivers = std::collections::BTreeMap::new();
        for (driver, controller, lease) in found {
            self.put_controller_lease(now, &controller.lease, Some(&lease));
            drivers.insert(driver, controller);
        }
        let before = std::mem::replace(&mut self.drivers, drivers);
        let names = before.keys().chain(self.drivers.keys());
        let changed: BTreeSet<Box<str>> =
            names.filter(|name| before.get(*name) != self.drivers.get(*name)).cloned().collect();
        if changed.is_empty() {
            return;
        }
        self.touch_where(|world, key| {
            let csi = world.volume_of(key).and_then(|volume| volume.id.csi.as_ref());
            csi.is_some_and(|(driver, _)| changed.contains(&**driver))
        });
    }

    /// Whether the controller sidecar of a driver reports nodes that are down. One that may run or may start again counts:
    /// it reports then, so that nothing is reported twice.
    pub(super) fn controller_reports_nodes(&self, driver: Option<&str>) -> bool {
        let found = driver.and_then(|driver| self.drivers.get(driver));
        found.is_some_and(|found| {
            let word = self.controllers.word(Some(&found.lease));
            found.coverage.reports_nodes && matches!(word, Word::Stands | Word::Undetermined)
        })
    }

    /// The drivers of all volumes.
    pub fn drivers(&self) -> BTreeSet<Arc<str>> {
        let drivers = self.volumes.values().filter_map(|volume| volume.id.csi.as_ref());
        drivers.map(|(driver, _)| driver.clone()).collect()
    }
}

/// A volume that is not probed for a reason that an agent or a controller gives.
fn not_probed(begin: &str, word: &str, text: &str) -> Unprobed {
    let known = word.parse::<NotProbed>().ok();
    let text = match (text.trim_end_matches('.'), known) {
        ("", Some(known)) => known.meaning().trim_end_matches('.'),
        ("", None) => word,
        (text, _) => text,
    };
    let advice = known.map_or(Unknown::NotProbed.advice(), NotProbed::advice);
    let is_limit = known.is_some_and(NotProbed::is_known_limit);
    let reason = if is_limit { Unknown::CannotBeProbed } else { Unknown::NotProbed };
    Unprobed { reason, message: format!("{begin}: {text}"), advice }
}

fn unknown(reason: Unknown, message: String, since: Since) -> Seen {
    Seen::new(What::Unknown { reason: reason.name().to_owned(), message }, since)
}
