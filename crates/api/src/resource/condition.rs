use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use volmedic_health::{Class, Condition, MAX_MESSAGE_BYTES, Reason, Status, sanitize_message};

use super::{limit, schema, time};

/// How serious a condition is: `HealthFailure` if the volume cannot be used, `HealthWarning` if it can, and
/// `HealthUnknown` if the health is unknown.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
pub enum ConditionType {
    HealthUnknown,
    HealthWarning,
    HealthFailure,
}

/// Whether it is so.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
pub enum ConditionStatus {
    True,
    False,
    Unknown,
}

/// One thing that is wrong with a volume, seen from one place. It is removed when it is over.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct HealthCondition {
    #[serde(rename = "type")]
    pub kind: ConditionType,
    /// `True` while it is so; `Unknown` where it is not known any more.
    pub status: ConditionStatus,
    /// What is wrong, as one of the error codes of docs/reasons.md, such as `VolumeNotFound` or `OutOfCapacity`, or as the
    /// driver's own. It is the reason, under the name that other health APIs use. Absent if nobody knows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = limit::REASON))]
    pub error_code: Option<String>,
    /// How bad it is in CSI's words: `Degraded`, `Inaccessible`, `DataLoss`, or `Unrecognized` with the number of a
    /// status that only newer drivers know.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 64))]
    pub severity: Option<String>,
    /// One CamelCase word that machines can act on.
    #[schemars(schema_with = "schema::reason")]
    pub reason: String,
    /// What exactly was seen.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = limit::MESSAGE))]
    pub message: String,
    /// Since when it is so.
    #[schemars(schema_with = "schema::time")]
    pub last_transition_time: Time,
    /// When the hub first knew it with these words. A probe at that time or up to one interval before it found this. It
    /// stays as it is while later probes find the same, so it is never later than the last probe. Absent where no probe
    /// found anything.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::optional_time")]
    pub last_probe_time: Option<Time>,
}

impl HealthCondition {
    pub fn new(condition: &Condition, since: Timestamp) -> Self {
        Self {
            kind: match condition.status.class() {
                Class::HealthFailure => ConditionType::HealthFailure,
                Class::HealthWarning => ConditionType::HealthWarning,
                Class::HealthUnknown => ConditionType::HealthUnknown,
            },
            status: ConditionStatus::True,
            error_code: Some(condition.reason.to_string()),
            severity: Some(condition.status.to_string()),
            reason: condition.reason.to_string(),
            message: condition.message.to_string(),
            last_transition_time: time(since),
            last_probe_time: None,
        }
    }

    /// The health of the volume is not known any more, and why.
    pub fn unknown(reason: &str, message: &str, since: Timestamp) -> Self {
        let mut message = sanitize_message(message).into_owned();
        message.truncate(message.floor_char_boundary(MAX_MESSAGE_BYTES));
        Self {
            kind: ConditionType::HealthUnknown,
            status: ConditionStatus::Unknown,
            error_code: None,
            severity: None,
            reason: Reason::new(reason).to_string(),
            message,
            last_transition_time: time(since),
            last_probe_time: None,
        }
    }

    /// What is wrong, made valid again: who wrote this may have been anybody. `None` for a condition that is not so,
    /// or that says only that nobody knows.
    pub fn condition(&self) -> Option<Condition> {
        if self.status != ConditionStatus::True {
            return None;
        }
        Some(Condition::new(self.severity(), Reason::new(&self.reason), &self.message))
    }

    /// How bad it is. Up to version 0.2 that was in `errorCode`.
    pub fn severity(&self) -> Status {
        let words = [self.severity.as_deref(), self.error_code.as_deref()];
        words.into_iter().flatten().find_map(|word| word.parse().ok()).unwrap_or(match self.kind {
            ConditionType::HealthFailure => Status::Inaccessible,
            ConditionType::HealthWarning => Status::Degraded,
            ConditionType::HealthUnknown => Status::Unrecognized(0),
        })
    }

    /// Whether both speak of the same thing, perhaps in other words or at another time.
    pub fn is_same(&self, other: &Self) -> bool {
        (self.kind, self.status, self.severity(), &self.reason)
            == (other.kind, other.status, other.severity(), &other.reason)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn conditions_survive_the_round_trip() {
        for status in [Status::Degraded, Status::Inaccessible, Status::DataLoss, Status::Unrecognized(9)] {
            let condition = Condition::new(status, Reason::new("SlowIO"), "3 of 4 paths");
            let stored = HealthCondition::new(&condition, Timestamp::UNIX_EPOCH);
            assert_eq!(stored.condition(), Some(condition), "{stored:?}");
        }
    }

    #[test]
    fn the_error_code_is_the_reason_and_the_severity_a_field_of_its_own() {
        let condition = Condition::new(Status::DataLoss, Reason::new("DiskFailure"), "");
        let stored = HealthCondition::new(&condition, Timestamp::UNIX_EPOCH);
        assert_eq!(stored.error_code.as_deref(), Some("DiskFailure"));
        assert_eq!(stored.severity.as_deref(), Some("DataLoss"));
        let before =
            HealthCondition { error_code: Some("DataLoss".into()), severity: None, ..stored.clone() };
        assert_eq!(before.condition(), Some(condition), "as version 0.2 wrote it");
        assert!(before.is_same(&stored), "it is no other condition after an update");
    }

    #[test]
    fn not_knowing_is_no_condition_of_the_volume() {
        let unknown = HealthCondition::unknown("AgentSilent", "nothing heard", Timestamp::UNIX_EPOCH);
        assert_eq!(unknown.condition(), None);
        let over =
            HealthCondition { status: ConditionStatus::False, kind: ConditionType::HealthFailure, ..unknown };
        assert_eq!(over.condition(), None);
    }

    #[test]
    fn what_others_wrote_is_made_valid() {
        let odd = HealthCondition {
            severity: Some("Broken".into()),
            kind: ConditionType::HealthWarning,
            status: ConditionStatus::True,
            reason: "disk bad!".into(),
            message: "two\nlines".into(),
            ..HealthCondition::unknown("X", "", Timestamp::UNIX_EPOCH)
        };
        let read = odd.condition().unwrap();
        assert_eq!((read.status, read.reason.as_str()), (Status::Degraded, "disk_bad_"));
        assert_eq!(&*read.message, "two lines");
    }
}
