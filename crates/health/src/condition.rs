//! One thing that is wrong, and the set of things that are wrong at the same time.

use std::fmt;
use std::sync::Arc;

use crate::{Reason, Status, sanitize};

/// The API server takes no more conditions than this for one volume; the worst are kept.
pub const MAX_CONDITIONS: usize = 16;

/// One thing that is wrong. Its identity is (status, reason); the message may change while it lasts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Condition {
    pub status: Status,
    pub reason: Reason,
    pub message: Arc<str>,
}

impl Condition {
    /// The message is sanitised here, so that every condition can be written to the API server as it is.
    pub fn new(status: Status, reason: Reason, message: &str) -> Self {
        Self { status, reason, message: sanitize::message(message).into() }
    }

    /// Whether both speak of the same thing, perhaps in other words.
    pub fn is_same(&self, other: &Self) -> bool {
        self.status == other.status && self.reason == other.reason
    }

    fn rank(&self) -> (std::cmp::Reverse<Status>, &str) {
        (std::cmp::Reverse(self.status), self.reason.as_str())
    }
}

impl fmt::Display for Condition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.status, self.reason)
    }
}

/// What is wrong with one subject, seen from one vantage: worst first, no (status, reason) twice, at most
/// [`MAX_CONDITIONS`].
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Conditions(Box<[Condition]>);

impl Conditions {
    /// Sorts, drops doubles (the first message wins) and keeps the worst. The order of the input does not
    /// matter but for the messages of doubles.
    pub fn new(conditions: impl IntoIterator<Item = Condition>) -> Self {
        let mut all: Vec<Condition> = conditions.into_iter().collect();
        all.sort_by(|a, b| a.rank().cmp(&b.rank()));
        all.dedup_by(|later, first| later.is_same(first));
        all.truncate(MAX_CONDITIONS);
        Self(all.into_boxed_slice())
    }

    pub fn iter(&self) -> std::slice::Iter<'_, Condition> {
        self.0.iter()
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn len(&self) -> usize {
        self.0.len()
    }

    pub fn worst(&self) -> Option<&Condition> {
        self.0.first()
    }
}

impl<'a> IntoIterator for &'a Conditions {
    type Item = &'a Condition;
    type IntoIter = std::slice::Iter<'a, Condition>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

impl IntoIterator for Conditions {
    type Item = Condition;
    type IntoIter = std::vec::IntoIter<Condition>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.into_vec().into_iter()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::WellKnown;

    fn condition(status: Status, reason: &str, message: &str) -> Condition {
        Condition::new(status, Reason::new(reason), message)
    }

    #[test]
    fn worst_first_and_no_doubles() {
        let set = Conditions::new([
            condition(Status::Degraded, "SlowIO", "first"),
            condition(Status::DataLoss, "LegsLost", ""),
            condition(Status::Degraded, "SlowIO", "second"),
            condition(Status::Unrecognized(9), "Odd", ""),
            condition(Status::Degraded, "MirrorLegLost", ""),
        ]);
        let shown: Vec<String> = set.iter().map(ToString::to_string).collect();
        assert_eq!(
            shown,
            ["DataLoss/LegsLost", "Degraded/MirrorLegLost", "Degraded/SlowIO", "Unrecognized(9)/Odd"]
        );
        assert_eq!(&*set.iter().nth(2).unwrap().message, "first");
    }

    #[test]
    fn a_driver_that_sends_too_many_keeps_its_worst() {
        let many = (0..100).map(|i| condition(Status::Degraded, &format!("R{i:03}"), ""));
        let set = Conditions::new(many.chain([condition(Status::Inaccessible, "Zzz", "")]));
        assert_eq!(set.len(), MAX_CONDITIONS);
        assert_eq!(set.worst().unwrap().reason.as_str(), "Zzz");
    }

    #[test]
    fn a_driver_that_spells_a_well_known_reason_means_it() {
        assert_eq!(Reason::new("VolumeNotFound"), Reason::from(WellKnown::VolumeNotFound));
    }
}
