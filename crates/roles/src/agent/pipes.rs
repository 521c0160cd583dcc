//! The pipes: for each driver with volumes in use one by host checks, and one through its node plugin where that
//! is known. They come and go with the volumes.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::JoinHandle;
use tokio::time::{Instant, MissedTickBehavior};
use volmedic_api::resource::NodeVantage;
use volmedic_api::{Kind, ObjectRef};
use volmedic_health::{Subject, Vantage};
use volmedic_inventory::node::{Inventory, Key, NodeVolume};
use volmedic_monitor::{Arrival, Board, Inventory as _, Pipe, Probe, Settings, Way};

use super::args::KubeletHealth;
use super::driver_eyes::DriverEyes;
use super::fresh::{Ask, Awaited, Looks};
use super::host_eyes::{Eyes, HostEyes};
use super::journal::Journal;
use super::ports::{Port, users};
use super::sockets::Drivers;
use volmedic_runtime::signals::clock;

/// A driver without volumes is let go after this long.
const IDLE: Duration = Duration::from_mins(1);
/// What no watch reports is looked up this often.
const ROUND: Duration = Duration::from_secs(30);
/// Maximum number of host checks of one driver that wait for a helper or for something to be seen twice; how many touch
/// volumes at the same time is limited for all drivers together.
const HOST_LOOKS: usize = 256;
/// Pods can name drivers as they like; more than this are not watched.
const MOST_DRIVERS: usize = 256;

type Running = Pipe<Port, Journal>;

/// What all pipes share.
pub(super) struct Common {
    pub(super) node: Arc<str>,
    pub(super) inventory: Arc<Inventory>,
    pub(super) board: Board,
    pub(super) journal: Journal,
    pub(super) eyes: Arc<Eyes>,
    pub(super) settings: Settings,
    pub(super) kubelet: KubeletHealth,
    pub(super) usage: bool,
}

/// All pipes of this node.
pub(super) struct Pipes {
    common: Common,
    drivers: watch::Receiver<Drivers>,
    staff: BTreeMap<Arc<str>, Staff>,
    looks: Looks,
    /// Said once.
    too_many: bool,
}

/// The pipes of one driver.
struct Staff {
    /// The volumes in use as the pipes know them.
    volumes: BTreeMap<Arc<str>, Arc<NodeVolume>>,
    idle_since: Option<Instant>,
    host: Worker,
    node: Option<(Worker, Arc<DriverEyes>)>,
}

/// One pipe that runs.
struct Worker {
    port: Arc<Port>,
    stop: oneshot::Sender<()>,
    task: JoinHandle<Running>,
}

impl Worker {
    /// Whatever it was not yet informed of is reported now, so that nothing stays open.
    async fn end(self) {
        let _ = self.stop.send(());
        match self.task.await {
            Ok(mut pipe) => pipe.arrivals(self.port.drain(), clock()),
            // A panic ends the process, and nothing cancels it before.
            Err(error) => tracing::error!(%error, "internal error (bug): a pipe ended early"),
        }
    }
}

impl Staff {
    fn push(&self, arrival: &Arrival) {
        for pipe in std::iter::once(&self.host).chain(self.node.as_ref().map(|(pipe, _)| pipe)) {
            pipe.port.push(arrival.clone());
        }
    }
}

impl Pipes {
    pub(super) fn new(common: Common, drivers: watch::Receiver<Drivers>) -> Self {
        Self { common, drivers, staff: BTreeMap::new(), looks: Looks::default(), too_many: false }
    }

