//! Who is treated, when, and who has to wait. Pure: time is an argument, and nothing here talks to anybody.
//!
//! A complaint becomes a case. A case that is due and passes every guard gets a [`Ticket`], which holds its place in the
//! budgets and keeps everybody else off the volume. With the ticket it is checked again; what was seen then
//! ([`Exam`]) decides whether it is acted on. What became of that decides when it may be due again.
//!
//! | guard | where |
//! |---|---|
//! | the mode of claim, namespace or class; a person's consent | `examined` |
//! | it lasts; it is still so right before acting | `case.rs`, `examined` |
//! | a new probe right before acting confirms it | `not_confirmed` |
//! | pause after a try, give-up, never again | `done`, by the table in `table.rs` |
//! | budgets per node and cluster, one at a time on a volume | `flights.rs` |
//! | too many unhealthy at the same time | `brake.rs` |
//! | the node is up and not cordoned, somebody there can ask the driver | `guard` |
//! | all of them again, before each eviction of an attempt | `healer/evict/guards.rs` |

mod asked;
mod brake;
mod case;
mod flights;
mod ladder;
mod papers;
mod recreated;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::Timestamp;
use volmedic_health::{Reason, Remedy, Volume};

pub use brake::Brake;
use brake::Brakes;
use case::{Case, Complaint};
use flights::Flights;
pub(crate) use ladder::withdrawn;
pub use papers::{Again, Approval, Exam, RefusalReport, Standing, Step, Ticket, Verdict};
use recreated::Recreations;

use crate::memory::{Memory, Recreated};
use crate::place::Place;
use crate::policy::Policy;
use crate::refusal::{NodeState, Refusal};
use crate::table::{After, Outcome};

/// What is known of the cluster at the moment of a decision.
pub trait World {
    fn node(&self, node: &str) -> NodeState;
    /// Whether a trusted relay on the node can ask the driver.
    fn has_relay(&self, driver: &Arc<str>, node: &Arc<str>) -> bool;
    /// How many volumes are in use, of one driver or of all, each counted once per node; `None` if nobody knows.
    fn in_use(&self, driver: Option<&str>) -> Option<usize>;
}

/// All cases, and the memory of what was tried.
#[derive(Debug)]
pub struct Triage {
    policy: Policy,
    cases: BTreeMap<Place, Case>,
    flights: Flights,
    brakes: Brakes,
    /// Drivers that said UNIMPLEMENTED, each with its node.
    barred: BTreeSet<(Arc<str>, Arc<str>)>,
    recreations: Recreations,
    tickets: u64,
}

impl Triage {
    pub fn new(policy: Policy) -> Self {
        Self {
            policy,
            cases: BTreeMap::new(),
            flights: Flights::default(),
            brakes: Brakes::default(),
            barred: BTreeSet::new(),
            recreations: Recreations::default(),
            tickets: 0,
        }
    }

    pub fn policy(&self) -> &Policy {
        &self.policy
    }

    /// The volume was reported as unhealthy. Answers whether it is taken on: only if a remedy for it is switched on.
    pub fn complain(&mut self, now: Timestamp, place: &Place, reason: Reason, since: Timestamp) -> bool {
        if !self.can_heal(&reason) {
            return false;
        }
        let steady = self.policy.steady;
        let Some(case) = self.case(now, place) else { return false };
        case.complain(now, Complaint { reason, since, seen: now }, steady);
        true
    }

    /// What an earlier process knew of a place, which nothing is known of yet in this one.
    pub fn restore(
        &mut self,
        now: Timestamp,
        place: &Place,
        memory: &Memory,
        unhealthy: Option<(Reason, Timestamp)>,
    ) -> bool {
        if unhealthy.as_ref().is_some_and(|(reason, _)| !self.can_heal(reason)) {
            return false;
        }
        let Some(case) = self.case(now, place) else { return false };
        let mut restored = Case::restored(now, memory);
        restored.unhealthy = unhealthy.map(|(reason, since)| Complaint { reason, since, seen: now });
        (restored.check, restored.person, restored.in_flight) = (case.check, case.person, case.in_flight);
        *case = restored;
        true
    }

    /// How often an earlier process recreated the pods of a volume, on whatever node.
    pub fn restore_recreated(&mut self, volume: Volume, memory: &Recreated) {
        self.recreations.restore(volume, memory);
    }

