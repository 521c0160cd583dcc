//! Which volume is checked when, where each is checked on its own.
//!
//! Every volume has its own moment within the interval, so that the checks are spread evenly and stay spread in all
//! conditions. A new volume is checked immediately, an unhealthy one sooner again. A check that takes long gives its place
//! to another: hung volumes have places of their own and delay no other volume.

use std::cmp::Reverse;
use std::collections::hash_map::Entry;
use std::collections::{BinaryHeap, HashMap};
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::time::{Duration, Instant};

use slab::Slab;

use crate::order::Began;

/// How fast to go.
#[derive(Debug, Clone)]
pub struct Pace {
    /// Every volume is checked once in this time.
    pub interval: Duration,
    /// Maximum number of concurrent checks, without slow ones.
    pub workers: usize,
    /// A check that has taken this long is slow, and its place is given to another.
    pub slow_after: Duration,
    /// Number of concurrent slow checks from which on no other begins.
    pub slow_limit: usize,
    /// An unhealthy volume is checked again after the interval divided by this.
    pub sooner: u32,
}

impl Pace {
    pub fn new(interval: Duration, workers: usize) -> Self {
        Self {
            interval: interval.max(Duration::from_millis(1)),
            workers: workers.max(1),
            slow_after: Duration::from_secs(1).min(interval / 10),
            slow_limit: workers.saturating_mul(10).max(100),
            sooner: 4,
        }
    }
}

/// What the schedule needs to know about the result of a check.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    Healthy,
    /// Something is wrong, or needs to be confirmed: check again sooner.
    Wrong,
    /// The volume was not seen: check again in turn.
    Failed,
    /// The driver has too much to do: check again in turn, with fewer concurrent checks.
    Overloaded,
}

/// Which volume is checked when. Time is an argument; nothing here waits.
#[derive(Debug)]
pub struct Schedule {
    pace: Pace,
    start: Instant,
    hasher: RandomState,
    slots: Slab<Slot>,
    by_key: HashMap<Arc<str>, u32>,
    /// Due times in milliseconds since the start; entries that no longer match their slot are stale.
    queue: BinaryHeap<Reverse<(u64, u32)>>,
    running: Vec<(u32, Instant)>,
    /// How many concurrent checks the driver bears, in thousandths.
    bearable: usize,
}

#[derive(Debug)]
struct Slot {
    key: Arc<str>,
    due: u64,
    running: bool,
    /// Left while it was checked: the slot is freed when the check ends.
    left: bool,
    /// Something happened while it was checked: the check may have seen it or not.
    again: bool,
}

impl Schedule {
    pub fn new(pace: Pace, start: Instant) -> Self {
        let bearable = pace.workers * 1000;
        Self {
            pace,
            start,
            hasher: RandomState::new(),
            slots: Slab::new(),
            by_key: HashMap::new(),
            queue: BinaryHeap::new(),
            running: Vec::new(),
            bearable,
        }
    }

    pub fn len(&self) -> usize {
        self.by_key.len()
    }

    pub fn is_empty(&self) -> bool {
        self.by_key.is_empty()
    }

    /// Checks it as soon as there is room, and then in turn. Adding twice changes nothing.
    pub fn add(&mut self, key: &Arc<str>, now: Instant) {
        let due = self.millis(now);
        let entry = match self.by_key.entry(key.clone()) {
            Entry::Vacant(entry) => entry,
            // It may have left and come back during one check.
            Entry::Occupied(entry) => {
                if let Some(slot) = self.slots.get_mut(*entry.get() as usize) {
                    slot.left = false;
                }
                return;
            }
        };
        let slot = Slot { key: key.clone(), due, running: false, left: false, again: false };
        let index = u32::try_from(self.slots.insert(slot)).expect("fewer than four billion volumes");
        entry.insert(index);
        self.queue.push(Reverse((due, index)));
    }

    pub fn remove(&mut self, key: &str) {
        let Some(&index) = self.by_key.get(key) else { return };
        match self.slots.get_mut(index as usize) {
            Some(slot) if slot.running => slot.left = true,
            _ => self.release(index, key),
        }
    }

