//! What the agent shows: the volumes of the pods on its node, as the host and the drivers there see them.

use std::sync::Arc;

use tokio::sync::watch;
use volmedic_csi::Metrics;
use volmedic_health::{Subject, Transition};
use volmedic_inventory::node::{Inventory, NodeVolume};
use volmedic_probe::host::Host;
use volmedic_view::{About, AgentState, History, NodeState, Row};

use super::ports::in_use;
use super::sockets::Drivers;
use volmedic_runtime::page::{Chronicle, calls};

/// Changes that the page remembers.
pub(super) const CHANGES: usize = 1_000;

pub(super) struct Source {
    pub(super) node: Arc<str>,
    pub(super) inventory: Arc<Inventory>,
    pub(super) host: Arc<Host>,
    /// Ways of being informed by the kernel that are off, and why.
    pub(super) deaf: Vec<(&'static str, String)>,
    pub(super) drivers: watch::Receiver<Drivers>,
    pub(super) metrics: Metrics,
    pub(super) chronicle: Arc<Chronicle>,
}

impl Source {
    /// Drivers whose volumes are here while their node plugin is not to be found.
    fn unheard(&self) -> Vec<Arc<str>> {
        let found = self.drivers.borrow().clone();
        let used = self.inventory.volumes().drivers().into_iter().map(|(driver, _)| driver);
        // The kubelet's own plugins have no socket to be asked on.
        used.filter(|driver| !driver.starts_with("kubernetes.io/") && !found.contains_key(driver)).collect()
    }

    /// The checks that cannot run, and the drivers that cannot be asked.
    fn limits(&self) -> Vec<String> {
        let off = self.host.checks().into_iter().filter_map(|check| Some((check.name, check.off?)));
        let off = off.chain(self.deaf.iter().cloned());
        let mut limits: Vec<String> =
            off.map(|(check, why)| format!("the check {check} is off: {why}")).collect();
        for driver in self.unheard() {
            limits.push(format!(
                "the node plugin of {driver} has not registered with the kubelet, so only host checks cover its \
                 volumes"
            ));
        }
        if let Some(without) = self.inventory.without_persistent_volumes() {
            limits.push(format!("PersistentVolumes cannot be read: {}", without.why));
        }
        limits
    }
}

/// One row for each claim that is used here, and one for what is used without a claim.
fn rows_of(volume: &NodeVolume, row: &Row) -> Vec<Row> {
    let mut rows: Vec<Row> = Vec::new();
    for used in in_use(volume) {
        let (namespace, pod) = (&used.pod.namespace, &used.pod.name);
        let claim = used.claim.as_ref().map_or("", |claim| &claim.name);
        match rows.iter_mut().find(|row| row.namespace == *namespace && *row.claim == *claim) {
            Some(row) if row.pods.contains(pod) => {}
            Some(row) => row.pods.push(pod.clone()),
            None => rows.push(Row {
                namespace: namespace.clone(),
                claim: claim.into(),
                pods: vec![pod.clone()],
                ..row.clone()
            }),
        }
    }
    rows
}

/// What a volume is called where it is used, as in `shop/data`.
fn known_as(inventory: &Inventory, subject: &Subject) -> Option<String> {
    let Subject::Volume(volume) = subject else { return None };
    let volume = inventory.volumes().get(&volume.driver, &volume.handle)?;
    volume
        .uses
        .iter()
        .find_map(|used| used.claim.as_ref().map(|claim| format!("{}/{}", claim.namespace, claim.name)))
}

/// Reports what changed to the page.
pub(super) fn teller(
    chronicle: &Arc<Chronicle>,
    inventory: &Arc<Inventory>,
) -> impl Fn(&Transition) + Send + Sync + 'static + use<> {
    let (chronicle, inventory) = (chronicle.clone(), inventory.clone());
    move |transition| chronicle.record(transition, known_as(&inventory, &transition.subject))
}

impl volmedic_view::Source for Source {
    fn rows(&self) -> Vec<Row> {
        let volumes = self.inventory.volumes().all();
        let waiting: Arc<str> = "it has not been checked yet".into();
        let ledger = self.chronicle.board.lock_ledger();
        let used = volumes.iter().filter(|volume| volume.is_in_use());
        used.flat_map(|volume| {
            let nodes = vec![self.node.clone()];
            let row = Row { nodes, ..Row::new(volume.driver.clone(), volume.handle.clone()) };
            rows_of(volume, &self.chronicle.fill(&ledger, row, || waiting.clone()))
        })
        .collect()
    }

    fn about(&self) -> About {
        let found: Vec<String> = self.drivers.borrow().keys().map(ToString::to_string).collect();
        let checks: Vec<&str> = self
            .host
            .checks()
            .into_iter()
            .filter(|check| check.off.is_none())
            .map(|check| check.name)
            .collect();
        let helpers = self.host.helpers().counts();
        let or_none = |text: String| if text.is_empty() { "none".to_owned() } else { text };
        About {
            title: format!("Node {}", self.node),
            place: "as the agent there sees the volumes of its pods".to_owned(),
            facts: vec![
                ("Node", self.node.to_string()),
                ("Drivers that can be asked", or_none(found.join(", "))),
                ("Checks that run", or_none(checks.join(", "))),
                ("Helpers that are stuck", helpers.stuck.to_string()),
                ("Version", env!("CARGO_PKG_VERSION").to_owned()),
            ],
            limits: self.limits(),
            trouble: self
                .inventory
                .staleness()
                .map(|stale| format!("what runs on this node cannot be found out: {}", stale.why)),
            calls: calls(&self.metrics),
        }
    }

    fn history(&self) -> &History {
        &self.chronicle.history
    }

    fn nodes(&self) -> Vec<NodeState> {
        let agent = AgentState { state: "this one", well: true, since: None };
        vec![NodeState {
            name: self.node.clone(),
            state: "this node".to_owned(),
            well: true,
            since: None,
            agent: Some(agent),
        }]
    }
}
