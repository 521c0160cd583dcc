//! The loop around the triage: waits for what comes, hands it over with the time, and does what was decided.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use tokio::sync::{Semaphore, mpsc, oneshot};
use tokio::task::{Id, JoinSet};
use tokio::time::{Instant, sleep_until};
use volmedic_api::ObjectRef;
use volmedic_health::Remedy;
use volmedic_panics::caught;

use super::cluster::Details;
use super::evict::BrakesOn;
use super::metrics::Metrics;
use super::pods::UserPod;
use super::ports::{Cluster, Eyes, Found, Nodes, Surgeon, Teller};
use super::record::{Attempt, News};
use super::registry::RelayNews;
use super::trust::Relayed;
use super::{Options, Trigger};
use crate::place::Place;
use crate::refusal::{NodeState, Refusal};
use crate::table::Outcome;
use crate::triage::{Again, Standing, Step, Ticket, Triage, World};

mod acting;
mod asked;
mod reporting;
#[cfg(test)]
mod tests;
mod wishes;

pub use wishes::Answer;
use wishes::Wishes;

/// How long the last look before acting may take.
const LOOK: Duration = Duration::from_secs(30);
/// Within this time a new probe has to answer; the port gives up a little earlier.
const PROBE: Duration = Duration::from_secs(35);
/// The loop rests at least so long between two rounds that nothing but time called for.
const SHORTEST_NAP: Duration = Duration::from_millis(200);
const LONGEST_NAP: Duration = Duration::from_secs(5);
/// Maximum number of triggers that are taken in one step.
const TOGETHER: usize = 4096;
/// Maximum number that are reported at the same time.
const REPORTING: usize = 8;
/// Drivers on nodes whose last life is remembered although they are gone.
const MOST_REMEMBERED: usize = 50_000;
/// A survey that failed is made again after this time.
const SURVEY_PAUSE: Duration = Duration::from_secs(10);

/// Runs until both the relays and the triggers have ended.
#[expect(clippy::too_many_arguments, reason = "each is another part of the world")]
pub async fn run<C: Cluster, S: Surgeon, E: Eyes, N: Nodes, T: Teller>(
    options: Options,
    cluster: C,
    surgeon: S,
    eyes: E,
    nodes: N,
    teller: T,
    metrics: Metrics,
    relays: mpsc::Receiver<RelayNews>,
    triggers: mpsc::Receiver<Trigger>,
) {
    let clock = Clock { base: Timestamp::now(), since: Instant::now() };
    run_by(clock, options, cluster, surgeon, eyes, nodes, teller, metrics, relays, triggers).await;
}

#[expect(clippy::too_many_arguments, reason = "each is another part of the world")]
async fn run_by<C: Cluster, S: Surgeon, E: Eyes, N: Nodes, T: Teller>(
    clock: Clock,
    options: Options,
    cluster: C,
    surgeon: S,
    eyes: E,
    nodes: N,
    teller: T,
    metrics: Metrics,
    mut relays: mpsc::Receiver<RelayNews>,
    mut triggers: mpsc::Receiver<Trigger>,
) {
    let mut ward = Ward {
        triage: Triage::new(options.policy.clone()),
        cluster: Arc::new(cluster),
        surgeon: Arc::new(surgeon),
        eyes: Arc::new(eyes),
        nodes: Arc::new(nodes),
        teller: Arc::new(teller),
        options,
        metrics,
        clock,
        relays: HashMap::new(),
        generations: HashMap::new(),
        pvs: HashMap::new(),
        restarted: BTreeSet::new(),
        survey_at: None,
        surveying: false,
        wishes: Wishes::default(),
        tasks: JoinSet::new(),
        tickets: HashMap::new(),
        recreating: HashMap::new(),
        brakes: BrakesOn::default(),
        reporting: Arc::new(Semaphore::new(REPORTING)),
        checked: 0,
    };
    let mut waiting = Vec::new();
    loop {
        ward.round();
        let nap = ward.nap();
        tokio::select! {
            news = relays.recv() => match news {
                Some(news) => ward.relay(news),
                None => return,
            },
            // Together: each round visits all cases.
            count = triggers.recv_many(&mut waiting, TOGETHER) => {
                if count == 0 {
                    return;
                }
                waiting.drain(..).for_each(|trigger| ward.trigger(trigger));
            }
            Some(Ok((id, done))) = ward.tasks.join_next_with_id() => match done {
                Ok(done) => {
                    ward.tickets.remove(&id);
                    ward.done(done);
                }
                Err(panic) => ward.broken(id, &panic),
            },
            () = sleep_until(nap) => {}
        }
    }
}

