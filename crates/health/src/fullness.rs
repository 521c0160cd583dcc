//! Whether a volume is full: one rule for the driver's checks and for host checks. There is a gap between "full" and "no
//! longer full", so that a volume at the threshold is reported once.

use crate::WellKnown;

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

/// 98 %: a volume that is 95 % full works, and people run them so; at 98 % a small one is a few writes from failing. It is
/// no longer full below 95 %, which takes deleting on purpose: the ups and downs of a log or a journal stay within the gap.
impl Default for Thresholds {
    fn default() -> Self {
        Self { bytes: 0.98, inodes: 0.98, gap: 0.03 }
    }
}

/// How much of something is used: bytes or inodes.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Used {
    /// From 0 to 1.
    pub share: f64,
    pub total: u64,
}

/// What was last judged of the bytes and of the inodes of a volume.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Full {
    pub bytes: bool,
    pub inodes: bool,
}

impl Full {
    /// Judges the usage, and remembers the judgement. `None` where a file system does not count: then it is never full of it.
    pub fn judge(
        &mut self,
        thresholds: Thresholds,
        bytes: Option<Used>,
        inodes: Option<Used>,
    ) -> Vec<(WellKnown, String)> {
        let is_full = |was: bool, used: Option<Used>, threshold: f64| {
            used.filter(|used| used.share >= threshold || was && used.share > threshold - thresholds.gap)
        };
        let bytes = is_full(self.bytes, bytes, thresholds.bytes);
        let inodes = is_full(self.inodes, inodes, thresholds.inodes);
        *self = Self { bytes: bytes.is_some(), inodes: inodes.is_some() };
        let bytes = bytes.map(|used| (WellKnown::OutOfCapacity, sentence(used, "bytes")));
        let inodes = inodes.map(|used| (WellKnown::OutOfInodes, sentence(used, "inodes")));
        bytes.into_iter().chain(inodes).collect()
    }
}

/// Whole percents, rounded down: the text must not change with every byte, and 100 must mean full.
fn sentence(used: Used, unit: &str) -> String {
    format!("{:.0} % of the {unit} are used ({} in all)", (used.share * 100.0).floor(), used.total)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn used(percent: u32) -> Used {
        Used { share: f64::from(percent) / 100.0, total: 100 }
    }

    #[test]
    fn full_from_the_threshold_on_until_well_below_it() {
        let mut full = Full::default();
        let shares = [95, 97, 98, 97, 96, 95, 97, 100];
        let judged =
            shares.map(|percent| !full.judge(Thresholds::default(), Some(used(percent)), None).is_empty());
        assert_eq!(judged, [false, false, true, true, true, false, false, true]);
    }

    #[test]
    fn bytes_and_inodes_are_separate_reasons() {
        let judged = Full::default().judge(Thresholds::default(), Some(used(99)), Some(used(100)));
        let shown: Vec<String> = judged.iter().map(|(reason, text)| format!("{reason:?}: {text}")).collect();
        assert_eq!(
            shown,
            [
                "OutOfCapacity: 99 % of the bytes are used (100 in all)",
                "OutOfInodes: 100 % of the inodes are used (100 in all)"
            ]
        );
    }

    #[test]
    fn what_is_not_counted_is_not_full() {
        let mut full = Full { bytes: true, inodes: true };
        assert_eq!(full.judge(Thresholds::default(), None, None), []);
        assert_eq!(full, Full::default());
    }
}
