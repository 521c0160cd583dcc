//! Has the kernel counted errors against the file system since we first saw it?
//!
//! ext4 and btrfs keep their counters on the disk until somebody checks or resets them, so a number alone may be years
//! old. What counts is a number that grew under our eyes, or an ext4 error that this host has seen since it booted.

use volmedic_health::WellKnown;
use volmedic_host::fs_state::{BtrfsErrors, Ext4Errors};

use super::findings::Finding;
use super::memory::Errors;
use super::text;

/// What a file system counts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Counted {
    Ext4(Ext4Errors),
    Btrfs(BtrfsErrors),
}

impl Counted {
    pub(super) fn errors(&self) -> Errors {
        match self {
            Self::Ext4(errors) => Errors { damaged: errors.count, failed: 0 },
            Self::Btrfs(errors) => {
                let damaged = errors.corruption.saturating_add(errors.generation);
                Errors { damaged, failed: errors.total().saturating_sub(damaged) }
            }
        }
    }
}

/// Compares with the baseline, and makes one if there is none. `booted` is in seconds since 1970.
pub(super) fn check(
    device: &str,
    counted: &Counted,
    booted: u64,
    baseline: &mut Option<Errors>,
) -> Vec<Finding> {
    let now = counted.errors();
    let before = baseline.get_or_insert_with(|| match counted {
        Counted::Ext4(errors) if happened_since(errors, booted) => Errors::default(),
        _ => now,
    });
    // A counter that fell was reset by a check; from there it counts anew.
    before.damaged = before.damaged.min(now.damaged);
    before.failed = before.failed.min(now.failed);
    match counted {
        Counted::Ext4(errors) => ext4(device, errors, *before).into_iter().collect(),
        Counted::Btrfs(errors) => btrfs(device, errors, now, *before),
    }
}

fn happened_since(errors: &Ext4Errors, booted: u64) -> bool {
    errors.last.as_ref().is_some_and(|last| last.time >= booted)
}

fn ext4(device: &str, errors: &Ext4Errors, before: Errors) -> Option<Finding> {
    if errors.count <= before.damaged {
        return None;
    }
    let last = errors.last.as_ref().map_or_else(String::new, |last| {
        let at = i64::try_from(last.time).ok().and_then(|time| jiff::Timestamp::from_second(time).ok());
        let at = at.map_or_else(String::new, |at| format!(" at {at}"));
        format!(", the last in {} at line {}{at}", text::name(&last.function), last.line)
    });
    let message = format!("ext4 errors on {device} went from {} to {}{last}", before.damaged, errors.count);
    Some(Finding::degraded(WellKnown::FilesystemCorruption, message))
}

fn btrfs(device: &str, errors: &BtrfsErrors, now: Errors, before: Errors) -> Vec<Finding> {
    let mut found = Vec::new();
    if now.damaged > before.damaged {
        let message = format!(
            "btrfs blocks with wrong content on {device} went from {} to {}",
            before.damaged, now.damaged
        );
        found.push(Finding::degraded(WellKnown::FilesystemCorruption, message));
    }
    if now.failed > before.failed {
        let message = format!(
            "failed reads, writes and flushes of btrfs on {device} went from {} to {}",
            before.failed, now.failed
        );
        found.push(Finding::degraded(WellKnown::RWIOError, message));
    }
    if errors.missing_devices > 0 {
        let message =
            format!("{} of the devices of the btrfs on {device} are missing", errors.missing_devices);
        found.push(Finding::degraded(WellKnown::DiskRemoved, message));
    }
    found
}

#[cfg(test)]
mod tests {
    use volmedic_host::fs_state::Ext4Error;

    use super::*;

    const BOOTED: u64 = 1_700_000_000;

    fn ext4_errors(count: u64, time: u64) -> Counted {
        let last = Ext4Error { function: "ext4_lookup".into(), line: 17, time, code: 5 };
        Counted::Ext4(Ext4Errors { count, first: None, last: (count > 0).then_some(last) })
    }

    /// Counts in, one look each; what was told out.
    fn ext4_told(counts: &[(u64, u64)]) -> Vec<String> {
        let mut baseline = None;
        let mut look = |(count, time): &(u64, u64)| {
            let told = check("loop3", &ext4_errors(*count, *time), BOOTED, &mut baseline);
            told.first().map_or_else(|| "-".to_owned(), |found| found.message.clone())
        };
        counts.iter().map(&mut look).collect()
    }

    #[test]
    fn a_counter_that_grows_is_told_with_both_numbers_until_it_is_reset() {
        let told = ext4_told(&[(0, 0), (2, BOOTED + 9), (2, BOOTED + 9), (0, 0), (1, BOOTED + 99)]);
        let two = "ext4 errors on loop3 went from 0 to 2, the last in ext4_lookup at line 17 at 2023-11-14T22:13:29Z";
        assert_eq!(told[..4], ["-", two, two, "-"]);
        assert!(told[4].starts_with("ext4 errors on loop3 went from 0 to 1"), "{}", told[4]);
    }

    #[test]
    fn old_errors_are_no_news_and_errors_of_this_boot_are() {
        let told = ext4_told(&[(7, BOOTED - 1), (8, BOOTED + 1)]);
        assert_eq!(told[0], "-");
        assert!(told[1].contains("from 7 to 8"), "{}", told[1]);
        assert!(ext4_told(&[(7, BOOTED)])[0].contains("from 0 to 7"));
    }

    #[test]
    fn btrfs_tells_damage_from_failed_requests_and_missing_devices() {
        let mut baseline = None;
        let mut look = |errors: BtrfsErrors| -> Vec<String> {
            let told = check("loop3", &Counted::Btrfs(errors), BOOTED, &mut baseline);
            told.iter().map(|found| format!("{} {}", found.reason, found.message)).collect()
        };
        let old = BtrfsErrors { write: 3, corruption: 1, ..BtrfsErrors::default() };
        assert!(look(old.clone()).is_empty(), "what was there before us is no news");
        let worse = BtrfsErrors { read: 2, generation: 1, missing_devices: 1, ..old.clone() };
        assert_eq!(
            look(worse),
            [
                "FilesystemCorruption btrfs blocks with wrong content on loop3 went from 1 to 2",
                "RWIOError failed reads, writes and flushes of btrfs on loop3 went from 3 to 5",
                "DiskRemoved 1 of the devices of the btrfs on loop3 are missing",
            ]
        );
        assert!(look(BtrfsErrors::default()).is_empty());
    }
}
