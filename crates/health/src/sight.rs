//! What one look saw.

use std::fmt;
use std::sync::Arc;

use crate::{Condition, Conditions, Reason, Status, WellKnown, sanitize};

/// What one probe of one subject, from one vantage, saw.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Sight {
    /// It was checked, and nothing is wrong. Clears immediately.
    Healthy,
    /// It is absent from a complete list of *unhealthy* volumes. That is health, but weak evidence of
    /// recovery: what is believed is cleared only when it happens twice in a row.
    Unlisted,
    /// This is what is wrong; it replaces what was believed from this vantage.
    Adverse(Conditions),
    /// Who should know the volume does not: `NOT_FOUND`, or absent from a complete list of *all* volumes.
    /// Becomes `Inaccessible/VolumeNotFound` when it happens twice in a row.
    Missing(Arc<str>),
    /// Nothing was learnt. Never heals, never harms; if it lasts, health is unknown, which is said once.
    NotSeen(Why),
}

impl Sight {
    /// Adverse, or healthy if there is nothing in it.
    pub fn adverse(conditions: impl IntoIterator<Item = Condition>) -> Self {
        let conditions = Conditions::new(conditions);
        if conditions.is_empty() { Self::Healthy } else { Self::Adverse(conditions) }
    }

    pub fn missing(message: &str) -> Self {
        Self::Missing(sanitize::message(message).into())
    }

    pub fn not_seen(kind: WhyKind, detail: &str) -> Self {
        Self::NotSeen(Why::new(kind, detail))
    }

    /// From the older dialect's `VolumeCondition`. One that is absent says nothing, and nothing is not health.
    pub fn from_volume_condition(condition: Option<(bool, &str)>) -> Self {
        match condition {
            None => Self::not_seen(WhyKind::NoAnswer, "the driver sent no condition for the volume"),
            Some((false, _)) => Self::Healthy,
            Some((true, message)) => {
                let message = if message.trim().is_empty() { "the driver gave no message" } else { message };
                Self::adverse([Condition::new(
                    Status::Degraded,
                    WellKnown::VolumeConditionAbnormal.into(),
                    message,
                )])
            }
        }
    }

    /// From the newer dialect's `health_statuses`, as (status number, reason, message). Numbers we do not
    /// know are kept as such: they are never health.
    pub fn from_volume_health<'a>(entries: impl IntoIterator<Item = (i32, &'a str, &'a str)>) -> Self {
        Self::adverse(entries.into_iter().map(|(status, reason, message)| {
            Condition::new(Status::from_volume_number(status), Reason::new(reason), message)
        }))
    }
}

/// Why a check saw nothing: a kind of a fixed set for counting, and a text for people.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Why {
    pub kind: WhyKind,
    pub detail: Arc<str>,
}

impl Why {
    pub fn new(kind: WhyKind, detail: &str) -> Self {
        Self { kind, detail: sanitize::message(detail).into() }
    }
}

impl fmt::Display for Why {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.detail.is_empty() { self.kind.fmt(f) } else { write!(f, "{}: {}", self.kind, self.detail) }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum WhyKind {
    /// Who should answer cannot be reached.
    Unreachable,
    /// The answer did not come in time.
    TimedOut,
    /// The answer was an error.
    Failed,
    /// There was an answer, but it said nothing about health.
    NoAnswer,
    /// A list broke off before it reached this volume.
    Incomplete,
    /// The answer could not be understood.
    Malformed,
    /// The reporter of that vantage has not responded for too long.
    Silent,
}

impl fmt::Display for WhyKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Unreachable => "cannot be reached",
            Self::TimedOut => "no answer in time",
            Self::Failed => "answered with an error",
            Self::NoAnswer => "says nothing about health",
            Self::Incomplete => "the list broke off",
            Self::Malformed => "the answer makes no sense",
            Self::Silent => "silent for too long",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(sight: &Sight) -> String {
        match sight {
            Sight::Adverse(set) => {
                set.iter().map(|c| format!("{c} {}", c.message)).collect::<Vec<_>>().join("; ")
            }
            Sight::NotSeen(why) => why.to_string(),
            other => format!("{other:?}"),
        }
    }

    #[test]
    fn the_older_dialect() {
        assert_eq!(Sight::from_volume_condition(Some((false, ""))), Sight::Healthy);
        assert_eq!(Sight::from_volume_condition(Some((false, "fine"))), Sight::Healthy);
        let abnormal = Sight::from_volume_condition(Some((true, "LUN 7 offline")));
        assert_eq!(shown(&abnormal), "Degraded/VolumeConditionAbnormal LUN 7 offline");
        let wordless = Sight::from_volume_condition(Some((true, " ")));
        assert_eq!(shown(&wordless), "Degraded/VolumeConditionAbnormal the driver gave no message");
        let absent = Sight::from_volume_condition(None);
        assert_eq!(shown(&absent), "says nothing about health: the driver sent no condition for the volume");
    }

    #[test]
    fn the_newer_dialect() {
        assert_eq!(Sight::from_volume_health([]), Sight::Healthy);
        let both = Sight::from_volume_health([(1, "SlowIO", ""), (2, "PathsDown", "0 of 4")]);
        assert_eq!(shown(&both), "Inaccessible/PathsDown 0 of 4; Degraded/SlowIO ");
    }

    #[test]
    fn a_status_number_we_do_not_know_is_not_health() {
        let odd = Sight::from_volume_health([(42, "Haunted", "boo")]);
        assert_eq!(shown(&odd), "Unrecognized(42)/Haunted boo");
        let zero = Sight::from_volume_health([(0, "", "")]);
        assert_eq!(shown(&zero), "Unrecognized(0)/Unspecified ");
    }
}
