//! What happens with a sight: the ledger judges it, the outlet reports the transitions, and the schedule follows up.
//!
//! Nothing here waits or reads a clock; [`run`](crate::run) brings the time and the answers.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Instant;

use jiff::Timestamp;
use volmedic_health::object::ObjectRef;
use volmedic_health::{Change, Sight, Subject, Transition, Vantage, Volume, Why};

use crate::board::Board;
use crate::order::{Began, Heard, Pass};
use crate::ports::{Absent, Arrival, Inventory, ListEnd, Listed, Outlet, Seen, Way};
use crate::schedule::{Check, Outcome, Pace, Schedule};

/// The time of day for reports, and a clock that only goes forward for what is due.
#[derive(Debug, Clone, Copy)]
pub struct Now {
    pub day: Timestamp,
    pub clock: Instant,
}

/// One driver's volumes, from one vantage.
#[derive(Debug)]
pub struct Pipe<I, O> {
    driver: Arc<str>,
    vantage: Vantage,
    inventory: Arc<I>,
    outlet: O,
    board: Board,
    /// The volumes there should be.
    roster: HashMap<Arc<str>, Heard>,
    /// The newest.
    pass: Pass,
    schedule: Schedule,
    way: Way,
    /// The driver's last report on its storage as a whole; healthy if it reports nothing about it.
    storage: Sight,
}

impl<I: Inventory, O: Outlet> Pipe<I, O> {
    pub fn new(
        driver: Arc<str>,
        vantage: Vantage,
        inventory: Arc<I>,
        outlet: O,
        board: Board,
        pace: Pace,
        now: Now,
    ) -> Self {
        Self {
            driver,
            vantage,
            inventory,
            outlet,
            board,
            roster: HashMap::new(),
            pass: 0,
            schedule: Schedule::new(pace, now.clock),
            way: Way::Nothing,
            storage: Sight::Healthy,
        }
    }

    pub(crate) fn driver(&self) -> &Arc<str> {
        &self.driver
    }

    pub fn way(&self) -> &Way {
        &self.way
    }

    /// How many volumes there should be.
    pub fn volumes(&self) -> usize {
        self.roster.len()
    }

    /// The driver can be asked in another way now, at another pace.
    pub fn set_way(&mut self, way: Way, pace: Pace, now: Now) {
        self.schedule = Schedule::new(pace, now.clock);
        if way == Way::Look {
            for handle in self.roster.keys() {
                self.schedule.add(handle, now.clock);
            }
        }
        self.way = way;
    }

    pub fn arrivals(&mut self, arrivals: Vec<Arrival>, now: Now) {
        for arrival in arrivals {
            match arrival {
                Arrival::Added(handle) => self.added(handle, now),
                Arrival::Removed(handle) => self.removed(&handle, now),
                Arrival::AudienceChanged(handle) => self.report_to_new_users(&handle, now),
                Arrival::Disturbed(handle) => self.schedule.hurry(&handle, now.clock),
                Arrival::All(handles) => {
                    if !self.roster.is_empty() {
                        let all: HashSet<&Arc<str>> = handles.iter().collect();
                        let gone: Vec<Arc<str>> =
                            self.roster.keys().filter(|&h| !all.contains(h)).cloned().collect();
                        for handle in &gone {
                            self.removed(handle, now);
                        }
                    }
                    for handle in handles {
                        self.added(handle, now);
                    }
                    // The objects that a problem is reported on may have changed with all the rest.
                    for handle in &self.board.audience_of(&self.driver) {
                        self.report_to_new_users(handle, now);
                    }
                }
            }
        }
    }

    fn added(&mut self, handle: Arc<str>, now: Now) {
        if self.roster.contains_key(&handle) {
            return;
        }
        if self.checks_volumes() {
            self.schedule.add(&handle, now.clock);
        }
        self.roster.insert(handle, Heard::nothing(self.pass));
    }

    fn removed(&mut self, handle: &Arc<str>, now: Now) {
        self.roster.remove(handle);
        self.schedule.remove(handle);
        let subject = self.subject(handle);
        let closed = self.board.lock_ledger().forget(now.day, &subject);
        self.report(&closed);
        if let Subject::Volume(volume) = &subject {
            self.board.forget_audience(volume);
        }
    }

