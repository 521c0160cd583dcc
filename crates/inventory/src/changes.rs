//! What changed since somebody last asked: bounded, and honest when it overflows.

use std::collections::VecDeque;
use std::sync::Arc;

/// More than this many are not worth reporting one by one.
const LIMIT: usize = 4096;

/// A change of the set of volumes to be checked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change {
    Added(Arc<str>),
    Removed(Arc<str>),
    /// The volume is bound to other claims, or to more or fewer of them.
    ClaimsChanged(Arc<str>),
    /// Too much changed to be reported one by one. Read the whole state.
    Resync,
}

/// Changes of any kind, in their order.
#[derive(Debug)]
pub(crate) struct Changes<T> {
    queue: VecDeque<T>,
    overflown: bool,
}

impl<T> Default for Changes<T> {
    fn default() -> Self {
        Self { queue: VecDeque::new(), overflown: false }
    }
}

impl<T> Changes<T> {
    pub(crate) fn push(&mut self, change: T) {
        // Who resyncs reads the state after draining, so that covers whatever follows.
        if self.queue.len() < LIMIT && !self.overflown {
            self.queue.push_back(change);
        } else {
            self.overflown = true;
            self.queue = VecDeque::new();
        }
    }

    /// None if there were too many.
    pub(crate) fn drain(&mut self) -> Option<Vec<T>> {
        let Self { queue, overflown } = std::mem::take(self);
        (!overflown).then(|| queue.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_overflow_becomes_a_resync() {
        let mut changes = Changes::default();
        for _ in 0..LIMIT {
            changes.push(Change::Added("h".into()));
        }
        assert_eq!(changes.drain().unwrap().len(), LIMIT);
        for _ in 0..LIMIT + 2 {
            changes.push(Change::Added("h".into()));
        }
        assert_eq!(changes.drain(), None);
        changes.push(Change::Removed("h".into()));
        assert_eq!(changes.drain(), Some(vec![Change::Removed("h".into())]));
        assert_eq!(changes.drain(), Some(vec![]));
    }
}
