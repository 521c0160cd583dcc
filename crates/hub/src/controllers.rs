//! Which drivers' controllers live, by the Leases that their reports name.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use jiff::SignedDuration;
use volmedic_api::resource::LeaseName;

use crate::agents::{Agents, Life, Now};
use crate::shape::{ControllerLease, Lease};
use crate::world::Controller;

/// A controller that is replaced by a newer one is not silent.
const PATIENCE: Duration = Duration::from_mins(2);
/// An agent that is not responding for longer will not come back; what it said is no longer so.
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
    /// Whether an agent that names no Lease lives is unknown.
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

    /// Returns whether an agent stopped responding, or is given up.
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

    pub(crate) fn settle(&mut self, now: Now, skew: Duration) {
        self.leases.settle(now, skew);
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

/// A controller that was found: its driver, what it says, and its Lease.
pub type FoundController = (Box<str>, Controller, Lease);

/// The controllers of these Leases. Where two are of one driver, the Lease that was renewed last counts.
pub fn find_controllers<'a>(
    leases: impl IntoIterator<Item = (LeaseName, &'a ControllerLease)>,
) -> Vec<FoundController> {
    let mut found = BTreeMap::<Box<str>, FoundController>::new();
    for (name, body) in leases {
        let coverage = match body.coverage() {
            None => continue,
            Some(Ok(coverage)) => coverage,
            Some(Err(why)) => {
                tracing::debug!("the Lease {}/{}: {why}", name.namespace, name.name);
                continue;
            }
        };
        let driver: Box<str> = coverage.driver.as_str().into();
        let lease = Lease { spec: body.spec.clone() };
        let renewed = |found: &FoundController| found.2.spec.renew_time.clone();
        let new = (driver.clone(), Controller { lease: name, coverage }, lease);
        if found.get(&driver).is_none_or(|known| renewed(known) < renewed(&new)) {
            found.insert(driver, new);
        }
    }
    found.into_values().collect()
}

fn key(lease: &LeaseName) -> Box<str> {
    format!("{}/{}", lease.namespace, lease.name).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_two_controllers_of_one_driver_the_last_renewal_counts_and_nonsense_is_passed_over() {
        let lease = |name: &str, second: u32, annotation: &str| {
            let lease: ControllerLease = serde_json::from_value(serde_json::json!({
                "metadata": {"annotations": {"volmedic.dev/coverage": annotation}},
                "spec": {"renewTime": format!("2026-08-21T12:00:{second:02}.000000Z")},
            }))
            .expect("a Lease");
            (LeaseName { namespace: "csi".to_owned(), name: name.to_owned() }, lease)
        };
        let of = |driver: &str| format!(r#"{{"driver":"{driver}","withinSeconds":9,"probedBy":"X"}}"#);
        let leases = [
            lease("a", 1, &of("d")),
            lease("b", 3, &of("d")),
            lease("c", 2, &of("d")),
            lease("d", 1, &of("other")),
            lease("e", 9, "nonsense"),
        ];
        let found = find_controllers(leases.iter().map(|(name, lease)| (name.clone(), lease)));
        let found: Vec<_> = found.iter().map(|(driver, one, _)| (&**driver, &*one.lease.name)).collect();
        assert_eq!(found, [("d", "b"), ("other", "d")]);
    }
}
