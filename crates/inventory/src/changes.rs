//! What changed since somebody last asked: bounded, and honest when it overflows.

use std::collections::VecDeque;
use std::sync::Arc;

/// More than this many are not worth telling one by one.
const LIMIT: usize = 4096;

/// A change of the set of volumes to be checked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change {
    Added(Arc<str>),
    Removed(Arc<str>),
    /// The volume is bound to other claims, or to more or fewer of them.
    ClaimsChanged(Arc<str>),
    /// Too much changed to be told one by one. Read the whole state.
    Resync,
}

#[derive(Debug, Default)]
pub(crate) struct Changes(VecDeque<Change>);

impl Changes {
    pub(crate) fn push(&mut self, change: Change) {
        // Who resyncs reads the state after draining, so that covers whatever follows.
        if self.0.front() == Some(&Change::Resync) {
            return;
        }
        if self.0.len() < LIMIT {
            self.0.push_back(change);
        } else {
            self.0 = VecDeque::from([Change::Resync]);
        }
    }

    pub(crate) fn drain(&mut self) -> Vec<Change> {
        std::mem::take(&mut self.0).into()
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
        assert_eq!(changes.drain().len(), LIMIT);
        for _ in 0..LIMIT + 2 {
            changes.push(Change::Added("h".into()));
        }
        assert_eq!(changes.drain(), [Change::Resync]);
        changes.push(Change::Removed("h".into()));
        assert_eq!(changes.drain(), [Change::Removed("h".into())]);
        assert_eq!(changes.drain(), []);
    }
}
