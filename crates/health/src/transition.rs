//! What changed, reported once, with its reason.

use std::fmt;

use jiff::{SignedDuration, Timestamp};

use crate::{Condition, Conditions, Subject, Vantage, Why};

/// One change of what is believed. Its `Display` is the sentence that the event, the log and the page show.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Transition {
    pub at: Timestamp,
    pub subject: Subject,
    pub vantage: Vantage,
    pub change: Change,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change {
    /// Something went wrong.
    Appeared { condition: Condition, since: Timestamp },
    /// The same trouble got worse or better.
    Changed { from: Condition, to: Condition, since: Timestamp },
    /// The same trouble, in new words. For durable state; not worth an event.
    Reworded { condition: Condition, since: Timestamp },
    /// It is still so.
    Reminder { condition: Condition, since: Timestamp },
    /// It is over.
    Cleared { condition: Condition, since: Timestamp, ending: Ending },
    /// It changes so often that its changes are no longer reported one by one.
    Flapping { changes: u32, since: Timestamp, now: Conditions },
    /// Flapping is over; what was not reported meanwhile follows as changes of its own.
    Settled { since: Timestamp, ending: Ending },
    /// Looks have failed for so long that we no longer know.
    WentBlind { why: Why, since: Timestamp, looks: u32 },
    /// A check succeeded again.
    SeesAgain { since: Timestamp, ending: Ending },
}

/// How something ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Ending {
    /// It was checked and found healthy.
    Recovered,
    /// The volume left the inventory: deleted, released, or no longer ours to watch.
    LeftInventory,
    /// The prober of that vantage is gone, such as a deleted node.
    VantageGone,
}

impl Change {
    /// Whether this is bad news, good news being everything that ends something.
    pub fn is_warning(&self) -> bool {
        match self {
            Self::Appeared { .. }
            | Self::Reworded { .. }
            | Self::Reminder { .. }
            | Self::Flapping { .. }
            | Self::WentBlind { .. } => true,
            Self::Changed { from, to, .. } => to.status >= from.status,
            Self::Cleared { .. } | Self::Settled { .. } | Self::SeesAgain { .. } => false,
        }
    }

    /// A word for counting and for machines.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Appeared { .. } => "appeared",
            Self::Changed { .. } => "changed",
            Self::Reworded { .. } => "reworded",
            Self::Reminder { .. } => "reminder",
            Self::Cleared { .. } => "cleared",
            Self::Flapping { .. } => "flapping",
            Self::Settled { .. } => "settled",
            Self::WentBlind { .. } => "went_blind",
            Self::SeesAgain { .. } => "sees_again",
        }
    }
}

impl fmt::Display for Transition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { at, subject, vantage, change } = self;
        let after = |since: &Timestamp| Age(at.duration_since(*since));
        match change {
            Change::Appeared { condition, since } => {
                write!(
                    f,
                    "{subject} is {condition}{}, seen by {vantage} since {since:.0}. ",
                    Words(condition)
                )?;
                write!(f, "Next: {}", condition.reason.advice())
            }
            Change::Changed { from, to, since } => {
                let direction = if to.status >= from.status { "got worse" } else { "got better" };
                write!(f, "{subject} {direction}: {from} is now {to}{}, ", Words(to))?;
                write!(f, "seen by {vantage} since {since:.0}. Next: {}", to.reason.advice())
            }
            Change::Reworded { condition, since } => {
                write!(
                    f,
                    "{subject} is still {condition}{}, seen by {vantage} since {since:.0}",
                    Words(condition)
                )
            }
            Change::Reminder { condition, since } => {
                write!(
                    f,
                    "{subject} is still {condition}{}, seen by {vantage} since {since:.0}, ",
                    Words(condition)
                )?;
                write!(f, "{} ago. Next: {}", after(since), condition.reason.advice())
            }
            Change::Cleared { condition, since, ending } => match ending {
                Ending::Recovered => {
                    write!(
                        f,
                        "{subject} recovered from {condition} after {}, seen by {vantage}",
                        after(since)
                    )
                }
                Ending::LeftInventory => {
                    write!(
                        f,
                        "{subject} is no longer watched; its {condition}, seen by {vantage} since {since:.0}, is closed"
                    )
                }
                Ending::VantageGone => {
                    write!(
                        f,
                        "{vantage} is gone; {condition} of {subject}, seen from there since {since:.0}, is closed"
                    )
                }
            },
            Change::Flapping { changes, since, now } => {
                write!(f, "{subject} changed {changes} times since {since:.0}, seen by {vantage}; ")?;
                f.write_str("further changes are not reported until it settles. Right now it is ")?;
                match now.worst() {
                    Some(worst) => write!(f, "{worst}{}", Words(worst)),
                    None => f.write_str("healthy"),
                }
            }
            Change::Settled { since, ending } => match ending {
                Ending::Recovered => {
                    write!(f, "{subject} settled after flapping for {}, seen by {vantage}", after(since))
                }
                Ending::LeftInventory => write!(f, "{subject} is no longer watched; its flapping is closed"),
                Ending::VantageGone => write!(f, "{vantage} is gone; the flapping of {subject} is closed"),
            },
            Change::WentBlind { why, since, looks } => {
                write!(
                    f,
                    "{subject} has not been seen by {vantage} since {since:.0} ({looks} looks failed): {why}. "
                )?;
                f.write_str(
                    "What was known of it stands. Next: check that the storage driver runs and answers.",
                )
            }
            Change::SeesAgain { since, ending } => match ending {
                Ending::Recovered => write!(f, "{subject} is seen again by {vantage} after {}", after(since)),
                Ending::LeftInventory => write!(f, "{subject} is no longer watched; not seeing it is closed"),
                Ending::VantageGone => {
                    write!(f, "{vantage} is gone; not seeing {subject} from there is closed")
                }
            },
        }
    }
}