    fn can_heal(&self, reason: &Reason) -> bool {
        reason.remedies().iter().any(|remedy| self.policy.has(*remedy))
    }

    /// Anyone who complained sees the volume recovered, or does not see it there any more.
    pub fn cleared(&mut self, now: Timestamp, place: &Place) {
        if let Some(case) = self.cases.get_mut(place) {
            case.cleared(now);
        }
    }

    /// The driver on the node is another process than before: whatever it could not do, it may be able to now.
    pub fn driver_changed(&mut self, driver: &Arc<str>, node: &Arc<str>) {
        self.barred.remove(&(driver.clone(), node.clone()));
    }

    /// The volume is to be checked once, because its driver has restarted.
    pub fn check(&mut self, now: Timestamp, place: &Place) -> bool {
        self.case(now, place).map(Case::check).is_some()
    }

    /// A person asks for it. That stands above debounce, pauses, give-up and consent, and above nothing else.
    pub fn person(&mut self, now: Timestamp, place: &Place) -> bool {
        self.recreations.person(place);
        self.case(now, place).map(Case::person).is_some()
    }

    /// The volume is not there any more. What is under way for it ends by itself.
    pub fn forget(&mut self, now: Timestamp, place: &Place) {
        let Some(case) = self.cases.get_mut(place) else { return };
        if case.in_flight {
            // Its pods are being recreated, as far as we know: they have gone, and nothing is wrong here any more.
            case.cleared(now);
            case.check = false;
        } else {
            self.cases.remove(place);
        }
    }

    /// What is to be done now. Persons come first, then who has waited longest.
    pub fn steps(&mut self, now: Timestamp, world: &impl World) -> Vec<Step> {
        self.brakes.look(&self.policy, &self.cases, world);
        let mut steps = self.brakes.take_news();
        let policy = &self.policy;
        self.cases.retain(|_, case| !case.is_over(now, policy));
        self.recreations.tidy(now, policy, &self.cases);
        if policy.recreate.is_some() {
            let away = |place: &Place| !world.has_relay(&place.driver, &place.node);
            self.cases.iter_mut().for_each(|(place, case)| case.relay(now, away(place)));
        }
        let (mut ready, mut news) = (Vec::new(), Vec::new());
        // Many wait while few are under way, so nothing is copied here that is not needed.
        for (place, case) in self.cases.iter().filter(|(_, case)| case.is_wanted() && !case.in_flight) {
            match self.guard(now, place, case, world, false).err() {
                None => ready.push((!case.person, case.since(), place)),
                Some(refusal) if case.is_news(&refusal) => news.push((place.clone(), refusal)),
                Some(_) => {}
            }
        }
        ready.sort_unstable();
        let room = self.policy.cluster_budget.saturating_sub(self.flights.len());
        // Some of them are on the same node or the same volume, so there may be room for one further down.
        let ready: Vec<Place> = if room == 0 {
            Vec::new()
        } else {
            let free = |place: &&Place| self.flights.objection(place, &self.policy).is_none();
            ready.into_iter().map(|(_, _, place)| place).filter(free).cloned().collect()
        };
        for place in ready {
            if self.flights.objection(&place, &self.policy).is_none() {
                steps.push(Step::Examine(self.issue(&place)));
            }
        }
        for (place, refusal) in news {
            if let Some(case) = self.cases.get_mut(&place) {
                case.tell_once(&refusal);
                steps.push(Step::Skip(RefusalReport { complaint: case.complaint(), place, refusal }));
            }
        }
        steps
    }

    /// What follows from the last look before acting.
    pub fn examined(&mut self, now: Timestamp, ticket: &Ticket, exam: &Exam, world: &impl World) -> Verdict {
        if !self.flights.has(ticket.number) {
            return Verdict::Skip { refusal: Refusal::InFlight, tell: false };
        }
        match self.judge(now, ticket, exam, world) {
            Ok(Some(remedy)) => {
                self.flights.acts(ticket.number, remedy);
                if let Some(case) = self.cases.get_mut(&ticket.place) {
                    case.version.clone_from(&exam.version);
                }
                let nth = match remedy {
                    Remedy::RecreatePods => self.recreations.nth(&ticket.place),
                    _ => ticket.nth,
                };
                Verdict::Act { remedy, nth }
            }
            Ok(None) => {
                self.land(ticket);
                if let Some(case) = self.cases.get_mut(&ticket.place) {
                    case.cleared(now);
                }
                Verdict::Well
            }
            Err(refusal) => self.refuse(now, ticket, refusal),
        }
    }

