//! When to access a volume again that keeps failing in the same way. Each access of a dead disk makes the kernel log an
//! error, and says nothing new. The mount table and sysfs are still read at every check.

use std::time::{Duration, Instant};

use volmedic_health::{Status, WellKnown};

use super::findings::{Check, Finding};
use super::memory::Memory;

/// Doubled each time.
const FIRST: Duration = Duration::from_secs(1);

/// A volume that fails.
#[derive(Debug)]
pub(super) struct Failing {
    reasons: Vec<WellKnown>,
    /// The mounts through which it was accessed. Other mounts may work.
    mounts: Vec<u32>,
    /// What else was wrong with it. When that changes, the volume may work again.
    others: Option<Vec<(Status, WellKnown)>>,
    pause: Duration,
    again: Instant,
}

impl Memory {
    pub(super) fn is_backing_off(&self, mounts: &[u32], now: Instant) -> bool {
        self.failing.as_ref().is_some_and(|failing| failing.mounts == mounts && now < failing.again)
    }

    /// The volume was accessed. `found` is what its disk answered, or nothing where no disk is below it.
    pub(super) fn accessed(&mut self, found: &[Finding], mounts: Vec<u32>, now: Instant, longest: Duration) {
        let before = self.failing.take();
        let reasons: Vec<WellKnown> = found.iter().map(|found| found.reason).collect();
        if reasons.is_empty() || !reasons.iter().all(|reason| is_of_the_disk(*reason)) {
            return;
        }
        let same = before.filter(|before| before.reasons == reasons && before.mounts == mounts);
        let pause = same.as_ref().map_or(FIRST, |same| same.pause * 2).min(longest);
        let others = same.and_then(|same| same.others);
        self.failing = Some(Failing { reasons, mounts, others, pause, again: now + pause });
    }

    /// All other checks are done. If they found something else than before, the volume is accessed at the next check.
    pub(super) fn note_others(&mut self, now: Instant) {
        let of = |check: Check| self.found(check).iter().map(|found| (found.status, found.reason));
        let others: Vec<_> =
            [Check::Mounted, Check::Writable, Check::Device].into_iter().flat_map(of).collect();
        let Some(failing) = &mut self.failing else { return };
        if failing.others.as_ref().is_some_and(|before| *before != others) {
            (failing.pause, failing.again) = (FIRST, now);
        }
        failing.others = Some(others);
    }
}

fn is_of_the_disk(reason: WellKnown) -> bool {
    use WellKnown as R;
    // A disk that is gone is not among them: opening it fails without a word in the kernel's log.
    matches!(reason, R::RWIOError | R::FilesystemCorruption | R::FilesystemShutdown)
}

#[cfg(test)]
mod tests {
    use super::super::findings::Verdict;
    use super::*;

    const LONGEST: Duration = Duration::from_mins(1);
    const STEP: Duration = Duration::from_millis(2500);

    fn failed(reason: WellKnown) -> Vec<Finding> {
        vec![Finding::inaccessible(reason, "open failed")]
    }

    /// The seconds at which a volume is accessed that fails in the same way for ten minutes, checked every 2.5 s.
    fn accessed(memory: &mut Memory, reason: WellKnown) -> Vec<u64> {
        let start = Instant::now();
        let mut at = Vec::new();
        for round in 0..240 {
            let now = start + STEP * round;
            if !memory.is_backing_off(&[1], now) {
                at.push(now.duration_since(start).as_secs());
                memory.accessed(&failed(reason), vec![1], now, LONGEST);
            }
            memory.note_others(now);
        }
        at
    }

    #[test]
    fn a_dead_disk_is_accessed_less_and_less_often_but_at_least_every_minute() {
        let at = accessed(&mut Memory::default(), WellKnown::RWIOError);
        assert_eq!(at[..7], [0, 2, 5, 10, 20, 37, 70]);
        assert!(at.windows(2).all(|pair| pair[1] - pair[0] <= LONGEST.as_secs() + 3), "{at:?}");
        assert_eq!(at.len(), 15, "{at:?}");
        for reason in [WellKnown::IOHung, WellKnown::DiskRemoved] {
            let at = accessed(&mut Memory::default(), reason);
            assert_eq!(at.len(), 240, "only where the kernel logs each access: {reason:?}");
        }
    }

    #[test]
    fn any_change_ends_the_pause() {
        let start = Instant::now();
        let fails = |memory: &mut Memory| {
            for _ in 0..5 {
                memory.accessed(&failed(WellKnown::RWIOError), vec![1], start, LONGEST);
                memory.note_others(start);
            }
            assert!(memory.is_backing_off(&[1], start + FIRST));
        };
        let mut memory = Memory::default();
        fails(&mut memory);
        assert!(!memory.is_backing_off(&[2], start), "it was mounted again");
        memory.record(Check::Device, Verdict::Seen(failed(WellKnown::DiskRemoved)));
        memory.note_others(start);
        assert!(!memory.is_backing_off(&[1], start), "its device changed");
        fails(&mut memory);
        memory.accessed(&failed(WellKnown::FilesystemShutdown), vec![1], start, LONGEST);
        assert!(!memory.is_backing_off(&[1], start + FIRST), "it fails in another way");
        memory.accessed(&[], vec![1], start, LONGEST);
        assert!(!memory.is_backing_off(&[1], start), "it works");
    }
}
