//! Where the rooms meet: what the inventory has, as the pipes want it.

use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::Notify;
use volmedic_api::ObjectRef;
use volmedic_health::{Subject, Volume};
use volmedic_inventory::node::{Inventory, NodeVolume, Phase, Use};
use volmedic_monitor::Arrival;
use volmedic_probe::host;

/// One pipe's view of the volumes of its driver that are in use.
#[derive(Debug)]
pub(super) struct Port {
    inventory: Arc<Inventory>,
    /// What is wrong with a driver's storage as a whole is reported here.
    node: ObjectRef,
    arrivals: Mutex<Vec<Arrival>>,
    woken: Notify,
}

impl Port {
    /// Begins with these volumes.
    pub(super) fn new(inventory: Arc<Inventory>, node: ObjectRef, volumes: Vec<Arc<str>>) -> Self {
        Self { inventory, node, arrivals: Mutex::new(vec![Arrival::All(volumes)]), woken: Notify::new() }
    }

    pub(super) fn push(&self, arrival: Arrival) {
        let mut arrivals = self.arrivals.lock();
        // The same wish twice is one wish, however long the pipe is busy.
        if !arrivals.contains(&arrival) || !matches!(arrival, Arrival::Disturbed(_)) {
            arrivals.push(arrival);
        }
        drop(arrivals);
        self.woken.notify_one();
    }
}

impl volmedic_monitor::Inventory for Port {
    fn drain(&self) -> Vec<Arrival> {
        std::mem::take(&mut *self.arrivals.lock())
    }

    async fn changed(&self) {
        self.woken.notified().await;
    }

    /// Every pod that uses it (and not those that do not use it yet, or no longer).
    fn about(&self, volume: &Volume) -> Vec<ObjectRef> {
        let found = self.inventory.volumes().get(&volume.driver, &volume.handle);
        found.map_or_else(Vec::new, |found| users(&found))
    }

    fn about_backend(&self) -> Vec<ObjectRef> {
        vec![self.node.clone()]
    }
}

/// The pods that use a volume now, each once.
pub(super) fn users(volume: &NodeVolume) -> Vec<ObjectRef> {
    let mut pods: Vec<ObjectRef> = in_use(volume).map(|used| (*used.pod).clone()).collect();
    pods.dedup();
    pods
}

pub(super) fn in_use(volume: &NodeVolume) -> impl Iterator<Item = &Arc<Use>> {
    volume.uses.iter().filter(|used| used.phase == Phase::InUse)
}

/// What a volume is called by this pod that uses it: its claim, or its name in the pod. One that uses it no more gets a
/// name by which others use it.
pub(super) fn known_as(inventory: &Inventory, subject: &Subject, pod: &ObjectRef) -> Option<Arc<str>> {
    let Subject::Volume(volume) = subject else { return None };
    let volume = inventory.volumes().get(&volume.driver, &volume.handle)?;
    let claim = |used: &Arc<Use>| used.claim.as_ref().map(ToString::to_string);
    let own = volume.uses.iter().filter(|used| *used.pod == *pod).find_map(claim);
    let named = own.or_else(|| volume.uses.iter().find_map(claim));
    let inline = || {
        let used = volume.uses.first()?;
        Some(format!("volume {} of {}", used.volume.as_deref()?, used.pod))
    };
    named.or_else(inline).map(Into::into)
}

/// What the host's own checks should find.
pub(super) fn expected(volume: &NodeVolume) -> host::Expected {
    let target = |used: &Arc<Use>| host::Target {
        path: used.target.clone(),
        read_only: !used.access.must_write(),
        pod: format!("{}/{}", used.pod.namespace, used.pod.name).into(),
        parts: used.sub_paths.to_vec(),
    };
    host::Expected {
        driver: volume.driver.clone(),
        handle: volume.handle.clone(),
        mode: match volume.mode {
            _ if volume.source.is_some() => host::Mode::Directory,
            volmedic_inventory::node::Mode::Filesystem => host::Mode::Filesystem,
            volmedic_inventory::node::Mode::Block => host::Mode::Block,
        },
        staging: volume.source.clone().or_else(|| volume.staging.clone()),
        targets: in_use(volume).map(target).collect(),
    }
}
