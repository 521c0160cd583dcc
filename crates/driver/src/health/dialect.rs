//! The same findings in both dialects of CSI.

use volmedic_health::{Condition, Conditions, MAX_MESSAGE_BYTES, Status};
use volmedic_proto::csi::{
    VolumeCondition, VolumeHealth, VolumeHealthErrorType, volume_health::VolumeHealthEntry,
};

/// For the health calls: worst first, no pair of status and reason twice.
pub fn to_volume_health(volume_id: &str, conditions: &[Condition]) -> VolumeHealth {
    let entries =
        Conditions::new(conditions.iter().cloned()).into_iter().map(|condition| VolumeHealthEntry {
            status: number(condition.status),
            reason: condition.reason.as_str().to_owned(),
            message: condition.message.to_string(),
        });
    VolumeHealth { volume_id: volume_id.to_owned(), health_statuses: entries.collect() }
}

/// For the older calls: one flag, and one text that holds everything, worst first.
pub fn to_volume_condition(conditions: &[Condition]) -> VolumeCondition {
    let sorted = Conditions::new(conditions.iter().cloned());
    if sorted.is_empty() {
        return VolumeCondition { abnormal: false, message: "the volume is in good order".to_owned() };
    }
    let texts: Vec<String> =
        sorted.iter().map(|condition| format!("{condition}: {}", condition.message)).collect();
    VolumeCondition { abnormal: true, message: cut(texts.join("; ")) }
}

fn number(status: Status) -> i32 {
    match status {
        Status::Degraded => VolumeHealthErrorType::Degraded.into(),
        Status::Inaccessible => VolumeHealthErrorType::Inaccessible.into(),
        Status::DataLoss => VolumeHealthErrorType::DataLoss.into(),
        Status::Unrecognized(number) => number,
    }
}

/// The text ends up in an event; what would not fit there is cut, and the cut is shown.
fn cut(mut text: String) -> String {
    const MARK: &str = "...";
    if text.len() > MAX_MESSAGE_BYTES {
        let end = text.floor_char_boundary(MAX_MESSAGE_BYTES - MARK.len());
        text.truncate(end);
        text.push_str(MARK);
    }
    text
}

#[cfg(test)]
mod tests {
    use volmedic_health::{Reason, WellKnown};

    use super::*;

    fn conditions() -> Vec<Condition> {
        let full = || Condition::new(Status::Degraded, WellKnown::OutOfCapacity.into(), "99 % used");
        let hung =
            Condition::new(Status::Inaccessible, WellKnown::IOHung.into(), "readdir did not come back");
        vec![full(), hung, full()]
    }

    #[test]
    fn the_health_dialect_has_each_pair_once_and_the_worst_first() {
        let health = to_volume_health("v", &conditions());
        let entries: Vec<_> =
            health.health_statuses.iter().map(|entry| (entry.status, entry.reason.as_str())).collect();
        assert_eq!(entries, [(2, "IOHung"), (1, "OutOfCapacity")]);
        assert_eq!(health.volume_id, "v");
        assert!(to_volume_health("v", &[]).health_statuses.is_empty());
    }

    #[test]
    fn the_older_dialect_says_everything_in_one_text() {
        let condition = to_volume_condition(&conditions());
        assert!(condition.abnormal);
        assert_eq!(
            condition.message,
            "Inaccessible/IOHung: readdir did not come back; Degraded/OutOfCapacity: 99 % used"
        );
        let fine = to_volume_condition(&[]);
        assert!(!fine.abnormal && !fine.message.is_empty(), "the message is required even then");
    }

    #[test]
    fn a_text_that_is_too_long_is_cut_and_shows_it() {
        let long: Vec<Condition> = (0..16)
            .map(|n| Condition::new(Status::Degraded, Reason::new(&format!("R{n}")), &"ü".repeat(200)))
            .collect();
        let message = to_volume_condition(&long).message;
        assert!(message.len() <= MAX_MESSAGE_BYTES && message.ends_with("..."));
    }
}
