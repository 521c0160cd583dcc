//! What becomes of what was seen: judged by the ledger, told to the outlet, and followed up by the schedule.
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
use crate::schedule::{Look, Outcome, Pace, Schedule};

/// The time of day for what is told, and a clock that only goes forward for what is due.
#[derive(Debug, Clone, Copy)]
pub struct Now {
    pub day: Timestamp,
    pub clock: Instant,
}

/// One driver's volumes, looked at from one place.
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
    /// What the driver said last of its storage as a whole; well where it says nothing of it.
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
                Arrival::AudienceChanged(handle) => self.tell_newcomers(&handle, now),
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
                    // Who was told may have changed with all the rest.
                    for handle in &self.board.audience_of(&self.driver) {
                        self.tell_newcomers(handle, now);
                    }
                }
            }
        }
    }

    fn added(&mut self, handle: Arc<str>, now: Now) {
        if self.roster.contains_key(&handle) {
            return;
        }
        if self.looks() {
            self.schedule.add(&handle, now.clock);
        }
        self.roster.insert(handle, Heard::nothing(self.pass));
    }

    fn removed(&mut self, handle: &Arc<str>, now: Now) {
        self.roster.remove(handle);
        self.schedule.remove(handle);
        let subject = self.subject(handle);
        let closed = self.board.lock_ledger().forget(now.day, &subject);
        self.tell_all(&closed);
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
        // Nearly all entries of nearly all pages say that what was well is well.
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
            // Volumes that are nobody's claim, or another cluster's, are none of our business.
            let known = self.roster.get_key_value(handle.as_str());
            let Some((handle, mut heard)) = known.map(|(handle, heard)| (handle.clone(), *heard)) else {
                continue;
            };
            let adverse = matches!(sight, Sight::Adverse(_));
            // Of two entries for one volume the worse is believed.
            if again && heard.listed == self.pass && !adverse {
                continue;
            }
            heard.listed = self.pass;
            let outcome = self.saw(&handle, &mut heard, began, sight, now);
            self.roster.insert(handle.clone(), heard);
            // Where it is too old to be believed, it may have gone wrong again since: a look tells.
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
                        // What is well and not among the unhealthy stays well.
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
                // What the list did not reach is asked for one by one, where the driver can be asked so.
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

    /// The volume to look at now, if any.
    pub fn next_look(&mut self, now: Now) -> Option<Look> {
        let mut look = self.schedule.next(now.clock)?;
        look.began = Began::during(self.pass);
        Some(look)
    }

    /// When there may be one to look at again.
    pub fn next_wake(&self, now: Now) -> Option<Instant> {
        self.schedule.wake(now.clock)
    }

    /// A look ended.
    pub fn looked(&mut self, look: &Look, seen: Seen, now: Now) {
        let (outcome, driver) = match seen {
            Seen::Volume(sight) => {
                let answered = !matches!(sight, Sight::NotSeen(_));
                (self.saw_looking(look, sight, now), answered.then(|| self.storage.clone()))
            }
            Seen::Nothing => (Outcome::Well, None),
            Seen::Overloaded(why) => {
                self.saw_looking(look, Sight::NotSeen(why), now);
                (Outcome::Overloaded, None)
            }
            Seen::DriverGone(why) => (Outcome::Failed, Some(Sight::NotSeen(why))),
        };
        if let Some(sight) = driver {
            self.saw_backend(sight, now);
        }
        self.schedule.done(look, now.clock, outcome);
        // Beside a list only what is wrong is looked at one by one.
        if self.way != Way::Look && outcome != Outcome::Wrong {
            self.schedule.remove(&look.key);
        }
    }

    /// The driver was asked about its storage as a whole. That answers about volumes come says no more of it than
    /// this.
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

    /// Somebody else saw something: a node that went down.
    pub fn observed(&mut self, handle: &str, vantage: &Vantage, sight: Sight, now: Now) {
        let subject = self.subject(handle);
        let news = self.board.lock_ledger().record(now.day, &subject, vantage, sight);
        self.tell_all(&news);
        // Of a volume that comes in no arrival, or left meanwhile, nobody else will ever say that it is gone.
        if !self.roster.contains_key(handle) && !self.board.is_in_trouble(&subject) {
            let closed = self.board.lock_ledger().forget(now.day, &subject);
            self.tell_all(&closed);
        }
    }

    /// What is due by time alone.
    pub fn tick(&mut self, now: Now) {
        let due = self.board.lock_ledger().tick(now.day);
        self.tell_all(&due);
    }

    /// Nobody looks from there any more: what was told from there before a restart is closed.
    pub fn forget_vantage(&mut self, vantage: &Vantage, now: Now) {
        let closed = self.board.lock_ledger().forget_vantage(now.day, vantage);
        self.tell_all(&closed);
    }

    /// Before a restart, this object was told of what is wrong with a volume.
    pub fn recall_audience(&mut self, handle: &str, told: ObjectRef) {
        if let Subject::Volume(volume) = self.subject(handle) {
            self.board.recall_audience(&volume, told);
        }
    }

    /// After a restart, what was told of volumes that are no longer there is closed, and who began to use the others
    /// meanwhile is told.
    pub fn close_strangers(&mut self, now: Now) {
        let subjects: Vec<Subject> = self.board.lock_ledger().subjects().collect();
        for subject in subjects {
            let Subject::Volume(volume) = &subject else { continue };
            let known = self.roster.contains_key(&volume.handle)
                || self.inventory.is_only_observed(&volume.handle)
                || volume.driver != self.driver;
            if !known {
                let closed = self.board.lock_ledger().forget(now.day, &subject);
                self.tell_all(&closed);
            } else if self.inventory.is_only_observed(&volume.handle) {
                self.board.add_audience(volume, self.inventory.about(volume));
            } else {
                self.tell_newcomers(&volume.handle.clone(), now);
            }
        }
    }

    fn looks(&self) -> bool {
        matches!(self.way, Way::Look | Way::List { looks: true, .. })
    }

    fn subject(&self, handle: &str) -> Subject {
        let handle =
            self.roster.get_key_value(handle).map_or_else(|| handle.into(), |(handle, _)| handle.clone());
        Subject::Volume(Volume { driver: self.driver.clone(), handle })
    }

    fn saw_looking(&mut self, look: &Look, sight: Sight, now: Now) -> Outcome {
        // Removed while it was looked at: nothing to say of it any more.
        let Some(mut heard) = self.roster.get(&look.key).copied() else { return Outcome::Well };
        let outcome = self.saw(&look.key, &mut heard, look.began, sight, now);
        self.roster.insert(look.key.clone(), heard);
        outcome
    }

    /// Puts a sight of a volume into the ledger, unless a newer one is there, and says whether it should be looked at
    /// again sooner.
    fn saw(&mut self, handle: &Arc<str>, heard: &mut Heard, began: Began, sight: Sight, now: Now) -> Outcome {
        let subject = Subject::Volume(Volume { driver: self.driver.clone(), handle: handle.clone() });
        let board = self.board.clone();
        let mut ledger = board.lock_ledger();
        if heard.is_newer_than(began) {
            tracing::debug!(%subject, ?sight, "not applied, because a probe that began later saw the volume already");
            let wrong = ledger.is_adverse(&subject, &self.vantage);
            return if wrong { Outcome::Wrong } else { Outcome::Well };
        }
        let (failed, missing) = (matches!(sight, Sight::NotSeen(_)), matches!(sight, Sight::Missing(_)));
        if !failed {
            heard.saw(began);
        }
        let news = ledger.record(now.day, &subject, &self.vantage, sight);
        let wrong = missing || ledger.is_adverse(&subject, &self.vantage);
        drop(ledger);
        self.tell_all(&news);
        match (failed, wrong) {
            (true, _) => Outcome::Failed,
            (false, true) => Outcome::Wrong,
            (false, false) => Outcome::Well,
        }
    }

    fn saw_backend(&mut self, sight: Sight, now: Now) {
        let subject = Subject::Backend(self.driver.clone());
        let news = self.board.lock_ledger().record(now.day, &subject, &self.vantage, sight);
        self.tell_all(&news);
    }

    /// What a list says is wrong is looked at one by one until it is not, where the driver can be asked so.
    fn follow_up(&mut self, handle: &Arc<str>, outcome: Outcome, now: Now) {
        if matches!(self.way, Way::List { looks: true, .. }) && outcome == Outcome::Wrong {
            self.schedule.add(handle, now.clock);
        }
    }

    fn tell_all(&mut self, news: &[Transition]) {
        for transition in news {
            let Subject::Volume(volume) = &transition.subject else {
                self.outlet.tell(transition, self.inventory.about_backend());
                continue;
            };
            let mut about = self.inventory.about(volume);
            if transition.change.is_warning() {
                self.board.add_audience(volume, about.iter().cloned());
            } else {
                // Who was told of the trouble is told of its end, even if it no longer has to do with the volume.
                let told = self.board.told_on(volume);
                about.extend(told.into_iter().filter(|told| !about.contains(told)).collect::<Vec<_>>());
            }
            self.outlet.tell(transition, about);
        }
        // Not before all ends are told: one look may end several things.
        for transition in news {
            if let Subject::Volume(volume) = &transition.subject
                && !transition.change.is_warning()
                && !self.board.is_in_trouble(&transition.subject)
            {
                self.board.forget_audience(volume);
            }
        }
    }

    /// Who joins a volume that is in trouble is told of the trouble.
    fn tell_newcomers(&mut self, handle: &Arc<str>, now: Now) {
        let volume = Volume { driver: self.driver.clone(), handle: handle.clone() };
        let subject = Subject::Volume(volume.clone());
        let known = self.board.told_on(&volume);
        let newcomers: Vec<ObjectRef> =
            self.inventory.about(&volume).into_iter().filter(|object| !known.contains(object)).collect();
        if newcomers.is_empty() {
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
            self.outlet.tell(transition, newcomers.clone());
        }
        if !trouble.is_empty() {
            self.board.add_audience(&volume, newcomers);
        }
    }
}
