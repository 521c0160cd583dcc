//! Whose request is carried out next. One claim, or one namespace, cannot keep the requests of others waiting.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// Requests that are carried out concurrently.
const TOGETHER: usize = 32;
/// Of them, those of one namespace.
const PER_NAMESPACE: usize = 4;
/// Requests that wait, in all and of one namespace. A claim has one at most: its label holds no more.
const WAITING: usize = 4096;
const WAITING_PER_NAMESPACE: usize = 64;

/// A claim, by namespace and name.
pub(super) type Key = (String, String);

#[derive(Debug)]
pub(super) struct Turns<T> {
    running: BTreeSet<Key>,
    waiting: VecDeque<(Key, T)>,
}

impl<T> Default for Turns<T> {
    fn default() -> Self {
        Self { running: BTreeSet::new(), waiting: VecDeque::new() }
    }
}

impl<T> Turns<T> {
    /// A newer request of a claim replaces the one that waits, and keeps its place. Returns whether there was room.
    pub(super) fn add(&mut self, key: Key, request: T) -> bool {
        if let Some((_, waiting)) = self.waiting.iter_mut().find(|(waiting, _)| *waiting == key) {
            *waiting = request;
            return true;
        }
        let of_namespace = self.waiting.iter().filter(|((namespace, _), _)| *namespace == key.0).count();
        let room = self.waiting.len() < WAITING && of_namespace < WAITING_PER_NAMESPACE;
        if room {
            self.waiting.push_back((key, request));
        }
        room
    }

    /// The next one that may begin. [`done`](Self::done) must follow.
    pub(super) fn next(&mut self) -> Option<(Key, T)> {
        if self.running.len() >= TOGETHER {
            return None;
        }
        let mut busy = BTreeMap::<&str, usize>::new();
        for (namespace, _) in &self.running {
            *busy.entry(namespace).or_default() += 1;
        }
        let may_begin = |key: &Key| {
            !self.running.contains(key) && busy.get(key.0.as_str()).is_none_or(|count| *count < PER_NAMESPACE)
        };
        let place = self.waiting.iter().position(|(key, _)| may_begin(key))?;
        let (key, request) = self.waiting.remove(place)?;
        self.running.insert(key.clone());
        Some((key, request))
    }

    pub(super) fn done(&mut self, key: &Key) {
        self.running.remove(key);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(namespace: &str, name: usize) -> Key {
        (namespace.to_owned(), name.to_string())
    }

    #[test]
    fn a_namespace_full_of_requests_leaves_places_for_others() {
        let mut turns = Turns::default();
        for claim in 0..1000 {
            assert_eq!(turns.add(key("greedy", claim), 0), claim < WAITING_PER_NAMESPACE);
        }
        assert!(turns.add(key("other", 0), 1));
        let begun: Vec<_> =
            std::iter::from_fn(|| turns.next()).map(|((namespace, _), _)| namespace).collect();
        assert_eq!(begun, ["greedy", "greedy", "greedy", "greedy", "other"]);
        turns.done(&key("greedy", 0));
        assert_eq!(turns.next().map(|(key, _)| key), Some(key("greedy", 4)));
        assert_eq!(turns.next(), None);
    }

    #[test]
    fn a_claim_has_one_request_under_way_and_the_newest_waiting() {
        let mut turns = Turns::default();
        assert!(turns.add(key("a", 0), 1));
        assert_eq!(turns.next(), Some((key("a", 0), 1)));
        assert!(turns.add(key("a", 0), 2) && turns.add(key("a", 0), 3));
        assert_eq!(turns.next(), None, "one at a time");
        turns.done(&key("a", 0));
        assert_eq!(turns.next(), Some((key("a", 0), 3)));
        assert_eq!(turns.next(), None);
    }

    #[test]
    fn all_together_are_bounded() {
        let mut turns = Turns::default();
        for namespace in 0..100 {
            for claim in 0..10 {
                turns.add(key(&namespace.to_string(), claim), ());
            }
        }
        assert_eq!(std::iter::from_fn(|| turns.next()).count(), TOGETHER);
    }
}
