//! The worst of all vantages: the one line that stands for a volume.

use jiff::Timestamp;

use crate::{Belief, Condition, Health, Ledger, Status, Subject, Vantage};

/// The worst that any vantage sees. Each vantage stays visible on its own beside it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Headline {
    pub health: Health,
    /// Who sees it, and since when. `None` where nobody looks.
    pub seen: Option<(Vantage, Timestamp)>,
    /// What it is, where it is adverse.
    pub condition: Option<Condition>,
}

/// How many volumes of a driver are in which state; each volume counts once, by its headline.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Tally {
    pub healthy: usize,
    pub degraded: usize,
    pub inaccessible: usize,
    pub data_loss: usize,
    pub unrecognized: usize,
    pub unknown: usize,
}

impl Tally {
    pub fn add(&mut self, health: Health, count: usize) {
        *match health {
            Health::Healthy => &mut self.healthy,
            Health::Unknown => &mut self.unknown,
            Health::Adverse(Status::Degraded) => &mut self.degraded,
            Health::Adverse(Status::Inaccessible) => &mut self.inaccessible,
            Health::Adverse(Status::DataLoss) => &mut self.data_loss,
            Health::Adverse(Status::Unrecognized(_)) => &mut self.unrecognized,
        } += count;
    }
}

impl Health {
    /// The order in which one of several views stands for all of them: the worst first; among equals, what has lasted
    /// longest. Ledger, hub and commands all sort by this.
    pub fn rank(self, since: Option<Timestamp>) -> impl Ord + Copy {
        (std::cmp::Reverse(self), since.unwrap_or(Timestamp::MAX))
    }
}

impl Belief {
    /// What this one vantage says. Conditions stand while it cannot probe; health does not.
    pub fn health(&self) -> Health {
        match self.conditions.first() {
            Some(worst) => Health::Adverse(worst.condition.status),
            None if self.seen && self.blind_since.is_none() => Health::Healthy,
            None => Health::Unknown,
        }
    }
}

impl Ledger {
    /// The worst that is believed of a subject. Among equals, what has lasted longest.
    ///
    /// A volume that was healthy when its backend became unreachable is not known to be healthy any more. And the cluster sees
    /// only what is wrong: that a node is up says nothing about the volumes used there.
    pub fn headline(&self, subject: &Subject) -> Headline {
        let backend = match subject {
            Subject::Volume(volume) => self.beliefs(&Subject::Backend(volume.driver.clone())),
            Subject::Backend(_) => Vec::new(),
        };
        let speaks = |vantage: &Vantage, belief: &Belief| {
            *vantage != Vantage::Cluster || belief.health() != Health::Healthy
        };
        let views = self.beliefs(subject).into_iter().filter(|(vantage, belief)| speaks(vantage, belief));
        let views = views.map(|(vantage, belief)| {
            let blind = backend.iter().find(|(other, _)| *other == vantage).and_then(|(_, b)| b.blind_since);
            let held = belief.conditions.first();
            let (health, since) = match (belief.health(), blind) {
                (Health::Healthy, Some(blind)) => (Health::Unknown, Some(blind)),
                (health, _) => (health, held.map(|held| held.since).or(belief.blind_since)),
            };
            let condition = held.map(|held| held.condition.clone());
            Headline { health, seen: since.map(|since| (vantage.clone(), since)), condition }
        });
        let rank = |view: &Headline| {
            let (vantage, since) = view.seen.clone().unzip();
            (view.health.rank(since), vantage)
        };
        views.min_by_key(rank).unwrap_or(Headline { health: Health::Unknown, seen: None, condition: None })
    }

    /// Counts a driver's volumes by headline. Quick where nearly all are healthy.
    pub fn tally(&self, driver: &str) -> Tally {
        let mut tally = Tally::default();
        for (handle, quiet) in self.at_a_glance(driver) {
            let health =
                quiet.unwrap_or_else(|| self.headline(&Subject::volume(driver, handle.clone())).health);
            tally.add(health, 1);
        }
        tally
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Policy, Reason, Sight, WhyKind};

    const DRIVER: &str = "disk.example.net";

    fn at(minute: i64) -> Timestamp {
        Timestamp::from_second(minute * 60).unwrap()
    }

    fn adverse(status: Status, reason: &str) -> Sight {
        Sight::adverse([Condition::new(status, Reason::new(reason), "")])
    }

