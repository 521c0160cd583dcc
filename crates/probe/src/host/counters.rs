//! Has the kernel counted errors against the file system?
//!
//! ext4 and btrfs keep their counters on the disk, so a number alone may be years old. A number that grew between two
//! checks is reported with both numbers. ext4 keeps its number until e2fsck has checked the file system, so errors that
//! were there at the first check are reported too, as what they are. btrfs keeps its numbers for ever: there only what
//! is added counts.

use volmedic_health::WellKnown;
use volmedic_host::fs_state::{BtrfsErrors, Ext4Error, Ext4Errors};

use super::findings::Finding;
use super::memory::Errors;
use super::text;

/// Devices of a file system that a message names.
const MOST_NAMED: usize = 8;

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

/// Compares with the baseline, and makes one if there is none.
pub(super) fn check(device: &str, counted: &Counted, baseline: &mut Option<Errors>) -> Vec<Finding> {
    let now = counted.errors();
    let before = baseline.get_or_insert(now);
    // A counter that fell was reset by a check; from there it counts again.
    before.damaged = before.damaged.min(now.damaged);
    before.failed = before.failed.min(now.failed);
    match counted {
        Counted::Ext4(errors) => ext4(device, errors, *before).into_iter().collect(),
        Counted::Btrfs(errors) => btrfs(device, errors, now, *before),
    }
}

fn ext4(device: &str, errors: &Ext4Errors, before: Errors) -> Option<Finding> {
    let last = errors.last.as_ref().map_or_else(String::new, |last| {
        let at = time(last).map_or_else(String::new, |at| format!(" at {at}"));
        format!(", the last in {} at line {}{at}", text::name(&last.function), last.line)
    });
    let message = if errors.count > before.damaged {
        format!("ext4 errors on {device} went from {} to {}{last}", before.damaged, errors.count)
    } else if errors.count > 0 {
        let plural = if errors.count == 1 { "" } else { "s" };
        let first = errors.first.as_ref().filter(|_| errors.count > 1).and_then(time);
        let first = first.map_or_else(String::new, |at| format!(", the first at {at}"));
        format!(
            "the ext4 on {device} recorded {} error{plural} before this agent first checked it{first}{last}; \
             run e2fsck on it while it is not mounted",
            errors.count
        )
    } else {
        return None;
    };
    Some(Finding::degraded(WellKnown::FilesystemCorruption, message))
}

fn time(error: &Ext4Error) -> Option<jiff::Timestamp> {
    // Older kernels keep no time.
    i64::try_from(error.time)
        .ok()
        .filter(|time| *time > 0)
        .and_then(|time| jiff::Timestamp::from_second(time).ok())
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
    if !errors.missing.is_empty() {
        let numbers: Vec<String> = errors.missing.iter().take(MOST_NAMED).map(ToString::to_string).collect();
        let members: Vec<String> = errors.members.iter().take(MOST_NAMED).map(text::name).collect();
        let (plural, verb) = if errors.missing.len() == 1 { ("", "is") } else { ("s", "are") };
        let message = format!(
            "device{plural} {} of the btrfs on {device} {verb} missing; present: {}",
            numbers.join(", "),
            members.join(", ")
        );
        found.push(Finding::degraded(WellKnown::DiskRemoved, message));
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    const BOOTED: u64 = 1_700_000_000;

    fn ext4_errors(count: u64, time: u64) -> Counted {
        let last = Ext4Error { function: "ext4_lookup".into(), line: 17, time, code: 5 };
        Counted::Ext4(Ext4Errors { count, first: None, last: (count > 0).then_some(last) })
    }

    /// Counts in, one check each; what was reported out.
    fn ext4_reported(counts: &[(u64, u64)]) -> Vec<String> {
        let mut baseline = None;
        let mut look = |(count, time): &(u64, u64)| {
            let reported = check("loop3", &ext4_errors(*count, *time), &mut baseline);
            reported.first().map_or_else(|| "-".to_owned(), |found| found.message.clone())
        };
        counts.iter().map(&mut look).collect()
    }

    #[test]
    fn a_counter_that_grows_is_reported_with_both_numbers_until_it_is_reset() {
        let reported = ext4_reported(&[(0, 0), (2, BOOTED + 9), (2, BOOTED + 9), (0, 0), (1, BOOTED + 99)]);
        let two = "ext4 errors on loop3 went from 0 to 2, the last in ext4_lookup at line 17 at 2023-11-14T22:13:29Z";
        assert_eq!(reported[..4], ["-", two, two, "-"]);
        assert!(reported[4].starts_with("ext4 errors on loop3 went from 0 to 1"), "{}", reported[4]);
    }

    #[test]
    fn errors_that_were_there_at_the_first_check_are_reported_as_recorded_earlier() {
        let reported = ext4_reported(&[(1, BOOTED), (1, BOOTED), (2, BOOTED + 9), (0, 0)]);
        let earlier = "the ext4 on loop3 recorded 1 error before this agent first checked it, the last in ext4_lookup at \
                       line 17 at 2023-11-14T22:13:20Z; run e2fsck on it while it is not mounted";
        assert_eq!(reported[..2], [earlier, earlier]);
        assert!(reported[2].starts_with("ext4 errors on loop3 went from 1 to 2"), "{}", reported[2]);
        assert_eq!(reported[3], "-", "it was checked");
    }

    #[test]
    fn several_errors_are_reported_with_the_first_and_the_last_time() {
        let error = |time| Some(Ext4Error { function: "ext4_lookup".into(), line: 17, time, code: 5 });
        let errors = Ext4Errors { count: 7, first: error(BOOTED), last: error(BOOTED + 60) };
        let reported = check("loop3", &Counted::Ext4(errors), &mut None);
        assert!(
            reported[0].message.contains(
                "recorded 7 errors before this agent first checked it, the first at 2023-11-14T22:13:20Z, the last in \
                 ext4_lookup at line 17 at 2023-11-14T22:14:20Z; run e2fsck"
            ),
            "{}",
            reported[0].message
        );
    }

    #[test]
    fn btrfs_damage_failed_requests_and_missing_devices_are_distinguished() {
        let mut baseline = None;
        let mut look = |errors: BtrfsErrors| -> Vec<String> {
            let reported = check("loop3", &Counted::Btrfs(errors), &mut baseline);
            reported.iter().map(|found| format!("{} {}", found.reason, found.message)).collect()
        };
        let members = vec!["loop3".into(), "loop4".into()];
        let old = BtrfsErrors { write: 3, corruption: 1, members, ..BtrfsErrors::default() };
        assert!(look(old.clone()).is_empty(), "what was there before us is no news");
        let worse = BtrfsErrors { read: 2, generation: 1, missing: vec![2], ..old.clone() };
        assert_eq!(
            look(worse),
            [
                "FilesystemCorruption btrfs blocks with wrong content on loop3 went from 1 to 2",
                "RWIOError failed reads, writes and flushes of btrfs on loop3 went from 3 to 5",
                "DiskRemoved device 2 of the btrfs on loop3 is missing; present: loop3, loop4",
            ]
        );
        assert!(look(BtrfsErrors::default()).is_empty());
    }
}
