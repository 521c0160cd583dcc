//! Who is treated, when, and who has to wait. Pure: time is an argument, and nothing here talks to anybody.
//!
//! A complaint becomes a case. A case that is due and passes every guard gets a [`Ticket`], which holds its place in the
//! budgets and keeps everybody else off the volume. With the ticket it is looked at once more; what was seen then
//! ([`Exam`]) decides whether it is acted on. What became of that decides when it may be due again.
//!
//! | guard | where |
//! |---|---|
//! | the mode of claim, namespace or class; a person's consent | `examined` |
//! | it lasts; it is still so right before acting | `case.rs`, `examined` |
//! | pause after a try, give-up, never again | `done`, by the table in `table.rs` |
//! | budgets per node and cluster, one at a time on a volume | `flights.rs` |
//! | too many ill at once | `brake.rs` |
//! | the node is up and not cordoned, somebody there can ask the driver | `guard` |

mod asked;
mod brake;
mod case;
mod flights;
mod papers;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::Timestamp;
use volmedic_health::Reason;

pub use brake::Brake;
use brake::Brakes;
use case::{Case, Complaint, Hold};
use flights::Flights;
pub use papers::{Again, Approval, Exam, Step, Ticket, Told, Verdict};

use crate::memory::Memory;
use crate::mode::{Mode, Ruling};
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
    tickets: u64,
}

/// One guard.
type Check<W> = fn(&Guarded<'_, W>) -> Option<Refusal>;

/// What a guard looks at.
struct Guarded<'a, W> {
    triage: &'a Triage,
    now: Timestamp,
    place: &'a Place,
    case: &'a Case,
    world: &'a W,
    holding: bool,
}

impl<W> Guarded<'_, W> {
    fn driver_there(&self) -> (Arc<str>, Arc<str>) {
        (self.place.driver.clone(), self.place.node.clone())
    }
}

impl Triage {
    pub fn new(policy: Policy) -> Self {
        Self {
            policy,
            cases: BTreeMap::new(),
            flights: Flights::default(),
            brakes: Brakes::default(),
            barred: BTreeSet::new(),
            tickets: 0,
        }
    }

    pub fn policy(&self) -> &Policy {
        &self.policy
    }

    /// Somebody saw the volume ill. Answers whether it is taken on: only what a node plugin can mend is.
    pub fn complain(&mut self, now: Timestamp, place: &Place, reason: Reason, since: Timestamp) -> bool {
        if !reason.remedy().is_automatic() {
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
        ill: Option<(Reason, Timestamp)>,
    ) -> bool {
        if ill.as_ref().is_some_and(|(reason, _)| !reason.remedy().is_automatic()) {
            return false;
        }
        let Some(case) = self.case(now, place) else { return false };
        let mut restored = Case::restored(now, memory);
        restored.ill = ill.map(|(reason, since)| Complaint { reason, since, seen: now });
        (restored.check, restored.person, restored.in_flight) = (case.check, case.person, case.in_flight);
        *case = restored;
        true
    }

    /// Whoever complained sees the volume well again, or does not see it there any more.
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
        self.case(now, place).map(Case::person).is_some()
    }

    /// The volume is not there any more. What is under way for it ends by itself.
    pub fn forget(&mut self, place: &Place) {
        if self.cases.get(place).is_some_and(|case| !case.in_flight) {
            self.cases.remove(place);
        }
    }

