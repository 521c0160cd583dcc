//! When many fail together it is not the volumes. Then nothing is done, and that is said.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use super::case::Case;
use super::{Step, World};
use crate::place::Place;
use crate::policy::Policy;
use crate::refusal::Refusal;

/// Too many volumes are unhealthy at the same time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Brake {
    /// The driver whose volumes they are; `None` for the whole cluster.
    pub scope: Option<Arc<str>>,
    pub unhealthy: usize,
    /// The number in use.
    pub of: usize,
}

impl Brake {
    pub(crate) fn refusal(&self) -> Refusal {
        Refusal::Brake {
            scope: self.scope.as_deref().map(Into::into),
            unhealthy: self.unhealthy,
            of: self.of,
        }
    }
}

impl fmt::Display for Brake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.refusal().fmt(f)
    }
}

#[derive(Debug, Default)]
pub(super) struct Brakes {
    on: BTreeMap<Option<Arc<str>>, Brake>,
    news: Vec<Step>,
}

impl Brakes {
    pub(super) fn on(&self) -> impl Iterator<Item = &Brake> {
        self.on.values()
    }

    pub(super) fn against(&self, driver: &Arc<str>) -> Option<&Brake> {
        self.on.get(&None).or_else(|| self.on.get(&Some(driver.clone())))
    }

    /// What changed since the last call.
    pub(super) fn take_news(&mut self) -> Vec<Step> {
        std::mem::take(&mut self.news)
    }

    /// Counts the unhealthy.
    pub(super) fn look(&mut self, policy: &Policy, cases: &BTreeMap<Place, Case>, world: &impl World) {
        let mut unhealthy: BTreeMap<Option<Arc<str>>, usize> = BTreeMap::new();
        for (place, _) in cases.iter().filter(|(_, case)| case.is_unhealthy()) {
            *unhealthy.entry(Some(place.driver.clone())).or_default() += 1;
            *unhealthy.entry(None).or_default() += 1;
        }
        for scope in self.on.keys() {
            unhealthy.entry(scope.clone()).or_default();
        }
        for (scope, unhealthy) in unhealthy {
            // Where nobody knows how many there are, they might be all.
            let of = world.in_use(scope.as_deref()).unwrap_or(unhealthy).max(unhealthy);
            let brake = Brake { scope: scope.clone(), unhealthy, of };
            let was_on = self.on.contains_key(&scope);
            // Let go at half of what pulls it, so that it does not chatter.
            let percent = if was_on { policy.brake_percent / 2 } else { policy.brake_percent };
            let least = if was_on { policy.brake_least.div_ceil(2) } else { policy.brake_least };
            let pulls = unhealthy >= least.max(1) && unhealthy * 100 > of * percent as usize;
            match (was_on, pulls) {
                (false, true) => {
                    self.on.insert(scope, brake.clone());
                    self.news.push(Step::Braked(brake));
                }
                (true, true) => {
                    self.on.insert(scope, brake);
                }
                (true, false) => {
                    self.on.remove(&scope);
                    self.news.push(Step::Released(brake));
                }
                (false, false) => {}
            }
        }
    }
}
