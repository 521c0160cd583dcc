//! Nodes that go down, told on every claim that is used there.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use tokio::sync::{Notify, mpsc};
use volmedic_health::{Condition, Sight, Status, Subject, Vantage, WellKnown};
use volmedic_inventory::{Affected, Down, Inventory, Judge};
use volmedic_monitor::{Board, Observation, read};

use super::ports::Volumes;

/// More pods than this are counted, not named.
const NAMED: usize = 5;
/// A view of the nodes that was out of touch for longer says nothing about them.
const FRESH: Duration = Duration::from_secs(60);

#[derive(Debug)]
pub(super) struct NodeWatcher {
    pub(super) inventory: Arc<Inventory>,
    pub(super) volumes: Arc<Volumes>,
    pub(super) board: Board,
    pub(super) grace: SignedDuration,
    pub(super) woken: Arc<Notify>,
    pub(super) observations: mpsc::Sender<Observation>,
}

impl NodeWatcher {
    /// Runs until dropped.
    pub(super) async fn run(self) {
        let mut judge = Judge::new(self.grace);
        // What was told before a restart is over if it is no longer so.
        let mut told: HashMap<Arc<str>, String> =
            self.told_before().into_iter().map(|h| (h, String::new())).collect();
        loop {
            if let Some(now) = self.view(&mut judge) {
                let gone: Vec<Arc<str>> =
                    told.keys().filter(|&handle| !now.contains_key(handle)).cloned().collect();
                for handle in gone {
                    told.remove(&handle);
                    self.say(handle, Sight::Healthy).await;
                }
                for (handle, message) in now {
                    if told.get(&handle) != Some(&message) {
                        told.insert(handle.clone(), message.clone());
                        let down = Condition::new(Status::Inaccessible, WellKnown::NodeDown.into(), &message);
                        self.say(handle, Sight::adverse([down])).await;
                    }
                }
                let keep: HashSet<&str> = told.keys().map(AsRef::as_ref).collect();
                self.volumes.forget_inline(|handle| keep.contains(handle));
            }
            let due = judge.next_due().map(|due| due.duration_since(Timestamp::now()));
            let nap = due.map_or(FRESH, |due| Duration::try_from(due).unwrap_or_default().min(FRESH));
            tokio::select! {
                () = self.woken.notified() => {}
                () = tokio::time::sleep(nap.max(Duration::from_millis(100))) => {}
            }
        }
    }

    /// The volumes on nodes that are down, each with what to say; `None` while nobody can say.
    fn view(&self, judge: &mut Judge) -> Option<HashMap<Arc<str>, String>> {
        let nodes = self.inventory.nodes()?.all()?;
        if self.inventory.staleness().is_some_and(|stale| stale.age > FRESH) || !self.inventory.is_ready() {
            return None;
        }
        for verdict in judge.pass(Timestamp::now(), nodes.iter().map(AsRef::as_ref)) {
            tracing::debug!(?verdict, "a node changed");
        }
        let down: BTreeMap<Box<str>, Down> = judge.down().map(|down| (down.node.clone(), down)).collect();
        if down.is_empty() {
            return Some(HashMap::new());
        }
        let names: Vec<&str> = down.keys().map(AsRef::as_ref).collect();
        let affected = self.inventory.affected(&names);
        let used: BTreeSet<&str> = affected.iter().map(|affected| affected.node.as_ref()).collect();
        for name in names.iter().filter(|name| !used.contains(*name)) {
            judge.forget(name);
        }
        let mut messages: BTreeMap<Arc<str>, Vec<String>> = BTreeMap::new();
        for one in &affected {
            let Some(down) = down.get(&one.node) else { continue };
            let handle = one.handle.clone().unwrap_or_else(|| self.volumes.inline(&one.about));
            messages.entry(handle).or_default().push(sentence(down, one));
        }
        Some(messages.into_iter().map(|(handle, texts)| (handle, texts.join("; "))).collect())
    }

    fn told_before(&self) -> Vec<Arc<str>> {
        let memos = read(&self.board).memos();
        let handle = |memo: volmedic_health::Memo| match memo.subject {
            Subject::Volume(volume) if memo.vantage == Vantage::Cluster => Some(volume.handle),
            _ => None,
        };
        memos.into_iter().filter_map(handle).collect()
    }

    async fn say(&self, handle: Arc<str>, sight: Sight) {
        // Nobody listens only when all of this is about to end.
        let _ = self.observations.send(Observation { handle, vantage: Vantage::Cluster, sight }).await;
    }
}

fn sentence(down: &Down, affected: &Affected) -> String {
    let pods: Vec<&str> = affected.pods.iter().map(|pod| &*pod.name).collect();
    let shown = pods.iter().take(NAMED).copied().collect::<Vec<_>>().join(", ");
    let more = pods.len().saturating_sub(NAMED);
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    let plural = if pods.len() == 1 { "pod" } else { "pods" };
    format!(
        "node {} is down since {:.0}, {}; it is used there by {plural} {shown}{more}",
        down.node, down.since, down.why
    )
}
