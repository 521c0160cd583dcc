//! How careful the healer is.

use jiff::SignedDuration;

/// How careful the healer is. The defaults would rather do too little.
#[derive(Debug, Clone)]
pub struct Policy {
    /// Trouble must have lasted this long before anything is done about it.
    pub debounce: SignedDuration,
    /// After a volume was mended it is left alone for so long, even if it is ill again.
    pub cooldown: SignedDuration,
    /// The pause after the first try; it doubles with every further one.
    pub first_pause: SignedDuration,
    pub longest_pause: SignedDuration,
    /// After so many tries without lasting success a volume is given up.
    pub tries: u32,
    /// A volume that stayed well for so long begins anew with its tries.
    pub steady: SignedDuration,
    /// At most so many at once on one node.
    pub node_budget: usize,
    /// At most so many at once altogether.
    pub cluster_budget: usize,
    /// More than this share of a driver's volumes ill at once, in percent, is an outage and not trouble of volumes.
    pub brake_percent: u32,
    /// Fewer ill volumes than this never make an outage.
    pub brake_least: usize,
    /// What a person must decide or change is looked at again this often.
    pub look_again: SignedDuration,
    /// For how long a person's consent counts.
    pub approval: SignedDuration,
    /// At most so many volumes are kept in mind; beyond, the healthy and the given up go first.
    pub most_cases: usize,
}

impl Default for Policy {
    fn default() -> Self {
        Self {
            debounce: SignedDuration::from_secs(10),
            cooldown: SignedDuration::from_mins(2),
            first_pause: SignedDuration::from_secs(30),
            longest_pause: SignedDuration::from_hours(1),
            tries: 5,
            steady: SignedDuration::from_mins(30),
            node_budget: 2,
            cluster_budget: 10,
            brake_percent: 20,
            brake_least: 10,
            look_again: SignedDuration::from_secs(30),
            approval: SignedDuration::from_hours(1),
            most_cases: 100_000,
        }
    }
}

impl Policy {
    /// How long to wait after the so-many-eth try.
    pub fn pause(&self, tries: u32) -> SignedDuration {
        let doublings = tries.saturating_sub(1).min(20);
        let doubled = self.first_pause.checked_mul(1_i32 << doublings).unwrap_or(self.longest_pause);
        doubled.min(self.longest_pause)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_to_the_longest_and_never_overflow() {
        let policy = Policy::default();
        let seconds: Vec<_> =
            [0, 1, 2, 3, 4, 7, 8, 9, 1000, u32::MAX].map(|n| policy.pause(n).as_secs()).into();
        assert_eq!(seconds, [30, 30, 60, 120, 240, 1920, 3600, 3600, 3600, 3600]);
        let huge = Policy { first_pause: SignedDuration::MAX, ..policy };
        assert_eq!(huge.pause(9), huge.longest_pause);
    }
}
