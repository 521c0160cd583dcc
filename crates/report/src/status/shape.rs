//! `pvc.status.healthStatus` as JSON. No crate knows this field yet.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use volmedic_health::{Condition, Conditions, Reason, Status};

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct HealthStatus {
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) health_conditions: Vec<HealthCondition>,
    /// The server writes `null` for a time that was never set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) last_transition_time: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) struct HealthCondition {
    pub(crate) status: String,
    pub(crate) reason: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub(crate) message: String,
}

impl HealthStatus {
    pub(crate) fn new(conditions: &Conditions, at: Timestamp) -> Self {
        let health_conditions = conditions.iter().filter_map(HealthCondition::of).collect();
        Self { health_conditions, last_transition_time: Some(format!("{at:.0}")) }
    }

    pub(crate) fn conditions(&self) -> Conditions {
        Conditions::new(self.health_conditions.iter().map(HealthCondition::read))
    }

    pub(crate) fn time(&self) -> Option<Timestamp> {
        self.last_transition_time.as_ref()?.parse().ok()
    }

    /// (status, reason) of each condition, in a stable order.
    pub(crate) fn set(&self) -> Vec<(&str, &str)> {
        let mut set: Vec<_> = self.health_conditions.iter().map(|c| (&*c.status, &*c.reason)).collect();
        set.sort_unstable();
        set
    }
}

impl HealthCondition {
    /// `None` for a status the API has no word for.
    fn of(condition: &Condition) -> Option<Self> {
        let Condition { status, reason, message } = condition;
        let status = status.api_value()?.to_owned();
        Some(Self { status, reason: reason.to_string(), message: message.to_string() })
    }

    fn read(&self) -> Condition {
        Condition::new(Status::of_word(&self.status), Reason::new(&self.reason), &self.message)
    }
}

/// As much of a claim as we read.
#[derive(Debug, Clone, Default, Deserialize)]
pub(crate) struct Claim {
    #[serde(default)]
    pub(crate) metadata: ClaimMeta,
    #[serde(default)]
    pub(crate) status: ClaimStatus,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ClaimMeta {
    #[serde(default)]
    pub(crate) name: String,
    #[serde(default)]
    pub(crate) namespace: String,
    #[serde(default)]
    pub(crate) uid: String,
    #[serde(default)]
    pub(crate) resource_version: String,
    #[serde(default)]
    pub(crate) managed_fields: Vec<Manager>,
}

#[derive(Debug, Clone, Default, Deserialize)]
pub(crate) struct Manager {
    #[serde(default)]
    pub(crate) manager: String,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ClaimStatus {
    #[serde(default)]
    pub(crate) health_status: Option<HealthStatus>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_what_the_server_takes() {
        let at = "2026-08-21T10:02:00.7Z".parse().unwrap();
        let conditions = Conditions::new([
            Condition::new(Status::Degraded, Reason::new("SlowIO"), ""),
            Condition::new(Status::Unrecognized(9), Reason::new("Odd"), "never in an API enum"),
            Condition::new(Status::DataLoss, Reason::new("LegsLost"), "2 of 2"),
        ]);
        let written = serde_json::to_value(HealthStatus::new(&conditions, at)).unwrap();
        let expected = serde_json::json!({
            "healthConditions": [
                {"status": "DataLoss", "reason": "LegsLost", "message": "2 of 2"},
                {"status": "Degraded", "reason": "SlowIO"},
            ],
            "lastTransitionTime": "2026-08-21T10:02:00Z",
        });
        assert_eq!(written, expected);
    }

    #[test]
    fn what_is_read_may_be_empty_or_strange() {
        let read = |text: &str| serde_json::from_str::<HealthStatus>(text).unwrap();
        assert_eq!(read(r#"{"lastTransitionTime":null}"#).time(), None);
        let odd = r#"{"healthConditions":[{"status":"Haunted","reason":"X"},{"status":"Degraded","reason":"Y","new":1}]}"#;
        let shown: Vec<String> = read(odd).conditions().iter().map(ToString::to_string).collect();
        assert_eq!(shown, ["Degraded/Y", "Unrecognized(0)/X"], "a word that we do not know is never health");
    }
}
