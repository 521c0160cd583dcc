//! The few fields of events and drivers that the commands use, named as in their JSON. The other kinds have the hub's
//! shapes.

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, Time};
use kube::core::{ClusterResourceScope, NamespaceResourceScope};
use serde::Deserialize;
use volmedic_api::Shape;

/// A driver that is registered. Its name is all we want.
#[derive(Debug, Clone, Default, Deserialize)]
pub(crate) struct CsiDriver {}

impl Shape for CsiDriver {
    type Scope = ClusterResourceScope;
    const KIND: &'static str = "CSIDriver";
    const PLURAL: &'static str = "csidrivers";
    const GROUP: &'static str = "storage.k8s.io";
}

/// An event, ours or another's.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct Event {
    pub(crate) metadata: EventMeta,
    pub(crate) involved_object: Involved,
    pub(crate) reason: Option<String>,
    pub(crate) message: Option<String>,
    #[serde(rename = "type")]
    pub(crate) kind: Option<String>,
    pub(crate) source: Option<EventSource>,
    pub(crate) count: Option<i32>,
    pub(crate) first_timestamp: Option<Time>,
    pub(crate) last_timestamp: Option<Time>,
    #[serde(rename = "eventTime")]
    pub(crate) precise_time: Option<MicroTime>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(crate) struct EventMeta {
    pub(crate) annotations: Option<EventAnnotations>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(crate) struct EventAnnotations {
    #[serde(rename = "volmedic.dev/story")]
    pub(crate) story: Option<String>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Involved {
    pub(crate) kind: String,
    pub(crate) name: String,
    pub(crate) uid: String,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(crate) struct EventSource {
    pub(crate) component: Option<String>,
}

impl Event {
    /// When it was last so.
    pub(crate) fn at(&self) -> Option<Timestamp> {
        let event = || self.precise_time.as_ref().map(|time| time.0);
        self.last_timestamp.as_ref().map(|time| time.0).or_else(event).or_else(|| self.since())
    }

    /// When it was first so.
    pub(crate) fn since(&self) -> Option<Timestamp> {
        self.first_timestamp.as_ref().map(|time| time.0).or(self.precise_time.as_ref().map(|time| time.0))
    }
}

impl Shape for Event {
    type Scope = NamespaceResourceScope;
    const KIND: &'static str = "Event";
    const PLURAL: &'static str = "events";
}
