//! The hub role: one for the cluster, which merges what all others know into one VolumeHealth for each claim.

mod args;
mod heal;
mod nodes;
mod page;
mod policy;
mod push;
mod watches;

use std::error::Error;
use std::sync::{Arc, Mutex};
use std::time::Instant;

use anyhow::{Context, bail};
use kube::Client;
use prometheus_client::registry::Registry;
use tokio::sync::Notify;
use tokio::task::JoinSet;
use volmedic_hub::{Keeper, World};
use volmedic_lease::{Candidate, State};

pub(crate) use args::Args;
use args::{Config, Election};

use crate::http::{self, Health};
use crate::signals::Signals;
use watches::Watches;

/// The Lease that the replicas stand for.
const LEASE: &str = "volmedic-hub";

pub(crate) fn run(args: Args) -> Result<(), Box<dyn Error>> {
    let config = args.resolve();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let outcome = runtime.block_on(serve(config));
    runtime.shutdown_background();
    outcome.map_err(Into::into)
}

/// Runs until a signal comes or the lease is lost.
async fn serve(config: Config) -> anyhow::Result<()> {
    let mut signals = Signals::new()?;
    let client = crate::cluster::client(config.kubeconfig.as_ref()).await?;
    let mut registry = Registry::default();
    let metrics = volmedic_hub::Metrics::register(&mut registry);
    let reports = volmedic_hub::push::ReportCounts::register(&mut registry);
    let heal_counts = config.heal.is_some().then(|| heal::Counts::register(&mut registry));
    let health = Arc::new(Health::default());
    let mut background = JoinSet::new();
    if let Some(address) = config.http {
        let served = http::serve(address, &config.metrics_path, Arc::new(registry), health.clone());
        background.spawn(served.await?);
    }
    let desk = push::Desk::default();
    if let Some(endpoint) = config.push.clone() {
        background.spawn(push::serve(endpoint, client.clone(), desk.clone(), reports).await?);
    }
    let page = match config.page.open().await? {
        Some(door) => {
            let page = page::page();
            background.spawn(door.serve_loudly(page.clone()));
            Some(page)
        }
        None => None,
    };
    let candidate = match &config.election {
        Some(election) => Some(Arc::new(stand(&client, election)?)),
        None => None,
    };
    if let Some(candidate) = &candidate {
        if let Some(page) = &page {
            page.stands_for(candidate);
        }
        let watched = candidate.clone();
        health
            .set_leader(Box::new(move || watched.healthy(Instant::now()).map_err(|error| error.to_string())));
        // To stand by is all that a replica has to do before it leads.
        health.set_ready(Box::new(|| Ok(())));
        tokio::select! {
            state = candidate.elected() => if state != State::Leading { bail!("the lease was lost before it was held") },
            () = signals.next() => return release(candidate.clone(), health).await,
        }
    }
    let lost = async {
        match &candidate {
            Some(candidate) => candidate.lost().await,
            None => std::future::pending().await,
        }
    };
    tokio::select! {
        outcome = lead(&config, &client, metrics, heal_counts, &health, &desk, page, candidate.clone()) => outcome?,
        () = lost => bail!("the lease was lost; another replica leads now, and this one must begin anew"),
        () = signals.next() => {}
    }
    drop(background);
    match candidate {
        Some(candidate) => release(candidate, health).await,
        None => Ok(()),
    }
}

/// Everything that only one may do at a time. It ends only when it cannot go on.
#[expect(clippy::too_many_arguments, reason = "each is another part of the process")]
async fn lead(
    config: &Config,
    client: &Client,
    metrics: volmedic_hub::Metrics,
    heal_counts: Option<heal::Counts>,
    health: &Health,
    desk: &push::Desk,
    page: Option<Arc<page::Page>>,
    candidate: Option<Arc<Candidate>>,
) -> anyhow::Result<()> {
    let (world, woken) = (Arc::new(Mutex::new(World::default())), Arc::new(Notify::new()));
    // First whether agents can be believed, so that nothing is written that the next moment changes.
    let verified = policy::first_look(client).await;
    watches::lock(&world).set_verified(verified);

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
    watches.tasks.spawn(policy::keep_looking(client.clone(), world.clone(), woken.clone()));
    tracing::info!("merging what is known of all claims");
    let keeper = Arc::new(Keeper::new(client.clone(), world.clone(), woken, config.keeper, metrics));
    *watches::lock(desk) = Some((keeper.clone(), world.clone()));
    let leases = watches.leases.clone();
    // Where our own lease cannot be renewed, no agent can renew its own either: that is no silence.
    let renewed = move || candidate.as_ref().is_none_or(|candidate| candidate.holds(Instant::now()));
    if let Some((heal, counts)) = config.heal.clone().zip(heal_counts) {
        let (link, keeper) = (leases.clone(), keeper.clone());
        let in_touch: heal::Asked = Arc::new(move || link.is_in_touch());
        let leads: heal::Asked = Arc::new(renewed.clone());
        let around = heal::Surroundings { client: client.clone(), world, keeper, counts, in_touch, leads };
        watches.tasks.spawn(heal::run(heal, around));
    }
    tokio::select! {
        never = keeper.run(move || leases.is_in_touch() && renewed()) => match never {},
        ended = watches.tasks.join_next() => match ended {
            Some(Err(error)) if error.is_panic() => std::panic::resume_unwind(error.into_panic()),
            _ => bail!("a watch ended, which it never should"),
        },
    }
}

fn stand(client: &Client, election: &Election) -> anyhow::Result<Candidate> {
    let host = volmedic_lease::hostname()
        .context("cannot read this machine's name, which is needed for the lease")?;
    let config = volmedic_lease::Config {
        lease_duration: election.lease_duration,
        renew_deadline: election.renew_deadline,
        retry_period: election.retry_period,
        ..volmedic_lease::Config::new(&election.namespace, LEASE, &volmedic_lease::sanitize(&host))
    };
    tracing::info!("standing for the lease {}/{LEASE}", election.namespace);
    Ok(Candidate::start(client.clone(), config)?)
}

async fn release(candidate: Arc<Candidate>, health: Arc<Health>) -> anyhow::Result<()> {
    // The check holds the candidate too.
    health.set_leader(Box::new(|| Ok(())));
    if let Some(candidate) = Arc::into_inner(candidate) {
        candidate.release().await;
    }
    Ok(())
}
