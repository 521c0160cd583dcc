//! What probes volumes in this cluster, and what should but does not.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;
use volmedic_hub::{ControllerLease, ShownAgent, is_renewed};

use super::picture::{Picture, SKEW};

/// Whether the holder of a Lease renews it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Life {
    Alive,
    Silent(Option<Timestamp>),
}

impl Life {
    /// By the time in the Lease; one that was given up has no holder.
    pub(crate) fn of(lease: &ControllerLease, now: Timestamp) -> Self {
        let held = lease.spec.holder_identity.as_deref().is_some_and(|holder| !holder.is_empty());
        if held && is_renewed(&lease.spec, now, SKEW) {
            Self::Alive
        } else {
            Self::Silent(lease.spec.renew_time.as_ref().map(|time| time.0))
        }
    }
}

/// Everything that could probe, at one moment.
#[derive(Debug)]
pub(crate) struct Who {
    /// By node: whether its agent runs. Nodes without one are not in it.
    pub(crate) agents: BTreeMap<Box<str>, Life>,
    /// By driver: whether its controller's sidecar runs.
    pub(crate) controllers: BTreeMap<Arc<str>, Life>,
    pub(crate) hub: Option<Life>,
    pub(crate) nodes: usize,
}

impl Who {
    /// The picture must be settled.
    pub(crate) fn new(picture: &Picture, now: Timestamp) -> Self {
        let agents = picture.world.show_nodes().into_iter().filter_map(|node| {
            let life = match node.agent {
                ShownAgent::None => return None,
                ShownAgent::Alive | ShownAgent::Undetermined => Life::Alive,
                ShownAgent::Silent { since } => Life::Silent(Some(since)),
            };
            Some((node.name, life))
        });
        let mut drivers = picture.world.drivers();
        let registered = picture.drivers.iter().chain(picture.node_drivers.values().flatten());
        drivers.extend(registered.map(|driver| Arc::from(&**driver)));
        let controllers = drivers.into_iter().filter_map(|driver| {
            let (_, lease) = picture.controller(&driver)?;
            Some((driver, Life::of(lease, now)))
        });
        Self {
            agents: agents.collect(),
            controllers: controllers.collect(),
            hub: picture.hub().map(|(_, lease)| Life::of(lease, now)),
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
            Some(Life::Silent(_)) => parts.push("a hub that is not responding".to_owned()),
            None => {}
        }
        if !self.agents.is_empty() {
            let nodes = if self.nodes > 0 { format!(" of {}", self.nodes) } else { String::new() };
            let silent = self.silent().len();
            let silent = if silent > 0 { format!(" ({silent} not responding)") } else { String::new() };
            parts.push(format!("agents on {}{nodes} nodes{silent}", self.alive()));
        }
        let alive = self.controllers.values().filter(|life| **life == Life::Alive).count();
        if alive > 0 {
            parts.push(format!("controllers of {alive} {}", if alive == 1 { "driver" } else { "drivers" }));
        }
        if parts.is_empty() { "nobody".to_owned() } else { parts.join(", ") }
    }
}
