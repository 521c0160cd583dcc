//! Who looks at volumes in this cluster, and who should but does not.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;

use super::picture::{AGENT_LEASE, Life, Picture};

/// Everybody who could look, at one moment.
#[derive(Debug)]
pub(crate) struct Who {
    /// By node: whether its agent lives. Nodes without one are not in it.
    pub(crate) agents: BTreeMap<Arc<str>, Life>,
    /// By driver: whether its controller's sidecar lives, and whether it says that the driver tells health.
    pub(crate) controllers: BTreeMap<Arc<str>, (Life, Option<bool>)>,
    pub(crate) hub: Option<Life>,
    pub(crate) nodes: usize,
}

impl Who {
    pub(crate) fn new(picture: &Picture, now: Timestamp) -> Self {
        let agents = picture.leases.iter().filter_map(|(_, name, lease)| {
            let node = name.strip_prefix(AGENT_LEASE)?;
            // What an agent left behind on a node that is gone says nothing any more.
            let known = !picture.has("nodes") || picture.nodes.contains_key(node);
            known.then(|| (Arc::from(node), lease.life(now)))
        });
        let drivers = picture.volumes.iter().map(|(_, _, volume)| &volume.driver);
        let drivers = drivers.chain(&picture.drivers).chain(picture.node_drivers.values().flatten());
        let mut controllers = BTreeMap::new();
        for driver in drivers.filter(|driver| !driver.is_empty()) {
            if !controllers.contains_key(driver) {
                let lease = picture.controller(driver).map(|(_, lease)| {
                    (lease.life(now), lease.tells.as_deref().map(|tells| tells != "nothing"))
                });
                controllers.insert(driver.clone(), lease);
            }
        }
        Self {
            agents: agents.collect(),
            controllers: controllers
                .into_iter()
                .filter_map(|(driver, found)| Some((driver, found?)))
                .collect(),
            hub: picture.hub().map(|(_, lease)| lease.life(now)),
            nodes: picture.nodes.len(),
        }
    }

    pub(crate) fn alive(&self) -> usize {
        self.agents.values().filter(|life| **life == Life::Alive).count()
    }

    pub(crate) fn silent(&self) -> Vec<&str> {
        let silent = self.agents.iter().filter(|(_, life)| **life != Life::Alive);
        silent.map(|(node, _)| &**node).collect()
    }

    /// One line: as in `the hub, agents on 98 of 100 nodes, controllers of 2 drivers`.
    pub(crate) fn sentence(&self) -> String {
        let mut parts = Vec::new();
        match self.hub {
            Some(Life::Alive) => parts.push("the hub".to_owned()),
            Some(Life::Silent(_)) => parts.push("a hub that is silent".to_owned()),
            None => {}
        }
        if !self.agents.is_empty() {
            let nodes = if self.nodes > 0 { format!(" of {}", self.nodes) } else { String::new() };
            let silent = self.silent().len();
            let silent = if silent > 0 { format!(" ({silent} silent)") } else { String::new() };
            parts.push(format!("agents on {}{nodes} nodes{silent}", self.alive()));
        }
        let alive = self.controllers.values().filter(|(life, _)| *life == Life::Alive).count();
        if alive > 0 {
            parts.push(format!("controllers of {alive} {}", if alive == 1 { "driver" } else { "drivers" }));
        }
        if parts.is_empty() { "nobody".to_owned() } else { parts.join(", ") }
    }
}
