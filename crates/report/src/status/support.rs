//! Whether the server keeps what we write, and who else writes it. Time is an argument.

use std::collections::HashMap;
use std::time::{Duration, Instant};

/// A server that drops the field, or does not let us write it, is asked again so often.
pub(super) const RETRY_EVERY: Duration = Duration::from_hours(1);
/// Fights over one claim within [`FIGHT_WINDOW`] after which it is left alone for as long.
pub(super) const FIGHTS: usize = 3;
const FIGHT_WINDOW: Duration = Duration::from_hours(1);
/// Claims whose fights are remembered at the same time.
const REMEMBERED: usize = 1024;

/// Whether the API server keeps `status.healthStatus` of claims.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Support {
    /// Nothing has been written yet.
    Unknown,
    Kept,
    /// It took a write and dropped the field, or refused it: a server with the feature switched off, or without it.
    Dropped,
    /// It does not let us write.
    Forbidden,
}

#[derive(Debug)]
pub(super) struct Field {
    pub(super) support: Support,
    again: Option<Instant>,
}

impl Field {
    pub(super) fn new() -> Self {
        Self { support: Support::Unknown, again: None }
    }

    /// Whether to write at all. While it is of no use, one write in a while finds out whether it still is.
    pub(super) fn may_try(&mut self, now: Instant) -> bool {
        match self.again {
            Some(again) if now < again => false,
            Some(_) => {
                self.again = Some(now + RETRY_EVERY);
                true
            }
            None => true,
        }
    }

    /// Notes what a write showed; answers whether that is news.
    pub(super) fn note(&mut self, now: Instant, support: Support) -> bool {
        let news = self.support != support;
        self.support = support;
        self.again = match support {
            Support::Unknown | Support::Kept => None,
            Support::Dropped | Support::Forbidden => Some(now + RETRY_EVERY),
        };
        news
    }

    /// The server may be another one now: the next write finds out.
    pub(super) fn look_again(&mut self) {
        self.again = None;
    }
}

/// Who fights over which claim.
#[derive(Debug, Default)]
pub(super) struct Fights(HashMap<Box<str>, Vec<Instant>>);

#[derive(Debug, PartialEq, Eq)]
pub(super) enum Fight {
    /// Write over it.
    GoOn,
    /// Leave it alone, and say so: it is the first time that this claim is left alone.
    GiveWay,
    /// Leave it alone.
    StayAway,
}

impl Fights {
    /// Whether this claim was fought over so often that we keep away from it for now.
    pub(super) fn keeps_away(&self, now: Instant, uid: &str) -> bool {
        self.0.get(uid).is_some_and(|fights| recent(fights, now) > FIGHTS)
    }

    /// Somebody else had written to the claim what we are about to write.
    pub(super) fn note(&mut self, now: Instant, uid: &str) -> Fight {
        if self.0.len() >= REMEMBERED && !self.0.contains_key(uid) {
            self.0.retain(|_, fights| recent(fights, now) > 0);
            if self.0.len() >= REMEMBERED {
                return Fight::StayAway;
            }
        }
        let fights = self.0.entry(uid.into()).or_default();
        fights.retain(|at| now.saturating_duration_since(*at) < FIGHT_WINDOW);
        if fights.len() > FIGHTS {
            return Fight::StayAway;
        }
        fights.push(now);
        if fights.len() > FIGHTS { Fight::GiveWay } else { Fight::GoOn }
    }
}

fn recent(fights: &[Instant], now: Instant) -> usize {
    fights.iter().filter(|at| now.saturating_duration_since(**at) < FIGHT_WINDOW).count()
}

#[cfg(test)]
mod tests {
    use super::*;

    const MINUTE: Duration = Duration::from_mins(1);

    #[test]
    fn a_server_that_drops_the_field_is_asked_once_an_hour() {
        let start = Instant::now();
        let mut field = Field::new();
        assert!(field.may_try(start));
        assert!(field.note(start, Support::Dropped), "news");
        assert!(!field.may_try(start + 59 * MINUTE));
        assert!(field.may_try(start + 60 * MINUTE), "one tries");
        assert!(!field.may_try(start + 60 * MINUTE), "and no other with it");
        assert!(!field.note(start + 60 * MINUTE, Support::Dropped), "no news");
        field.look_again();
        assert!(field.may_try(start + 61 * MINUTE));
        assert!(field.note(start + 61 * MINUTE, Support::Kept));
        assert!(field.may_try(start + 62 * MINUTE) && field.may_try(start + 62 * MINUTE));
    }

    #[test]
    fn who_is_overwritten_again_and_again_gives_way_once_and_comes_back_later() {
        let start = Instant::now();
        let mut fights = Fights::default();
        for minute in 0..3 {
            assert_eq!(fights.note(start + minute * MINUTE, "a"), Fight::GoOn);
        }
        assert!(!fights.keeps_away(start + 3 * MINUTE, "a"));
        assert_eq!(fights.note(start + 3 * MINUTE, "a"), Fight::GiveWay);
        assert!(fights.keeps_away(start + 4 * MINUTE, "a"));
        assert_eq!(fights.note(start + 4 * MINUTE, "a"), Fight::StayAway);
        assert_eq!(fights.note(start + 4 * MINUTE, "b"), Fight::GoOn, "another claim");
        assert!(!fights.keeps_away(start + 61 * MINUTE, "a"));
        assert_eq!(fights.note(start + 120 * MINUTE, "a"), Fight::GoOn);
    }

    #[test]
    fn fights_without_number_are_not_remembered_without_bound() {
        let start = Instant::now();
        let mut fights = Fights::default();
        for n in 0..REMEMBERED {
            assert_eq!(fights.note(start, &n.to_string()), Fight::GoOn);
        }
        assert_eq!(fights.note(start, "one more"), Fight::StayAway);
        assert_eq!(fights.note(start + 120 * MINUTE, "one more"), Fight::GoOn, "the old ones are forgotten");
    }
}
