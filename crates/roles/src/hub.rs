//! The hub role: one for the cluster, which merges what all others know into one VolumeHealth for each claim.

mod args;
mod events;
mod heal;
mod nodes;
mod page;
pub mod policy;
mod push;
pub mod rows;
mod watches;

use std::collections::BTreeMap;
use std::error::Error;
use std::sync::Arc;

use anyhow::bail;
use kube::Client;
use parking_lot::Mutex;
use prometheus_client::registry::Registry;
use tokio::sync::Notify;
use volmedic_hub::{Keeper, World};

pub use args::Args;
use args::Config;

use volmedic_runtime::election::Leadership;
use volmedic_runtime::http::Health;
use volmedic_runtime::process::{self, Process};
use watches::Watches;

/// The Lease that the replicas stand for.
const LEASE: &str = "volmedic-hub";

pub fn run(args: Args) -> Result<(), Box<dyn Error>> {
    Ok(process::run(serve(args.resolve()))?)
}

/// Runs until a signal comes or the lease is lost.
async fn serve(config: Config) -> anyhow::Result<()> {
    let mut process = Process::start()?;
    let client = volmedic_runtime::cluster::client(config.kubeconfig.as_ref()).await?;
    let mut registry = Registry::default();
    let metrics = volmedic_hub::Metrics::register(&mut registry);
    let reports = volmedic_hub::push::ReportCounts::register(&mut registry);
    let sent = volmedic_report::Reports::register(&mut registry);
    let heal_counts = config.heal.is_some().then(|| heal::Counts::register(&mut registry, sent.clone()));
    process.serve_http(&config.http, registry, &client).await?;
    if let Some(trust) = config.heal.as_ref().and_then(|heal| heal.trust.as_ref()) {
        heal::check_tokens(&client, trust).await?;
    }
    let desk = push::Desk::default();
    if let Some(endpoint) = config.push.clone() {
        process.servers.spawn(push::serve(endpoint, client.clone(), desk.clone(), reports).await?);
    }
    let page = process.serve_page(&config.page, "hub", page::CHANGES).await?;
    let leadership = match &config.election {
        Some(lease) => {
            let election = lease.election(LEASE, BTreeMap::new())?;
            Leadership::stand(&client, election, &process, page.as_deref())?
        }
        None => Leadership::default(),
    };
    if leadership.won(&mut process).await? {
        let health = process.health.clone();
        tokio::select! {
            outcome = lead(&config, &client, metrics, (sent, heal_counts), &health, &desk, page, leadership.clone()) => outcome?,
            over = leadership.over(&mut process.signals) => over?,
        }
    }
    leadership.release(process).await;
    Ok(())
}

/// Everything that only one may do at a time. It ends only when it cannot go on.
#[expect(clippy::too_many_arguments, reason = "each is another part of the process")]
async fn lead(
    config: &Config,
    client: &Client,
    metrics: volmedic_hub::Metrics,
    (sent, heal_counts): (volmedic_report::Reports, Option<heal::Counts>),
    health: &Health,
    desk: &push::Desk,
    page: Option<Arc<page::Page>>,
    leadership: Leadership,
) -> anyhow::Result<()> {
    let (world, woken) = (Arc::new(Mutex::new(World::default())), Arc::new(Notify::new()));
    // First whether agents can be believed, so that nothing is written that the next moment changes.
    let tokens = config.heal.as_ref().is_some_and(heal::HealConfig::requests_tokens);
    let policies = policy::Policies { tokens };
    policies.first_look(client, &world).await;

    let events = events::Events::new(client, &world, sent, &config.keeper);
    let mut watches = Watches::start(client, &config.agent_namespace, &world, &woken);
    health.set_ready(watches.ready_check(&world, config.not_ready_after));
    if let Some(page) = page {
        let in_touch = watches.ready_check(&world, page::STALE_AFTER);
        watches.tasks.spawn(page::show(page, world.clone(), watches.nodes.clone(), in_touch));
    }
    let nodes = nodes::NodeWatcher {
        nodes: watches.nodes.clone(),
        woken: watches.nodes_woken.clone(),
        world: world.clone(),
        hub: woken.clone(),
        grace: config.node_grace,
        clear_after: config.clear_nodes_after,
        client: client.clone(),
        agent_namespace: config.agent_namespace.clone(),
    };
    watches.tasks.spawn(nodes.run());
    watches.tasks.spawn(events.run());
    watches.tasks.spawn(policies.keep_looking(client.clone(), world.clone(), woken.clone()));
    tracing::info!("merging what is known of all claims");
    let keeper = Arc::new(Keeper::new(client.clone(), world.clone(), woken, config.keeper, metrics));
    *desk.lock() = Some((keeper.clone(), world.clone()));
    let leases = watches.leases.clone();
    // Where our own lease cannot be renewed, no agent can renew its own either: that is no silence.
    let renewed = move || leadership.holds();
    if let Some((heal, counts)) = config.heal.clone().zip(heal_counts) {
        let (link, keeper) = (leases.clone(), keeper.clone());
        let in_touch: heal::Asked = Arc::new(move || link.is_in_touch());
        let leads: heal::Asked = Arc::new(renewed.clone());
        let around = heal::Surroundings {
            client: client.clone(),
            agent_namespace: config.agent_namespace.clone(),
            world,
            keeper,
            counts,
            in_touch,
            leads,
        };
        watches.tasks.spawn(heal::run(heal, around));
    }
    tokio::select! {
        never = keeper.run(move || leases.is_in_touch() && renewed()) => match never {},
        _ = watches.tasks.join_next() => bail!("internal error (bug): a watch ended"),
    }
}
