//! Which objects are known, without a second copy of their names.

use std::collections::HashSet;
use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;

use super::Spared;

/// The objects of one kind that were put, for a [`Sink`](super::Sink) that keeps them elsewhere by name. It finds out which
/// of them a new list lacks.
///
/// It keeps a hash of 64 bits of each name, with keys of this process. If two names ever had the same hash, an object that
/// is gone could be kept for longer; one that is there is never taken for gone.
#[derive(Debug, Default)]
pub struct KnownNames {
    hasher: RandomState,
    /// Those that were put since the last list began.
    seen: HashSet<u64>,
    /// Those that were known before it began, and that it has not shown yet.
    before: HashSet<u64>,
}

impl KnownNames {
    /// A list begins. It may break off and begin again.
    pub fn begin(&mut self) {
        if self.before.is_empty() {
            self.before = std::mem::take(&mut self.seen);
        } else {
            self.before.extend(self.seen.drain());
        }
    }

    /// The object is there.
    pub fn put(&mut self, namespace: &str, name: &str) {
        let hash = self.hasher.hash_one((namespace, name));
        self.before.remove(&hash);
        self.seen.insert(hash);
    }

    /// The object is gone.
    pub fn take(&mut self, namespace: &str, name: &str) {
        let hash = self.hasher.hash_one((namespace, name));
        self.before.remove(&hash);
        self.seen.remove(&hash);
    }

    /// The list is complete. Answers which objects are gone: those that `all` names, that were put before the list
    /// began, that it did not show, and that are not spared. An object that was never put is not among them.
    pub fn sweep(
        &mut self,
        spared: &Spared,
        all: impl FnOnce(&mut dyn FnMut(&str, &str)),
    ) -> Vec<(Box<str>, Box<str>)> {
        let before = std::mem::take(&mut self.before);
        let mut gone = Vec::new();
        if before.is_empty() {
            return gone;
        }
        all(&mut |namespace, name| {
            let hash = self.hasher.hash_one((namespace, name));
            if before.contains(&hash) {
                if spared.contains(namespace, name) {
                    self.seen.insert(hash);
                } else {
                    gone.push((namespace.into(), name.into()));
                }
            }
        });
        gone
    }

    /// How many are known.
    pub fn len(&self) -> usize {
        self.seen.len() + self.before.len()
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: [(&str, &str); 5] = [("ns", "a"), ("ns", "b"), ("ns", "c"), ("", "a"), ("ns", "ours")];

    fn sweep(names: &mut KnownNames, spared: &Spared) -> Vec<(Box<str>, Box<str>)> {
        names.sweep(spared, |each| ALL.iter().for_each(|(namespace, name)| each(namespace, name)))
    }

    fn put(names: &mut KnownNames, all: &[(&str, &str)]) {
        for (namespace, name) in all {
            names.put(namespace, name);
        }
    }

    fn of(all: &[(&str, &str)]) -> Vec<(Box<str>, Box<str>)> {
        all.iter().map(|(namespace, name)| ((*namespace).into(), (*name).into())).collect()
    }

    /// After a list that showed all but the last, which was never put.
    fn listed() -> KnownNames {
        let mut names = KnownNames::default();
        names.begin();
        put(&mut names, &ALL[..4]);
        assert_eq!(sweep(&mut names, &Spared::default()), of(&[]));
        names
    }

    #[test]
    fn what_a_list_lacks_is_gone_and_what_was_never_put_is_not() {
        let mut names = listed();
        names.begin();
        names.put("ns", "b");
        names.put("", "a");
        assert_eq!(sweep(&mut names, &Spared::default()), of(&[("ns", "a"), ("ns", "c")]));
        assert_eq!(names.len(), 2);
        names.begin();
        assert_eq!(sweep(&mut names, &Spared::default()), of(&[("ns", "b"), ("", "a")]));
        assert!(names.is_empty());
    }

    #[test]
    fn a_list_that_breaks_off_loses_nothing() {
        let mut names = listed();
        names.begin();
        names.put("ns", "a");
        names.begin();
        names.put("ns", "b");
        names.put("ns", "c");
        assert_eq!(sweep(&mut names, &Spared::default()), of(&[("ns", "a"), ("", "a")]));
    }

    #[test]
    fn what_cannot_be_read_stays_until_a_later_list_lacks_it() {
        let mut names = listed();
        let spared = Spared::of(&[("ns", "a")]);
        for _ in 0..2 {
            names.begin();
            put(&mut names, &ALL[1..4]);
            assert_eq!(sweep(&mut names, &spared), of(&[]));
        }
        names.begin();
        put(&mut names, &ALL[1..4]);
        assert_eq!(sweep(&mut names, &Spared::default()), of(&[("ns", "a")]));
    }

    #[test]
    fn what_a_watch_took_is_not_reported_as_gone_again() {
        let mut names = listed();
        names.take("ns", "c");
        names.begin();
        put(&mut names, &ALL[..2]);
        assert_eq!(sweep(&mut names, &Spared::default()), of(&[("", "a")]));
    }
}
