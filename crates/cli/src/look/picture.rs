//! What was read of a cluster: the hub's own model of it, and what only people ask for. Lists fill it, and watches keep it
//! true.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use volmedic_api::resource::LeaseName;
use volmedic_api::{Arrived, slim};
use volmedic_hub::{
    Attachment, Claim, ControllerLease, CsiNode, DownNode, Lease, Now, Pod, Source, StoredHealth,
    StoredReport, Volume, World,
};
use volmedic_inventory::{Down, DownWhy, Judge, NodeSight};
use volmedic_roles::controller::LEASE as LONE_CONTROLLER_LEASE;

use super::events::Note;
use super::list::Unread;
use super::shape::CsiDriver;
use super::shelf::Shelf;

/// How an agent's Lease is named: this and the name of its node.
pub(crate) const AGENT_LEASE: &str = volmedic_hub::AGENT_LEASE;
/// How the Lease of a driver's controller begins, external-health-monitor's and ours alike.
pub(crate) const CONTROLLER_LEASE: &str = "external-health-monitor-leader-";
pub(crate) const HUB_LEASE: &str = "volmedic-hub";

/// What our clock and that of a holder of a Lease may differ by.
pub(crate) const SKEW: Duration = Duration::from_secs(30);

#[derive(Debug)]
pub(crate) struct Picture {
    pub(crate) world: World,
    pub(crate) nodes: BTreeMap<Box<str>, NodeSight>,
    judge: Judge,
    /// The Leases of the hub and of controllers.
    pub(crate) leases: Shelf<ControllerLease>,
    /// The drivers that are registered on each node.
    pub(crate) node_drivers: BTreeMap<Box<str>, Vec<Box<str>>>,
    /// Drivers that are registered in the cluster.
    pub(crate) drivers: BTreeSet<Box<str>>,
    /// What events say, by claim and by pod.
    pub(crate) reported_on_claims: Shelf<Vec<Note>>,
    pub(crate) reported_on_pods: Shelf<Vec<Note>>,
    /// What could not be read, by the plural name of the kind, and why.
    pub(crate) unread: BTreeMap<&'static str, Unread>,
    /// Objects that made no sense.
    pub(crate) malformed: usize,
}

impl Default for Picture {
    fn default() -> Self {
        let mut world = World::untracked();
        // Where agents can speak for other nodes, what is stored says so.
        world.set_verified(true);
        Self {
            world,
            nodes: BTreeMap::new(),
            judge: Judge::by_times(Judge::GRACE),
            leases: Shelf::default(),
            node_drivers: BTreeMap::new(),
            drivers: BTreeSet::new(),
            reported_on_claims: Shelf::default(),
            reported_on_pods: Shelf::default(),
            unread: BTreeMap::new(),
            malformed: 0,
        }
    }
}

/// Which kinds the hub's model is made of.
const SOURCES: [(&str, Source); 10] = [
    ("persistentvolumeclaims", Source::Claims),
    ("persistentvolumes", Source::Volumes),
    ("pods", Source::Pods),
    ("nodes", Source::Nodes),
    ("volumehealths", Source::Stored),
    ("nodevolumehealths", Source::Reports),
    ("leases", Source::Leases),
    ("leases", Source::Controllers),
    ("csinodes", Source::Backends),
    ("volumeattachments", Source::Attachments),
];

impl Picture {
    /// Empty but for what is known not to be readable.
    pub(crate) fn without(unread: BTreeMap<&'static str, Unread>) -> Self {
        Self { unread, ..Self::default() }
    }

    /// Judges what depends on the time, and on all objects of a kind. To be called when everything was read, and again
    /// whenever the picture is to be shown. While changes do not reach us, no holder of a Lease stops responding.
    pub(crate) fn settle(&mut self, today: Timestamp, in_touch: bool) {
        let now = Now { day: today, clock: Instant::now() };
        for (kind, source) in SOURCES {
            // A kind that is not installed has no objects; of one that may not be read nothing is known.
            if matches!(self.unread.get(kind), None | Some(Unread::Missing)) {
                self.world.heard(source);
            }
        }
        let leases = self.leases.iter().map(|(namespace, name, lease)| {
            (LeaseName { namespace: namespace.to_string(), name: name.to_owned() }, lease)
        });
        self.world.set_controllers(now, volmedic_hub::find_controllers(leases));
        self.world.settle(now, SKEW);
        self.world.tick(now, in_touch);
        if self.has("nodes") {
            self.judge_nodes(today);
        }
    }