    fn node(name: &str) -> Vantage {
        Vantage::Node(name.into())
    }

    #[test]
    fn the_worst_vantage_is_the_headline_and_the_oldest_among_equals() {
        let volume = Subject::volume(DRIVER, "v");
        let mut ledger = Ledger::new(Policy::default());
        let headline = |ledger: &Ledger| {
            let h = ledger.headline(&volume);
            let seen = h.seen.map_or(String::new(), |(vantage, _)| format!(" by {vantage}"));
            format!("{}{seen}", h.health)
        };
        assert_eq!(headline(&ledger), "Unknown");
        ledger.record(at(0), &volume, &Vantage::Controller, Sight::Healthy);
        assert_eq!(headline(&ledger), "Healthy");
        ledger.record(at(1), &volume, &node("b"), adverse(Status::Degraded, "SlowIO"));
        ledger.record(at(2), &volume, &node("a"), adverse(Status::Degraded, "SlowIO"));
        assert_eq!(headline(&ledger), "Degraded by the driver on node b");
        ledger.record(at(3), &volume, &node("a"), adverse(Status::DataLoss, "LegsLost"));
        assert_eq!(headline(&ledger), "DataLoss by the driver on node a");
        ledger.record(at(4), &volume, &node("a"), Sight::Healthy);
        ledger.record(at(5), &volume, &node("b"), Sight::Healthy);
        assert_eq!(headline(&ledger), "Healthy");
    }

    #[test]
    fn an_unreachable_backend_makes_its_healthy_volumes_unknown_and_leaves_the_sick_ones_sick() {
        let mut ledger = Ledger::new(Policy::default());
        for handle in ["a", "b", "c"] {
            ledger.record(at(0), &Subject::volume(DRIVER, handle), &Vantage::Controller, Sight::Healthy);
        }
        let sick = adverse(Status::Inaccessible, "DiskFailure");
        ledger.record(at(1), &Subject::volume(DRIVER, "c"), &Vantage::Controller, sick);
        assert_eq!(ledger.tally(DRIVER), Tally { healthy: 2, inaccessible: 1, ..Tally::default() });
        for minute in 2..5 {
            let gone = Sight::not_seen(WhyKind::Unreachable, "connection refused");
            ledger.record(at(minute), &Subject::backend(DRIVER), &Vantage::Controller, gone);
        }
        assert_eq!(ledger.tally(DRIVER), Tally { unknown: 2, inaccessible: 1, ..Tally::default() });
        ledger.record(at(5), &Subject::backend(DRIVER), &Vantage::Controller, Sight::Healthy);
        assert_eq!(ledger.tally(DRIVER), Tally { healthy: 2, inaccessible: 1, ..Tally::default() });
    }

    #[test]
    fn a_volume_nobody_could_check_counts_as_unknown() {
        let mut ledger = Ledger::new(Policy::default());
        let failed = Sight::not_seen(WhyKind::Failed, "");
        ledger.record(at(0), &Subject::volume(DRIVER, "a"), &Vantage::Controller, failed);
        assert_eq!(ledger.tally(DRIVER), Tally { unknown: 1, ..Tally::default() });
    }

    #[test]
    fn a_node_that_is_up_says_nothing_about_its_volumes() {
        let mut ledger = Ledger::new(Policy::default());
        let volume = Subject::volume(DRIVER, "v");
        let mut check = |minute, vantage: &Vantage, sight, expected| {
            ledger.record(at(minute), &volume, vantage, sight);
            let mut tally = Tally::default();
            tally.add(expected, 1);
            assert_eq!(
                (ledger.headline(&volume).health, ledger.tally(DRIVER)),
                (expected, tally),
                "at {minute}"
            );
        };
        let down = Health::Adverse(Status::Inaccessible);
        check(0, &Vantage::Cluster, Sight::Healthy, Health::Unknown);
        check(1, &Vantage::Cluster, adverse(Status::Inaccessible, "NodeDown"), down);
        check(2, &Vantage::Controller, Sight::Healthy, down);
        check(3, &Vantage::Cluster, Sight::Healthy, Health::Healthy);
        check(4, &Vantage::Controller, adverse(Status::Degraded, "X"), Health::Adverse(Status::Degraded));
    }
}
