//! The nodes, as far as it matters for their volumes.

use std::collections::HashMap;
use std::sync::Arc;

use jiff::Timestamp;
use parking_lot::{RwLock, RwLockReadGuard, RwLockWriteGuard};
use tokio::sync::Notify;
use volmedic_api::{Arrived, slim};

use crate::follow::{Sink, Spared};
use crate::link::Link;

/// Reasons are one word. Whatever is longer is cut.
const LONGEST_REASON: usize = 128;

/// What the cluster says about a node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeSight {
    pub name: Box<str>,
    pub uid: Box<str>,
    pub created: Option<Timestamp>,
    /// None before anybody said anything.
    pub ready: Option<Ready>,
    /// The node controller drives pods away because it does not hear from the node.
    pub unreachable: bool,
    /// An administrator says that the node is down and its volumes may be detached by force.
    pub out_of_service: bool,
}

/// The node's Ready condition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ready {
    pub status: ReadyStatus,
    pub reason: Box<str>,
    /// By somebody else's clock.
    pub since: Option<Timestamp>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReadyStatus {
    True,
    /// The node itself says that it is not.
    False,
    /// Nobody hears from the node.
    Unknown,
}

#[derive(Debug)]
pub struct Nodes {
    table: RwLock<Table>,
    link: Arc<Link>,
    woken: Arc<Notify>,
}

#[derive(Debug, Default)]
struct Table {
    nodes: HashMap<Box<str>, (Arc<NodeSight>, u16)>,
    epoch: u16,
}

impl Nodes {
    /// To be kept up to date by a [`Follower`](crate::Follower) with the same link.
    pub fn new(link: Arc<Link>, woken: Arc<Notify>) -> Self {
        Self { table: RwLock::default(), link, woken }
    }

    pub fn get(&self, name: &str) -> Option<Arc<NodeSight>> {
        self.read().nodes.get(name).map(|(node, _)| node.clone())
    }

    /// All nodes there are, for [`Judge::pass`](crate::Judge::pass). None before the first list is complete, since a
    /// node that was not listed yet is not gone, and while the watch is out of touch, since a node may be well by now.
    pub fn current(&self) -> Option<Vec<Arc<NodeSight>>> {
        self.link.is_in_touch().then(|| self.read().nodes.values().map(|(node, _)| node.clone()).collect())
    }

    fn read(&self) -> RwLockReadGuard<'_, Table> {
        self.table.read()
    }

    fn write(&self) -> RwLockWriteGuard<'_, Table> {
        self.table.write()
    }
}

impl Sink<slim::Node> for Nodes {
    fn begin(&self) {
        let mut table = self.write();
        table.epoch = table.epoch.wrapping_add(1);
    }

    fn put(&self, object: &Arrived<slim::Node>, node: &slim::Node) -> Result<(), String> {
        let sight = NodeSight::new(object, node);
        let mut table = self.write();
        let epoch = table.epoch;
        // Nodes send their status often, and mostly nothing of it matters here.
        match table.nodes.get_mut(&sight.name) {
            Some((known, seen)) if **known == sight => *seen = epoch,
            _ => {
                table.nodes.insert(sight.name.clone(), (Arc::new(sight), epoch));
                self.woken.notify_one();
            }
        }
        Ok(())
    }

    fn take(&self, object: &Arrived<slim::Node>) {
        if self.write().nodes.remove(object.name()).is_some() {
            self.woken.notify_one();
        }
    }

    fn sweep(&self, spared: &Spared) {
        let mut table = self.write();
        let (before, epoch) = (table.nodes.len(), table.epoch);
        table.nodes.retain(|name, (_, seen)| *seen == epoch || spared.contains("", name));
        if table.nodes.len() < before {
            self.woken.notify_one();
        }
    }
}

impl NodeSight {
    pub fn new(object: &Arrived<slim::Node>, node: &slim::Node) -> Self {
        let taints = node.spec.taints.as_deref().unwrap_or_default();
        let conditions = node.status.conditions.as_deref().unwrap_or_default();
        Self {
            name: object.name().into(),
            uid: object.uid().into(),
            created: object.created(),
            ready: conditions.iter().find(|condition| condition.kind == "Ready").map(|condition| Ready {
                status: match &*condition.status {
                    "True" => ReadyStatus::True,
                    "False" => ReadyStatus::False,
                    _ => ReadyStatus::Unknown,
                },
                reason: condition.reason.chars().take(LONGEST_REASON).collect(),
                since: condition.last_transition_time.as_ref().map(|time| time.0),
            }),
            unreachable: taints
                .iter()
                .any(|taint| taint.key == "node.kubernetes.io/unreachable" && taint.effect == "NoExecute"),
            out_of_service: taints.iter().any(|taint| taint.key == "node.kubernetes.io/out-of-service"),
        }
    }
}

#[cfg(test)]
mod tests;
