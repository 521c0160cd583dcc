//! The hub for Prometheus.

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
use volmedic_api::resource::HealthWord;

use crate::World;

/// Name, type, labels and help of a metric.
pub type Described = (&'static str, &'static str, &'static [&'static str], &'static str);

const CLAIMS: Described = (
    "volmedic_hub_claims",
    "gauge",
    &["health"],
    "Claims that have a VolumeHealth, by what its headline says",
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
    "1 while the API server does not check that an agent speaks only for its own node, else 0",
);
const WRITES: Described = (
    "volmedic_hub_writes_total",
    "counter",
    &["result"],
    "Writes of the hub to the API server: created, applied, removed, marked, conflict or failed",
);
const BACKLOG: Described =
    ("volmedic_hub_backlog", "gauge", &[], "Claims that wait to be looked at, or are being written");

/// All metrics of this crate, for the documentation.
pub const METRICS: &[Described] = &[CLAIMS, UNBELIEVED, UNVERIFIED, WRITES, BACKLOG];

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
        let (tally, unbelieved, verified) = {
            let world = world.lock();
            (world.tally(), world.unbelieved(), world.is_verified())
        };
        let mut family = encoder.encode_descriptor(CLAIMS.0, CLAIMS.3, None, MetricType::Gauge)?;
        let words = [
            HealthWord::Healthy,
            HealthWord::HealthUnknown,
            HealthWord::HealthWarning,
            HealthWord::HealthFailure,
        ];
        for word in words.map(HealthWord::as_str) {
            let count = tally.get(word).copied().unwrap_or_default();
            ConstGauge::new(i64::try_from(count).unwrap_or(i64::MAX))
                .encode(family.encode_family(&[("health", word)])?)?;
        }
        let unbelieved = i64::try_from(unbelieved).unwrap_or(i64::MAX);
        for (metric, value) in [(UNBELIEVED, unbelieved), (UNVERIFIED, i64::from(!verified))] {
            let encoder = encoder.encode_descriptor(metric.0, metric.3, None, MetricType::Gauge)?;
            ConstGauge::new(value).encode(encoder)?;
        }
        Ok(())
    }
}
