//! The hub for Prometheus.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use parking_lot::Mutex;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::{ConstGauge, Gauge};
use prometheus_client::registry::Registry;
use volmedic_api::resource::{HealthWord, StatusWord};

use crate::unknown::Unknown;
use crate::{Class, UnhealthyClaim, World};

/// Series of single claims at most, as in the metrics of agents and controllers.
const SERIES: usize = 1000;
/// The label of a reason that is none of ours.
const OTHER: &str = "Other";

/// Name, type, labels and help of a metric.
pub type Described = (&'static str, &'static str, &'static [&'static str], &'static str);

const CLAIMS: Described = (
    "volmedic_hub_claims",
    "gauge",
    &["health"],
    "Claims that have a VolumeHealth, by what its headline says",
);
const HEALTH: Described = (
    "volmedic_claims",
    "gauge",
    &["health", "reason", "in_use"],
    "All claims by health, also those without a VolumeHealth; reason says why the health is unknown, in_use whether a pod \
     on a node uses the claim",
);
const UNHEALTHY: Described = (
    "volmedic_claim_health_status",
    "gauge",
    &["driver_name", "namespace", "persistentvolumeclaim", "node", "vantage", "status", "reason"],
    "1 for each condition of a claim's volume that is not healthy, of all vantages; healthy claims have no series",
);
const OMITTED: Described = (
    "volmedic_claim_health_omitted",
    "gauge",
    &[],
    "Unhealthy claims without series in volmedic_claim_health_status, because there are too many",
);
const UNBELIEVED: Described = (
    "volmedic_hub_unbelieved_entries",
    "gauge",
    &[],
    "Entries in nodes' reports about volumes that no pod on that node uses; nothing comes of them, and more than a few \
     for long mean that somebody writes what is not so",
);
const UNVERIFIED: Described = (
    "volmedic_hub_unverified",
    "gauge",
    &[],
    "1 while an admission policy that the hub relies on is missing or was changed, else 0",
);
const WRITES: Described = (
    "volmedic_hub_writes_total",
    "counter",
    &["result"],
    "Writes of the hub to the API server: created, applied, removed, marked, conflict or failed",
);
const BACKLOG: Described =
    ("volmedic_hub_backlog", "gauge", &[], "Claims that wait to be checked, or are being written");

/// All metrics of this crate, for the documentation.
pub const METRICS: &[Described] =
    &[CLAIMS, HEALTH, UNHEALTHY, OMITTED, UNBELIEVED, UNVERIFIED, WRITES, BACKLOG];

/// Register it once; worlds come and go with leadership.
#[derive(Debug, Clone, Default)]
pub struct Metrics {
    writes: Family<[(&'static str, &'static str); 1], Counter>,
    pub(crate) backlog: Gauge,
    world: Arc<Mutex<Option<Arc<Mutex<World>>>>>,
}

impl Metrics {
    pub fn register(registry: &mut Registry) -> Self {
        let metrics = Self::default();
        // The registry adds `_total` itself.
        let name = WRITES.0.trim_end_matches("_total");
        registry.register(name, WRITES.3, metrics.writes.clone());
        registry.register(BACKLOG.0, BACKLOG.3, metrics.backlog.clone());
        registry.register_collector(Box::new(metrics.clone()));
        metrics
    }

    /// Shows this world from now on.
    pub fn attach(&self, world: Arc<Mutex<World>>) {
        *self.world.lock() = Some(world);
    }

    pub(crate) fn wrote(&self, result: &'static str) {
        self.writes.get_or_create(&[("result", result)]).inc();
    }
}

impl Collector for Metrics {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let world = self.world.lock();
        let Some(world) = &*world else { return Ok(()) };
        let (tally, counts, worst, unbelieved, guarded) = {
            let world = world.lock();
            let (counts, worst) = (world.counts().clone(), world.worst(SERIES));
            (world.tally(), counts, worst, world.unbelieved(), world.is_guarded())
        };
        let mut family = encoder.encode_descriptor(CLAIMS.0, CLAIMS.3, None, MetricType::Gauge)?;
        for word in WORDS.map(HealthWord::as_str) {
            let count = tally.get(word).copied().unwrap_or_default();
            gauge(count).encode(family.encode_family(&[("health", word)])?)?;
        }
        encode_counts(&mut encoder, &counts)?;
        let (unhealthy, omitted) = worst;
        encode_unhealthy(&mut encoder, &unhealthy)?;
        gauge(omitted).encode(encoder.encode_descriptor(OMITTED.0, OMITTED.3, None, MetricType::Gauge)?)?;
        let unbelieved = i64::try_from(unbelieved).unwrap_or(i64::MAX);
        for (metric, value) in [(UNBELIEVED, unbelieved), (UNVERIFIED, i64::from(!guarded))] {
            let encoder = encoder.encode_descriptor(metric.0, metric.3, None, MetricType::Gauge)?;
            ConstGauge::new(value).encode(encoder)?;
        }
        Ok(())
    }
}

const WORDS: [HealthWord; 4] =
    [HealthWord::Healthy, HealthWord::HealthUnknown, HealthWord::HealthWarning, HealthWord::HealthFailure];

/// Every class has a series, so that a rule sees 0 and not an absent series.
fn encode_counts(encoder: &mut DescriptorEncoder<'_>, counts: &BTreeMap<Class, usize>) -> fmt::Result {
    let mut family = encoder.encode_descriptor(HEALTH.0, HEALTH.3, None, MetricType::Gauge)?;
    for health in WORDS {
        let reasons: Vec<(Option<Unknown>, &str)> = match health {
            HealthWord::HealthUnknown => {
                let named = Unknown::ALL.into_iter().map(|unknown| (Some(unknown), unknown.name()));
                named.chain([(None, OTHER)]).collect()
            }
            HealthWord::Healthy | HealthWord::HealthWarning | HealthWord::HealthFailure => vec![(None, "")],
        };
        for (unknown, reason) in reasons {
            for (in_use, text) in [(false, "false"), (true, "true")] {
                let count = counts.get(&Class { health, unknown, in_use }).copied().unwrap_or_default();
                let labels = [("health", health.as_str()), ("reason", reason), ("in_use", text)];
                gauge(count).encode(family.encode_family(&labels)?)?;
            }
        }
    }
    Ok(())
}

fn encode_unhealthy(encoder: &mut DescriptorEncoder<'_>, unhealthy: &[UnhealthyClaim]) -> fmt::Result {
    let mut family = encoder.encode_descriptor(UNHEALTHY.0, UNHEALTHY.3, None, MetricType::Gauge)?;
    for UnhealthyClaim { key, driver, lines } in unhealthy {
        for line in lines.iter() {
            let status = match line.status {
                Some(StatusWord::DataLoss) => "DataLoss",
                Some(StatusWord::Inaccessible) => "Inaccessible",
                Some(StatusWord::Degraded) => "Degraded",
                Some(StatusWord::Unrecognized) => "Unrecognized",
                None => "Unknown",
            };
            let labels = [
                ("driver_name", &**driver),
                ("namespace", &*key.namespace),
                ("persistentvolumeclaim", &*key.name),
                ("node", &*line.node),
                ("vantage", &*line.vantage),
                ("status", status),
                ("reason", &*line.reason),
            ];
            gauge(1).encode(family.encode_family(&labels)?)?;
        }
    }
    Ok(())
}

fn gauge(value: usize) -> ConstGauge<i64> {
    ConstGauge::new(i64::try_from(value).unwrap_or(i64::MAX))
}

#[cfg(test)]
mod tests;