/// Time that moves with the runtime's, so that tests can move it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Clock {
    base: Timestamp,
    since: Instant,
}

impl Clock {
    #[cfg(test)]
    fn at(&self, at: Instant) -> Timestamp {
        let since = |earlier: Instant, later: Instant| {
            SignedDuration::try_from(later.saturating_duration_since(earlier)).unwrap_or(SignedDuration::MAX)
        };
        let moved = self.base.saturating_add(since(self.since, at)).unwrap_or(Timestamp::MAX);
        moved.saturating_sub(since(at, self.since)).unwrap_or(Timestamp::MIN)
    }

    pub(super) fn now(&self) -> Timestamp {
        let elapsed = SignedDuration::try_from(self.since.elapsed()).unwrap_or(SignedDuration::MAX);
        self.base.saturating_add(elapsed).unwrap_or(Timestamp::MAX)
    }
}

/// What a task brings back.
enum Done {
    Examined {
        ticket: Ticket,
        seen: Result<Seen, String>,
        /// A new probe right before that confirmed that this remedy would help.
        confirmed: Option<Remedy>,
    },
    /// A new probe did not confirm it.
    NotConfirmed {
        ticket: Ticket,
        about: Vec<ObjectRef>,
        refusal: Refusal,
    },
    Healed {
        ticket: Ticket,
        about: Vec<ObjectRef>,
        attempt: Option<Attempt>,
        remedy: Remedy,
        outcome: Outcome,
        /// Where new pods are.
        nodes: BTreeSet<Arc<str>>,
        took: Duration,
    },
    Surveyed {
        wanted: Vec<(Arc<str>, Arc<str>)>,
        found: Result<Vec<Found>, String>,
    },
    Located {
        found: Result<Vec<Found>, String>,
        dry_run: bool,
        answer: oneshot::Sender<Vec<(Place, Answer)>>,
    },
    Previewed {
        wish: u64,
        place: Place,
        details: Result<(Details, Option<Standing>), String>,
    },
    RefusalReport,
}

/// What was found right before acting.
struct Seen {
    details: Details,
    about: Vec<ObjectRef>,
    again: Again,
    /// The pods that would be recreated, or why not; `None` where nobody wants that.
    pods: Option<Result<Vec<UserPod>, Refusal>>,
}

struct Ward<C, S, E, N, T> {
    triage: Triage,
    cluster: Arc<C>,
    surgeon: Arc<S>,
    eyes: Arc<E>,
    nodes: Arc<N>,
    teller: Arc<T>,
    options: Options,
    metrics: Metrics,
    clock: Clock,
    relays: HashMap<(Arc<str>, Arc<str>), Relayed>,
    /// Of each driver on each node, which of its lives was seen last.
    generations: HashMap<(Arc<str>, Arc<str>), Box<str>>,
    /// The PersistentVolume of each place that anything is known of.
    pvs: HashMap<Place, Box<str>>,
    /// Drivers and nodes whose volumes are to be looked up and checked.
    restarted: BTreeSet<(Arc<str>, Arc<str>)>,
    survey_at: Option<Instant>,
    surveying: bool,
    wishes: Wishes,
    /// With the message of a panic in place of a result.
    tasks: JoinSet<Result<Done, String>>,
    /// Of tasks that hold one.
    tickets: HashMap<Id, (Ticket, Remedy)>,
    /// The owners of the pods that are being recreated, by volume and node. None of them loses two pods at a time.
    recreating: HashMap<Place, BTreeSet<Box<str>>>,
    /// The brakes that are on, as attempts under way see them.
    brakes: BrakesOn,
    reporting: Arc<Semaphore>,
    /// Volumes that were checked and found healthy, and not yet logged.
    checked: usize,
}

