//! What a role must answer so that it can be shown.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use serde::Serialize;

use crate::{History, Moment, Row};

/// What knows about volumes. Called from a thread that may wait, but not for long.
pub trait Source: Send + Sync + 'static {
    /// Every volume, in any order; also those that could not be probed, with why.
    fn rows(&self) -> Vec<Row>;

    /// What the source is, and what it does not know.
    fn about(&self) -> About;

    /// What changed lately.
    fn history(&self) -> &History;

    /// What changed about one volume, oldest first, for sources that keep more than [`history`](Self::history) has.
    fn story(&self, driver: &str, volume: &str) -> Vec<Arc<Moment>> {
        self.history().of(driver, volume)
    }

    /// What was done to heal a volume, newest first.
    fn heals(&self, _driver: &str, _volume: &str) -> Vec<Heal> {
        Vec::new()
    }

    /// Why there is nothing to show here, in a sentence that says where there is; such as in a replica that does not
    /// lead. Unknown must not be shown as absent.
    fn standing_by(&self) -> Option<String> {
        None
    }

    /// Nodes, and what is known of them besides the volumes used there.
    fn nodes(&self) -> Vec<NodeState> {
        Vec::new()
    }
}

/// What the source is.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct About {
    /// As in `driver.volmedic.dev`.
    pub title: String,
    /// The role and what it reads, as in `watch on unix:///run/csi.sock`.
    pub place: String,
    /// Names and values, in the order in which they are shown.
    #[serde(serialize_with = "as_map")]
    pub facts: Vec<(&'static str, String)>,
    /// What cannot be seen from here, and what that means: a sentence each.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub limits: Vec<String>,
    /// Something is wrong with the source itself, such as a driver that does not answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub trouble: Option<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub calls: Vec<Call>,
}

/// How one kind of call to a driver went.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Call {
    pub name: &'static str,
    pub count: u64,
    pub failed: u64,
    /// Of the latest calls.
    #[serde(rename = "medianMicros", serialize_with = "as_micros")]
    pub median: Duration,
    #[serde(rename = "slowestMicros", serialize_with = "as_micros")]
    pub slowest: Duration,
}

/// What is known of a node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeState {
    pub name: Arc<str>,
    /// As in `Ready`, or `not ready`.
    pub state: String,
    pub well: bool,
    pub since: Option<Timestamp>,
    /// What is known of the agent there, where that is known.
    pub agent: Option<AgentState>,
}

/// Whether an agent checks the volumes of a node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AgentState {
    /// As in `alive`, or `silent`.
    pub state: &'static str,
    pub well: bool,
    pub since: Option<Timestamp>,
}

/// An attempt to heal a volume.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Heal {
    pub at: Timestamp,
    /// As in `Succeeded`.
    pub outcome: &'static str,
    /// Whether that is good news, bad news, or neither.
    #[serde(skip)]
    pub well: Option<bool>,
    pub remedy: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node: Option<String>,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub message: String,
}

fn as_map<S: serde::Serializer>(facts: &[(&'static str, String)], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_map(facts.iter().map(|(name, value)| (*name, value)))
}

fn as_micros<S: serde::Serializer>(duration: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_u64(u64::try_from(duration.as_micros()).unwrap_or(u64::MAX))
}