    /// Checks it as soon as there is room, and again if a check is under way. An unknown volume stays unknown.
    pub fn hurry(&mut self, key: &str, now: Instant) {
        let due = self.millis(now);
        let Some(&index) = self.by_key.get(key) else { return };
        let Some(slot) = self.slots.get_mut(index as usize) else { return };
        if slot.running {
            slot.again = true;
        } else if slot.due > due {
            slot.due = due;
            self.queue.push(Reverse((due, index)));
        }
    }

    /// The check to begin now, if any may. The caller must say when it is [`done`](Self::done).
    pub fn next(&mut self, now: Instant) -> Option<Check> {
        let now_millis = self.millis(now);
        let slow = self.running.iter().filter(|(_, began)| now - *began >= self.pace.slow_after).count();
        let quick = self.running.len() - slow;
        if slow >= self.pace.slow_limit || quick >= (self.bearable / 1000).max(1) {
            return None;
        }
        while let Some(&Reverse((due, index))) = self.queue.peek() {
            let waiting = |slot: &Slot| slot.due == due && !slot.running;
            if !self.slots.get(index as usize).is_some_and(waiting) {
                self.queue.pop();
                continue;
            }
            if due > now_millis {
                return None;
            }
            self.queue.pop();
            self.running.push((index, now));
            let slot = self.slots.get_mut(index as usize)?;
            slot.running = true;
            return Some(Check { index, key: slot.key.clone(), began: Began::during(0) });
        }
        None
    }

    /// A check that [`next`](Self::next) began has ended.
    pub fn done(&mut self, check: &Check, now: Instant, outcome: Outcome) {
        let Some(place) = self.running.iter().position(|(index, _)| *index == check.index) else { return };
        self.running.swap_remove(place);
        self.bear(outcome);
        let (now, due) = (self.millis(now), self.due_after(&check.key, now, outcome));
        let Some(slot) = self.slots.get_mut(check.index as usize) else { return };
        if slot.left {
            self.release(check.index, &check.key);
            return;
        }
        slot.running = false;
        slot.due = if std::mem::take(&mut slot.again) { now } else { due };
        self.queue.push(Reverse((slot.due, check.index)));
    }

    /// When [`next`](Self::next) may have something again, if nothing else happens until then.
    pub fn wake(&self, now: Instant) -> Option<Instant> {
        let due = self.queue.peek().map(|Reverse((due, _))| self.start + Duration::from_millis(*due));
        // A running check that turns slow makes room.
        let turns_slow =
            self.running.iter().map(|(_, began)| *began + self.pace.slow_after).filter(|at| *at > now).min();
        match (due, turns_slow) {
            (Some(due), _) if due > now => Some(due),
            (Some(_), turns_slow) => turns_slow,
            (None, _) => None,
        }
    }

    /// How late the next check is: more than a moment means that the volumes cannot all be checked in time.
    pub fn lag(&self, now: Instant) -> Duration {
        let due = self.queue.peek().map(|Reverse((due, _))| self.start + Duration::from_millis(*due));
        due.map_or(Duration::ZERO, |due| now.saturating_duration_since(due))
    }

    fn release(&mut self, index: u32, key: &str) {
        self.by_key.remove(key);
        self.slots.try_remove(index as usize);
    }

    fn millis(&self, now: Instant) -> u64 {
        u64::try_from(now.saturating_duration_since(self.start).as_millis()).unwrap_or(u64::MAX)
    }

    /// The next time of the volume's own moment within the interval; sooner for an unhealthy one.
    fn due_after(&self, key: &str, now: Instant, outcome: Outcome) -> u64 {
        let interval = u64::try_from(self.pace.interval.as_millis()).unwrap_or(u64::MAX).max(1);
        let now = self.millis(now);
        let moment = self.hasher.hash_one(key) % interval;
        let in_turn = now + 1 + (moment + interval - (now + 1) % interval) % interval;
        match outcome {
            Outcome::Wrong => in_turn.min(now + (interval / u64::from(self.pace.sooner.max(1))).max(1)),
            Outcome::Healthy | Outcome::Failed | Outcome::Overloaded => in_turn,
        }
    }

