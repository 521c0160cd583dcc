//! What the controller shows: the volumes of its driver, with the claims that are bound to them.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use volmedic_api::{Kind, ObjectRef};
use volmedic_csi::dialect::{self, ControllerProbe};
use volmedic_csi::{Metrics, Session};
use volmedic_health::{Health, Subject, Transition, Vantage};
use volmedic_inventory::{BoundClaim, Inventory};
use volmedic_view::{About, History, NodeState, Row, Sighting};

use volmedic_runtime::page::{Chronicle, Late, calls, node_state};

/// Changes that the page remembers.
pub(super) const CHANGES: usize = 1_000;
/// Volumes looked up before the pipe gets at the ledger.
const TOGETHER: usize = 500;

/// The page of a controller that may not lead yet.
pub(super) type Page = Late<Source>;

pub(super) struct Source {
    pub(super) name: Arc<str>,
    pub(super) driver: volmedic_csi::Driver,
    pub(super) metrics: Metrics,
    pub(super) inventory: Arc<Inventory>,
    pub(super) chronicle: Arc<Chronicle>,
}

/// Which pods use a claim, and on which nodes; by namespace and name of the claim.
type Users = HashMap<(Box<str>, Box<str>), Used>;

#[derive(Debug, Default)]
struct Used {
    pods: BTreeSet<Box<str>>,
    nodes: BTreeSet<Arc<str>>,
}

impl Source {
    fn users(&self) -> Users {
        let mut users = Users::new();
        let Some(pods) = self.inventory.pods() else { return users };
        for node in pods.nodes() {
            let shared: Arc<str> = (&*node).into();
            for used in pods.on(&node) {
                for claim in used.claims {
                    let entry: &mut Used = users.entry((used.pod.namespace.clone(), claim)).or_default();
                    entry.pods.insert(used.pod.name.clone());
                    entry.nodes.insert(shared.clone());
                }
            }
        }
        users
    }

    /// Why the driver as a whole, or the cluster, cannot be seen.
    fn trouble(&self) -> Option<String> {
        if let Err(error) = self.driver.session() {
            return Some(format!("{error}; what was known before stands, and it is tried again"));
        }
        if let Some(stale) = self.inventory.staleness() {
            return Some(format!("out of touch with the API server: {}", stale.why));
        }
        let ledger = self.chronicle.board.lock_ledger();
        let backend = ledger.beliefs(&Subject::Backend(self.name.clone()));
        let since = backend.iter().find_map(|(_, belief)| belief.blind_since)?;
        Some(format!("the driver answers, but not about its volumes, since {since:.0}; see its log"))
    }

    fn facts(&self, session: Option<&Session>) -> Vec<(&'static str, String)> {
        let mut facts = vec![
            ("Driver", self.name.to_string()),
            ("Volumes that are bound to claims", self.inventory.volumes().len().to_string()),
            ("PersistentVolumes of the driver", self.inventory.volumes().known().to_string()),
        ];
        if let Some(session) = session {
            facts.extend([
                ("Version of the driver", session.version().to_owned()),
                ("How it reports health", dialect::controller(session.features()).sentence.to_owned()),
                ("Controller capabilities", session.features().controller_names().join(", ")),
            ]);
        }
        facts.push(("Version", env!("CARGO_PKG_VERSION").to_owned()));
        facts
    }
}

impl volmedic_view::Source for Source {
    fn rows(&self) -> Vec<Row> {
        let volumes = self.inventory.volumes();
        let mut handles = Vec::with_capacity(volumes.len());
        volumes.for_each(|handle| handles.push(handle.clone()));
        let users = self.users();
        let gone: Option<Arc<str>> = self.trouble().map(Into::into);
        let session = self.driver.session().ok();
        let mute = session
            .as_ref()
            .is_some_and(|session| dialect::controller(session.features()).probe == ControllerProbe::None);
        let why: Arc<str> = match &gone {
            Some(gone) => gone.clone(),
            None if mute => "the driver does not report health".into(),
            None => "it has not been checked yet".into(),
        };
        let well = Sighting {
            vantage: Vantage::Controller,
            health: Health::Healthy,
            conditions: Vec::new(),
            blind_since: None,
            flapping_since: None,
        };
        let mut rows = Vec::with_capacity(handles.len());
        for some in handles.chunks(TOGETHER) {
            let ledger = self.chronicle.board.lock_ledger();
            let quiet = ledger.quiet(&self.name, &Vantage::Controller);
            for handle in some {
                let row = Row { mute, ..Row::new(self.name.clone(), handle.clone()) };
                let subject = Subject::volume(self.name.clone(), handle.clone());
                // Nearly all are healthy, and need no closer look.
                let calm = gone.is_none()
                    && quiet.contains(handle)
                    && !ledger.is_adverse(&subject, &Vantage::Cluster);
                let row = if calm {
                    Row { health: Health::Healthy, seen_by: vec![well.clone()], ..row }
                } else {
                    self.chronicle.fill(&ledger, row, || why.clone())
                };
                rows.extend(spread(&row, volumes.claims(handle), &users));
            }
        }
        rows
    }

    fn about(&self) -> About {
        let session = self.driver.session().ok();
        let choice = session.as_ref().map(|session| dialect::controller(session.features()));
        let mut limits = Vec::new();
        if let Some(choice) = choice.filter(|choice| choice.probe == ControllerProbe::None) {
            limits.push(choice.sentence.to_owned());
        }
        limits.push("mounts on nodes; the agents and the hub show those".to_owned());
        About {
            title: self.name.to_string(),
            place: "as its controller reports".to_owned(),
            facts: self.facts(session.as_ref()),
            limits,
            trouble: self.trouble(),
            calls: calls(&self.metrics),
        }
    }

    fn history(&self) -> &History {
        &self.chronicle.history
    }

    fn nodes(&self) -> Vec<NodeState> {
        let nodes = self.inventory.nodes().and_then(|nodes| nodes.current()).unwrap_or_default();
        nodes.iter().map(|node| node_state(node)).collect()
    }
}

/// One row for each claim that a volume is bound to.
fn spread(row: &Row, claims: Vec<BoundClaim>, users: &Users) -> impl Iterator<Item = Row> {
    claims.into_iter().map(|BoundClaim { claim, volume: _ }| {
        let used = users.get(&(claim.namespace.clone(), claim.name.clone()));
        Row {
            namespace: claim.namespace,
            claim: claim.name,
            nodes: used.map_or_else(Vec::new, |used| used.nodes.iter().cloned().collect()),
            pods: used.map_or_else(Vec::new, |used| used.pods.iter().cloned().collect()),
            ..row.clone()
        }
    })
}

/// Reports what changed to the page too.
pub(super) struct Outlet<O> {
    pub(super) to: O,
    /// None where nobody is shown anything.
    pub(super) chronicle: Option<Arc<Chronicle>>,
}

impl<O: volmedic_monitor::Outlet> volmedic_monitor::Outlet for Outlet<O> {
    fn tell(&mut self, transition: &Transition, about: Vec<ObjectRef>) {
        if let Some(chronicle) = &self.chronicle {
            let claim = about.iter().find(|object| object.kind == Kind::PersistentVolumeClaim);
            chronicle.record(transition, claim.map(|claim| format!("{}/{}", claim.namespace, claim.name)));
        }
        self.to.tell(transition, about);
    }
}
