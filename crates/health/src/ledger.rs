//! What we believe, per subject and vantage, with since when.

mod line;
mod note;
mod vantages;

use std::collections::HashMap;
use std::sync::Arc;

use jiff::Timestamp;

use crate::{Change, Condition, Ending, Health, Policy, Sight, Subject, Transition, Vantage, Volume};
use line::Line;
use vantages::{Index, Vantages};

/// What we believe about every subject, from every vantage.
///
/// A subject about which there is nothing to report costs one table slot; only what is or was lately wrong has
/// a note of its own. The text of a handle is shared with the caller that passed it in.
#[derive(Debug, Default)]
pub struct Ledger {
    policy: Policy,
    vantages: Vantages,
    drivers: HashMap<Arc<str>, Shelf>,
}

#[derive(Debug, Default)]
struct Shelf {
    backend: Line,
    volumes: HashMap<Arc<str>, Line>,
}

/// A condition that is believed, and since when.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Held {
    pub condition: Condition,
    pub since: Timestamp,
}

/// What is believed about one subject from one vantage.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Belief {
    /// Whether a check has ever succeeded from here.
    pub seen: bool,
    /// What is wrong, worst first. Stands while nothing can be probed.
    pub conditions: Vec<Held>,
    pub blind_since: Option<Timestamp>,
    pub flapping_since: Option<Timestamp>,
}

/// What has been reported about one subject from one vantage: all that must outlive a restart.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Memo {
    pub subject: Subject,
    pub vantage: Vantage,
    pub reported: Vec<Held>,
    /// When it was last reported, so that reminders keep their rhythm.
    pub reported_at: Timestamp,
    pub blind_since: Option<Timestamp>,
    pub flapping_since: Option<Timestamp>,
}

/// See [`Ledger::quiet`].
#[derive(Debug, Clone, Copy)]
pub struct Quiet<'a>(Option<(&'a HashMap<Arc<str>, Line>, Index)>);

impl Quiet<'_> {
    pub fn contains(&self, handle: &str) -> bool {
        self.0.is_some_and(|(volumes, index)| volumes.get(handle).is_some_and(|line| line.is_quiet(index)))
    }
}

impl Ledger {
    pub fn new(policy: Policy) -> Self {
        Self { policy, ..Self::default() }
    }

    /// Takes in what one look saw and answers what changed by it.
    pub fn record(
        &mut self,
        now: Timestamp,
        subject: &Subject,
        vantage: &Vantage,
        sight: Sight,
    ) -> Vec<Transition> {
        let index = self.vantages.index(vantage);
        let line = line_mut(&mut self.drivers, subject);
        // Nearly every sight of nearly every volume ends here.
        if line.is_quiet(index) && matches!(sight, Sight::Healthy | Sight::Unlisted) {
            return Vec::new();
        }
        let note = line.note_mut(index);
        let changes = note.record(&self.policy, now, sight);
        line.settle(index);
        reported(now, subject, vantage, changes)
    }

    /// What is due by the passing of time alone: reminders. Call it about once a minute.
    pub fn tick(&mut self, now: Timestamp) -> Vec<Transition> {
        let mut due = Vec::new();
        for (driver, shelf) in &mut self.drivers {
            let backend = || Subject::Backend(driver.clone());
            tick_line(&self.policy, &self.vantages, now, &mut shelf.backend, backend, &mut due);
            for (handle, line) in &mut shelf.volumes {
                let volume = || Subject::Volume(Volume { driver: driver.clone(), handle: handle.clone() });
                tick_line(&self.policy, &self.vantages, now, line, volume, &mut due);
            }
        }
        due.sort_by(|a, b| (&a.subject, &a.vantage).cmp(&(&b.subject, &b.vantage)));
        due
    }

    /// A subject left the inventory: closes all that was reported of it, and forgets it.
    pub fn forget(&mut self, now: Timestamp, subject: &Subject) -> Vec<Transition> {
        let Some(shelf) = self.drivers.get_mut(subject.driver()) else { return Vec::new() };
        let line = match subject {
            Subject::Volume(volume) => shelf.volumes.remove(&volume.handle),
            Subject::Backend(_) => Some(std::mem::take(&mut shelf.backend)),
        };
        if shelf.volumes.is_empty() && shelf.backend.is_unknown() {
            self.drivers.remove(subject.driver());
        }
        let mut closed = Vec::new();
        for (index, note) in line.into_iter().flat_map(Line::into_notes) {
            let Some(vantage) = self.vantages.get(index) else { continue };
            closed.extend(reported(now, subject, vantage, note.close(Ending::LeftInventory)));
        }
        closed.sort_by(|a, b| a.vantage.cmp(&b.vantage));
        closed
    }

