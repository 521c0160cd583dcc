//! Waiting longer after each failure, up to a cap, and never in step with others.

use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::time::Duration;

const FIRST: Duration = Duration::from_millis(250);
const CAP: Duration = Duration::from_secs(10);

#[derive(Debug, Default)]
pub(super) struct Backoff {
    // The standard library's only source of randomness; enough to keep sidecars from knocking in step.
    dice: RandomState,
    throws: u64,
}

impl Backoff {
    /// How long to wait after this number of failures in a row: doubling, between half of that and all of it.
    pub(super) fn after(&mut self, failures: u32) -> Duration {
        let doubled = FIRST.saturating_mul(1_u32.checked_shl(failures.saturating_sub(1)).unwrap_or(u32::MAX));
        let whole = doubled.min(CAP);
        self.throws = self.throws.wrapping_add(1);
        let part = u32::try_from(self.dice.hash_one(self.throws) % 1024).unwrap_or(0);
        whole / 2 + whole / 2 * part / 1024
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn doubles_to_the_cap_with_jitter() {
        let mut backoff = Backoff::default();
        for (failures, whole) in
            [(1, 250), (2, 500), (3, 1_000), (6, 8_000), (7, 10_000), (40, 10_000), (u32::MAX, 10_000)]
        {
            let wait = backoff.after(failures);
            let whole = Duration::from_millis(whole);
            assert!(wait >= whole / 2 && wait <= whole, "{wait:?} after {failures}");
        }
    }
}
