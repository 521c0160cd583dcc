//! The rule of the election, without network and without a clock.

use std::fmt;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use thiserror::Error;

use crate::{Config, Record};

/// Where one candidate stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum State {
    /// Another candidate leads, or none yet.
    Standby,
    /// We lead, until [`Config::renew_deadline`] passes without a renewal or another candidate holds the record.
    Leading,
    /// We led and must stop immediately. There is no way back: the process ends, and a new one stands again.
    Lost,
}

impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Standby => "standby",
            Self::Leading => "leading",
            Self::Lost => "lost",
        })
    }
}

/// What to do with the Lease next.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// Read it, and pass what it says to [`Election::saw`].
    Read,
    /// There is none: create it with this record, then call [`Election::wrote`].
    Create(Record),
    /// Write this record over the version that was read last, then call [`Election::wrote`].
    Replace(Record),
    /// Nothing until the next try.
    Wait,
}

#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error(
    "the lease was last renewed {age} s ago, {limit} s are allowed; the leader election is stuck, restart this process"
)]
pub struct NotHealthy {
    pub age: u64,
    pub limit: u64,
}

/// One candidate's view of one election.
#[derive(Debug, Clone)]
pub struct Election {
    config: Config,
    state: State,
    /// The record, and when *we* first saw it as it is.
    seen: Option<(Record, Instant)>,
    /// When the last renewal that succeeded was begun.
    renewed: Option<Instant>,
}

impl Election {
    pub fn new(config: Config) -> Self {
        Self { config, state: State::Standby, seen: None, renewed: None }
    }

    pub fn state(&self) -> State {
        self.state
    }

    /// The holder of the record when we last read it; empty if there is none.
    pub fn holder(&self) -> &str {
        self.seen.as_ref().map_or("", |(record, _)| &record.holder)
    }

    /// A try begins. Who leads renews what it wrote last without reading it first.
    pub fn begin(&mut self, now: Instant, wall: Timestamp) -> Step {
        self.expire(now);
        match (self.state, &self.seen) {
            (State::Lost, _) => Step::Wait,
            (State::Leading, Some((record, _))) if record.holder == self.config.identity => {
                Step::Replace(self.claim(wall, Some(record)))
            }
            _ => Step::Read,
        }
    }

    /// The Lease was read; `None` if there is none.
    pub fn saw(&mut self, now: Instant, wall: Timestamp, record: Option<Record>) -> Step {
        self.expire(now);
        if self.state == State::Lost {
            return Step::Wait;
        }
        let Some(record) = record else {
            self.seen = None;
            return Step::Create(self.claim(wall, None));
        };
        if self.seen.as_ref().is_none_or(|(known, _)| *known != record) {
            self.seen = Some((record.clone(), now));
        }
        let ours = record.holder == self.config.identity;
        if self.state == State::Leading && !ours && !record.holder.is_empty() {
            // Somebody took it: whatever the deadline says, we do not lead any more.
            self.state = State::Lost;
            return Step::Wait;
        }
        if !ours && !record.holder.is_empty() && self.respected(now) {
            return Step::Wait;
        }
        Step::Replace(self.claim(wall, Some(&record)))
    }

    /// A write succeeded that was begun at `begun`; counting from its begin errs on the side of stopping early.
    pub fn wrote(&mut self, begun: Instant, record: Record) {
        if self.state != State::Lost {
            self.state = State::Leading;
            self.renewed = Some(begun);
            self.seen = Some((record, begun));
        }
    }

    /// A try failed: nothing was learnt but that time passed.
    pub fn failed(&mut self, now: Instant) {
        self.expire(now);
    }

    /// The record that gives the Lease up, if it is ours to give. The candidate is out after that.
    pub fn give_up(&mut self, wall: Timestamp) -> Option<Record> {
        let led = self.state == State::Leading;
        self.state = if self.state == State::Lost { State::Lost } else { State::Standby };
        let transitions = self.seen.as_ref().map_or(0, |(record, _)| record.transitions);
        led.then(|| Record {
            holder: String::new(),
            seconds: 1,
            acquired: Some(wall),
            renewed: Some(wall),
            transitions,
        })
    }

    /// How long until we must have renewed; `None` while we do not lead.
    pub fn remaining(&self, now: Instant) -> Option<Duration> {
        let renewed = self.renewed.filter(|_| self.state == State::Leading)?;
        Some((renewed + self.config.renew_deadline).saturating_duration_since(now))
    }

    /// Whether no other candidate can be leading: for a last check before a write after a long pause.
    pub fn holds(&self, now: Instant) -> bool {
        self.remaining(now).is_some_and(|left| !left.is_zero())
    }

    /// Whether the election runs as it should. A leader that neither renews nor stops is stuck; so is a process
    /// that lost the lease and did not end. `grace` is how long past the end of the lease that may last.
    pub fn healthy(&self, now: Instant, grace: Duration) -> Result<(), NotHealthy> {
        let (Some(renewed), true) = (self.renewed, self.state != State::Standby) else { return Ok(()) };
        let (age, limit) = (now.saturating_duration_since(renewed), self.config.lease_duration + grace);
        if age <= limit { Ok(()) } else { Err(NotHealthy { age: age.as_secs(), limit: limit.as_secs() }) }
    }

    fn expire(&mut self, now: Instant) {
        if self.remaining(now).is_some_and(|left| left.is_zero()) {
            self.state = State::Lost;
        }
    }

    fn respected(&self, now: Instant) -> bool {
        self.seen.as_ref().is_some_and(|(record, at)| {
            let seconds = u64::try_from(record.seconds).unwrap_or(0);
            now.saturating_duration_since(*at) < Duration::from_secs(seconds)
        })
    }

    fn claim(&self, wall: Timestamp, old: Option<&Record>) -> Record {
        let kept = old.filter(|old| old.holder == self.config.identity);
        Record {
            holder: self.config.identity.clone(),
            seconds: self.config.seconds(),
            acquired: kept.and_then(|old| old.acquired).or(Some(wall)),
            renewed: Some(wall),
            transitions: match (kept, old) {
                (Some(old), _) => old.transitions,
                (None, Some(old)) => old.transitions.saturating_add(1),
                (None, None) => 0,
            },
        }
    }
}

#[cfg(test)]
mod tests;