    /// A list begins.
    pub fn list_began(&mut self) {
        self.pass = self.pass.wrapping_add(1);
    }

    /// A part of a list came.
    pub fn listed(&mut self, mut page: Vec<Listed>, now: Now) {
        let began = Began::with(self.pass);
        // Nearly all entries of nearly all pages confirm that a healthy volume is healthy.
        let ledger = self.board.lock_ledger();
        let quiet = ledger.quiet(&self.driver, &self.vantage);
        page.retain(|Listed { handle, sight, .. }| {
            if *sight != Sight::Healthy || !quiet.contains(handle) {
                return true;
            }
            if let Some(heard) = self.roster.get_mut(handle.as_str()) {
                heard.listed = self.pass;
                heard.saw(began);
            }
            false
        });
        drop(ledger);
        for Listed { handle, sight, again } in page {
            // Volumes without a claim, or of another cluster, are not ours to report.
            let known = self.roster.get_key_value(handle.as_str());
            let Some((handle, mut heard)) = known.map(|(handle, heard)| (handle.clone(), *heard)) else {
                continue;
            };
            let adverse = matches!(sight, Sight::Adverse(_));
            // Of two entries for one volume the worse counts.
            if again && heard.listed == self.pass && !adverse {
                continue;
            }
            heard.listed = self.pass;
            let outcome = self.saw(&handle, &mut heard, began, sight, now);
            self.roster.insert(handle.clone(), heard);
            // Where it is too old to be applied, the volume may have become unhealthy again since: a check finds out.
            self.follow_up(&handle, if adverse { Outcome::Wrong } else { outcome }, now);
        }
    }

    /// A list ended.
    pub fn list_ended(&mut self, end: &ListEnd, now: Now) {
        let Way::List { absent, looks } = self.way else { return };
        // Taken out, so that a hundred thousand handles need not be copied to be gone through.
        let mut roster = std::mem::take(&mut self.roster);
        let (pass, began) = (self.pass, Began::with(self.pass));
        let rest = roster.iter_mut().filter(|(_, heard)| heard.listed != pass);
        match end {
            ListEnd::Complete => {
                self.saw_backend(self.storage.clone(), now);
                for (handle, heard) in rest {
                    let sight = match absent {
                        Absent::Missing => {
                            Sight::missing("the driver's complete list of volumes does not have it")
                        }
                        // A healthy volume that is not among the unhealthy stays healthy.
                        Absent::Unlisted if self.is_quiet(handle) => {
                            heard.saw(began);
                            continue;
                        }
                        Absent::Unlisted => Sight::Unlisted,
                    };
                    let outcome = self.saw(handle, heard, began, sight, now);
                    self.follow_up(handle, outcome, now);
                }
            }
            ListEnd::Broken(why) => {
                self.saw_backend(Sight::NotSeen(why.clone()), now);
                // Volumes that the list did not reach are checked one by one, where the driver supports it.
                if looks {
                    for (handle, _) in rest {
                        self.schedule.add(handle, now.clock);
                    }
                }
            }
        }
        self.roster = roster;
    }

    fn is_quiet(&self, handle: &str) -> bool {
        self.board.lock_ledger().quiet(&self.driver, &self.vantage).contains(handle)
    }

    /// The check to begin now, if any.
    pub fn next_check(&mut self, now: Now) -> Option<Check> {
        let mut check = self.schedule.next(now.clock)?;
        check.began = Began::during(self.pass);
        Some(check)
    }

    /// When there may be a check to begin again.
    pub fn next_wake(&self, now: Now) -> Option<Instant> {
        self.schedule.wake(now.clock)
    }

