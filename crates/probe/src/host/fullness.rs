//! Is the volume full? With a gap between "full" and "no longer full", so that a volume at the edge is told once.

use volmedic_health::WellKnown;
use volmedic_host::usage::{Space, Usage};

use super::findings::Finding;
use super::memory::Full;

/// From which share on a volume counts as full, and below which it no longer does.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Thresholds {
    /// Of the bytes that an ordinary user could have, from 0 to 1.
    pub bytes: f64,
    /// Of the inodes, from 0 to 1.
    pub inodes: f64,
    /// How far below its threshold a share must fall before the volume is no longer full.
    pub gap: f64,
}

/// 98 %: a volume that is 95 % full works, and people run them so; at 98 % a small one is a few writes from failing. Over
/// again below 95 %, which takes deleting on purpose: the ups and downs of a log or a journal stay within the gap.
impl Default for Thresholds {
    fn default() -> Self {
        Self { bytes: 0.98, inodes: 0.98, gap: 0.03 }
    }
}

/// Judges the usage and remembers the judgement.
pub(super) fn check(thresholds: Thresholds, usage: Usage, full: &mut Full) -> Vec<Finding> {
    full.bytes = is_full(full.bytes, usage.bytes, thresholds.bytes, thresholds.gap);
    full.inodes = is_full(full.inodes, usage.inodes, thresholds.inodes, thresholds.gap);
    let bytes = full.bytes.then(|| finding(WellKnown::OutOfCapacity, usage.bytes, "bytes"));
    let inodes = full.inodes.then(|| finding(WellKnown::OutOfInodes, usage.inodes, "inodes"));
    bytes.into_iter().chain(inodes).collect()
}

/// File systems that count nothing are never full of it.
fn is_full(was: bool, space: Space, threshold: f64, gap: f64) -> bool {
    space.used_share().is_some_and(|share| share >= threshold || was && share > threshold - gap)
}

fn finding(reason: WellKnown, space: Space, unit: &str) -> Finding {
    let share = space.used_share().unwrap_or(0.0) * 100.0;
    // Whole percents, cut off: the text must not change with every byte, and 100 must mean full.
    let message = format!("{:.0} % of the {unit} are used ({} in all)", share.floor(), space.total);
    Finding::degraded(reason, message)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn used(percent: u64) -> Space {
        Space::new(100, 100 - percent, 100 - percent)
    }

    /// Percents in, whether it was called full out.
    fn check_bytes(shares: &[u64], expected: &[bool]) {
        let mut full = Full::default();
        let judge = |percent: &u64| {
            let usage = Usage { bytes: used(*percent), inodes: Space::default() };
            !check(Thresholds::default(), usage, &mut full).is_empty()
        };
        let told: Vec<bool> = shares.iter().map(judge).collect();
        assert_eq!(told, expected, "{shares:?}");
    }

    #[test]
    fn full_from_the_threshold_on_until_well_below_it() {
        check_bytes(
            &[95, 97, 98, 97, 96, 95, 97, 100],
            &[false, false, true, true, true, false, false, true],
        );
    }

    #[test]
    fn bytes_and_inodes_are_told_apart() {
        let usage = Usage { bytes: used(99), inodes: used(100) };
        let told = check(Thresholds::default(), usage, &mut Full::default());
        let shown: Vec<String> =
            told.iter().map(|found| format!("{} {}", found.reason, found.message)).collect();
        assert_eq!(
            shown,
            [
                "OutOfCapacity 99 % of the bytes are used (100 in all)",
                "OutOfInodes 100 % of the inodes are used (100 in all)"
            ]
        );
    }

    #[test]
    fn what_is_not_counted_is_not_full() {
        let told = check(Thresholds::default(), Usage::default(), &mut Full { bytes: true, inodes: true });
        assert_eq!(told, []);
    }
}
