//! What the hub shows: all claims of the cluster, as they are stored or would be.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use parking_lot::Mutex;
use tokio::time::{MissedTickBehavior, interval};
use volmedic_api::resource::{PastHeadline, VolumeHealthStatus};
use volmedic_health::Health;
use volmedic_hub::{ClaimKey, ShownAgent, ShownNode, World};

use super::rows::{NO_DRIVER, Names, row};
use volmedic_inventory::Nodes;
use volmedic_view::{About, AgentState, Heal, History, Moment, NodeState, Row};

use volmedic_runtime::http::Check;
use volmedic_runtime::page::{Late, node_state, stored};

/// Changes that the page remembers.
pub(super) const CHANGES: usize = 1_000;
/// Claims checked before others get at the world: to gather a hundred thousand rows takes a while.
const TOGETHER: usize = 500;
/// Out of touch with the API server for longer is said on the page.
pub(super) const STALE_AFTER: Duration = Duration::from_secs(30);
/// How often it is looked whether enough was read to begin.
const ROUND: Duration = Duration::from_millis(200);

/// The page of a hub that may not lead yet.
pub(super) type Page = Late<Source>;

pub(super) struct Source {
    world: Arc<Mutex<World>>,
    history: Arc<History>,
    nodes: Arc<Nodes>,
    in_touch: Check,
    leader: String,
}

/// Waits until the world was read, then shows it. Runs until dropped.
pub(super) async fn show(
    page: Arc<Page>,
    world: Arc<Mutex<World>>,
    nodes: Arc<Nodes>,
    in_touch: Check,
) -> std::convert::Infallible {
    let mut round = interval(ROUND);
    round.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        round.tick().await;
        if world.lock().is_ready() {
            break;
        }
    }
    let history = page.history().clone();
    {
        // In one go, so that no change falls between what was before and what comes.
        let mut world = world.lock();
        history.recall(past(&world));
        let reported = history.clone();
        world.listen(move |key, before, now| {
            if let Some(moment) = news(key, before, now) {
                reported.record(moment);
            }
        });
    }
    let leader = volmedic_lease::hostname().unwrap_or_default();
    page.show(Source { world, history, nodes, in_touch, leader });
    std::future::pending().await
}

/// The newest changes of all claims, oldest first.
fn past(world: &World) -> Vec<Moment> {
    let all = world.all_stored();
    let mut all: Vec<(&ClaimKey, &VolumeHealthStatus, &PastHeadline)> =
        all.flat_map(|(key, status)| status.history.iter().map(move |past| (key, status, past))).collect();
    all.sort_by(|a, b| (&a.2.time, a.0).cmp(&(&b.2.time, b.0)));
    let surplus = all.len().saturating_sub(CHANGES);
    all[surplus..].iter().map(|(key, status, past)| stored::moment(&about(key, status), past)).collect()
}

/// What people see when what is stored changes: the headline, if that is another.
fn news(key: &ClaimKey, before: Option<&VolumeHealthStatus>, now: &VolumeHealthStatus) -> Option<Moment> {
    let last = now.history.first()?;
    if before.and_then(|before| before.history.first()) == Some(last) {
        return None;
    }
    let moment = stored::moment(&about(key, now), last);
    // A new object that says that all is healthy is no news.
    (before.is_some() || moment.health != Health::Healthy).then_some(moment)
}

fn about(key: &ClaimKey, status: &VolumeHealthStatus) -> stored::About {
    let volume = status.volume_handle.as_deref().or(status.persistent_volume_name.as_deref());
    stored::About {
        driver: status.driver.as_deref().unwrap_or(NO_DRIVER).into(),
        volume: volume.unwrap_or_default().into(),
        claim: format!("{}/{}", key.namespace, key.name),
    }
}

impl Source {
    /// The claims that are bound to a volume, with what is stored of each.
    fn stored_of(&self, driver: &str, volume: &str) -> Vec<(ClaimKey, VolumeHealthStatus)> {
        let world = self.world.lock();
        let claims = world.claims_of(driver, volume).into_iter();
        let stored = claims.filter_map(|key| Some((world.stored_of(&key)?.clone(), key)));
        stored.map(|(status, key)| (key, status)).collect()
    }
}

impl volmedic_view::Source for Source {
    fn rows(&self) -> Vec<Row> {
        let now = Timestamp::now();
        let keys = self.world.lock().claim_keys();
        let mut names = Names::default();
        let mut rows = Vec::with_capacity(keys.len());
        for some in keys.chunks(TOGETHER) {
            let world = self.world.lock();
            // A claim without a volume has no page of its own.
            let shown = |key: &ClaimKey| {
                world.show(now, key).filter(|shown| shown.volume.is_some() || world.stored_of(key).is_some())
            };
            rows.extend(some.iter().filter_map(|key| Some(row(key, &shown(key)?, &mut names))));
        }
        rows
    }

