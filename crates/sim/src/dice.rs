//! Numbers that follow from a seed.

use std::time::Duration;

/// SplitMix64: small, fast, and the same in every release.
#[derive(Debug, Clone)]
pub struct Dice(u64);

impl Dice {
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub fn number(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// Below `limit`, which must not be zero.
    pub fn below(&mut self, limit: usize) -> usize {
        usize::try_from(self.number() % limit.max(1) as u64).unwrap_or(0)
    }

    pub fn percent(&mut self, share: u32) -> bool {
        self.number() % 100 < u64::from(share)
    }

    pub fn between(&mut self, from: Duration, to: Duration) -> Duration {
        let range = u64::try_from(to.saturating_sub(from).as_millis()).unwrap_or(u64::MAX).max(1);
        from + Duration::from_millis(self.number() % range)
    }

    pub fn pick<'a, T>(&mut self, from: &'a [T]) -> &'a T {
        &from[self.below(from.len())]
    }
}
