//! From what was read to rows: what everybody says of each claim, the worst of it, or why nobody can say.

use std::collections::HashMap;
use std::sync::Arc;

use jiff::Timestamp;
use volmedic_api::resource::{ConditionStatus, HealthCondition, NodeVantage, VantageHealth};
use volmedic_health::{Condition, Health, Held, Reason, Status, Vantage, WellKnown};
use volmedic_view::{Row, Sighting};

use super::blind::{Blind, Cause};
use super::events::{self, What};
use super::picture::{Claim, Life, Phase, Picture, Pod, Volume};
use super::who::Who;

/// What one vantage says, with why it cannot say more.
#[derive(Debug)]
pub(crate) struct Seen {
    pub(crate) sighting: Sighting,
    /// The word and the sentence.
    pub(crate) why: Option<(Arc<str>, Arc<str>)>,
}

impl Seen {
    fn new(vantage: Vantage, conditions: Vec<Held>) -> Self {
        let health =
            conditions.first().map_or(Health::Healthy, |held| Health::Adverse(held.condition.status));
        let sighting = Sighting { vantage, health, conditions, blind_since: None, flapping_since: None };
        Self { sighting, why: None }
    }

    fn blind(vantage: Vantage, word: &str, message: &str, since: Option<Timestamp>) -> Self {
        let mut seen = Self::new(vantage, Vec::new());
        seen.sighting.health = Health::Unknown;
        seen.sighting.blind_since = since;
        seen.why = Some((word.into(), message.into()));
        seen
    }

    fn of(vantage: Vantage, told: &[HealthCondition]) -> Self {
        let held = |one: &HealthCondition| {
            Some(Held { condition: one.condition()?, since: one.last_transition_time.0 })
        };
        let mut held: Vec<Held> = told.iter().filter_map(held).collect();
        held.sort_by_key(|held| std::cmp::Reverse(held.condition.status));
        let unknown = told.iter().find(|one| one.status == ConditionStatus::Unknown);
        let mut seen = Self::new(vantage, held);
        if let Some(unknown) = unknown {
            seen.why = Some((unknown.reason.as_str().into(), unknown.message.as_str().into()));
            seen.sighting.blind_since = Some(unknown.last_transition_time.0);
            if seen.sighting.conditions.is_empty() {
                seen.sighting.health = Health::Unknown;
            }
        }
        seen
    }
}

/// Makes rows of a picture. What is the same for many rows is found out once.
#[derive(Debug)]
pub(crate) struct Rows<'a> {
    picture: &'a Picture,
    now: Timestamp,
    pub(crate) who: Who,
    /// Pods by the claim that they use.
    users: HashMap<(&'a str, &'a str), Vec<(&'a str, &'a Pod)>>,
    nothing: Arc<str>,
    blind: Blind,
}

impl<'a> Rows<'a> {
    pub(crate) fn new(picture: &'a Picture, now: Timestamp) -> Self {
        let mut users = HashMap::<_, Vec<_>>::new();
        for (namespace, name, pod) in picture.pods.iter() {
            for (claim, _) in &pod.uses {
                users.entry((&**namespace, &**claim)).or_default().push((name, pod));
            }
        }
        for pods in users.values_mut() {
            pods.sort_unstable_by_key(|(name, _)| *name);
        }
        let who = Who::new(picture, now);
        Self { picture, now, who, users, nothing: "".into(), blind: Blind::default() }
    }

    /// Every claim, in no order.
    pub(crate) fn all(&mut self) -> Vec<Row> {
        let picture = self.picture;
        picture.claims.iter().map(|(namespace, name, claim)| self.row(namespace, name, claim)).collect()
    }

