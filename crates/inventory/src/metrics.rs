//! The inventory for Prometheus.

use std::fmt;
use std::sync::Arc;

use parking_lot::Mutex;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::Registry;

use crate::link::Link;
use crate::node;
use crate::volumes::Volumes;

/// Name, type, labels and help of a metric.
pub type Described = (&'static str, &'static str, &'static [&'static str], &'static str);

const VOLUMES: Described = (
    "volmedic_inventory_volumes",
    "gauge",
    &["driver_name"],
    "Volumes of the driver that are bound to a claim and therefore checked",
);
const PERSISTENT_VOLUMES: Described = (
    "volmedic_inventory_persistentvolumes",
    "gauge",
    &["driver_name"],
    "PersistentVolumes of the driver, bound or not",
);
const STALE: Described = (
    "volmedic_inventory_stale_seconds",
    "gauge",
    &["resource"],
    "For how long the API server's changes of this kind of object have not reached us; 0 while they do",
);
const MALFORMED: Described = (
    "volmedic_inventory_malformed_total",
    "counter",
    &["resource"],
    "Objects from the API server that could not be read and were skipped",
);
const LISTS: Described = (
    "volmedic_inventory_lists_total",
    "counter",
    &["resource"],
    "Complete lists read from the API server; many of them mean that watches do not last",
);

/// All metrics of this crate, for the documentation.
pub const METRICS: &[Described] = &[VOLUMES, PERSISTENT_VOLUMES, STALE, MALFORMED, LISTS];

/// No node has more drivers, and no label has more values.
const MOST_DRIVERS: usize = 100;

/// Shows whichever inventory was attached last. Register it once; inventories come and go with leadership.
#[derive(Debug, Clone, Default)]
pub struct Metrics(Arc<Mutex<Option<Source>>>);

/// Whose volumes are counted.
#[derive(Debug)]
pub(crate) enum Counted {
    /// All of a driver, in the cluster.
    Driver(Arc<Volumes>),
    /// All of a node.
    Node(Arc<node::Volumes>),
}

#[derive(Debug)]
struct Source {
    volumes: Counted,
    links: Vec<Arc<Link>>,
}

impl Metrics {
    pub fn register(registry: &mut Registry) -> Self {
        let metrics = Self::default();
        registry.register_collector(Box::new(metrics.clone()));
        metrics
    }

    pub(crate) fn attach(&self, volumes: Counted, links: Vec<Arc<Link>>) {
        *self.0.lock() = Some(Source { volumes, links });
    }
}

impl Collector for Metrics {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let source = self.0.lock();
        let Some(Source { volumes, links }) = &*source else { return Ok(()) };
        let (checked, known) = match volumes {
            Counted::Driver(volumes) => {
                let driver: Arc<str> = volumes.driver().into();
                (vec![(driver.clone(), volumes.len())], vec![(driver, volumes.known())])
            }
            Counted::Node(volumes) => (volumes.drivers(), Vec::new()),
        };
        for (metric, counts) in [(VOLUMES, checked), (PERSISTENT_VOLUMES, known)] {
            if counts.is_empty() {
                continue;
            }
            let mut family = encoder.encode_descriptor(metric.0, metric.3, None, MetricType::Gauge)?;
            for (driver, count) in counts.into_iter().take(MOST_DRIVERS) {
                let count = ConstGauge::new(i64::try_from(count).unwrap_or(i64::MAX));
                count.encode(family.encode_family(&[("driver_name", &*driver)])?)?;
            }
        }
        let mut family = encoder.encode_descriptor(STALE.0, STALE.3, None, MetricType::Gauge)?;
        for link in links {
            let age = link.staleness().map_or(0.0, |stale| stale.age.as_secs_f64());
            ConstGauge::new(age).encode(family.encode_family(&[("resource", link.resource())])?)?;
        }
        for (metric, count) in [(MALFORMED, Link::malformed as fn(&Link) -> u64), (LISTS, Link::lists)] {
            // The encoder adds `_total` to a counter's name.
            let name = metric.0.trim_end_matches("_total");
            let mut family = encoder.encode_descriptor(name, metric.3, None, MetricType::Counter)?;
            for link in links {
                ConstCounter::new(count(link))
                    .encode(family.encode_family(&[("resource", link.resource())])?)?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
