//! Which drivers' controllers live, by the Leases that their reports name.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use jiff::SignedDuration;
use volmedic_api::resource::LeaseName;

use crate::agents::{Agents, Life, Now};
use crate::shape::Lease;

/// A controller that is replaced by a newer one is not silent.
const PATIENCE: Duration = Duration::from_mins(2);
/// Who is silent for longer will not come back; what it said is no longer so.
const GONE_AFTER: SignedDuration = SignedDuration::from_hours(24);

/// What the word of a controller is worth.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Word {
    Stands,
    /// We cannot say yet.
    Undetermined,
    Silent {
        since: jiff::Timestamp,
    },
    /// It is gone for good.
    Gone,
}

#[derive(Debug)]
pub(crate) struct Controllers {
    leases: Agents,
    gone: BTreeSet<Box<str>>,
}

impl Default for Controllers {
    fn default() -> Self {
        Self { leases: Agents::patient(PATIENCE), gone: BTreeSet::new() }
    }
}

impl Controllers {
    /// Of who names no Lease nobody can say whether it lives.
    pub(crate) fn word(&self, lease: Option<&LeaseName>) -> Word {
        let Some(key) = lease.map(key) else { return Word::Stands };
        if self.gone.contains(&key) {
            return Word::Gone;
        }
        match self.leases.life(&key) {
            Some(Life::Alive) => Word::Stands,
            Some(Life::Silent { since }) => Word::Silent { since },
            Some(Life::Undetermined) | None => Word::Undetermined,
        }
    }

    /// What was found of a Lease; nothing, if there is none. Answers whether we think otherwise now.
    pub(crate) fn put(&mut self, now: Now, lease: &LeaseName, found: Option<&Lease>) -> bool {
        let (key, before) = (key(lease), self.word(Some(lease)));
        match found {
            Some(found) => drop(self.leases.put(now, &key, found)),
            None => self.leases.absent(now, &key),
        }
        self.judge(now, &key);
        self.word(Some(lease)) != before
    }

    /// It could not be asked for.
    pub(crate) fn postpone(&mut self, now: Now, lease: &LeaseName) {
        self.leases.postpone(now, &key(lease));
    }

    /// Answers whether anybody fell silent, or is given up.
    pub(crate) fn tick(&mut self, now: Now) -> bool {
        let fell = self.leases.tick(now, true);
        for lease in &fell {
            tracing::warn!(lease = &**lease, "a driver's controller gives no sign of life");
        }
        let before = self.gone.len();
        let all: Vec<Box<str>> = self.leases.nodes().cloned().collect();
        for key in all {
            self.judge(now, &key);
        }
        !fell.is_empty() || self.gone.len() != before
    }

    pub(crate) fn next_due(&self) -> Option<Instant> {
        self.leases.next_due()
    }

    /// Nobody names these any more.
    pub(crate) fn retain(&mut self, named: &BTreeSet<LeaseName>) {
        let named: BTreeSet<Box<str>> = named.iter().map(key).collect();
        let others: Vec<Box<str>> =
            self.leases.nodes().filter(|known| !named.contains(*known)).cloned().collect();
        for other in others {
            self.leases.remove(&other);
            self.gone.remove(&other);
        }
    }

    fn judge(&mut self, now: Now, key: &str) {
        let over = |last: jiff::Timestamp| now.day.duration_since(last) > GONE_AFTER;
        if self.leases.last_sign(key).is_some_and(over) {
            self.gone.insert(key.into());
        } else {
            self.gone.remove(key);
        }
    }
}

fn key(lease: &LeaseName) -> Box<str> {
    format!("{}/{}", lease.namespace, lease.name).into()
}
