//! What is known of the kubelet's directories, pod by pod.
//!
//! A pod keeps its volumes as long as it runs. So what was there once and is gone now has been taken away from under it,
//! and has to be remembered to be missed.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use tokio::time::Instant;

use super::kubelet::{Dir, Found};
use super::volume::Phase;

/// A kubelet that is done with a pod removes its directories, and says so to the API server within this time. Until then
/// a directory that is gone is no fault.
pub(super) const GRACE: Duration = Duration::from_secs(10);

#[derive(Debug, Default)]
pub(super) struct Known {
    /// By the pod's uid in the API. There is an entry for each pod that was read.
    found: BTreeMap<Box<str>, Vec<Found>>,
    /// Directories that running pods had and have no more, and since when.
    gone: BTreeMap<Box<str>, BTreeMap<Dir, Instant>>,
}

impl Known {
    /// How many pods were read.
    pub(super) fn len(&self) -> usize {
        self.found.len()
    }

    pub(super) fn of(&self, uid: &str) -> &[Found] {
        self.found.get(uid).map_or(&[], Vec::as_slice)
    }

    /// The pods that have a directory of this name, with what is known of it.
    pub(super) fn named(&self, name: &str) -> impl Iterator<Item = (&str, &Found)> {
        let all = self.found.iter().flat_map(|(uid, found)| found.iter().map(move |found| (&**uid, found)));
        all.filter(move |(_, found)| *found.dir.name == *name)
    }

    /// The names of all directories.
    pub(super) fn names(&self) -> BTreeSet<&str> {
        self.found.values().flatten().map(|found| &*found.dir.name).collect()
    }

    /// The pods that miss something.
    pub(super) fn bereft(&self) -> Vec<Box<str>> {
        self.gone.keys().cloned().collect()
    }

    /// The pod's directories were read again.
    pub(super) fn read(&mut self, uid: &str, found: Vec<Found>, phase: Phase, now: Instant) {
        let (found, gone) = merge(self.found.remove(uid).unwrap_or_default(), found, phase);
        self.found.insert(uid.into(), found);
        let before = self.gone.remove(uid).unwrap_or_default();
        if !gone.is_empty() {
            let since = |dir: &Dir| before.get(dir).copied().unwrap_or(now);
            self.gone.insert(uid.into(), gone.into_iter().map(|dir| (dir.clone(), since(&dir))).collect());
        }
    }

    /// The pod's directories could not be read. What was known stays.
    pub(super) fn not_read(&mut self, uid: &str) {
        if !self.found.contains_key(uid) {
            self.found.insert(uid.into(), Vec::new());
        }
    }

    /// Whether anything was known of it.
    pub(super) fn forget(&mut self, uid: &str) -> bool {
        self.gone.remove(uid);
        self.found.remove(uid).is_some()
    }

    /// How far a pod is with one of its directories, if it is as far as `pod` in all. `in_touch` says whether news of the
    /// pod would have come.
    pub(super) fn phase(&self, uid: &str, dir: &Dir, pod: Phase, in_touch: bool, now: Instant) -> Phase {
        match self.gone.get(uid).and_then(|gone| gone.get(dir)) {
            Some(since) if pod == Phase::InUse && (now < *since + GRACE || !in_touch) => Phase::Going,
            _ => pod,
        }
    }
}

/// All directories to be known from now on, and those of them that are gone.
fn merge(before: Vec<Found>, mut now: Vec<Found>, phase: Phase) -> (Vec<Found>, Vec<Dir>) {
    let mut gone = Vec::new();
    let stays = phase == Phase::InUse;
    for old in before {
        match now.iter_mut().find(|new| new.dir == old.dir) {
            // The old one shares its texts with others.
            Some(new) if *new == old => *new = old,
            Some(new) if stays && matches!((&new.note, &old.note), (Some(Err(_)), Some(Ok(_)))) => *new = old,
            None if stays => {
                gone.push(old.dir.clone());
                now.push(old);
            }
            Some(_) | None => {}
        }
    }
    now.sort_by(|a, b| Dir::cmp(&a.dir, &b.dir));
    (now, gone)
}

#[cfg(test)]
mod tests;