    fn about(&self) -> About {
        let (nodes, claims, verified) = {
            let world = self.world.lock();
            (world.show_nodes(), world.claims(), world.is_verified())
        };
        let agents = agents(&nodes);
        let yes = |yes: bool| if yes { "yes" } else { "no" };
        About {
            title: "All claims of the cluster".to_owned(),
            place: "merged by the hub".to_owned(),
            facts: vec![
                ("Merged", "what controllers, agents, kubelets and reporters say".to_owned()),
                ("Claims", claims.to_string()),
                ("Nodes", nodes.len().to_string()),
                ("Agents that live", agents.alive.to_string()),
                ("Agents whose lease expired", agents.silent.to_string()),
                ("Nodes without an agent", agents.missing.to_string()),
                ("An agent can speak only for its own node", yes(verified).to_owned()),
                ("Leads", self.leader.clone()),
                ("Version", env!("CARGO_PKG_VERSION").to_owned()),
            ],
            limits: limits(&agents, verified),
            trouble: (self.in_touch)().err().map(|why| format!("{why}; what was known before is shown")),
            calls: Vec::new(),
        }
    }

    fn history(&self) -> &History {
        &self.history
    }

    /// What is stored reaches back to before this process; what is not stored any more may still be remembered.
    fn story(&self, driver: &str, volume: &str) -> Vec<Arc<Moment>> {
        let mut story: Vec<Moment> = Vec::new();
        for (key, status) in self.stored_of(driver, volume) {
            story.extend(stored::story(&about(&key, &status), &status));
        }
        if story.is_empty() {
            return self.history.of(driver, volume);
        }
        story.sort_by_key(|moment| moment.at);
        story.into_iter().map(Arc::new).collect()
    }

    fn heals(&self, driver: &str, volume: &str) -> Vec<Heal> {
        let all = self.stored_of(driver, volume);
        let mut heals: Vec<Heal> = all.iter().flat_map(|(_, status)| stored::heals(status)).collect();
        heals.sort_by_key(|heal| std::cmp::Reverse(heal.at));
        heals
    }

    fn nodes(&self) -> Vec<NodeState> {
        let nodes = self.world.lock().show_nodes();
        let installed = agents(&nodes).missing < nodes.len();
        let state = |node: ShownNode| {
            let ready = self.nodes.get(&node.name).map(|sight| node_state(&sight));
            state(node, ready, installed)
        };
        nodes.into_iter().map(state).collect()
    }
}

/// `ready` is what the cluster says of it, if it is there.
fn state(node: ShownNode, ready: Option<NodeState>, installed: bool) -> NodeState {
    let ShownNode { name, down, agent } = node;
    let (word, well, since) = match agent {
        ShownAgent::None => ("none", false, None),
        ShownAgent::Undetermined => ("not heard for long enough", true, None),
        ShownAgent::Alive => ("alive", true, None),
        ShownAgent::Silent { since } => ("silent", false, Some(since)),
    };
    // Where there are no agents at all, that none is here is no news.
    let agent = installed.then_some(AgentState { state: word, well, since });
    match (down, ready) {
        (Some(down), _) => NodeState {
            name: name.into(),
            state: format!("down, {}", down.why),
            well: false,
            since: Some(down.since),
            agent,
        },
        (None, Some(ready)) => NodeState { agent, ..ready },
        (None, None) => {
            NodeState { name: name.into(), state: "not known".to_owned(), well: true, since: None, agent }
        }
    }
}

#[derive(Debug, Default)]
struct Agents {
    alive: usize,
    silent: usize,
    missing: usize,
    all: usize,
}

fn agents(nodes: &[ShownNode]) -> Agents {
    let mut agents = Agents { all: nodes.len(), ..Agents::default() };
    for node in nodes {
        match node.agent {
            ShownAgent::None => agents.missing += 1,
            ShownAgent::Silent { .. } => agents.silent += 1,
            ShownAgent::Alive | ShownAgent::Undetermined => agents.alive += 1,
        }
    }
    agents
}

fn limits(agents: &Agents, verified: bool) -> Vec<String> {
    let Agents { silent, missing, all, .. } = agents;
    let mut limits = Vec::new();
    if all > &0 && missing == all {
        limits.push("no agent runs in this cluster, so nothing is known of mounts on its nodes".to_owned());
    } else if *missing > 0 {
        limits.push(format!("{missing} of {all} nodes have no agent, so nothing is known of mounts there"));
    }
    match silent {
        0 => {}
        1 => {
            limits.push("the lease of one agent expired; its last report is shown and may be old".to_owned());
        }
        _ => limits.push(format!(
            "the leases of {silent} agents expired; their last reports are shown and may be old"
        )),
    }
    if !verified && missing < all {
        limits.push(
            "the API server does not check that an agent speaks only for its own node, so any agent could have said \
             what another is quoted with; apply deploy/chart/files/admission-agent.yaml"
                .to_owned(),
        );
    }
    limits
}

#[cfg(test)]
mod tests;
