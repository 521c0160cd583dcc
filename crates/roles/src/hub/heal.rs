//! The healer in the hub: what it sees, whom it informs, what it remembers, and who may ask it. It runs while we lead.

mod args;
mod asked;
mod eyes;
mod fresh;
mod prospects;
mod pump;
mod teller;
mod turns;

use std::collections::HashMap;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use kube::Client;
use parking_lot::Mutex;
use prometheus_client::registry::Registry;
use tokio::task::JoinSet;
use volmedic_api::{Kind, ObjectRef};
use volmedic_heal::healer::{DialError, Dialer, Metrics, Trust};
use volmedic_heal::memory::{self, Deadlines};
use volmedic_heal::{Healer, Place};
use volmedic_health::Remedy;
use volmedic_hub::{Keeper, World};
use volmedic_report::{Limits, Notes, Reports, Voice};

pub(super) use args::{HealArgs, HealConfig};
pub(super) use eyes::Asked;
use eyes::{Places, Sight};
use fresh::Prober;
use pump::Pump;

const LOOK_EVERY: Duration = Duration::from_millis(200);
const TOKEN_PAUSE: Duration = Duration::from_secs(2);

/// What is counted, made once for the whole life of the process.
#[derive(Debug, Clone)]
pub(super) struct Counts {
    healer: Metrics,
    reports: Reports,
}

impl Counts {
    pub(super) fn register(registry: &mut Registry, reports: Reports) -> Self {
        let healer = Metrics::default();
        healer.register(registry);
        Self { healer, reports }
    }
}

/// What the healer needs of the hub.
pub(super) struct Surroundings {
    pub(super) client: Client,
    /// Where the agents' Leases are.
    pub(super) agent_namespace: String,
    pub(super) world: Arc<Mutex<World>>,
    pub(super) keeper: Arc<Keeper>,
    pub(super) counts: Counts,
    /// Whether changes reach us.
    pub(super) in_touch: Asked,
    /// Whether we lead.
    pub(super) leads: Asked,
}

/// Refuses to start with a token that a relay could use at the API server. Waits until there is an answer.
pub(super) async fn check_tokens(client: &Client, trust: &Trust) -> Result<(), DialError> {
    loop {
        match trust.check(client).await {
            Err(error @ DialError::Unreviewed { .. }) => tracing::warn!("{error}; trying again"),
            checked => return checked,
        }
        tokio::time::sleep(TOKEN_PAUSE).await;
    }
}

/// Heals until dropped. Begins when the hub knows enough to judge.
pub(super) async fn run(config: HealConfig, around: Surroundings) -> Infallible {
    let Surroundings { client, agent_namespace, world, keeper, counts, in_touch, leads } = around;
    while !world.lock().has_heard_nodes() {
        tokio::time::sleep(LOOK_EVERY).await;
    }
    let HealConfig { options, trust } = config;
    let remedies = Remedy::ALL.into_iter().filter(|remedy| options.policy.has(*remedy)).collect();
    world.lock().set_remedies(remedies);
    world.lock().follow();
    let deadlines = options.deadlines();
    let instance = volmedic_lease::hostname().unwrap_or_default();
    let voice = Voice::of_healer(&instance);
    let notes = Arc::new(Notes::start(&client, voice, &Limits::default(), counts.reports));
    let places = Places::default();
    let sight = Sight {
        world: world.clone(),
        places: places.clone(),
        in_touch,
        leads,
        counted: Mutex::default(),
        prober: Prober::new(&client, &agent_namespace, &instance),
    };
    let (teller, scribe) = teller::pair(keeper.clone(), notes.clone(), deadlines);
    let (policy, patience) = (options.policy.clone(), options.deadline);
    let (rules, recreate) = (options.rules.clone(), options.recreate_rules.default);
    let reports = [options.rules.reports.clone(), options.recreate_rules.reports.clone()];
    let trust_reports = |verified: bool| reports.iter().for_each(|reports| reports.set_verified(verified));
    trust_reports(world.lock().is_guarded());
    let dialer = trust.map(|trust| Dialer::new(client.clone(), trust));
    let has_relays = dialer.is_some();
    let healer = Healer::start(&client, options, dialer, sight, teller, counts.healer);
    let mut pump = Pump::new(world.clone(), places, healer.handle());
    pump.remember(&policy, deadlines);
    if has_relays {
        tracing::info!(mode = %rules.default, ceiling = %rules.ceiling, "healing is on");
    } else {
        tracing::info!("no node plugin is asked to heal, because --heal-relays is not set");
    }
    if policy.has(Remedy::RecreatePods) {
        tracing::info!(mode = %recreate, "pods may be recreated");
    }

    let mut tasks: JoinSet<Infallible> = JoinSet::new();
    tasks.spawn(pump.run());
    tasks.spawn(scribe.run());
    let handle = healer.handle();
    tasks.spawn(asked::Desk { client, handle, deadline: patience, instance }.run());
    let mut closing = JoinSet::new();
    for (claim, place, begun, until) in unfinished(&world, deadlines) {
        tracing::warn!(
            "an attempt to heal {place} was under way when an earlier healer ended; it is left alone until {until:.0}"
        );
        let Place { driver, handle, node: _ } = place;
        let (keeper, notes) = (keeper.clone(), notes.clone());
        closing.spawn(teller::Attempts { keeper, notes, claim, driver, handle }.close(begun, until));
    }
    loop {
        tokio::select! {
            _ = tasks.join_next() => panic!("internal error (bug): a part of the healer ended"),
            Some(_) = closing.join_next() => {}
            () = tokio::time::sleep(Duration::from_secs(5)) => {
                trust_reports(world.lock().is_guarded());
                assert!(healer.runs(), "internal error (bug): the healer ended");
            }
        }
    }
}

/// What earlier healers began and did not end.
fn unfinished(
    world: &Mutex<World>,
    deadlines: Deadlines,
) -> Vec<(ObjectRef, Place, volmedic_api::resource::Heal, jiff::Timestamp)> {
    let world = world.lock();
    let mut all = Vec::new();
    let heals: HashMap<_, _> = world.heals().into_iter().collect();
    for (key, heals) in heals {
        let Some(patient) = world.patient(&key) else { continue };
        let claim = ObjectRef::new(Kind::PersistentVolumeClaim, &key.namespace, &key.name, &patient.uid);
        for (begun, until) in memory::unfinished(&heals, deadlines) {
            let node = begun.node.as_deref().unwrap_or_default();
            let place = Place::new(&*patient.driver, &*patient.handle, node);
            all.push((claim.clone(), place, begun.clone(), until));
        }
    }
    all
}
