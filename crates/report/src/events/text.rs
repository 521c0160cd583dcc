//! Which reason an event gets, and its text.

use volmedic_health::{Change, Ending, Subject, Transition, WellKnown};

/// The API server's limit for the newer kind of event, which `kubectl` can show in full.
const MAX_MESSAGE: usize = 1024;

/// A reason of our events, whether it is a warning, and what it means; for the documentation.
pub type EventReason = (&'static str, bool, &'static str);

const ABNORMAL: EventReason = (
    "VolumeConditionAbnormal",
    true,
    "Something is wrong with the volume; repeated as a reminder while it lasts",
);
const NORMAL: EventReason = ("VolumeConditionNormal", false, "What was wrong with the volume is over");
const NODE_FAILED: EventReason =
    ("NodeFailed", true, "The node is down on which pods use the volume; repeated while it lasts");
const NODE_RECOVERED: EventReason = ("NodeRecovered", false, "The node is back on which pods use the volume");
const UNKNOWN: EventReason =
    ("VolumeConditionUnknown", true, "The volume has not been seen for a while; what was known of it stands");
const KNOWN: EventReason = ("VolumeConditionKnown", false, "The volume is seen again");
const FLAPPING: EventReason = (
    "VolumeConditionFlapping",
    true,
    "The volume's health changes so often that single changes are no longer reported",
);
const SETTLED: EventReason =
    ("VolumeConditionSettled", false, "The volume's health changes no longer so often");
const UNWATCHED: EventReason = (
    "VolumeConditionUnwatched",
    false,
    "The volume is no longer watched from there; what was reported is closed",
);
const STORAGE_ABNORMAL: EventReason =
    ("StorageConditionAbnormal", true, "Something is wrong with the storage behind the driver");
const STORAGE_NORMAL: EventReason =
    ("StorageConditionNormal", false, "What was wrong with the storage behind the driver is over");
const STORAGE_UNKNOWN: EventReason =
    ("StorageConditionUnknown", true, "The storage behind the driver has not been seen for a while");
const STORAGE_KNOWN: EventReason =
    ("StorageConditionKnown", false, "The storage behind the driver is seen again");

/// Every reason that our events can have.
pub const EVENT_REASONS: &[EventReason] = &[
    ABNORMAL,
    NORMAL,
    NODE_FAILED,
    NODE_RECOVERED,
    UNKNOWN,
    KNOWN,
    FLAPPING,
    SETTLED,
    UNWATCHED,
    STORAGE_ABNORMAL,
    STORAGE_NORMAL,
    STORAGE_UNKNOWN,
    STORAGE_KNOWN,
];

/// The reason of a transition's event, or `None` if it is not worth one.
pub(crate) fn reason(transition: &Transition) -> Option<EventReason> {
    let volume = matches!(transition.subject, Subject::Volume(_));
    let either = |ours, backends| if volume { ours } else { backends };
    let is_node_down =
        |condition: &volmedic_health::Condition| condition.reason.well_known() == Some(WellKnown::NodeDown);
    Some(match &transition.change {
        Change::Reworded { .. } => return None,
        Change::Appeared { condition, .. }
        | Change::Reminder { condition, .. }
        | Change::Changed { to: condition, .. } => {
            if is_node_down(condition) {
                NODE_FAILED
            } else {
                either(ABNORMAL, STORAGE_ABNORMAL)
            }
        }
        Change::Cleared { ending: Ending::LeftInventory | Ending::VantageGone, .. }
        | Change::Settled { ending: Ending::LeftInventory | Ending::VantageGone, .. }
        | Change::SeesAgain { ending: Ending::LeftInventory | Ending::VantageGone, .. } => UNWATCHED,
        Change::Cleared { condition, ending: Ending::Recovered, .. } => {
            if is_node_down(condition) {
                NODE_RECOVERED
            } else {
                either(NORMAL, STORAGE_NORMAL)
            }
        }
        Change::Flapping { .. } => FLAPPING,
        Change::Settled { ending: Ending::Recovered, .. } => SETTLED,
        Change::WentBlind { .. } => either(UNKNOWN, STORAGE_UNKNOWN),
        Change::SeesAgain { ending: Ending::Recovered, .. } => either(KNOWN, STORAGE_KNOWN),
    })
}

/// The transition's own sentence, after what the volume is called here, cut to what an event may hold.
pub(crate) fn message(transition: &Transition, known_as: Option<&str>) -> String {
    cut(match known_as {
        Some(name) => format!("{name}: {transition}"),
        None => transition.to_string(),
    })
}

/// To what an event may hold.
pub(crate) fn cut(mut text: String) -> String {
    if text.len() > MAX_MESSAGE {
        let room = MAX_MESSAGE - '…'.len_utf8();
        let end = (0..=room).rev().find(|&end| text.is_char_boundary(end)).unwrap_or(0);
        text.truncate(end);
        text.push('…');
    }
    text
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;
    use volmedic_health::{Condition, Conditions, Reason, Status, Vantage, Why, WhyKind};

    use super::*;

    fn named(subject: Subject, change: Change) -> &'static str {
        let (at, vantage) = (Timestamp::UNIX_EPOCH, Vantage::Controller);
        reason(&Transition { at, subject, vantage, change }).map_or("none", |(name, _, _)| name)
    }

    #[test]
    fn the_names_that_alerts_are_made_of() {
        let since = Timestamp::UNIX_EPOCH;
        let of = |reason: &str| Condition::new(Status::Inaccessible, Reason::new(reason), "");
        let volume = |change| named(Subject::volume("d", "v"), change);
        let (disk, node) = (|| of("DiskFailure"), || of("NodeDown"));
        let appeared = |condition| Change::Appeared { condition, since };
        let cleared = |condition, ending| Change::Cleared { condition, since, ending };
        assert_eq!(volume(appeared(disk())), "VolumeConditionAbnormal");
        assert_eq!(volume(Change::Changed { from: disk(), to: disk(), since }), "VolumeConditionAbnormal");
        assert_eq!(volume(Change::Reminder { condition: disk(), since }), "VolumeConditionAbnormal");
        assert_eq!(volume(Change::Reworded { condition: disk(), since }), "none");
        assert_eq!(volume(cleared(disk(), Ending::Recovered)), "VolumeConditionNormal");
        assert_eq!(volume(cleared(disk(), Ending::VantageGone)), "VolumeConditionUnwatched");
        assert_eq!(volume(appeared(node())), "NodeFailed");
        assert_eq!(volume(cleared(node(), Ending::Recovered)), "NodeRecovered");
        let blind = || Change::WentBlind { why: Why::new(WhyKind::Silent, ""), since, looks: 3 };
        assert_eq!(volume(blind()), "VolumeConditionUnknown");
        assert_eq!(volume(Change::SeesAgain { since, ending: Ending::Recovered }), "VolumeConditionKnown");
        let flapping = Change::Flapping { changes: 9, since, now: Conditions::default() };
        assert_eq!(volume(flapping), "VolumeConditionFlapping");
        assert_eq!(volume(Change::Settled { since, ending: Ending::Recovered }), "VolumeConditionSettled");
        assert_eq!(named(Subject::backend("d"), blind()), "StorageConditionUnknown");
        assert_eq!(named(Subject::backend("d"), appeared(disk())), "StorageConditionAbnormal");
    }

    #[test]
    fn a_long_sentence_is_cut_at_a_character() {
        let long = cut("ü".repeat(2_000));
        assert!(long.len() <= MAX_MESSAGE && long.ends_with("ü…"), "{}", long.len());
        assert_eq!(cut("short".to_owned()), "short");
    }
}
