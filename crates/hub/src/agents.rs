//! Which agents live, by their Leases. Judged by when *we* last saw a Lease change, since clocks differ.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use jiff::Timestamp;

use crate::shape::{Lease, LeaseSpec};

/// An agent that renews less often than it promised is not given up immediately: machines are busy at times.
const PATIENCE: f64 = 1.5;
/// Promises out of this range are not believed.
const SHORTEST: Duration = Duration::from_secs(1);
const LONGEST: Duration = Duration::from_mins(10);
const USUAL: Duration = Duration::from_secs(40);

/// A moment, by the calendar and by a clock that only goes forward.
#[derive(Debug, Clone, Copy)]
pub struct Now {
    pub day: Timestamp,
    pub clock: Instant,
}

/// What we know of whether an agent lives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Life {
    /// We know its Lease, but not for long enough to say.
    Undetermined,
    Alive,
    Silent {
        since: Timestamp,
    },
}

#[derive(Debug)]
struct Agent {
    lease: Lease,
    changed: Instant,
    life: Life,
}

/// How long a holder may be late. Promises that make no sense are not believed.
fn limit(spec: &LeaseSpec, at_least: Duration) -> Duration {
    let promised = spec.lease_duration_seconds.map_or(USUAL, |s| Duration::from_secs(s.into()));
    promised.clamp(SHORTEST, LONGEST).mul_f64(PATIENCE).max(at_least)
}

/// Whether a Lease is renewed by the time in it, for a caller that reads it only once. Clocks may differ by `skew`.
pub fn is_renewed(spec: &LeaseSpec, today: Timestamp, skew: Duration) -> bool {
    is_fresh(spec, today, limit(spec, Duration::ZERO) + skew)
}

fn is_fresh(spec: &LeaseSpec, today: Timestamp, limit: Duration) -> bool {
    let renewed = spec.renew_time.as_ref().map(|time| time.0);
    renewed.is_some_and(|renewed| today.duration_since(renewed).unsigned_abs() < limit)
}

impl Agent {
    fn limit(&self, at_least: Duration) -> Duration {
        limit(&self.lease.spec, at_least)
    }

    /// Whether its last renewal is recent by our own calendar. That is good enough to call it alive when it is first
    /// seen: if the two clocks differ, it is found out at the next limit.
    fn is_fresh(&self, today: Timestamp, limit: Duration) -> bool {
        is_fresh(&self.lease.spec, today, limit)
    }
}

/// All who ever gave a sign of life: agents by node, controllers by Lease.
#[derive(Debug, Default)]
pub(crate) struct Agents {
    all: BTreeMap<Box<str>, Agent>,
    /// Nobody falls silent sooner than after this, whatever was promised.
    at_least: Duration,
}

impl Agents {
    pub(crate) fn patient(at_least: Duration) -> Self {
        Self { all: BTreeMap::new(), at_least }
    }

    pub(crate) fn life(&self, node: &str) -> Option<Life> {
        self.all.get(node).map(|agent| agent.life)
    }

    /// Answers whether we think otherwise now.
    pub(crate) fn put(&mut self, now: Now, node: &str, lease: &Lease) -> bool {
        match self.all.get_mut(node) {
            None => {
                let mut agent = Agent { lease: lease.clone(), changed: now.clock, life: Life::Undetermined };
                if agent.is_fresh(now.day, agent.limit(self.at_least)) {
                    agent.life = Life::Alive;
                }
                self.all.insert(node.into(), agent);
                true
            }
            Some(agent) if agent.lease == *lease => false,
            Some(agent) => {
                agent.lease = lease.clone();
                agent.changed = now.clock;
                std::mem::replace(&mut agent.life, Life::Alive) != Life::Alive
            }
        }
    }

    /// There is no such agent any more: the Lease was taken away.
    pub(crate) fn remove(&mut self, node: &str) -> bool {
        self.all.remove(node).is_some()
    }

    /// There is no Lease. Who had one falls silent in time; of somebody else we only know that there should be one.
    pub(crate) fn absent(&mut self, now: Now, node: &str) {
        let nobody = || Agent { lease: Lease::default(), changed: now.clock, life: Life::Undetermined };
        self.all.entry(node.into()).or_insert_with(nobody);
    }

    /// We could not hear it, which is our fault.
    pub(crate) fn postpone(&mut self, now: Now, node: &str) {
        if let Some(agent) = self.all.get_mut(node) {
            agent.changed = now.clock;
        }
    }

    /// When it last gave a sign of life, by its own clock; `None` while it lives.
    pub(crate) fn last_sign(&self, node: &str) -> Option<Timestamp> {
        let agent = self.all.get(node)?;
        match agent.life {
            Life::Alive => None,
            Life::Silent { since } => Some(since),
            Life::Undetermined => agent.lease.spec.renew_time.as_ref().map(|time| time.0),
        }
    }

