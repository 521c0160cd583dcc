//! Candidates that started together must not knock together.

use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::time::Duration;

/// client-go's jitter: a wait is between the period and 2.2 times the period.
const SPREAD: f64 = 1.2;

#[derive(Debug, Default)]
pub(crate) struct Dice {
    // The standard library's only source of randomness; enough to keep replicas out of step.
    seed: RandomState,
    throws: u64,
}

impl Dice {
    pub(crate) fn spread(&mut self, period: Duration) -> Duration {
        self.throws = self.throws.wrapping_add(1);
        let part = f64::from(u16::try_from(self.seed.hash_one(self.throws) % 1024).unwrap_or(0)) / 1024.0;
        period.mul_f64(1.0 + SPREAD * part)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_differ_and_stay_within_bounds() {
        let mut dice = Dice::default();
        let waits: Vec<Duration> = (0..100).map(|_| dice.spread(Duration::from_secs(5))).collect();
        assert!(waits.iter().all(|wait| (5.0..=11.0).contains(&wait.as_secs_f64())), "{waits:?}");
        assert!(waits.iter().any(|wait| *wait != waits[0]));
    }
}