    /// A check ended.
    pub fn checked(&mut self, check: &Check, seen: Seen, now: Now) {
        let (outcome, driver) = match seen {
            Seen::Volume(sight) => {
                let answered = !matches!(sight, Sight::NotSeen(_));
                (self.saw_check(check, sight, now), answered.then(|| self.storage.clone()))
            }
            Seen::Nothing => (Outcome::Healthy, None),
            Seen::Overloaded(why) => {
                self.saw_check(check, Sight::NotSeen(why), now);
                (Outcome::Overloaded, None)
            }
            Seen::DriverGone(why) => (Outcome::Failed, Some(Sight::NotSeen(why))),
        };
        if let Some(sight) = driver {
            self.saw_backend(sight, now);
        }
        self.schedule.done(check, now.clock, outcome);
        // Beside a list, only unhealthy volumes are checked one by one.
        if self.way != Way::Look && outcome != Outcome::Wrong {
            self.schedule.remove(&check.key);
        }
    }

    /// The driver was asked about its storage as a whole. While it answers about volumes, this stays what is known of it.
    pub fn saw_storage(&mut self, sight: Sight, now: Now) {
        if !matches!(sight, Sight::NotSeen(_)) {
            self.storage = sight.clone();
        }
        self.saw_backend(sight, now);
    }

    /// The driver could not be asked at all.
    pub fn driver_gone(&mut self, why: Why, now: Now) {
        self.saw_backend(Sight::NotSeen(why), now);
    }

    /// A sight that did not come from the probe: a node that went down.
    pub fn observed(&mut self, handle: &str, vantage: &Vantage, sight: Sight, now: Now) {
        let subject = self.subject(handle);
        let news = self.board.lock_ledger().record(now.day, &subject, vantage, sight);
        self.report(&news);
        // No arrival will ever say that a volume is gone that comes in none, or that left meanwhile.
        if !self.roster.contains_key(handle) && !self.board.is_in_trouble(&subject) {
            let closed = self.board.lock_ledger().forget(now.day, &subject);
            self.report(&closed);
        }
    }

    /// What is due by time alone.
    pub fn tick(&mut self, now: Now) {
        let due = self.board.lock_ledger().tick(now.day);
        self.report(&due);
    }

    /// This vantage is no longer used: what was reported from there before a restart is closed.
    pub fn forget_vantage(&mut self, vantage: &Vantage, now: Now) {
        let closed = self.board.lock_ledger().forget_vantage(now.day, vantage);
        self.report(&closed);
    }

    /// Before a restart, the problem of a volume was reported on this object.
    pub fn recall_audience(&mut self, handle: &str, object: ObjectRef) {
        if let Subject::Volume(volume) = self.subject(handle) {
            self.board.recall_audience(&volume, object);
        }
    }

    /// After a restart, reports on volumes that are no longer there are closed, and the problems of the others are reported on
    /// the objects that began to use them meanwhile.
    pub fn close_strangers(&mut self, now: Now) {
        let subjects: Vec<Subject> = self.board.lock_ledger().subjects().collect();
        for subject in subjects {
            let Subject::Volume(volume) = &subject else { continue };
            let known = self.roster.contains_key(&volume.handle)
                || self.inventory.is_only_observed(&volume.handle)
                || volume.driver != self.driver;
            if !known {
                let closed = self.board.lock_ledger().forget(now.day, &subject);
                self.report(&closed);
            } else if self.inventory.is_only_observed(&volume.handle) {
                self.board.add_audience(volume, self.inventory.about(volume));
            } else {
                self.report_to_new_users(&volume.handle.clone(), now);
            }
        }
    }

    fn checks_volumes(&self) -> bool {
        matches!(self.way, Way::Look | Way::List { looks: true, .. })
    }

    fn subject(&self, handle: &str) -> Subject {
        let handle =
            self.roster.get_key_value(handle).map_or_else(|| handle.into(), |(handle, _)| handle.clone());
        Subject::Volume(Volume { driver: self.driver.clone(), handle })
    }

    fn saw_check(&mut self, check: &Check, sight: Sight, now: Now) -> Outcome {
        // Removed while it was checked: there is nothing to report any more.
        let Some(mut heard) = self.roster.get(&check.key).copied() else { return Outcome::Healthy };
        let outcome = self.saw(&check.key, &mut heard, check.began, sight, now);
        self.roster.insert(check.key.clone(), heard);
        outcome
    }