    /// Halves the number of concurrent checks when the driver has too much to do; regains it slowly.
    fn bear(&mut self, outcome: Outcome) {
        let most = self.pace.workers * 1000;
        self.bearable = match outcome {
            Outcome::Overloaded => (self.bearable / 2).max(1000),
            Outcome::Healthy | Outcome::Wrong => (self.bearable + 1_000_000 / self.bearable.max(1)).min(most),
            Outcome::Failed => self.bearable,
        };
    }
}

/// A check that is under way.
#[derive(Debug, Clone)]
pub struct Check {
    index: u32,
    pub key: Arc<str>,
    pub(crate) began: Began,
}

#[cfg(test)]
mod tests {
    use super::*;

    const MINUTE: Duration = Duration::from_mins(1);

    /// Runs checks that take as long as `takes` says and end as `went` says, and counts them per volume.
    struct Play {
        schedule: Schedule,
        now: Instant,
        ending: BinaryHeap<Reverse<(Instant, usize)>>,
        checks: Vec<Check>,
        counts: HashMap<Arc<str>, usize>,
        most_running: usize,
    }

    impl Play {
        fn new(pace: Pace, volumes: usize) -> Self {
            let now = Instant::now();
            let mut schedule = Schedule::new(pace, now);
            for i in 0..volumes {
                schedule.add(&format!("v{i}").into(), now);
            }
            let (ending, checks) = (BinaryHeap::new(), Vec::new());
            Self { schedule, now, ending, checks, counts: HashMap::new(), most_running: 0 }
        }

        fn run(&mut self, time: Duration, takes: impl Fn(&str) -> Duration, went: impl Fn(&str) -> Outcome) {
            let end = self.now + time;
            loop {
                while let Some(check) = self.schedule.next(self.now) {
                    *self.counts.entry(check.key.clone()).or_default() += 1;
                    self.ending.push(Reverse((self.now + takes(&check.key), self.checks.len())));
                    self.checks.push(check);
                }
                self.most_running = self.most_running.max(self.ending.len());
                let ends = self.ending.peek().map(|Reverse((at, _))| *at);
                let next = [ends, self.schedule.wake(self.now)].into_iter().flatten().min();
                let Some(next) = next.filter(|next| *next <= end) else { break };
                assert!(next >= self.now, "time goes forward");
                self.now = next;
                while let Some(&Reverse((at, check))) = self.ending.peek() {
                    if at > self.now {
                        break;
                    }
                    self.ending.pop();
                    let check = self.checks[check].clone();
                    let outcome = went(&check.key);
                    self.schedule.done(&check, self.now, outcome);
                }
            }
            self.now = end;
        }
    }

    #[test]
    fn every_volume_is_checked_every_interval() {
        let mut play = Play::new(Pace::new(MINUTE, 10), 1000);
        play.run(10 * MINUTE, |_| Duration::from_millis(20), |_| Outcome::Healthy);
        assert_eq!(play.counts.len(), 1000);
        for (key, count) in &play.counts {
            assert!((10..=12).contains(count), "{key} was checked {count} times in ten intervals");
        }
        assert!(play.most_running <= 10);
    }

    #[test]
    fn checks_are_spread_over_the_interval() {
        let mut play = Play::new(Pace::new(MINUTE, 50), 1000);
        play.run(MINUTE, |_| Duration::from_millis(1), |_| Outcome::Healthy);
        // One second of the second round has its share of the checks, not all of them.
        play.counts.clear();
        play.run(Duration::from_secs(1), |_| Duration::from_millis(1), |_| Outcome::Healthy);
        let checks = play.counts.values().sum::<usize>();
        assert!(checks < 60, "{checks} checks in one second; an even share would be about 17");
    }

