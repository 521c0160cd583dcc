//! Which of two probes of one volume began later.
//!
//! A list and a check of one of its volumes may be under way at the same time, and end in any order. The sight of the one
//! that began earlier is not applied after the sight of the other: it cannot contain what happened in between, such as a
//! heal. All pages of a pass count from its beginning, since a driver may make up its whole list when it is asked for the
//! first one. Two checks of one volume are never under way together, and neither are two passes, so it is enough to count
//! passes.

/// Which pass of the list it is, in the order in which they began.
pub(crate) type Pass = u32;

/// When a probe began: with a pass, or during or after one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Began(u32);

impl Began {
    pub(crate) fn with(pass: Pass) -> Self {
        Self(pass.wrapping_mul(2))
    }

    /// Later than the pass, and earlier than the next.
    pub(crate) fn during(pass: Pass) -> Self {
        Self(pass.wrapping_mul(2).wrapping_add(1))
    }

    fn is_before(self, other: Self) -> bool {
        // Numbers may begin again from zero; no probe lasts for half of them.
        (1..u32::MAX / 2).contains(&other.0.wrapping_sub(self.0))
    }
}

/// Which probes of one volume were applied last. Small, because there is one for each volume.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Heard {
    /// The newest pass that had it.
    pub(crate) listed: Pass,
    /// When the newest probe began that saw anything.
    newest: Began,
}

impl Heard {
    /// A volume that comes during a pass counts from the next, since the pass may have gone past its place already.
    pub(crate) fn nothing(pass: Pass) -> Self {
        Self { listed: pass, newest: Began(Began::with(pass).0.wrapping_sub(1)) }
    }

    /// Whether a newer probe than the one that began then saw something.
    pub(crate) fn is_newer_than(self, began: Began) -> bool {
        began.is_before(self.newest)
    }

    /// A probe saw something.
    pub(crate) fn saw(&mut self, began: Began) {
        if self.newest.is_before(began) {
            self.newest = began;
        }
    }
}
