//! What the API server was given, as anybody can read it.

use std::collections::BTreeSet;
use std::time::Duration;

use serde_json::Value;

use crate::server::Written;

/// What an event is about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum About {
    /// `Status/Reason`.
    Condition(String),
    /// That the volume cannot be probed, or changes too often.
    View(String),
}

/// One write of an event.
#[derive(Debug, Clone)]
pub(super) struct News {
    pub(super) at: Duration,
    pub(super) claim: String,
    pub(super) is_warning: bool,
    pub(super) about: About,
    /// How many occurrences it adds.
    pub(super) times: usize,
}

impl News {
    pub(super) fn read(written: &Written) -> Option<Self> {
        if written.resource != "events" {
            return None;
        }
        let Written { before, after, .. } = written;
        let story: Value =
            serde_json::from_str(after["metadata"]["annotations"]["volmedic.dev/story"].as_str()?).ok()?;
        let about = match story["about"].as_str()? {
            "condition" => {
                About::Condition(format!("{}/{}", story["status"].as_str()?, story["reason"].as_str()?))
            }
            other => About::View(other.to_owned()),
        };
        let count = |event: &Value| event["count"].as_u64().unwrap_or(0);
        Some(Self {
            at: written.at,
            claim: after["involvedObject"]["name"].as_str()?.to_owned(),
            is_warning: after["type"] == "Warning",
            about,
            times: usize::try_from(count(after).saturating_sub(count(before))).ok()?,
        })
    }
}

/// The conditions in a claim's status.
pub(super) fn claim(claim: Option<Value>) -> BTreeSet<String> {
    conditions(&claim.unwrap_or_default()["status"]["healthStatus"], "status")
}

/// The conditions that the controller stored for the hub.
pub(super) fn health(health: Option<Value>) -> BTreeSet<String> {
    conditions(&health.unwrap_or_default()["status"]["controllerReport"], "severity")
}

/// `status` is the field that holds the status.
fn conditions(of: &Value, status: &str) -> BTreeSet<String> {
    let all = of["healthConditions"].as_array().into_iter().flatten();
    let word = |condition: &Value| {
        Some(format!("{}/{}", condition[status].as_str()?, condition["reason"].as_str()?))
    };
    all.filter_map(word).collect()
}