    /// Nobody checks this subject from there any more, such as after a pod moved away.
    pub fn forget_view(&mut self, now: Timestamp, subject: &Subject, vantage: &Vantage) -> Vec<Transition> {
        let Some(index) = self.vantages.find(vantage) else { return Vec::new() };
        let note = find_line_mut(&mut self.drivers, subject).and_then(|line| line.take(index));
        note.map_or_else(Vec::new, |note| reported(now, subject, vantage, note.close(Ending::VantageGone)))
    }

    /// A vantage is gone for good, such as with a deleted node: closes all that was reported from there.
    pub fn forget_vantage(&mut self, now: Timestamp, vantage: &Vantage) -> Vec<Transition> {
        let Some(index) = self.vantages.find(vantage) else { return Vec::new() };
        let mut closed = Vec::new();
        for (driver, shelf) in &mut self.drivers {
            if let Some(note) = shelf.backend.take(index) {
                let subject = Subject::Backend(driver.clone());
                closed.extend(reported(now, &subject, vantage, note.close(Ending::VantageGone)));
            }
            for (handle, line) in &mut shelf.volumes {
                if let Some(note) = line.take(index) {
                    let subject = Subject::Volume(Volume { driver: driver.clone(), handle: handle.clone() });
                    closed.extend(reported(now, &subject, vantage, note.close(Ending::VantageGone)));
                }
            }
        }
        self.vantages.release(index);
        closed.sort_by(|a, b| a.subject.cmp(&b.subject));
        closed
    }

    /// Puts back what had been reported before a restart. Reports nothing; what is seen next decides.
    pub fn recall(&mut self, memo: Memo) {
        let Memo { subject, vantage, reported, reported_at, blind_since, flapping_since } = memo;
        let index = self.vantages.index(&vantage);
        let line = line_mut(&mut self.drivers, &subject);
        line.note_mut(index).recall(reported, reported_at, blind_since, flapping_since);
        line.settle(index);
    }

    /// Everything that must outlive a restart, in a stable order. Healthy subjects need nothing remembered.
    pub fn memos(&self) -> Vec<Memo> {
        let mut memos = Vec::new();
        for subject in self.subjects() {
            let Some(line) = self.line(&subject) else { continue };
            for (index, note) in line.notes() {
                let Some(vantage) = self.vantages.get(index) else { continue };
                memos.extend(note.memo(&subject, vantage));
            }
        }
        memos.sort_by(|a, b| (&a.subject, &a.vantage).cmp(&(&b.subject, &b.vantage)));
        memos
    }

    /// Everything that is believed to be wrong, whether or not it was reported, in a stable order.
    pub fn troubles(&self) -> Vec<(Subject, Vantage, Vec<Held>)> {
        let mut troubles = Vec::new();
        for subject in self.subjects() {
            let Some(line) = self.line(&subject) else { continue };
            for (index, note) in line.notes().filter(|(_, note)| note.is_adverse()) {
                let Some(vantage) = self.vantages.get(index) else { continue };
                troubles.push((subject.clone(), vantage.clone(), note.belief().conditions));
            }
        }
        troubles.sort_by(|a, b| (&a.0, &a.1).cmp(&(&b.0, &b.1)));
        troubles
    }

    /// Every subject the ledger has a line for, in no particular order.
    pub fn subjects(&self) -> impl Iterator<Item = Subject> {
        self.drivers.iter().flat_map(|(driver, shelf)| {
            let backend = (!shelf.backend.is_unknown()).then(|| Subject::Backend(driver.clone()));
            let volume = |handle: &Arc<str>| Volume { driver: driver.clone(), handle: handle.clone() };
            backend.into_iter().chain(shelf.volumes.keys().map(move |handle| Subject::Volume(volume(handle))))
        })
    }

