//! Nodes: which there are, which are down, and what is left of those that are gone.

use std::collections::{BTreeMap, BTreeSet};
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use kube::api::DeleteParams;
use kube::{Api, Client};
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::Instant;
use volmedic_api::resource::NodeVolumeHealth;
use volmedic_hub::{AGENT_LEASE, DownNode, Source, World};
use volmedic_inventory::{Down, DownWhy, Judge, Nodes};

/// Strays cleared away in one go.
const TOGETHER: usize = 20;
const SHORTEST_SLEEP: Duration = Duration::from_millis(200);
/// Nodes are judged after this time also if the Leases of drivers' controllers cannot be read.
const FOR_CONTROLLERS: Duration = Duration::from_secs(10);
const LONGEST_SLEEP: Duration = Duration::from_secs(30);
const CALL_LIMIT: Duration = Duration::from_secs(15);

pub(super) struct NodeWatcher {
    pub(super) nodes: Arc<Nodes>,
    pub(super) woken: Arc<Notify>,
    pub(super) world: Arc<Mutex<World>>,
    /// To be reported when the world changed.
    pub(super) hub: Arc<Notify>,
    pub(super) grace: SignedDuration,
    /// What an agent left behind goes so long after its node went: a node that is just joining is no stray.
    pub(super) clear_after: Duration,
    pub(super) client: Client,
    pub(super) agent_namespace: String,
}

impl NodeWatcher {
    pub(super) async fn run(self) -> Infallible {
        let mut judge = Judge::new(self.grace);
        let mut strays = BTreeMap::new();
        let (began, mut recalled) = (Instant::now(), false);
        loop {
            if let Some(nodes) = self.nodes.current() {
                let now = Timestamp::now();
                let names: BTreeSet<Box<str>> = nodes.iter().map(|node| node.name.clone()).collect();
                let ready = {
                    let mut world = self.world.lock();
                    world.set_nodes(names.clone());
                    world.heard(Source::Nodes);
                    // Which drivers have a sidecar that reports nodes must be known before a node counts as down.
                    world.is_ready()
                        && (world.has_heard(Source::Controllers) || began.elapsed() > FOR_CONTROLLERS)
                };
                // Also while nothing can be reported yet: which nodes were ready once is only seen while they are.
                judge.pass(now, nodes.iter().map(AsRef::as_ref));
                if ready {
                    if !std::mem::replace(&mut recalled, true) {
                        self.recall(&mut judge, &names, now);
                    }
                    self.tell(&mut judge, began);
                }
                self.clear(&mut strays).await;
                self.hub.notify_one();
            }
            let due = judge.next_due().map(|due| due.duration_since(Timestamp::now()));
            let due = due.map_or(LONGEST_SLEEP, |due| Duration::try_from(due).unwrap_or_default());
            let due = if strays.is_empty() { due } else { due.min(self.clear_after) };
            // Nobody wakes us when the rest was read, and until then no node is judged.
            let due = if recalled { due } else { SHORTEST_SLEEP };
            tokio::select! {
                () = self.woken.notified() => {}
                () = tokio::time::sleep(due.clamp(SHORTEST_SLEEP, LONGEST_SLEEP)) => {}
            }
        }
    }

    /// A node that pods are on and that is not there was deleted before we began to look.
    fn recall(&self, judge: &mut Judge, names: &BTreeSet<Box<str>>, now: Timestamp) {
        for node in self.world.lock().used_nodes().difference(names) {
            judge.recall(Down { node: node.clone(), since: now, why: DownWhy::Deleted });
        }
    }

    fn tell(&self, judge: &mut Judge, began: Instant) {
        let mut world = self.world.lock();
        let used = world.used_nodes();
        let down: Vec<Down> = judge.down().collect();
        for gone in down.iter().filter(|down| !used.contains(&down.node)) {
            judge.forget(&gone.node);
        }
        let down = down.into_iter().filter(|down| used.contains(&down.node));
        let reported = down.map(|Down { node, since, why }| (node, DownNode { since, why: why.to_string() }));
        world.set_down(reported.collect());
        // Nodes that failed before we began to look need the grace to count; until then what was said of them stands.
        let grace = Duration::try_from(self.grace).unwrap_or_default();
        if judge.next_due().is_none() || began.elapsed() > grace {
            world.heard(Source::NodesDown);
        }
    }

    /// Clears away what agents left behind on nodes that are gone for good.
    async fn clear(&self, strays: &mut BTreeMap<Box<str>, Instant>) {
        let now = Instant::now();
        let found = self.world.lock().strays();
        strays.retain(|node, _| found.contains(node));
        for node in found {
            strays.entry(node).or_insert(now);
        }
        let due = strays.iter().filter(|(_, since)| now.duration_since(**since) >= self.clear_after);
        let due: Vec<Box<str>> = due.map(|(node, _)| node.clone()).take(TOGETHER).collect();
        for node in due {
            strays.remove(&node);
            let reports = Api::<NodeVolumeHealth>::all(self.client.clone());
            let leases = Api::<k8s_openapi::api::coordination::v1::Lease>::namespaced(
                self.client.clone(),
                &self.agent_namespace,
            );
            let lease = format!("{AGENT_LEASE}{node}");
            let params = DeleteParams::default();
            let work = async {
                ignore_absence(reports.delete(&node, &params).await.map(drop))?;
                ignore_absence(leases.delete(&lease, &params).await.map(drop))
            };
            match tokio::time::timeout(CALL_LIMIT, work).await {
                Ok(Ok(())) => tracing::info!(node = &*node, "cleared away what its agent left behind"),
                Ok(Err(error)) => {
                    tracing::warn!(node = &*node, "what its agent left behind was not cleared away: {error}");
                }
                Err(_) => {
                    tracing::warn!(node = &*node, "no answer while clearing away what its agent left behind");
                }
            }
        }
    }
}

fn ignore_absence(outcome: kube::Result<()>) -> kube::Result<()> {
    match outcome {
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(()),
        other => other,
    }
}
