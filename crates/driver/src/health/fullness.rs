//! Is the volume full? With a gap between "full" and "no longer full", so that a volume at the edge is told once.

use volmedic_health::{Condition, Status, WellKnown};
use volmedic_host::usage::{Space, Usage};

/// From which share on a volume counts as full, and below which it no longer does.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Thresholds {
    /// Of the bytes, from 0 to 1.
    pub bytes: f64,
    /// Of the inodes, from 0 to 1.
    pub inodes: f64,
    /// How far below its threshold a share must fall before the volume is no longer full.
    pub gap: f64,
}

impl Default for Thresholds {
    fn default() -> Self {
        Self { bytes: 0.98, inodes: 0.98, gap: 0.02 }
    }
}

/// What was last said about one volume.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Full {
    bytes: bool,
    inodes: bool,
}

impl Full {
    /// Judges the usage and remembers the judgement.
    pub(super) fn judge(&mut self, thresholds: Thresholds, usage: Usage) -> Vec<Condition> {
        self.bytes = is_full(self.bytes, usage.bytes, thresholds.bytes, thresholds.gap);
        self.inodes = is_full(self.inodes, usage.inodes, thresholds.inodes, thresholds.gap);
        let mut found = Vec::new();
        if self.bytes {
            found.push(condition(WellKnown::OutOfCapacity, usage.bytes, "bytes"));
        }
        if self.inodes {
            found.push(condition(WellKnown::OutOfInodes, usage.inodes, "inodes"));
        }
        found
    }
}

/// File systems that count nothing are never full of it.
fn is_full(was: bool, space: Space, threshold: f64, gap: f64) -> bool {
    space.used_share().is_some_and(|share| share >= threshold || was && share > threshold - gap)
}

fn condition(reason: WellKnown, space: Space, unit: &str) -> Condition {
    let share = space.used_share().unwrap_or(0.0) * 100.0;
    // Whole percents, cut off: the text must not change with every byte, and 100 must mean full.
    let message = format!("{:.0} % of the {unit} are used ({} in all)", share.floor(), space.total);
    Condition::new(Status::Degraded, reason.into(), &message)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Percent in, whether it was called full out.
    fn check(shares: &[u64], expected: &[bool]) {
        let mut full = Full::default();
        let thresholds = Thresholds { bytes: 0.90, inodes: 0.5, gap: 0.05 };
        let told: Vec<bool> = shares
            .iter()
            .map(|used| {
                let usage =
                    Usage { bytes: Space::new(100, 100 - used, 100 - used), inodes: Space::default() };
                !full.judge(thresholds, usage).is_empty()
            })
            .collect();
        assert_eq!(told, expected, "{shares:?}");
    }

    #[test]
    fn full_from_the_threshold_on_until_well_below_it() {
        check(&[89, 90, 89, 86, 85, 89, 100], &[false, true, true, true, false, false, true]);
    }

    #[test]
    fn bytes_and_inodes_are_told_apart() {
        let mut full = Full::default();
        let usage = Usage { bytes: Space::new(100, 0, 0), inodes: Space::new(10, 0, 0) };
        let told: Vec<String> =
            full.judge(Thresholds::default(), usage).iter().map(ToString::to_string).collect();
        assert_eq!(told, ["Degraded/OutOfCapacity", "Degraded/OutOfInodes"]);
        let usage = Usage { bytes: Space::new(100, 0, 0), inodes: Space::default() };
        let told = full.judge(Thresholds::default(), usage);
        assert_eq!(told.len(), 1, "no inodes counted, none missing");
        assert_eq!(&*told[0].message, "100 % of the bytes are used (100 in all)");
    }
}
