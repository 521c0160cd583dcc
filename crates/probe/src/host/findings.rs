//! What the checks of one look found, by check.

use volmedic_health::{Condition, Status, WellKnown};

/// The checks, as far as what they found is remembered apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Check {
    Mounted,
    Writable,
    Answers,
    Fullness,
    Counters,
    Device,
    Stalled,
}

impl Check {
    pub(super) const ALL: [Self; 7] = [
        Self::Mounted,
        Self::Writable,
        Self::Answers,
        Self::Fullness,
        Self::Counters,
        Self::Device,
        Self::Stalled,
    ];
}

/// What one check came to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Verdict {
    /// It was done, and this is all it found.
    Seen(Vec<Finding>),
    /// It could not be done this time, through no fault of the volume: what it found before still stands.
    Unseen,
}

impl Verdict {
    pub(super) fn fine() -> Self {
        Self::Seen(Vec::new())
    }
}

impl From<Option<Finding>> for Verdict {
    fn from(found: Option<Finding>) -> Self {
        Self::Seen(found.into_iter().collect())
    }
}

/// One thing that is wrong.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Finding {
    pub(super) status: Status,
    pub(super) reason: WellKnown,
    pub(super) message: String,
}

impl Finding {
    pub(super) fn inaccessible(reason: WellKnown, message: impl Into<String>) -> Self {
        Self { status: Status::Inaccessible, reason, message: message.into() }
    }

    pub(super) fn degraded(reason: WellKnown, message: impl Into<String>) -> Self {
        Self { status: Status::Degraded, reason, message: message.into() }
    }
}

/// As conditions. The same trouble in several places is one condition that names all of them.
pub(super) fn conditions<'f>(found: impl IntoIterator<Item = &'f Finding>) -> Vec<Condition> {
    let mut merged: Vec<Finding> = Vec::new();
    for finding in found {
        let same = |other: &&mut Finding| (other.status, other.reason) == (finding.status, finding.reason);
        match merged.iter_mut().find(same) {
            Some(other) if other.message.contains(&finding.message) => {}
            Some(other) => {
                other.message.push_str("; ");
                other.message.push_str(&finding.message);
            }
            None => merged.push(finding.clone()),
        }
    }
    merged.iter().map(|found| Condition::new(found.status, found.reason.into(), &found.message)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_trouble_in_two_places_is_one_condition_with_both() {
        let gone =
            |place: &str| Finding::inaccessible(WellKnown::VolumeUnmounted, format!("{place} is bare"));
        let full = Finding::degraded(WellKnown::OutOfCapacity, "99 % used");
        let reported = conditions(&[gone("/a"), full, gone("/b"), gone("/a")]);
        let shown: Vec<String> = reported.iter().map(|c| format!("{c}: {}", c.message)).collect();
        assert_eq!(
            shown,
            ["Inaccessible/VolumeUnmounted: /a is bare; /b is bare", "Degraded/OutOfCapacity: 99 % used"]
        );
    }
}