    pub(crate) fn row(&mut self, namespace: &str, name: &str, claim: &Claim) -> Row {
        let volume = self.picture.volume_of(namespace, name, claim);
        let (driver, handle) = match volume {
            Some(volume) => (volume.driver.clone(), volume.handle.clone()),
            None => {
                let driver = claim.provisioner.clone().unwrap_or_else(|| self.nothing.clone());
                (driver, if claim.volume.is_empty() { self.nothing.clone() } else { (&*claim.volume).into() })
            }
        };
        let pods = self.users.get(&(namespace, name)).cloned().unwrap_or_default();
        let mut nodes: Vec<Arc<str>> = pods.iter().map(|(_, pod)| pod.node.clone()).collect();
        nodes.sort_unstable();
        nodes.dedup();
        let all = self.seen(namespace, name, claim);
        let mut row = Row {
            namespace: namespace.into(),
            claim: name.into(),
            pods: pods.iter().map(|(name, _)| (*name).into()).collect(),
            nodes,
            ..Row::new(driver, handle)
        };
        self.head(&mut row, claim, volume, &all);
        row.seen_by = all.into_iter().map(|seen| seen.sighting).collect();
        row
    }

    /// The worst of what everybody says; among equals, what has lasted longest.
    fn head(&mut self, row: &mut Row, claim: &Claim, volume: Option<&Volume>, all: &[Seen]) {
        let rank = |seen: &&Seen| {
            let since = seen.sighting.since().unwrap_or(Timestamp::MAX);
            (std::cmp::Reverse(seen.sighting.health), since)
        };
        if let Some(worst) = all.iter().min_by_key(rank) {
            row.health = worst.sighting.health;
            row.since = worst.sighting.since();
            row.condition = worst.sighting.conditions.first().map(|held| held.condition.clone());
            if row.health == Health::Unknown
                && let Some((word, why)) = &worst.why
            {
                (row.why, row.why_word) = (Some(why.clone()), Some(word.clone()));
                row.advice = Some(self.blind.advice(word));
            }
            return;
        }
        let cause = match (claim.phase, volume) {
            (Phase::Pending, _) => Cause::NotBound,
            (_, None) if !self.picture.has("persistentvolumes") => Cause::VolumeUnread,
            (_, None) => Cause::NoVolume,
            _ => self.cause(&row.driver, &row.nodes),
        };
        let text = self.blind.text(cause);
        (row.why_word, row.why, row.advice) = (Some(text.word), Some(text.why), Some(text.advice));
    }

    /// Why nobody looks at a volume that is there.
    fn cause(&self, driver: &Arc<str>, nodes: &[Arc<str>]) -> Cause {
        if !self.picture.has("leases") {
            return Cause::LookersUnread;
        }
        let controller = self.who.controllers.get(driver);
        let mute = matches!(controller, Some((Life::Alive, _)));
        let silent = matches!(controller, Some((Life::Silent(_), _)));
        match nodes.first() {
            _ if driver.is_empty() && nodes.is_empty() => Cause::NoDriver,
            None => Cause::Unused { driver: driver.clone(), mute, silent },
            Some(node) => Cause::NoAgent { driver: driver.clone(), node: node.clone(), mute },
        }
    }