    /// Nothing is done, because a new probe does not confirm what the exam found.
    pub fn not_confirmed(&mut self, now: Timestamp, ticket: &Ticket, refusal: Refusal) -> Verdict {
        if !self.flights.has(ticket.number) {
            return Verdict::Skip { refusal: Refusal::InFlight, tell: false };
        }
        self.refuse(now, ticket, refusal)
    }

    fn refuse(&mut self, now: Timestamp, ticket: &Ticket, refusal: Refusal) -> Verdict {
        self.land(ticket);
        let pause = self.policy.look_again;
        let Some(case) = self.cases.get_mut(&ticket.place) else {
            return Verdict::Skip { refusal, tell: false };
        };
        let tell = case.tell_once(&refusal);
        case.refused(now, pause, &refusal, ticket.by_person);
        Verdict::Skip { refusal, tell }
    }

    /// What became of an attempt. Answers what follows from it.
    pub fn done(&mut self, now: Timestamp, ticket: &Ticket, outcome: &Outcome) -> After {
        let after = After::of(outcome);
        if !self.flights.has(ticket.number) {
            return after;
        }
        let remedy = self.flights.remedy(ticket.number);
        self.land(ticket);
        if remedy == Some(Remedy::RecreatePods) {
            self.recreations.done(now, &self.policy, &ticket.place, outcome);
            if let Some(case) = self.cases.get_mut(&ticket.place) {
                case.recreated(now, outcome, ticket);
            }
            return after;
        }
        let Place { driver, handle: _, node } = &ticket.place;
        if after == After::NeverAgain {
            self.barred.insert((driver.clone(), node.clone()));
        }
        if let Some(case) = self.cases.get_mut(&ticket.place) {
            case.done(now, &self.policy, outcome, after, ticket);
        }
        after
    }

    /// The look or the attempt did not take place, for a reason that says nothing about the volume.
    pub fn abandon(&mut self, now: Timestamp, ticket: &Ticket) {
        if self.flights.has(ticket.number) {
            self.land(ticket);
            if let Some(case) = self.cases.get_mut(&ticket.place) {
                case.not_before = now.checked_add(self.policy.look_again).ok();
            }
        }
    }

    /// The pods of a volume that were recreated run on these nodes now. Another attempt there is one more on this volume.
    pub fn moved(&mut self, place: &Place, nodes: impl IntoIterator<Item = Arc<str>>) {
        self.recreations.moved(place, nodes);
    }

    /// Whether anything is remembered about a place.
    pub fn knows(&self, place: &Place) -> bool {
        self.cases.contains_key(place)
    }

    /// How many places anything is remembered about.
    pub fn known(&self) -> usize {
        self.cases.len()
    }

    /// When something becomes due by time alone. What is due already waits for something else.
    pub fn next_due(&self, now: Timestamp) -> Option<Timestamp> {
        let waiting = self.cases.values().filter(|case| case.is_wanted() && !case.in_flight);
        let due = waiting.filter_map(|case| case.due(&self.policy)).filter(|due| *due > now).min();
        [due, self.recreations.next_due(now)].into_iter().flatten().min()
    }

    /// Until when a place is left alone.
    pub fn not_before(&self, place: &Place) -> Option<Timestamp> {
        self.cases.get(place).and_then(|case| case.not_before).max(self.recreations.not_before(place))
    }

    /// How many are under way.
    pub fn in_flight(&self) -> usize {
        self.flights.len()
    }

    /// How many cases are open.
    pub fn open(&self) -> usize {
        self.cases.values().filter(|case| case.is_wanted()).count()
    }

    /// The brakes that are on.
    pub fn brakes(&self) -> impl Iterator<Item = &Brake> {
        self.brakes.on()
    }

    /// The case of a place, made if there is room.
    fn case(&mut self, now: Timestamp, place: &Place) -> Option<&mut Case> {
        if !self.cases.contains_key(place) {
            if self.cases.len() >= self.policy.most_cases {
                self.cases.retain(|_, case| case.is_wanted() || case.in_flight);
            }
            if self.cases.len() >= self.policy.most_cases {
                return None;
            }
            self.cases.insert(place.clone(), Case::opened(now));
        }
        self.cases.get_mut(place)
    }