    /// What is to be done now. Persons come first, then who has waited longest.
    pub fn steps(&mut self, now: Timestamp, world: &impl World) -> Vec<Step> {
        self.brakes.look(&self.policy, &self.cases, world);
        let mut steps = self.brakes.take_news();
        let policy = &self.policy;
        self.cases.retain(|_, case| !case.is_over(now, policy));
        let (mut ready, mut news) = (Vec::new(), Vec::new());
        // Many wait while few are under way, so nothing is copied here that is not needed.
        for (place, case) in self.cases.iter().filter(|(_, case)| case.is_wanted() && !case.in_flight) {
            match self.guard(now, place, case, world, false) {
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
                steps.push(Step::Skip(Told { complaint: case.complaint(), place, refusal }));
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
            Ok(true) => {
                if let Some(case) = self.cases.get_mut(&ticket.place) {
                    case.version.clone_from(&exam.version);
                }
                Verdict::Act
            }
            Ok(false) => {
                self.land(ticket);
                if let Some(case) = self.cases.get_mut(&ticket.place) {
                    case.cleared(now);
                }
                Verdict::Well
            }
            Err(refusal) => {
                self.land(ticket);
                let pause = self.policy.look_again;
                let Some(case) = self.cases.get_mut(&ticket.place) else {
                    return Verdict::Skip { refusal, tell: false };
                };
                let tell = case.tell_once(&refusal);
                case.refused(now, pause, &refusal, ticket.by_person);
                Verdict::Skip { refusal, tell }
            }
        }
    }

    /// What became of an attempt. Answers what follows from it.
    pub fn done(&mut self, now: Timestamp, ticket: &Ticket, outcome: &Outcome) -> After {
        let after = After::of(outcome);
        if !self.flights.has(ticket.number) {
            return after;
        }
        self.land(ticket);
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
        waiting.filter_map(|case| case.due(&self.policy)).filter(|due| *due > now).min()
    }

    /// Until when a place is left alone.
    pub fn not_before(&self, place: &Place) -> Option<Timestamp> {
        self.cases.get(place)?.not_before
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
            ask_again: case.ill.is_some() && !case.person,
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

    /// The first guard that objects, budgets aside. Who holds a ticket has waited his time.
    fn guard(
        &self,
        now: Timestamp,
        place: &Place,
        case: &Case,
        world: &impl World,
        holding: bool,
    ) -> Option<Refusal> {
        self.guards(now, place, case, world, holding).next()
    }

    /// All guards that object, each asked only when it is its turn.
    fn guards<'a, W: World>(
        &'a self,
        now: Timestamp,
        place: &'a Place,
        case: &'a Case,
        world: &'a W,
        holding: bool,
    ) -> impl Iterator<Item = Refusal> + 'a {
        let checks: [Check<W>; 6] = [
            |at| at.triage.barred.contains(&at.driver_there()).then_some(Refusal::NotImplemented),
            |at| at.case.objection(&at.triage.policy),
            |at| if at.holding { None } else { at.case.waits(at.now, &at.triage.policy) },
            |at| match at.world.node(&at.place.node) {
                NodeState::Up => None,
                state => Some(Refusal::Node(state)),
            },
            |at| (!at.world.has_relay(&at.place.driver, &at.place.node)).then_some(Refusal::NoRelay),
            |at| at.triage.brakes.against(&at.place.driver).map(Brake::refusal),
        ];
        let at = Guarded { triage: self, now, place, case, world, holding };
        checks.into_iter().filter_map(move |check| check(&at))
    }

    /// `Ok(true)` to act, `Ok(false)` if it is well.
    fn judge(
        &mut self,
        now: Timestamp,
        ticket: &Ticket,
        exam: &Exam,
        world: &impl World,
    ) -> Result<bool, Refusal> {
        let Some(case) = self.cases.get_mut(&ticket.place) else {
            return Err(Refusal::NotBound { why: "it was forgotten meanwhile".into() });
        };
        if ticket.ask_again {
            match &exam.again {
                Again::Well => return Ok(false),
                Again::NotSeen(why) => return Err(Refusal::NotSeen { why: why.clone() }),
                Again::NotAsked => return Err(Refusal::NotSeen { why: "nobody looked".into() }),
                // Mended, and ill again: that was no lasting success.
                Again::StillIll => case.mended = false,
            }
        }
        let case = case.clone();
        self.ruled(now, &case, exam, ticket.by_person)?;
        // Everything else may have changed during the exam.
        self.brakes.look(&self.policy, &self.cases, world);
        match self.guard(now, &ticket.place, &case, world, true) {
            Some(refusal) => Err(refusal),
            None => Ok(true),
        }
    }

    /// What the volume, the filters and the modes say.
    fn ruled(&self, now: Timestamp, case: &Case, exam: &Exam, by_person: bool) -> Result<(), Refusal> {
        let Exam { ruling: Ruling { mode, source }, approval, bound, filtered, version, again: _ } = exam;
        bound.clone().map_err(|why| Refusal::NotBound { why })?;
        if let Some(why) = filtered {
            return Err(Refusal::Filtered { why: why.clone() });
        }
        let by = || source.clone();
        match mode {
            Mode::Off => return Err(Refusal::Off { by: by() }),
            Mode::Observe if !by_person => return Err(Refusal::Observe { by: by() }),
            Mode::Approve if !by_person && !self.is_approved(now, case, *approval) => {
                return Err(Refusal::AwaitingApproval { by: by() });
            }
            Mode::Observe | Mode::Approve | Mode::Auto => {}
        }
        match &case.hold {
            Some(Hold::Change { version: refused, why }) if refused == version && !by_person => {
                Err(Refusal::NeedsChange { why: why.clone() })
            }
            _ => Ok(()),
        }
    }

    /// Consent counts for this episode: given after it began, not too long ago, and not in the future beyond what two
    /// clocks may differ.
    fn is_approved(&self, now: Timestamp, case: &Case, approval: Approval) -> bool {
        let Approval::Given(at) = approval else { return false };
        let age = now.duration_since(at);
        // Nobody can have agreed to a mere check.
        case.ill.is_some()
            && case.since().is_some_and(|since| at >= since)
            && age <= self.policy.approval
            && age >= -self.policy.debounce.max(case::CLOCKS)
    }
}
