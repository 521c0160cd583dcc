//! Whether there are VolumeHealths to write to. Time is an argument.

use std::time::{Duration, Instant};

/// What is not installed, or not allowed, is looked for again this often.
pub(super) const RETRY_EVERY: Duration = Duration::from_mins(10);

/// What a write showed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Found {
    There,
    /// They are not installed.
    Missing,
    /// They are installed, but of an older version, without a place for us.
    Old,
    Forbidden,
}

#[derive(Debug, Default)]
pub(super) struct Place {
    found: Option<Found>,
    /// When to look again, while it is of no use.
    again: Option<Instant>,
    /// Something is to be stated again.
    due: bool,
}

impl Place {
    pub(super) fn is_there(&self) -> bool {
        self.found == Some(Found::There)
    }

    /// Whether a try now would be one, or only be turned away.
    pub(super) fn may_ask(&self, now: Instant) -> bool {
        self.again.is_none_or(|again| again <= now)
    }

    /// Whether to write. While it is of no use, one write in a while finds out whether it still is.
    pub(super) fn may_try(&mut self, now: Instant) -> bool {
        let may = self.may_ask(now);
        if let (true, Some(again)) = (may, &mut self.again) {
            *again = now + RETRY_EVERY;
        }
        may
    }

    /// Answers whether that is news.
    pub(super) fn note(&mut self, now: Instant, found: Found) -> bool {
        let before = self.found.replace(found);
        if found == Found::There {
            // What could not be reported meanwhile.
            self.due |= self.again.take().is_some() || before.is_some_and(|before| before != Found::There);
        } else {
            self.again = Some(now + RETRY_EVERY);
        }
        before != Some(found)
    }

    /// Somebody else stands in the way for a moment.
    pub(super) fn soon(&mut self) {
        self.due = true;
    }

    /// Answers yes when it is time to look again, and once after that led to something.
    pub(super) fn take_due(&mut self, now: Instant) -> bool {
        let time = self.again.is_some_and(|again| again <= now);
        std::mem::take(&mut self.due) || time
    }

    pub(super) fn look_again(&mut self) {
        if self.again.take().is_some() {
            self.due = true;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_installed_is_looked_for_rarely_and_all_is_reported_when_it_is() {
        let start = Instant::now();
        let mut place = Place::default();
        assert!(place.may_try(start) && !place.take_due(start));
        assert!(place.note(start, Found::Missing), "news");
        let early = start + RETRY_EVERY / 2;
        assert!(!place.may_try(early) && !place.take_due(early));
        let late = start + RETRY_EVERY;
        assert!(place.take_due(late), "time to look");
        assert!(place.may_try(late), "one tries");
        assert!(!place.may_try(late) && !place.take_due(late), "and no other with it");
        assert!(!place.note(late, Found::Missing), "no news");
        let later = late + RETRY_EVERY;
        assert!(place.may_try(later) && place.note(later, Found::There));
        assert!(place.take_due(later) && !place.take_due(later), "all is stated once");
        assert!(place.may_try(later) && place.may_try(later));
        assert!(!place.note(later, Found::There) && !place.take_due(later));
    }
}
