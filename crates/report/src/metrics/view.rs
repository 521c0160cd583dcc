//! What is believed about volumes, read from its owner at each scrape: no series of our own to keep in step.

use std::fmt;
use std::sync::Arc;

use jiff::Timestamp;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::Registry;
use volmedic_health::{Condition, Tally};

use super::Described;

pub(super) const VOLUME: Described = (
    "csi_controller_volume_health_status",
    "gauge",
    &["driver_name", "namespace", "persistentvolumeclaim", "status", "reason"],
    "1 for each condition of a volume that is not healthy; healthy volumes have no series",
);
pub(super) const POD_VOLUME: Described = (
    "csi_node_volume_health_status",
    "gauge",
    &["driver_name", "namespace", "pod", "persistentvolumeclaim", "status", "reason"],
    "1 for each condition of a volume that is not healthy, for each pod that uses it on this node",
);
pub(super) const OMITTED: Described = (
    "volmedic_volume_series_omitted",
    "gauge",
    &[],
    "Conditions of volumes for which there is no series because there are too many",
);
pub(super) const VOLUMES: Described = (
    "volmedic_volumes",
    "gauge",
    &["driver_name", "health"],
    "Number of volumes by worst health; every health has a series, unknown are volumes that could not be checked",
);
pub(super) const BLIND: Described = (
    "volmedic_blind_since_seconds",
    "gauge",
    &["driver_name"],
    "Since when the driver's storage cannot be seen, in seconds since the beginning of 1970; 0 while it can",
);

/// What a scrape wants to know.
#[derive(Debug, Clone, Default)]
pub struct Picture {
    /// Each driver that is watched, once.
    pub drivers: Vec<DriverPicture>,
    /// Conditions that are not healthy, of claims or of claims in pods, no more than were asked for.
    pub sick: Vec<Sick>,
    /// How many more there are.
    pub omitted: usize,
}

#[derive(Debug, Clone)]
pub struct DriverPicture {
    pub driver: Arc<str>,
    pub tally: Tally,
    pub blind_since: Option<Timestamp>,
}

/// One condition of one claim, or of one claim in one pod.
#[derive(Debug, Clone)]
pub struct Sick {
    pub driver: Arc<str>,
    pub namespace: Arc<str>,
    /// The pod that uses it, where it is seen from there.
    pub pod: Option<Arc<str>>,
    /// Empty for an inline volume.
    pub claim: Arc<str>,
    pub condition: Condition,
}

/// Who can say what is believed. Asked at every scrape, so it must answer quickly.
pub trait View: Send + Sync + 'static {
    /// At most `limit` sick ones.
    fn picture(&self, limit: usize) -> Picture;
}

impl<F: Fn(usize) -> Picture + Send + Sync + 'static> View for F {
    fn picture(&self, limit: usize) -> Picture {
        self(limit)
    }
}

/// Shows a view in every scrape; `limit` bounds the series of single volumes.
pub fn register(registry: &mut Registry, limit: usize, view: impl View) {
    registry.register_collector(Box::new(Shown { limit, view }));
}

struct Shown<V> {
    limit: usize,
    view: V,
}

impl<V> fmt::Debug for Shown<V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shown").field("limit", &self.limit).finish_non_exhaustive()
    }
}

impl<V: View> Collector for Shown<V> {
    fn encode(&self, mut encoder: DescriptorEncoder) -> fmt::Result {
        let mut picture = self.view.picture(self.limit);
        // One claim through two vantages is one series.
        let key = |sick: &Sick| {
            let Condition { status, reason, message: _ } = &sick.condition;
            (
                sick.driver.clone(),
                sick.namespace.clone(),
                sick.pod.clone(),
                sick.claim.clone(),
                *status,
                reason.as_str().to_owned(),
            )
        };
        picture.sick.sort_by_cached_key(key);
        picture.sick.dedup_by(|a, b| key(a) == key(b));
        let beyond = picture.sick.len().saturating_sub(self.limit);
        picture.sick.truncate(self.limit);

        let gauge = |value: i64| ConstGauge::new(value);
        let mut family = encoder.encode_descriptor(VOLUME.0, VOLUME.3, None, MetricType::Gauge)?;
        for Sick { driver, namespace, pod: _, claim, condition } in
            picture.sick.iter().filter(|sick| sick.pod.is_none())
        {
            let labels = [
                ("driver_name", &**driver),
                ("namespace", namespace),
                ("persistentvolumeclaim", claim),
                ("status", status(condition)),
                ("reason", condition.reason.as_str()),
            ];
            gauge(1).encode(family.encode_family(&labels)?)?;
        }
        let mut family = encoder.encode_descriptor(POD_VOLUME.0, POD_VOLUME.3, None, MetricType::Gauge)?;
        for Sick { driver, namespace, pod, claim, condition } in &picture.sick {
            let Some(pod) = pod else { continue };
            let labels = [
                ("driver_name", &**driver),
                ("namespace", namespace),
                ("pod", pod),
                ("persistentvolumeclaim", claim),
                ("status", status(condition)),
                ("reason", condition.reason.as_str()),
            ];
            gauge(1).encode(family.encode_family(&labels)?)?;
        }
        let omitted = i64::try_from(picture.omitted + beyond).unwrap_or(i64::MAX);
        gauge(omitted).encode(encoder.encode_descriptor(OMITTED.0, OMITTED.3, None, MetricType::Gauge)?)?;

        let mut family = encoder.encode_descriptor(VOLUMES.0, VOLUMES.3, None, MetricType::Gauge)?;
        for DriverPicture { driver, tally, .. } in &picture.drivers {
            let Tally { healthy, degraded, inaccessible, data_loss, unrecognized, unknown } = *tally;
            for (health, count) in [
                ("healthy", healthy),
                ("degraded", degraded),
                ("inaccessible", inaccessible),
                ("data_loss", data_loss),
                ("unrecognized", unrecognized),
                ("unknown", unknown),
            ] {
                let labels = [("driver_name", &**driver), ("health", health)];
                gauge(i64::try_from(count).unwrap_or(i64::MAX)).encode(family.encode_family(&labels)?)?;
            }
        }
        let mut family = encoder.encode_descriptor(BLIND.0, BLIND.3, None, MetricType::Gauge)?;
        for DriverPicture { driver, blind_since, .. } in &picture.drivers {
            let labels = [("driver_name", &**driver)];
            gauge(blind_since.map_or(0, Timestamp::as_second)).encode(family.encode_family(&labels)?)?;
        }
        Ok(())
    }
}

fn status(condition: &Condition) -> &'static str {
    condition.status.api_value().unwrap_or("Unrecognized")
}