    /// What everybody says of a claim. What is stored counts more than what we make out ourselves.
    pub(crate) fn seen(&self, namespace: &str, name: &str, claim: &Claim) -> Vec<Seen> {
        let picture = self.picture;
        let volume = picture.volume_of(namespace, name, claim);
        let mut all: Vec<Seen> = Vec::new();
        let stored = picture.health_of(namespace, name, claim);
        if let Some(stored) = stored {
            let entry =
                |entry: &VantageHealth| Some(Seen::of(entry.name.parse().ok()?, &entry.health_conditions));
            all.extend(stored.vantages.iter().filter_map(entry));
            if let Some(report) = &stored.controller_report {
                add(&mut all, Seen::of(Vantage::Controller, &report.health_conditions));
            }
        }
        if let Some(told) = &claim.told {
            let conditions = told.conditions().into_iter();
            // Which nodes are down we judge ourselves, for all drivers alike.
            let conditions = conditions.filter(|one| one.reason.well_known() != Some(WellKnown::NodeDown));
            let since = told.time().unwrap_or(self.now);
            add(&mut all, Seen::new(Vantage::Controller, held(conditions, since)));
        }
        if claim.phase == Phase::Lost {
            let message = format!("the PersistentVolume {} of the claim is gone", claim.volume);
            let lost = Condition::new(Status::Inaccessible, WellKnown::VolumeNotFound.into(), &message);
            add(&mut all, Seen::new(Vantage::Cluster, held([lost], self.now)));
        }
        let users = self.users.get(&(namespace, name)).map_or(&[][..], Vec::as_slice);
        self.cluster(users, &mut all);
        let mut nodes: Vec<&Arc<str>> = users.iter().map(|(_, pod)| &pod.node).collect();
        nodes.sort_unstable();
        nodes.dedup();
        for node in nodes {
            self.kubelet(name, node, users, volume, &mut all);
            self.agent(node, volume, &mut all);
        }
        if stored.is_none() && claim.told.is_none() {
            self.events(namespace, name, users, volume, &mut all);
        }
        // A controller that says its driver tells health, and has said nothing, sees nothing wrong.
        let controller = volume.and_then(|volume| self.who.controllers.get(&volume.driver));
        if let Some((Life::Alive, Some(true))) = controller {
            add(&mut all, Seen::new(Vantage::Controller, Vec::new()));
        }
        all.sort_by(|a, b| a.sighting.vantage.cmp(&b.sighting.vantage));
        all
    }

    /// Nodes that are down while pods there use the claim.
    fn cluster(&self, users: &[(&str, &Pod)], all: &mut Vec<Seen>) {
        let mut wrong = Vec::new();
        for (pod, record) in users {
            let down = match self.picture.nodes.get(&record.node) {
                Some(node) => node.down(self.now),
                None if self.picture.has("nodes") => {
                    Some(("it was deleted from the cluster".to_owned(), None))
                }
                None => None,
            };
            if let Some((why, since)) = down {
                let message = format!("node {} is down, {why}; it is used there by pod {pod}", record.node);
                let condition = Condition::new(Status::Inaccessible, WellKnown::NodeDown.into(), &message);
                wrong.push(Held { condition, since: since.unwrap_or(self.now) });
            }
        }
        if !wrong.is_empty() {
            wrong.sort_by_key(|held| held.since);
            wrong.truncate(1);
            add(all, Seen::new(Vantage::Cluster, wrong));
        }
    }

    /// What the kubelet of a node says of the volume, and of the storage behind its driver.
    fn kubelet(
        &self,
        claim: &str,
        node: &Arc<str>,
        users: &[(&str, &Pod)],
        volume: Option<&Volume>,
        all: &mut Vec<Seen>,
    ) {
        let (mut spoke, mut wrong) = (false, Vec::new());
        for (_, pod) in users.iter().filter(|(_, pod)| pod.node == *node) {
            for told in
                pod.uses.iter().filter(|(used, _)| **used == *claim).filter_map(|(_, told)| told.as_ref())
            {
                spoke = true;
                wrong.extend(held(told.conditions(), told.time().unwrap_or(self.now)));
            }
        }
        for backend in self.picture.backends.get(node).into_iter().flatten() {
            if volume.is_some_and(|volume| *volume.driver == *backend.name) {
                for one in backend.health_conditions.iter().flatten() {
                    spoke = true;
                    let since = one.last_transition_time.as_ref().map_or(self.now, |time| time.0);
                    wrong.push(Held { condition: one.condition(), since });
                }
            }
        }
        if spoke {
            wrong.sort_by_key(|held| std::cmp::Reverse(held.condition.status));
            add(all, Seen::new(Vantage::Kubelet(node.clone()), wrong));
        }
    }

