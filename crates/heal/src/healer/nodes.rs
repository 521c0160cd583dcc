//! How the nodes are, kept by watch.

use std::collections::HashMap;
use std::pin::pin;
use std::sync::Arc;

use futures_util::StreamExt;
use kube::runtime::WatchStreamExt;
use kube::runtime::watcher::{self, Event, watcher};
use kube::{Api, Client};
use parking_lot::RwLock;
use tokio::task::JoinHandle;
use volmedic_api::Arrived;

use super::ports::Nodes;
use super::shapes::Node;
use crate::refusal::NodeState;

/// The node controller's own mark on nodes it does not hear from, and an administrator's on nodes that are off.
const DOWN_TAINTS: [&str; 2] = ["node.kubernetes.io/unreachable", "node.kubernetes.io/out-of-service"];

/// All nodes. While the API server cannot be reached, what was known last.
#[derive(Debug)]
pub struct NodeStates {
    states: Arc<RwLock<HashMap<String, NodeState>>>,
    task: JoinHandle<()>,
}

impl NodeStates {
    pub fn start(client: Client) -> Self {
        let states = Arc::<RwLock<HashMap<String, NodeState>>>::default();
        let task = tokio::spawn(follow(client, states.clone()));
        Self { states, task }
    }
}

impl Nodes for NodeStates {
    fn state(&self, node: &str) -> NodeState {
        let states = self.states.read();
        states.get(node).copied().unwrap_or(NodeState::Unknown)
    }
}

impl Drop for NodeStates {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn follow(client: Client, states: Arc<RwLock<HashMap<String, NodeState>>>) {
    let mut events =
        pin!(watcher(Api::<Arrived<Node>>::all(client), watcher::Config::default()).default_backoff());
    let mut listed = HashMap::new();
    let mut reported = false;
    while let Some(event) = events.next().await {
        let write = || states.write();
        match event {
            Ok(Event::Init) => listed.clear(),
            Ok(Event::InitApply(node)) => drop(listed.insert(node.name().to_owned(), state(&node))),
            Ok(Event::InitDone) => {
                *write() = std::mem::take(&mut listed);
                reported = false;
            }
            Ok(Event::Apply(node)) => drop(write().insert(node.name().to_owned(), state(&node))),
            Ok(Event::Delete(node)) => drop(write().remove(node.name())),
            Err(error) => {
                if !std::mem::replace(&mut reported, true) {
                    tracing::warn!(%error, "the healer cannot watch nodes and goes by what it knew");
                }
            }
        }
    }
}

/// A node that cannot be read is not known to be up, and nothing is healed there.
fn state(arrived: &Arrived<Node>) -> NodeState {
    let Ok(node) = &arrived.body else { return NodeState::Unknown };
    let taints = node.spec.taints.as_deref().unwrap_or_default();
    let conditions = node.status.conditions.as_deref().unwrap_or_default();
    let ready = conditions.iter().any(|condition| condition.kind == "Ready" && condition.status == "True");
    if !ready || taints.iter().any(|taint| DOWN_TAINTS.contains(&taint.key.as_str())) {
        return NodeState::Down;
    }
    if node.spec.unschedulable.unwrap_or(false) || arrived.is_going() {
        return NodeState::Cordoned;
    }
    NodeState::Up
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_node_is_up_only_when_everything_says_so() {
        let ready = json!({"conditions": [{"type": "Ready", "status": "True"}]});
        for (node, expected) in [
            (json!({"metadata": {"name": "n"}, "status": ready}), NodeState::Up),
            (
                json!({"metadata": {"name": "n"}, "spec": {"unschedulable": true}, "status": ready}),
                NodeState::Cordoned,
            ),
            (json!({"metadata": {"name": "n"}}), NodeState::Down),
            (
                json!({"metadata": {"name": "n"}, "status": {"conditions": [{"type": "Ready", "status": "Unknown"}]}}),
                NodeState::Down,
            ),
            (
                json!({"metadata": {"name": "n"}, "status": ready, "spec": {"taints": [
                    {"key": "node.kubernetes.io/out-of-service", "effect": "NoExecute"}]}}),
                NodeState::Down,
            ),
            (json!({"metadata": {"name": "n"}, "status": {"conditions": 3}}), NodeState::Unknown),
        ] {
            assert_eq!(state(&serde_json::from_str(&node.to_string()).unwrap()), expected, "{node}");
        }
    }
}