/// What the triage sees of the world.
struct View<'a, E, N> {
    eyes: &'a E,
    nodes: &'a N,
    relays: &'a HashMap<(Arc<str>, Arc<str>), Relayed>,
}

impl<E: Eyes, N: Nodes> World for View<'_, E, N> {
    fn node(&self, node: &str) -> NodeState {
        self.nodes.state(node)
    }

    fn has_relay(&self, driver: &Arc<str>, node: &Arc<str>) -> bool {
        self.relays.contains_key(&(driver.clone(), node.clone()))
    }

    fn in_use(&self, driver: Option<&str>) -> Option<usize> {
        self.eyes.in_use(driver)
    }
}

impl<C: Cluster, S: Surgeon, E: Eyes, N: Nodes, T: Teller> Ward<C, S, E, N, T> {
    /// Does everything that is due now.
    fn round(&mut self) {
        let now = self.clock.now();
        if self.survey_at.is_some_and(|at| at <= Instant::now()) && !self.surveying {
            self.survey();
        }
        let view = View { eyes: &*self.eyes, nodes: &*self.nodes, relays: &self.relays };
        let steps = self.triage.steps(now, &view);
        self.brakes.set(self.triage.brakes());
        let stuck = self.wishes.stuck(&self.triage, now, &view);
        for step in steps {
            match step {
                Step::Examine(ticket) => self.examine(ticket),
                Step::Skip(reported) => self.skip(reported),
                Step::Braked(brake) => self.tell_all(News::Braked(brake)),
                Step::Released(brake) => self.tell_all(News::Released(brake)),
            }
        }
        for (place, refusal) in stuck {
            self.triage.withdraw_person(&place);
            self.wishes.answer(&place, &Answer::Refused(vec![refusal.to_string()]));
        }
        self.wishes.expire();
        if self.pvs.len() > 2 * self.triage.known() + 1024 {
            let triage = &self.triage;
            self.pvs.retain(|place, _| triage.knows(place));
        }
        // One line for all of them: checking is not healing.
        if self.checked > 0 && !self.tickets.values().any(|(ticket, _)| ticket.is_check()) {
            tracing::info!(
                volumes = std::mem::take(&mut self.checked),
                "volumes were checked and are healthy"
            );
        }
        let brakes = self.triage.brakes().count();
        self.metrics.stand(self.triage.in_flight(), self.triage.open(), brakes, self.relays.len());
    }

    fn nap(&self) -> Instant {
        let (now, at) = (Instant::now(), self.clock.now());
        let due = self
            .triage
            .next_due(at)
            .map_or(LONGEST_NAP, |due| Duration::try_from(due.duration_since(at)).unwrap_or_default());
        let at = now + due.clamp(SHORTEST_NAP, LONGEST_NAP);
        self.survey_at.filter(|_| !self.surveying).map_or(at, |survey| survey.min(at))
    }

    fn relay(&mut self, news: RelayNews) {
        match news {
            RelayNews::Came(relay) => {
                let key = (relay.driver.clone(), relay.node.clone());
                let generation = relay.generation.clone();
                self.relays.insert(key.clone(), relay);
                // Somebody deleted the registration and it came back: nothing has restarted.
                if self.generations.insert(key.clone(), generation.clone()) == Some(generation) {
                    return;
                }
                self.triage.driver_changed(&key.0, &key.1);
                self.restarted.insert(key);
                self.survey_at.get_or_insert(Instant::now() + self.options.gather);
            }
            RelayNews::Went(relay) => {
                let key = (relay.driver.clone(), relay.node.clone());
                // Another registration may serve the same driver there by now.
                if self.relays.get(&key) == Some(&relay) {
                    self.relays.remove(&key);
                    self.restarted.remove(&key);
                    if self.generations.len() > MOST_REMEMBERED {
                        let relays = &self.relays;
                        self.generations.retain(|key, _| relays.contains_key(key));
                    }
                }
            }
        }
    }