    /// What our agent on a node says of the volume.
    fn agent(&self, node: &Arc<str>, volume: Option<&Volume>, all: &mut Vec<Seen>) {
        let Some(report) = self.picture.reports.get(node) else { return };
        let host = Vantage::Host(node.clone());
        let is_it = |driver: &str, handle: &str| {
            volume.is_some_and(|volume| {
                let own = *volume.driver == *driver && *volume.handle == *handle;
                own || volume.driver.is_empty()
                    && driver.starts_with("kubernetes.io/")
                    && *volume.name == *handle
            })
        };
        let entries = report.volumes.iter().filter(|entry| is_it(&entry.driver, &entry.volume_handle));
        let mut spoke = false;
        for entry in entries {
            let vantage = match entry.vantage {
                NodeVantage::Node => Vantage::Node(node.clone()),
                NodeVantage::Host => host.clone(),
            };
            spoke |= entry.vantage == NodeVantage::Host;
            add(all, Seen::of(vantage, &entry.health_conditions));
        }
        let silent = |since: Option<Timestamp>| {
            let since = since.map(|since| format!(" since {since:.0}")).unwrap_or_default();
            format!("the agent on node {node} is silent{since}; what it said last stands")
        };
        match self.who.agents.get(node) {
            Some(Life::Alive) if spoke => {}
            Some(Life::Alive) if report.omitted > 0 => {
                let why = format!(
                    "more is wrong on node {node} than its report can hold, and this volume is not in it"
                );
                add(all, Seen::blind(host, "ReportOverflow", &why, None));
            }
            Some(Life::Alive) => add(all, Seen::new(host, Vec::new())),
            Some(Life::Silent(since)) if !spoke => {
                add(all, Seen::blind(host, "AgentSilent", &silent(*since), *since));
            }
            Some(Life::Silent(_)) | None => {}
        }
    }

    /// What events say, where nothing is stored.
    fn events(
        &self,
        namespace: &str,
        name: &str,
        users: &[(&str, &Pod)],
        volume: Option<&Volume>,
        all: &mut Vec<Seen>,
    ) {
        let of_claim = self.picture.told_on_claims.get(namespace, name).into_iter().flatten();
        let of_pods =
            users.iter().filter_map(|(pod, _)| self.picture.told_on_pods.get(namespace, pod)).flatten();
        let means_it = |note: &&events::Note| match (&note.volume, volume) {
            (Some((driver, handle)), Some(volume)) => {
                *volume.driver == **driver && *volume.handle == **handle
            }
            (Some(_), None) => false,
            (None, _) => true,
        };
        let mut by_vantage: Vec<(Vantage, Vec<Held>, Option<Timestamp>)> = Vec::new();
        for note in events::standing(of_claim.chain(of_pods).filter(means_it)) {
            let index = by_vantage.iter().position(|(vantage, ..)| *vantage == note.vantage);
            let index = index.unwrap_or_else(|| {
                by_vantage.push((note.vantage.clone(), Vec::new(), None));
                by_vantage.len() - 1
            });
            let (_, held, blind) = &mut by_vantage[index];
            match &note.what {
                What::Wrong(condition, since) => {
                    held.push(Held { condition: condition.clone(), since: *since });
                }
                What::Blind(since) => *blind = Some(*since),
                What::Over => {}
            }
        }
        for (vantage, mut held, blind) in by_vantage {
            held.sort_by_key(|held| std::cmp::Reverse(held.condition.status));
            match blind {
                Some(since) if held.is_empty() => {
                    let why = format!("{vantage} has not seen it since {since:.0}, as an event says");
                    add(all, Seen::blind(vantage, "NotSeen", &why, Some(since)));
                }
                // That the cluster sees nothing wrong says nothing of the volume.
                _ if held.is_empty() && vantage == Vantage::Cluster => {}
                _ => add(all, Seen::new(vantage, held)),
            }
        }
    }
}

/// Unless somebody says it from there already.
fn add(all: &mut Vec<Seen>, seen: Seen) {
    if all.iter().all(|known| known.sighting.vantage != seen.sighting.vantage) {
        all.push(seen);
    }
}

fn held(conditions: impl IntoIterator<Item = Condition>, since: Timestamp) -> Vec<Held> {
    conditions.into_iter().map(|condition| Held { condition, since }).collect()
}

/// The reason in words that are ours, for what `explain` says about it.
pub(crate) fn meaning(reason: &Reason) -> Option<&'static str> {
    reason.well_known().map(WellKnown::meaning)
}

#[cfg(test)]
mod tests;