    /// Puts a sight of a volume into the ledger, unless a newer one is there, and returns whether it should be checked again
    /// sooner.
    fn saw(&mut self, handle: &Arc<str>, heard: &mut Heard, began: Began, sight: Sight, now: Now) -> Outcome {
        let subject = Subject::Volume(Volume { driver: self.driver.clone(), handle: handle.clone() });
        let board = self.board.clone();
        let mut ledger = board.lock_ledger();
        if heard.is_newer_than(began) {
            tracing::debug!(%subject, ?sight, "not applied, because a probe that began later saw the volume already");
            let wrong = ledger.is_adverse(&subject, &self.vantage);
            return if wrong { Outcome::Wrong } else { Outcome::Healthy };
        }
        let (failed, missing) = (matches!(sight, Sight::NotSeen(_)), matches!(sight, Sight::Missing(_)));
        if !failed {
            heard.saw(began);
        }
        let news = ledger.record(now.day, &subject, &self.vantage, sight);
        let wrong = missing || ledger.is_adverse(&subject, &self.vantage);
        drop(ledger);
        self.report(&news);
        match (failed, wrong) {
            (true, _) => Outcome::Failed,
            (false, true) => Outcome::Wrong,
            (false, false) => Outcome::Healthy,
        }
    }

    fn saw_backend(&mut self, sight: Sight, now: Now) {
        let subject = Subject::Backend(self.driver.clone());
        let news = self.board.lock_ledger().record(now.day, &subject, &self.vantage, sight);
        self.report(&news);
    }

    /// A volume that is unhealthy in a list is checked on its own until it is not, where the driver supports it.
    fn follow_up(&mut self, handle: &Arc<str>, outcome: Outcome, now: Now) {
        if matches!(self.way, Way::List { looks: true, .. }) && outcome == Outcome::Wrong {
            self.schedule.add(handle, now.clock);
        }
    }

    fn report(&mut self, news: &[Transition]) {
        for transition in news {
            let Subject::Volume(volume) = &transition.subject else {
                self.outlet.tell(transition, self.inventory.about_backend());
                continue;
            };
            let mut about = self.inventory.about(volume);
            if transition.change.is_warning() {
                self.board.add_audience(volume, about.iter().cloned());
            } else {
                // The end is reported wherever the problem was, even on an object that no longer uses the volume.
                let before = self.board.reported_on(volume);
                about.extend(before.into_iter().filter(|object| !about.contains(object)).collect::<Vec<_>>());
            }
            self.outlet.tell(transition, about);
        }
        // Not before all ends are reported: one check may end several problems.
        for transition in news {
            if let Subject::Volume(volume) = &transition.subject
                && !transition.change.is_warning()
                && !self.board.is_in_trouble(&transition.subject)
            {
                self.board.forget_audience(volume);
            }
        }
    }

    /// An unhealthy volume is reported on the objects that begin to use it.
    fn report_to_new_users(&mut self, handle: &Arc<str>, now: Now) {
        let volume = Volume { driver: self.driver.clone(), handle: handle.clone() };
        let subject = Subject::Volume(volume.clone());
        let known = self.board.reported_on(&volume);
        let new_users: Vec<ObjectRef> =
            self.inventory.about(&volume).into_iter().filter(|object| !known.contains(object)).collect();
        if new_users.is_empty() {
            return;
        }
        let trouble: Vec<Transition> = self
            .board
            .lock_ledger()
            .beliefs(&subject)
            .into_iter()
            .flat_map(|(vantage, belief)| {
                let (subject, vantage) = (subject.clone(), vantage.clone());
                belief.conditions.into_iter().map(move |held| {
                    let change = Change::Appeared { condition: held.condition, since: held.since };
                    Transition { at: now.day, subject: subject.clone(), vantage: vantage.clone(), change }
                })
            })
            .collect();
        for transition in &trouble {
            self.outlet.tell(transition, new_users.clone());
        }
        if !trouble.is_empty() {
            self.board.add_audience(&volume, new_users);
        }
    }
}