/// What the condition says of itself, if it says anything.
struct Words<'a>(&'a Condition);

impl fmt::Display for Words<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = self.0.message.trim_end_matches('.');
        if text.is_empty() { Ok(()) } else { write!(f, " ({text})") }
    }
}

/// A duration as people say it: the two largest units.
struct Age(SignedDuration);

impl fmt::Display for Age {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seconds = self.0.as_secs().max(0);
        let (days, hours, minutes) = (seconds / 86_400, seconds / 3_600 % 24, seconds / 60 % 60);
        match (days, hours, minutes) {
            (0, 0, 0) => write!(f, "{seconds} s"),
            (0, 0, _) => write!(f, "{minutes} min {} s", seconds % 60),
            (0, _, _) => write!(f, "{hours} h {minutes} min"),
            _ => write!(f, "{days} d {hours} h"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Reason, Status, WhyKind};

    fn tell(change: Change) -> String {
        Transition {
            at: "2026-08-21T10:14:30Z".parse().unwrap(),
            subject: Subject::volume("disk.example.net", "vol-1"),
            vantage: Vantage::Node("worker-7".into()),
            change,
        }
        .to_string()
    }

    fn since() -> Timestamp {
        "2026-08-21T10:02:00Z".parse().unwrap()
    }

    fn full(status: Status) -> Condition {
        Condition::new(status, Reason::new("OutOfCapacity"), "99 % used.")
    }

    #[test]
    fn sentences_a_person_is_paged_with() {
        let check = |change, expected: &str| assert_eq!(tell(change), expected);
        check(
            Change::Appeared { condition: full(Status::Degraded), since: since() },
            "volume vol-1 of disk.example.net is Degraded/OutOfCapacity (99 % used), seen by the driver on node \
             worker-7 since 2026-08-21T10:02:00Z. Next: Free space in the volume or expand the claim.",
        );
        check(
            Change::Cleared { condition: full(Status::Degraded), since: since(), ending: Ending::Recovered },
            "volume vol-1 of disk.example.net recovered from Degraded/OutOfCapacity after 12 min 30 s, seen by the \
             driver on node worker-7",
        );
        check(
            Change::Changed { from: full(Status::Degraded), to: full(Status::Inaccessible), since: since() },
            "volume vol-1 of disk.example.net got worse: Degraded/OutOfCapacity is now Inaccessible/OutOfCapacity \
             (99 % used), seen by the driver on node worker-7 since 2026-08-21T10:02:00Z. Next: Free space in the \
             volume or expand the claim.",
        );
        check(
            Change::WentBlind {
                why: Why::new(WhyKind::TimedOut, "NodeGetVolumeHealth took longer than 15 s"),
                since: since(),
                looks: 3,
            },
            "volume vol-1 of disk.example.net has not been seen by the driver on node worker-7 since \
             2026-08-21T10:02:00Z (3 looks failed): no answer in time: NodeGetVolumeHealth took longer than 15 s. \
             What was known of it stands. Next: check that the storage driver runs and answers.",
        );
        check(
            Change::Flapping { changes: 7, since: since(), now: Conditions::default() },
            "volume vol-1 of disk.example.net changed 7 times since 2026-08-21T10:02:00Z, seen by the driver on \
             node worker-7; further changes are not reported until it settles. Right now it is healthy",
        );
        check(
            Change::SeesAgain { since: since(), ending: Ending::Recovered },
            "volume vol-1 of disk.example.net is seen again by the driver on node worker-7 after 12 min 30 s",
        );
    }

    #[test]
    fn good_news_and_bad_news() {
        let changed = |from, to| Change::Changed { from: full(from), to: full(to), since: since() };
        assert!(changed(Status::Degraded, Status::DataLoss).is_warning());
        assert!(!changed(Status::DataLoss, Status::Degraded).is_warning());
        assert!(!Change::SeesAgain { since: since(), ending: Ending::Recovered }.is_warning());
    }

    #[test]
    fn ages_as_people_say_them() {
        let check =
            |seconds, expected| assert_eq!(Age(SignedDuration::from_secs(seconds)).to_string(), expected);
        check(-5, "0 s");
        check(59, "59 s");
        check(750, "12 min 30 s");
        check(7_500, "2 h 5 min");
        check(200_000, "2 d 7 h");
    }
}
