//! What is remembered of a volume between looks.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use volmedic_health::WellKnown;

use super::back_off::Failing;
use super::evidence::Heard;
use super::findings::{Check, Finding, Verdict};
use super::mounted::Suspicion;
use super::witness::Witness;

/// What of a volume must outlive a restart: with what later looks are compared. Plain data, to be kept anywhere.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Baseline {
    /// What was mounted at each target when it was right.
    pub places: BTreeMap<String, Place>,
    /// The staging path, if the volume was ever seen mounted there.
    pub staged: Option<String>,
    /// The file system's error counters when nothing was wrong.
    pub errors: Option<Errors>,
    /// The block device under the volume.
    pub device: Option<Disk>,
    /// It was called full, and is until it is far enough below the threshold.
    pub full: Full,
    /// It once answered us, so that being shut out is news.
    pub answered: bool,
    /// What the kernel said when trouble began that still lasts.
    pub kernel_said: Option<String>,
    /// What speaks for what is wrong.
    pub witness: Witness,
}

/// By what a mount is known again.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Place {
    pub device: String,
    pub root: String,
    pub fs_type: String,
    pub source: String,
}

/// Counters of a file system.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Errors {
    /// Of its own structures.
    pub damaged: u64,
    /// Of reads and writes.
    pub failed: u64,
}

/// A block device.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Disk {
    pub name: String,
    pub bytes: u64,
    /// A loop device that would detach itself when unused. That may be intended from the start, but not later on.
    pub detaches: bool,
    /// Of a loop device: its file was once seen with all its bytes.
    pub whole: bool,
    /// Of a loop device: the path of its file.
    pub file: Option<PathBuf>,
    /// Of a loop device: it was detached from its file. Its number is then anybody's.
    pub detached: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Full {
    pub bytes: bool,
    pub inodes: bool,
}

/// More targets than this are not remembered.
const MOST_PLACES: usize = 256;

impl Baseline {
    pub(super) fn remember(&mut self, target: &str, place: Place) {
        if self.places.len() < MOST_PLACES || self.places.contains_key(target) {
            self.places.insert(target.to_owned(), place);
        }
    }
}

/// All that is remembered of one volume.
#[derive(Debug, Default)]
pub(super) struct Memory {
    pub(super) baseline: Baseline,
    /// What each check found when it was last done.
    last: [Vec<Finding>; Check::ALL.len()],
    /// What the mount table seemed to say, and since when. Kubelet may just be at work there.
    suspected: Vec<(String, WellKnown, Instant)>,
    /// Since when the volume has not answered, without a break.
    pub(super) hung_since: Option<Instant>,
    /// Its disk keeps failing in the same way.
    pub(super) failing: Option<Failing>,
    /// A word with which the device says that it is busy with itself, and since when.
    pub(super) paused: Option<(String, Instant)>,
    /// How much it had done by then.
    pub(super) paused_at: Option<u64>,
    /// How much the device had done, and since when it has done nothing more although requests wait.
    pub(super) progress: Option<(u64, Instant)>,
    /// What the kernel had said before there was trouble.
    pub(super) heard: Option<Heard>,
}

impl Memory {
    pub(super) fn from_baseline(baseline: Baseline) -> Self {
        Self { baseline, ..Self::default() }
    }

    /// Takes what a check came to.
    pub(super) fn record(&mut self, check: Check, verdict: Verdict) {
        if let Verdict::Seen(found) = verdict {
            self.last[check as usize] = found;
        }
    }

    /// What one check found when it was last done.
    pub(super) fn found(&self, check: Check) -> &[Finding] {
        &self.last[check as usize]
    }

    /// All that is known to be wrong.
    pub(super) fn findings(&self) -> impl Iterator<Item = &Finding> {
        self.last.iter().flatten()
    }

    /// Parts what has been so for long enough from what must be seen again, and says when to look for that.
    ///
    /// What is suspected no more is forgotten: when it comes back, it starts from the beginning.
    pub(super) fn confirm(
        &mut self,
        seen: Vec<Suspicion>,
        now: Instant,
        after: Duration,
    ) -> (Vec<Finding>, Option<Duration>) {
        let before = std::mem::take(&mut self.suspected);
        let mut reported = Vec::new();
        let mut again: Option<Duration> = None;
        for Suspicion { place, finding } in seen {
            let same =
                |(at, reason, _): &&(String, WellKnown, Instant)| *at == place && *reason == finding.reason;
            let since = before.iter().find(same).map_or(now, |(_, _, since)| *since);
            let left = after.saturating_sub(now.saturating_duration_since(since));
            self.suspected.push((place, finding.reason, since));
            if left.is_zero() {
                reported.push(finding);
            } else {
                again = Some(again.map_or(left, |soonest| soonest.min(left)));
            }
        }
        (reported, again)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn suspicion(place: &str, reason: WellKnown) -> Suspicion {
        Suspicion { place: place.into(), finding: Finding::inaccessible(reason, place) }
    }

    #[test]
    fn what_the_mount_table_says_is_reported_when_it_lasts() {
        let mut memory = Memory::default();
        let start = Instant::now();
        let unmounted = || vec![suspicion("/t", WellKnown::VolumeUnmounted)];
        assert_eq!(memory.confirm(unmounted(), start, SECOND), (vec![], Some(SECOND)));
        let (reported, again) = memory.confirm(unmounted(), start + SECOND, SECOND);
        assert_eq!((reported.len(), again), (1, None));
        let (reported, _) = memory.confirm(unmounted(), start + SECOND * 2, SECOND);
        assert_eq!(reported.len(), 1, "and stays reported");
        assert_eq!(memory.confirm(vec![], start + SECOND * 3, SECOND), (vec![], None));
        let (reported, again) = memory.confirm(unmounted(), start + SECOND * 4, SECOND);
        assert_eq!((reported.len(), again), (0, Some(SECOND)), "a second time is a new one");
    }

    #[test]
    fn one_place_does_not_confirm_another_and_other_trouble_starts_from_the_beginning() {
        let mut memory = Memory::default();
        let start = Instant::now();
        memory.confirm(vec![suspicion("/a", WellKnown::VolumeUnmounted)], start, SECOND);
        let seen = vec![suspicion("/a", WellKnown::WrongMount), suspicion("/b", WellKnown::VolumeUnmounted)];
        let (reported, again) = memory.confirm(seen, start + SECOND, SECOND);
        assert_eq!((reported.len(), again), (0, Some(SECOND)));
    }

    #[test]
    fn what_could_not_be_checked_stays_as_it_was() {
        let mut memory = Memory::default();
        let full = Finding::degraded(WellKnown::OutOfCapacity, "full");
        memory.record(Check::Fullness, Verdict::Seen(vec![full.clone()]));
        memory.record(Check::Fullness, Verdict::Unseen);
        assert_eq!(memory.findings().collect::<Vec<_>>(), [&full]);
        memory.record(Check::Fullness, Verdict::fine());
        assert_eq!(memory.findings().count(), 0);
    }

    #[test]
    fn targets_are_remembered_up_to_a_bound() {
        let mut baseline = Baseline::default();
        for number in 0..1000 {
            baseline.remember(&number.to_string(), Place::default());
        }
        assert_eq!(baseline.places.len(), MOST_PLACES);
    }
}