    /// What is believed about one subject, per vantage, in the order of vantages.
    pub fn beliefs(&self, subject: &Subject) -> Vec<(&Vantage, Belief)> {
        let Some(line) = self.line(subject) else { return Vec::new() };
        let mut beliefs: Vec<_> =
            line.beliefs().filter_map(|(index, belief)| Some((self.vantages.get(index)?, belief))).collect();
        beliefs.sort_by(|a, b| a.0.cmp(b.0));
        beliefs
    }

    /// Whether anything wrong is believed of a subject from a vantage. Quicker than asking for the belief.
    pub fn is_adverse(&self, subject: &Subject, vantage: &Vantage) -> bool {
        let (Some(index), Some(line)) = (self.vantages.find(vantage), self.line(subject)) else {
            return false;
        };
        line.notes().any(|(i, note)| i == index && note.is_adverse())
    }

    /// Whether all that is known of a subject from a vantage is what an earlier run reported: it was put back by
    /// [`Ledger::recall`], and no probe has judged it since.
    pub fn is_recalled(&self, subject: &Subject, vantage: &Vantage) -> bool {
        let (Some(index), Some(line)) = (self.vantages.find(vantage), self.line(subject)) else {
            return false;
        };
        line.notes().any(|(i, note)| i == index && note.is_recalled())
    }

    /// The volumes of a driver of which there is nothing to say from a vantage but that they are healthy. For passes over
    /// very many volumes: what is healthy and stays healthy need not be recorded again.
    pub fn quiet(&self, driver: &str, vantage: &Vantage) -> Quiet<'_> {
        let found = (self.drivers.get(driver), self.vantages.find(vantage));
        Quiet(if let (Some(shelf), Some(index)) = found { Some((&shelf.volumes, index)) } else { None })
    }

    /// A driver's volumes, each with its health where that is known without its note.
    pub(crate) fn at_a_glance(&self, driver: &str) -> impl Iterator<Item = (&Arc<str>, Option<Health>)> {
        let shelf = self.drivers.get(driver);
        let blind = shelf.map_or(0, |shelf| shelf.backend.blind_bits());
        let mute = self.vantages.find(&Vantage::Cluster).map_or(0, line::bit);
        let lines = shelf.into_iter().flat_map(|shelf| &shelf.volumes);
        lines.map(move |(handle, line)| (handle, line.health_at_a_glance(blind, mute)))
    }

    fn line(&self, subject: &Subject) -> Option<&Line> {
        let shelf = self.drivers.get(subject.driver())?;
        match subject {
            Subject::Volume(volume) => shelf.volumes.get(&volume.handle),
            Subject::Backend(_) => Some(&shelf.backend),
        }
    }
}

fn tick_line(
    policy: &Policy,
    vantages: &Vantages,
    now: Timestamp,
    line: &mut Line,
    subject: impl Fn() -> Subject,
    due: &mut Vec<Transition>,
) {
    for (index, note) in line.notes_mut() {
        let changes = note.tick(policy, now);
        if let (false, Some(vantage)) = (changes.is_empty(), vantages.get(index)) {
            due.extend(reported(now, &subject(), vantage, changes));
        }
    }
    line.settle_all();
}

fn line_mut<'a>(drivers: &'a mut HashMap<Arc<str>, Shelf>, subject: &Subject) -> &'a mut Line {
    let driver = subject.driver();
    if !drivers.contains_key(driver) {
        drivers.insert(driver.clone(), Shelf::default());
    }
    let shelf = drivers.get_mut(driver).expect("inserted above");
    match subject {
        Subject::Backend(_) => &mut shelf.backend,
        Subject::Volume(volume) => {
            if !shelf.volumes.contains_key(&volume.handle) {
                shelf.volumes.insert(volume.handle.clone(), Line::default());
            }
            shelf.volumes.get_mut(&volume.handle).expect("inserted above")
        }
    }
}

fn find_line_mut<'a>(drivers: &'a mut HashMap<Arc<str>, Shelf>, subject: &Subject) -> Option<&'a mut Line> {
    let shelf = drivers.get_mut(subject.driver())?;
    match subject {
        Subject::Volume(volume) => shelf.volumes.get_mut(&volume.handle),
        Subject::Backend(_) => Some(&mut shelf.backend),
    }
}

fn reported(now: Timestamp, subject: &Subject, vantage: &Vantage, changes: Vec<Change>) -> Vec<Transition> {
    let tell = |change| Transition { at: now, subject: subject.clone(), vantage: vantage.clone(), change };
    changes.into_iter().map(tell).collect()
}