    /// Runs until dropped; dropping ends all pipes. The inventory must be ready: what it does not have is closed.
    pub(super) async fn run(
        mut self,
        mut disturbed: mpsc::Receiver<Vec<Key>>,
        mut asked: mpsc::Receiver<Ask>,
    ) {
        self.reconcile().await;
        // Of what was reported before a restart, drivers may have no volumes any more; what was reported of them is closed.
        let reported: BTreeSet<Arc<str>> =
            self.common.board.lock_ledger().subjects().map(|subject| subject.driver().clone()).collect();
        for driver in
            reported.into_iter().filter(|driver| !self.staff.contains_key(driver)).collect::<Vec<_>>()
        {
            self.hire(&driver, BTreeMap::new());
        }
        let mut round = tokio::time::interval(ROUND);
        round.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                () = self.common.inventory.changed() => {}
                Ok(()) = self.drivers.changed() => {}
                Some(keys) = disturbed.recv() => self.disturb(&keys),
                Some(ask) = asked.recv() => self.ask(ask),
                _ = round.tick() => {}
            }
            self.reconcile().await;
        }
    }

    fn disturb(&self, keys: &[Key]) {
        for Key { driver, handle } in keys {
            if let Some(staff) = self.staff.get(driver) {
                staff.push(&Arrival::Disturbed(handle.clone()));
            }
        }
    }

    /// Probes one volume now, from all vantages that probe it at all.
    fn ask(&self, ask: Ask) {
        let staff = self.staff.get(&ask.key.driver);
        let Some(staff) = staff.filter(|staff| staff.volumes.contains_key(&ask.key.handle)) else {
            return ask.probed_from(&self.looks, &[]);
        };
        let node_probes = |(_, eyes): &(Worker, Arc<DriverEyes>)| eyes.way() == Way::Look;
        let vantages: &[NodeVantage] = if staff.node.as_ref().is_some_and(node_probes) {
            &[NodeVantage::Host, NodeVantage::Node]
        } else {
            &[NodeVantage::Host]
        };
        let key = ask.key.clone();
        // They are waited for before the pipes hear of it.
        ask.probed_from(&self.looks, vantages);
        self.disturb(&[key]);
    }

    /// Brings the pipes to what the inventory says.
    async fn reconcile(&mut self) {
        let inventory = self.common.inventory.clone();
        // All of the state is read; what in particular changed does not matter.
        drop(inventory.volumes().changes());
        let all = inventory.volumes().all();
        self.common.eyes.keep(&all);
        let mut now: BTreeMap<Arc<str>, BTreeMap<Arc<str>, Arc<NodeVolume>>> = BTreeMap::new();
        for volume in all.iter().filter(|volume| volume.is_in_use()) {
            let of_driver = now.entry(volume.driver.clone()).or_default();
            of_driver.insert(volume.handle.clone(), volume.clone());
        }
        let known = self.staff.keys().cloned();
        let drivers: BTreeSet<Arc<str>> = known.chain(now.keys().cloned()).collect();
        for driver in drivers {
            let volumes = now.remove(&driver).unwrap_or_default();
            match self.staff.get_mut(&driver) {
                None => self.hire(&driver, volumes),
                Some(staff) => staff.update(volumes),
            }
            self.connect(&driver);
            let idle = |staff: &Staff| staff.idle_since.is_some_and(|since| since.elapsed() >= IDLE);
            if self.staff.get(&driver).is_some_and(idle)
                && let Some(staff) = self.staff.remove(&driver)
            {
                self.fire(&driver, staff).await;
            }
        }
    }

    fn hire(&mut self, driver: &Arc<str>, volumes: BTreeMap<Arc<str>, Arc<NodeVolume>>) {
        if self.staff.len() >= MOST_DRIVERS {
            if !std::mem::replace(&mut self.too_many, true) {
                tracing::warn!(
                    "pods on this node use volumes of more than {MOST_DRIVERS} drivers; those of {driver} and \
                     others are not watched"
                );
            }
            return;
        }
        let probe = Arc::new(HostEyes { driver: driver.clone(), eyes: self.common.eyes.clone() });
        let probe = self.awaited(driver, NodeVantage::Host, probe);
        let vantage = Vantage::Host(self.common.node.clone());
        let settings = Settings { workers: HOST_LOOKS, ..self.common.settings.clone() };
        let host = self.start(driver, vantage, probe, settings, volumes.keys().cloned().collect());
        let idle_since = volumes.is_empty().then(Instant::now);
        self.staff.insert(driver.clone(), Staff { volumes, idle_since, host, node: None });
    }

    /// Looks through the node plugin as well, once it is known where it is.
    fn connect(&mut self, driver: &Arc<str>) {
        let Some(staff) = self.staff.get(driver) else { return };
        let Some(connection) = self.drivers.borrow().get(driver).cloned() else { return };
        if staff.node.is_some() || staff.volumes.is_empty() {
            return;
        }
        let Common { eyes, kubelet, usage, .. } = &self.common;
        let driver_eyes =
            Arc::new(DriverEyes::new(driver.clone(), connection, eyes.clone(), *kubelet, *usage));
        let probe = self.awaited(driver, NodeVantage::Node, driver_eyes.clone());
        let vantage = Vantage::Node(self.common.node.clone());
        let settings = self.common.settings.clone();
        let node = self.start(driver, vantage, probe, settings, staff.volumes.keys().cloned().collect());
        if let Some(staff) = self.staff.get_mut(driver) {
            staff.node = Some((node, driver_eyes));
        }
    }

    fn awaited<P>(&self, driver: &Arc<str>, vantage: NodeVantage, probe: Arc<P>) -> Awaited<P> {
        Awaited { probe, driver: driver.clone(), vantage, looks: self.looks.clone() }
    }

    fn start<P: Probe>(
        &self,
        driver: &Arc<str>,
        vantage: Vantage,
        probe: P,
        settings: Settings,
        volumes: Vec<Arc<str>>,
    ) -> Worker {
        let Common { node, inventory, board, journal, .. } = &self.common;
        // The kubelet's own events on a node name it so.
        let on_node = ObjectRef::new(Kind::Node, "", node, node);
        let port = Arc::new(Port::new(inventory.clone(), on_node, volumes));
        let pace = settings.pace(&Way::Look);
        let pipe =
            Pipe::new(driver.clone(), vantage, port.clone(), journal.clone(), board.clone(), pace, clock());
        let (stop, stopped) = oneshot::channel();
        let inventory = port.clone();
        let task = tokio::spawn(async move {
            let (_unused, observations) = mpsc::channel(1);
            let stopped = async move { drop(stopped.await) };
            volmedic_monitor::run(pipe, inventory, Arc::new(probe), settings, observations, clock, stopped)
                .await
        });
        Worker { port, stop, task }
    }

    /// The driver has no volumes here any more: nobody checks its storage from here.
    async fn fire(&self, driver: &Arc<str>, staff: Staff) {
        let Staff { host, node, .. } = staff;
        host.end().await;
        if let Some((node, _)) = node {
            node.end().await;
        }
        let closed = self.common.board.lock_ledger().forget(clock().day, &Subject::Backend(driver.clone()));
        let mut journal = self.common.journal.clone();
        for transition in &closed {
            let node = ObjectRef::new(Kind::Node, "", &self.common.node, &self.common.node);
            volmedic_monitor::Outlet::tell(&mut journal, transition, vec![node]);
        }
    }
}

impl Staff {
    fn update(&mut self, now: BTreeMap<Arc<str>, Arc<NodeVolume>>) {
        for handle in self.volumes.keys().filter(|&handle| !now.contains_key(handle)) {
            self.push(&Arrival::Removed(handle.clone()));
        }
        for (handle, volume) in &now {
            match self.volumes.get(handle) {
                None => self.push(&Arrival::Added(handle.clone())),
                Some(before) if before == volume => {}
                Some(before) => {
                    if users(before) != users(volume) {
                        self.push(&Arrival::AudienceChanged(handle.clone()));
                    }
                    // What is expected of it is another thing now.
                    self.push(&Arrival::Disturbed(handle.clone()));
                }
            }
        }
        self.idle_since =
            if now.is_empty() { self.idle_since.or_else(|| Some(Instant::now())) } else { None };
        self.volumes = now;
    }
}