    #[test]
    fn ten_hung_volumes_delay_no_other() {
        let hung = |key: &str| key.len() == 2; // v0 to v9
        let takes = |key: &str| if hung(key) { Duration::from_secs(15) } else { Duration::from_millis(5) };
        let went = |key: &str| if hung(key) { Outcome::Failed } else { Outcome::Healthy };
        let mut play = Play::new(Pace::new(MINUTE, 10), 1000);
        play.run(10 * MINUTE, takes, went);
        for i in 10..1000 {
            let count = play.counts[format!("v{i}").as_str()];
            assert!(count >= 10, "v{i} was checked {count} times in ten intervals");
        }
    }

    #[test]
    fn more_slow_volumes_than_bearable_stop_new_checks_until_some_end() {
        let mut pace = Pace::new(MINUTE, 2);
        pace.slow_limit = 5;
        let mut play = Play::new(pace, 100);
        play.run(Duration::from_secs(30), |_| Duration::from_hours(1), |_| Outcome::Failed);
        assert_eq!(
            play.counts.len(),
            5 + 1,
            "five slow checks and those that began before the fifth turned slow"
        );
    }

    #[test]
    fn an_unhealthy_volume_is_checked_sooner() {
        let mut play = Play::new(Pace::new(MINUTE, 10), 100);
        let went = |key: &str| if key == "v7" { Outcome::Wrong } else { Outcome::Healthy };
        play.run(10 * MINUTE, |_| Duration::from_millis(1), went);
        assert!(play.counts["v7"] >= 40, "{}", play.counts["v7"]);
        assert!(play.counts["v8"] <= 12);
    }

    #[test]
    fn an_overloaded_driver_gets_fewer_concurrent_checks_for_a_while() {
        let mut play = Play::new(Pace::new(Duration::from_secs(1), 16), 2000);
        play.run(Duration::from_secs(2), |_| Duration::from_millis(50), |_| Outcome::Overloaded);
        play.most_running = 0;
        play.run(Duration::from_secs(2), |_| Duration::from_millis(50), |_| Outcome::Overloaded);
        assert_eq!(play.most_running, 1);
        play.run(Duration::from_mins(2), |_| Duration::from_millis(50), |_| Outcome::Healthy);
        assert_eq!(play.most_running, 16);
    }

    #[test]
    fn a_disturbed_volume_is_checked_now_and_again_if_that_came_during_a_check() {
        let now = Instant::now();
        let mut schedule = Schedule::new(Pace::new(MINUTE, 10), now);
        schedule.add(&"v".into(), now);
        schedule.hurry("stranger", now);
        let check = schedule.next(now).unwrap();
        schedule.done(&check, now, Outcome::Healthy);
        let soon = now + Duration::from_millis(5);
        assert!(schedule.next(soon).is_none(), "its turn comes in a minute");
        schedule.hurry("v", soon);
        schedule.hurry("v", soon);
        let check = schedule.next(soon).unwrap();
        schedule.hurry("v", soon);
        assert!(schedule.next(soon).is_none(), "one check at a time");
        schedule.done(&check, soon, Outcome::Healthy);
        let check = schedule.next(soon).expect("again");
        schedule.done(&check, soon, Outcome::Healthy);
        assert!(schedule.next(soon).is_none(), "and that is all");
        assert!(schedule.next(now + 2 * MINUTE).is_some(), "its turn comes all the same");
        assert_eq!(schedule.len(), 1);
    }

    #[test]
    fn volumes_come_and_go_even_while_they_are_checked() {
        let now = Instant::now();
        let mut schedule = Schedule::new(Pace::new(MINUTE, 10), now);
        let key: Arc<str> = "v".into();
        schedule.add(&key, now);
        schedule.add(&key, now);
        let check = schedule.next(now).unwrap();
        assert!(schedule.next(now).is_none(), "one check at a time");
        schedule.remove("v");
        schedule.add(&key, now);
        assert!(schedule.next(now).is_none(), "one check at a time, even for one that left and came back");
        schedule.done(&check, now, Outcome::Healthy);
        let check = schedule.next(now + MINUTE).unwrap();
        schedule.remove("v");
        schedule.done(&check, now + MINUTE, Outcome::Healthy);
        assert!(schedule.is_empty() && schedule.next(now + 3 * MINUTE).is_none());
        assert_eq!(schedule.wake(now), None);
    }
}