    fn judge_nodes(&mut self, now: Timestamp) {
        let names: BTreeSet<Box<str>> = self.nodes.keys().cloned().collect();
        let used = self.world.used_nodes();
        for gone in used.difference(&names) {
            self.judge.recall(Down { node: gone.clone(), since: now, why: DownWhy::Deleted });
        }
        self.judge.pass(now, self.nodes.values());
        let down = self.judge.down().filter(|down| used.contains(&down.node));
        let down = down.map(|Down { node, since, why }| (node, DownNode { since, why: why.to_string() }));
        self.world.set_down(down.collect());
        self.world.set_nodes(names);
        self.world.heard(Source::NodesDown);
    }

    pub(crate) fn put_claim(&mut self, object: &Arrived<Claim>, body: &Claim) {
        self.world.put_claim(object.namespace(), object.name(), object.uid(), body);
    }

    pub(crate) fn put_volume(&mut self, object: &Arrived<Volume>, body: &Volume) {
        self.world.put_volume(object.name(), body);
    }

    pub(crate) fn put_pod(&mut self, object: &Arrived<Pod>, body: &Pod) {
        self.world.put_pod(object.namespace(), object.name(), body);
    }

    pub(crate) fn put_node(&mut self, object: &Arrived<slim::Node>, body: &slim::Node) {
        self.nodes.insert(object.name().into(), NodeSight::new(object, body));
    }

    pub(crate) fn put_health(&mut self, object: &Arrived<StoredHealth>, body: &StoredHealth) {
        self.world.put_stored(object.namespace(), object.name(), body);
    }

    pub(crate) fn put_report(&mut self, object: &Arrived<StoredReport>, body: &StoredReport) {
        self.world.put_report(object.name(), &body.spec.report);
        self.world.saw_report(object.resource_version());
    }

    /// Leases of others are passed over.
    pub(crate) fn put_lease(&mut self, object: &Arrived<ControllerLease>, body: &ControllerLease) {
        let (namespace, name) = (object.namespace(), object.name());
        if let Some(node) = name.strip_prefix(AGENT_LEASE) {
            let now = Now { day: Timestamp::now(), clock: Instant::now() };
            self.world.put_lease(now, node, &Lease { spec: body.spec.clone() });
            return;
        }
        let labels = body.metadata.labels.as_ref();
        let is_controller =
            [CONTROLLER_LEASE, LONE_CONTROLLER_LEASE].iter().any(|start| name.starts_with(start))
                || labels.is_some_and(|labels| labels.contains_key(volmedic_api::REPORTS_HEALTH));
        if is_controller || name == HUB_LEASE {
            self.leases.put(namespace, name, body.clone());
        }
    }

    pub(crate) fn take_lease(&mut self, namespace: &str, name: &str) {
        if let Some(node) = name.strip_prefix(AGENT_LEASE) {
            self.world.remove_lease(node);
        }
        self.leases.take(namespace, name);
    }

    pub(crate) fn put_csi_node(&mut self, object: &Arrived<CsiNode>, body: &CsiNode) {
        let drivers = body.spec.drivers.iter().flatten().map(|driver| driver.name.as_str().into());
        self.node_drivers.insert(object.name().into(), drivers.collect());
        self.world.put_backends(object.name(), body);
    }

    pub(crate) fn put_attachment(&mut self, object: &Arrived<Attachment>, body: &Attachment) {
        self.world.put_attachment(object.name(), body);
    }

    pub(crate) fn take_csi_node(&mut self, node: &str) {
        self.node_drivers.remove(node);
        self.world.remove_csi_node(node);
    }

    pub(crate) fn put_driver(&mut self, object: &Arrived<CsiDriver>, _: &CsiDriver) {
        self.drivers.insert(object.name().into());
    }

    /// The hub's Lease and its namespace.
    pub(crate) fn hub(&self) -> Option<(&str, &ControllerLease)> {
        let mut all = self.leases.iter();
        all.find(|(_, name, _)| *name == HUB_LEASE).map(|(namespace, _, lease)| (&**namespace, lease))
    }

    /// The Lease of a driver's controller and its namespace: the one that says what it probes; else the one it leads by, or
    /// the one that says only that it runs.
    pub(crate) fn controller(&self, driver: &str) -> Option<(&str, &ControllerLease)> {
        let leads = volmedic_lease::lock_name(driver);
        let lives = volmedic_lease::sanitize(&format!("{LONE_CONTROLLER_LEASE}{driver}")).to_lowercase();
        let says = |lease: &ControllerLease| matches!(lease.coverage(), Some(Ok(coverage)) if coverage.driver == driver);
        let rank = |(_, name, lease): &(&Arc<str>, &str, &ControllerLease)| {
            (says(lease), *name == leads, *name == lives, lease.spec.renew_time.clone())
        };
        let ours = self.leases.iter().filter(|one| one.1 == leads || one.1 == lives || says(one.2));
        ours.max_by_key(rank).map(|(namespace, _, lease)| (&**namespace, lease))
    }

    /// Whether a kind of object was read.
    pub(crate) fn has(&self, plural: &str) -> bool {
        !self.unread.contains_key(plural)
    }
}