    fn trigger(&mut self, trigger: Trigger) {
        let now = self.clock.now();
        match trigger {
            Trigger::Unhealthy { place, pv, reason, since } => {
                if self.triage.complain(now, &place, reason, since) {
                    self.pvs.insert(place, pv);
                }
            }
            Trigger::Remembered { place, pv, memory, unhealthy } => {
                if self.triage.restore(now, &place, &memory, unhealthy) {
                    self.pvs.insert(place, pv);
                }
            }
            Trigger::Recreated { volume, memory } => self.triage.restore_recreated(volume, &memory),
            Trigger::Cleared { place } => self.triage.cleared(now, &place),
            Trigger::Gone { place } => {
                self.triage.forget(now, &place);
                if !self.triage.knows(&place) {
                    self.pvs.remove(&place);
                }
            }
            Trigger::Person { namespace, claim, dry_run, answer } => {
                let cluster = self.cluster.clone();
                self.start(async move {
                    let found = cluster.places_of(&namespace, &claim).await;
                    Done::Located { found, dry_run, answer }
                });
            }
        }
    }

    fn survey(&mut self) {
        self.survey_at = None;
        self.surveying = true;
        let wanted: Vec<_> = std::mem::take(&mut self.restarted).into_iter().collect();
        let cluster = self.cluster.clone();
        self.start(async move {
            let found = cluster.in_use_on(&wanted).await;
            Done::Surveyed { wanted, found }
        });
    }

    /// Starts work for one volume, or one driver. A panic ends only this.
    fn start(&mut self, work: impl Future<Output = Done> + Send + 'static) -> Id {
        self.tasks.spawn(caught(work)).id()
    }

    fn done(&mut self, done: Done) {
        match done {
            Done::Examined { ticket, seen, confirmed } => self.examined(ticket, seen, confirmed),
            Done::NotConfirmed { ticket, about, refusal } => {
                let verdict = self.triage.not_confirmed(self.clock.now(), &ticket, refusal);
                self.spared(&ticket, about, verdict);
            }
            Done::Healed { ticket, about, attempt, remedy, outcome, nodes, took } => {
                self.recreating.remove(&ticket.place);
                self.triage.moved(&ticket.place, nodes);
                self.healed(&ticket, about, remedy, attempt, outcome, took);
            }
            Done::Surveyed { wanted, found } => self.surveyed(wanted, found),
            Done::Located { found, dry_run, answer } => self.located(found, dry_run, answer),
            Done::Previewed { wish, place, details } => self.previewed(wish, &place, details),
            Done::RefusalReport => {}
        }
    }

    fn surveyed(&mut self, wanted: Vec<(Arc<str>, Arc<str>)>, found: Result<Vec<Found>, String>) {
        self.surveying = false;
        match found {
            Ok(found) => {
                tracing::info!(
                    nodes = wanted.len(),
                    volumes = found.len(),
                    "volumes of restarted drivers are checked"
                );
                let now = self.clock.now();
                for Found { place, pv } in found {
                    if self.triage.check(now, &place) {
                        self.pvs.insert(place, pv);
                    }
                }
            }
            Err(why) => {
                tracing::warn!("the volumes of restarted drivers are not known: {why}");
                let still = wanted.into_iter().filter(|key| self.relays.contains_key(key));
                self.restarted.extend(still);
                self.survey_at = Some(Instant::now() + SURVEY_PAUSE);
            }
        }
        if self.survey_at.is_none() && !self.restarted.is_empty() {
            self.survey_at = Some(Instant::now() + self.options.gather);
        }
    }
}
