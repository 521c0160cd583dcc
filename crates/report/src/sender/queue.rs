//! What waits to be sent: bounded, in order for each object, newer news in place of older news of the same story.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap, VecDeque};
use std::sync::Arc;
use std::time::Instant;

/// Something to send.
pub(crate) trait Job {
    /// The object it is about: jobs of one object go one after another.
    fn object(&self) -> &Arc<str>;
    /// Whether both are about the same story, so that one of them is enough.
    fn is_same_story(&self, other: &Self) -> bool;
    /// Takes in newer news of the same story.
    fn absorb(&mut self, newer: Self);
    /// Whether little is lost with it.
    fn is_minor(&self) -> bool;
}

#[derive(Debug)]
pub(super) struct Queue<J> {
    lanes: HashMap<Arc<str>, Lane<J>>,
    /// Objects whose turn it is, each once.
    ready: VecDeque<Arc<str>>,
    /// Lanes that sleep, and until when; an entry whose lane says otherwise is old.
    asleep: BinaryHeap<Reverse<(Instant, Arc<str>)>>,
    length: usize,
    /// How many of them are minor, so that a full queue without any need not look for one.
    minor: usize,
    capacity: usize,
}

#[derive(Debug)]
struct Lane<J> {
    jobs: VecDeque<J>,
    state: LaneState,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum LaneState {
    Ready,
    /// One of its jobs is on the way.
    Busy,
    /// Its first job failed and is tried again then.
    Asleep(Instant),
}

impl<J: Job> Queue<J> {
    pub(super) fn new(capacity: usize) -> Self {
        Self {
            lanes: HashMap::new(),
            ready: VecDeque::new(),
            asleep: BinaryHeap::new(),
            length: 0,
            minor: 0,
            capacity: capacity.max(1),
        }
    }

    /// Jobs that wait; those on the way not counted.
    pub(super) fn len(&self) -> usize {
        self.length
    }

    /// Adds a job at the end of its object's lane; answers the one that had to go for it.
    pub(super) fn push(&mut self, mut job: J) -> Option<J> {
        let object = job.object().clone();
        let lane = self.lanes.entry(object.clone()).or_insert_with(|| {
            self.ready.push_back(object.clone());
            Lane { jobs: VecDeque::with_capacity(1), state: LaneState::Ready }
        });
        if let Some(place) = lane.jobs.iter().position(|old| old.is_same_story(&job))
            && let Some(mut old) = lane.jobs.remove(place)
        {
            self.length -= 1;
            self.minor -= usize::from(old.is_minor());
            old.absorb(job);
            job = old;
        }
        self.length += 1;
        self.minor += usize::from(job.is_minor());
        lane.jobs.push_back(job);
        if self.length > self.capacity { self.evict() } else { None }
    }

    /// The next job whose object has none on the way.
    pub(super) fn pop(&mut self, now: Instant) -> Option<J> {
        self.wake(now);
        while let Some(object) = self.ready.pop_front() {
            let Some(lane) = self.lanes.get_mut(&object) else { continue };
            let Some(job) = lane.jobs.pop_front() else { continue };
            lane.state = LaneState::Busy;
            self.length -= 1;
            self.minor -= usize::from(job.is_minor());
            return Some(job);
        }
        None
    }

    /// The job of this object has ended, with or without success.
    pub(super) fn done(&mut self, object: &Arc<str>) {
        let Some(lane) = self.lanes.get_mut(object) else { return };
        if lane.jobs.is_empty() {
            self.lanes.remove(object);
        } else {
            lane.state = LaneState::Ready;
            self.ready.push_back(object.clone());
        }
    }

    /// Puts a job back to be sent again later, or lets newer news of its story take it in.
    pub(super) fn put_back(&mut self, mut job: J, again: Instant) {
        let Some(lane) = self.lanes.get_mut(job.object()) else { return };
        lane.state = LaneState::Asleep(again);
        self.asleep.push(Reverse((again, job.object().clone())));
        let newer = lane.jobs.iter().position(|newer| newer.is_same_story(&job));
        if let Some(newer) = newer.and_then(|place| Some((place, lane.jobs.remove(place)?))) {
            let (place, newer) = newer;
            self.minor -= usize::from(newer.is_minor());
            job.absorb(newer);
            self.minor += usize::from(job.is_minor());
            lane.jobs.insert(place, job);
        } else {
            self.length += 1;
            self.minor += usize::from(job.is_minor());
            lane.jobs.push_front(job);
        }
    }

    /// When the next sleeper wants to be checked.
    pub(super) fn next_wake(&self) -> Option<Instant> {
        self.asleep.peek().map(|Reverse((until, _))| *until)
    }

    fn wake(&mut self, now: Instant) {
        while self.next_wake().is_some_and(|until| until <= now) {
            let Some(Reverse((until, object))) = self.asleep.pop() else { return };
            if let Some(lane) = self.lanes.get_mut(&object)
                && lane.state == LaneState::Asleep(until)
            {
                lane.state = LaneState::Ready;
                self.ready.push_back(object);
            }
        }
    }

    /// Throws one job away: a minor one if there is one, else that of the object which waits longest.
    fn evict(&mut self) -> Option<J> {
        let (object, place) = self.least()?;
        let lane = self.lanes.get_mut(&object)?;
        let job = lane.jobs.remove(place)?;
        self.length -= 1;
        self.minor -= usize::from(job.is_minor());
        match lane.state {
            LaneState::Busy => {}
            _ if !lane.jobs.is_empty() => {}
            state => {
                self.lanes.remove(&object);
                if state == LaneState::Ready && self.ready.front() == Some(&object) {
                    self.ready.pop_front();
                } else if state == LaneState::Ready {
                    self.ready.retain(|waiting| *waiting != object);
                }
            }
        }
        Some(job)
    }

    fn least(&self) -> Option<(Arc<str>, usize)> {
        if self.minor > 0 {
            let minor = |(object, lane): (&Arc<str>, &Lane<J>)| {
                lane.jobs.iter().position(Job::is_minor).map(|place| (object.clone(), place))
            };
            return self.lanes.iter().find_map(minor);
        }
        let any = || self.lanes.iter().find(|(_, lane)| !lane.jobs.is_empty()).map(|(object, _)| object);
        self.ready.front().or_else(any).map(|object| (object.clone(), 0))
    }
}

#[cfg(test)]
mod tests;