    fn issue(&mut self, place: &Place) -> Ticket {
        self.tickets += 1;
        let number = self.tickets;
        self.flights.depart(number, place);
        let case = self.cases.entry(place.clone()).or_default();
        case.in_flight = true;
        Ticket {
            place: place.clone(),
            number,
            ask_again: case.unhealthy.is_some() && !case.person,
            verify: case.verify,
            by_person: case.person,
            complaint: case.complaint(),
            refused_secret: case.refused_secret.clone(),
            nth: case.tries.saturating_add(1),
        }
    }

    fn land(&mut self, ticket: &Ticket) {
        self.flights.land(ticket.number);
        if let Some(case) = self.cases.get_mut(&ticket.place) {
            case.in_flight = false;
        }
    }

    /// The first remedy that no guard objects to, budgets aside; else the guard that objects. A case with a ticket has
    /// waited its time.
    fn guard(
        &self,
        now: Timestamp,
        place: &Place,
        case: &Case,
        world: &impl World,
        holding: bool,
    ) -> Result<Remedy, Refusal> {
        let climbed = self.climb(case, |remedy| self.rung(now, place, case, world, remedy));
        self.settle(climbed, self.around(now, place, case, world, holding), place)
    }

    /// What time and the node say against every remedy.
    fn around(
        &self,
        now: Timestamp,
        place: &Place,
        case: &Case,
        world: &impl World,
        holding: bool,
    ) -> Option<Refusal> {
        let waits = if holding { None } else { case.waits(now, &self.policy) };
        waits.or_else(|| match world.node(&place.node) {
            NodeState::Up => None,
            state => Some(Refusal::Node(state)),
        })
    }

    fn braked(&self, place: &Place) -> Option<Refusal> {
        self.brakes.against(&place.driver).map(Brake::refusal)
    }

    /// Which of several refusals counts. That no relay is there says least: one may come while the volume waits.
    fn settle(
        &self,
        climbed: Result<Remedy, Refusal>,
        around: Option<Refusal>,
        place: &Place,
    ) -> Result<Remedy, Refusal> {
        match (climbed, around) {
            (Ok(_) | Err(Refusal::NoRelay), Some(refusal)) => Err(refusal),
            (Ok(remedy), None) => self.braked(place).map_or(Ok(remedy), Err),
            (refused @ Err(_), _) => refused,
        }
    }

    /// The remedy to act with, or `None` if it is healthy.
    fn judge(
        &mut self,
        now: Timestamp,
        ticket: &Ticket,
        exam: &Exam,
        world: &impl World,
    ) -> Result<Option<Remedy>, Refusal> {
        let Some(case) = self.cases.get_mut(&ticket.place) else {
            return Err(Refusal::NotBound { why: "it was forgotten meanwhile".into() });
        };
        if ticket.ask_again {
            match &exam.again {
                Again::Well => return Ok(None),
                Again::NotSeen(why) => return Err(Refusal::NotSeen { why: why.clone() }),
                Again::NotAsked => return Err(Refusal::NotSeen { why: "nobody looked".into() }),
                // Repaired, and unhealthy again: that was no lasting success.
                Again::StillUnhealthy => case.repaired = false,
            }
        }
        let case = case.clone();
        Self::admitted(exam)?;
        let (place, by_person) = (&ticket.place, ticket.by_person);
        // Everything else may have changed during the exam.
        self.brakes.look(&self.policy, &self.cases, world);
        let remedy = self.climb(&case, |remedy| {
            let ruled = || self.ruled(now, &case, exam, remedy, by_person);
            if remedy != Remedy::RecreatePods {
                return self.rung(now, place, &case, world, remedy).or_else(ruled);
            }
            if !ticket.concerns(remedy) {
                return Some(Refusal::NotSeen { why: "it was reported only meanwhile".into() });
            }
            // Who does not want it is not kept waiting for it.
            let off = ruled().filter(|refusal| matches!(refusal, Refusal::Off { .. }));
            off.or_else(|| self.rung(now, place, &case, world, remedy)).or_else(ruled)
        });
        self.settle(remedy, self.around(now, place, &case, world, true), place).map(Some)
    }

    /// What the volume and the filters say, whatever the remedy.
    fn admitted(exam: &Exam) -> Result<(), Refusal> {
        exam.bound.clone().map_err(|why| Refusal::NotBound { why })?;
        match &exam.filtered {
            Some(why) => Err(Refusal::Filtered { why: why.clone() }),
            None => Ok(()),
        }
    }
}
