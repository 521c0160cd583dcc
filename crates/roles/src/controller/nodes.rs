//! Nodes that go down, reported on every claim that is used there.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use tokio::sync::{Notify, mpsc};
use volmedic_health::{Condition, Held, Memo, Sight, Status, Subject, Vantage, WellKnown};
use volmedic_inventory::{Affected, Down, DownWhy, Inventory, Judge, Ready, ReadyStatus};
use volmedic_monitor::{Board, Observation};

use super::ports::inline_handle;

/// More pods than this are counted, not named.
const NAMED: usize = 5;
/// A view of the nodes that was out of touch for longer says nothing about them.
const FRESH: Duration = Duration::from_mins(1);

#[derive(Debug)]
pub(super) struct NodeWatcher {
    pub(super) inventory: Arc<Inventory>,
    pub(super) board: Board,
    pub(super) grace: SignedDuration,
    pub(super) woken: Arc<Notify>,
    pub(super) observations: mpsc::Sender<Observation>,
}

/// What was said of a volume on a node that is down.
#[derive(Debug)]
struct Reported {
    message: String,
    since: Timestamp,
}

impl NodeWatcher {
    /// Runs until dropped.
    pub(super) async fn run(self) {
        let mut judge = Judge::new(self.grace);
        // What was reported before a restart is over if it is no longer so.
        let mut reported = self.reported_before();
        let mut recalled = false;
        loop {
            if !recalled {
                recalled = self.recall(&mut judge, &reported);
            }
            if let Some(now) = self.view(&mut judge) {
                let gone: Vec<Arc<str>> =
                    reported.keys().filter(|&handle| !now.contains_key(handle)).cloned().collect();
                for handle in gone {
                    reported.remove(&handle);
                    self.say(handle, Sight::Healthy).await;
                }
                for (handle, message) in now {
                    let known = reported.get(&handle);
                    if known.is_none_or(|known| known.message != message) {
                        let since = known.map_or_else(Timestamp::now, |known| known.since);
                        reported.insert(handle.clone(), Reported { message: message.clone(), since });
                        let down = Condition::new(Status::Inaccessible, WellKnown::NodeDown.into(), &message);
                        self.say(handle, Sight::adverse([down])).await;
                    }
                }
            }
            let due = judge.next_due().map(|due| due.duration_since(Timestamp::now()));
            let nap = due.map_or(FRESH, |due| Duration::try_from(due).unwrap_or_default().min(FRESH));
            tokio::select! {
                () = self.woken.notified() => {}
                () = tokio::time::sleep(nap.max(Duration::from_millis(100))) => {}
            }
        }
    }

    /// Gives the judge the nodes that were reported as down before a restart: without that they would come back for the
    /// length of the grace, and deleted ones for ever. Answers whether the nodes could be seen.
    ///
    /// What was reported names volumes, not nodes; but of the nodes that such a volume is used on, those that are not ready
    /// or not there are the ones.
    fn recall(&self, judge: &mut Judge, reported: &HashMap<Arc<str>, Reported>) -> bool {
        let (Some(nodes), Some(pods)) = (self.inventory.nodes(), self.inventory.pods()) else { return true };
        if !self.inventory.is_ready() || nodes.current().is_none() {
            return false;
        }
        if reported.is_empty() {
            return true;
        }
        let mut suspects = BTreeMap::new();
        for name in pods.nodes() {
            let down = match nodes.get(&name) {
                None => Some((None, DownWhy::Deleted)),
                Some(sight) => sight.ready.as_ref().filter(|ready| ready.status != ReadyStatus::True).map(
                    |Ready { status, reason, since }| {
                        (*since, DownWhy::NotReady { status: *status, reason: reason.clone() })
                    },
                ),
            };
            if let Some(down) = down {
                suspects.insert(name, down);
            }
        }
        let names: Vec<&str> = suspects.keys().map(AsRef::as_ref).collect();
        for one in self.inventory.affected(&names) {
            let handle = one.handle.clone().unwrap_or_else(|| inline_handle(&one.about));
            if let (Some(reported), Some((since, why))) = (reported.get(&handle), suspects.get(&one.node)) {
                let since = since.map_or(reported.since, |since| since.min(reported.since));
                judge.recall(Down { node: one.node.clone(), since, why: why.clone() });
            }
        }
        true
    }

    /// The volumes on nodes that are down, each with what to say; `None` while it is unknown.
    fn view(&self, judge: &mut Judge) -> Option<HashMap<Arc<str>, String>> {
        let nodes = self.inventory.nodes()?.current()?;
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
            let handle = one.handle.clone().unwrap_or_else(|| inline_handle(&one.about));
            messages.entry(handle).or_default().push(sentence(down, one));
        }
        Some(messages.into_iter().map(|(handle, texts)| (handle, texts.join("; "))).collect())
    }

    fn reported_before(&self) -> HashMap<Arc<str>, Reported> {
        let reported = |memo: Memo| match memo.subject {
            Subject::Volume(volume) if memo.vantage == Vantage::Cluster => {
                let Held { condition, since } = memo.reported.into_iter().next()?;
                Some((volume.handle, Reported { message: condition.message.to_string(), since }))
            }
            _ => None,
        };
        self.board.lock_ledger().memos().into_iter().filter_map(reported).collect()
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