    /// The nodes whose agents stopped responding since this was last asked. While we do not hear of Leases at all, nobody
    /// falls silent, and everybody gets the whole time again.
    pub(crate) fn tick(&mut self, now: Now, in_touch: bool) -> Vec<Box<str>> {
        let mut fell = Vec::new();
        for (node, agent) in &mut self.all {
            if matches!(agent.life, Life::Silent { .. }) {
                continue;
            }
            if !in_touch {
                agent.changed = now.clock;
            } else if now.clock.saturating_duration_since(agent.changed) >= agent.limit(self.at_least) {
                let since = agent.lease.spec.renew_time.as_ref().map_or(now.day, |time| time.0.min(now.day));
                agent.life = Life::Silent { since };
                fell.push(node.clone());
            }
        }
        fell
    }

    /// For a caller that reads Leases only once: what is not known yet is decided by the time in the Lease, where clocks
    /// may differ by `skew`.
    pub(crate) fn settle(&mut self, now: Now, skew: Duration) {
        for agent in self.all.values_mut().filter(|agent| agent.life == Life::Undetermined) {
            let limit = agent.limit(self.at_least) + skew;
            let since = agent.lease.spec.renew_time.as_ref().map_or(now.day, |time| time.0.min(now.day));
            agent.life = if agent.is_fresh(now.day, limit) { Life::Alive } else { Life::Silent { since } };
        }
    }

    pub(crate) fn nodes(&self) -> impl Iterator<Item = &Box<str>> {
        self.all.keys()
    }

    /// When somebody may fall silent next.
    pub(crate) fn next_due(&self) -> Option<Instant> {
        let waiting = self.all.values().filter(|agent| !matches!(agent.life, Life::Silent { .. }));
        waiting.map(|agent| agent.changed + agent.limit(self.at_least)).min()
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;

    use super::*;

    fn lease(second: i64) -> Lease {
        let renewed = Timestamp::from_second(second).unwrap();
        Lease {
            spec: LeaseSpec {
                lease_duration_seconds: Some(40),
                renew_time: Some(MicroTime(renewed)),
                ..LeaseSpec::default()
            },
        }
    }

    #[test]
    fn silent_is_who_does_not_renew_for_longer_than_promised() {
        let start = Instant::now();
        // The agent's clock is an hour behind ours: it does not matter.
        let at = |second: u64| Now {
            day: Timestamp::from_second(3_600 + i64::try_from(second).unwrap()).unwrap(),
            clock: start + Duration::from_secs(second),
        };
        let mut agents = Agents::default();
        assert!(agents.put(at(0), "a", &lease(0)));
        assert_eq!(agents.life("a"), Some(Life::Undetermined));
        assert!(agents.put(at(10), "a", &lease(10)));
        assert_eq!(agents.life("a"), Some(Life::Alive));
        assert!(!agents.put(at(15), "a", &lease(10)), "the same again is no sign of life");
        assert!(agents.tick(at(69), true).is_empty());
        assert_eq!(agents.next_due(), Some(start + Duration::from_secs(70)));
        assert_eq!(agents.tick(at(70), true), ["a".into()]);
        let since = Timestamp::from_second(10).unwrap();
        assert_eq!(agents.life("a"), Some(Life::Silent { since }), "by its own clock");
        assert!(agents.tick(at(80), true).is_empty(), "told once");
        assert!(agents.put(at(90), "a", &lease(90)));
        assert_eq!(agents.life("a"), Some(Life::Alive));
    }

    #[test]
    fn nobody_falls_silent_because_we_are_deaf() {
        let start = Instant::now();
        let at = |second: u64| Now { day: Timestamp::UNIX_EPOCH, clock: start + Duration::from_secs(second) };
        let mut agents = Agents::default();
        agents.put(at(0), "a", &lease(0));
        for second in (0..600).step_by(30) {
            assert!(agents.tick(at(second), false).is_empty());
        }
        assert!(agents.tick(at(620), true).is_empty(), "the time starts over");
        assert_eq!(agents.tick(at(700), true).len(), 1);
    }

    #[test]
    fn a_promise_of_a_year_is_not_believed() {
        let start = Instant::now();
        let mut agents = Agents::default();
        let mut endless = lease(0);
        endless.spec.lease_duration_seconds = Some(u32::MAX);
        agents.put(Now { day: Timestamp::UNIX_EPOCH, clock: start }, "a", &endless);
        assert!(agents.next_due().unwrap() <= start + Duration::from_mins(15));
    }
}
