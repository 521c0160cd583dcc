//! What the healer did and did not do. Every label has a closed list of values, except the driver's name.

use std::sync::atomic::{AtomicI64, AtomicU64};
use std::time::Duration;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;
use volmedic_health::Remedy;

type Described = (&'static str, &'static str, &'static [&'static str], &'static str);

const BUCKETS: [f64; 9] = [0.1, 0.5, 1.0, 2.5, 5.0, 15.0, 30.0, 60.0, 180.0];
/// Drivers that have series of their own; no cluster has more, and the name is not ours.
const MOST_DRIVERS: usize = 64;
const OTHER: &str = "other";

const HEALS: Described = (
    "volmedic_heal_seconds",
    "histogram",
    &["driver_name", "remedy", "result"],
    "How long heals took, by remedy and by what became of them: well, still_ill, lost, not_reached or a gRPC status of the driver",
);
const SKIPPED: Described = (
    "volmedic_heal_skipped_total",
    "counter",
    &["driver_name", "why"],
    "Times that a volume was not healed, by the guard that stood in the way",
);
const RUNNING: Described = ("volmedic_heal_in_flight", "gauge", &[], "Heals and checks that are under way");
const OPEN: Described =
    ("volmedic_heal_open", "gauge", &[], "Volumes that are to be healed or checked and have not been");
const BRAKES: Described = (
    "volmedic_heal_brakes",
    "gauge",
    &[],
    "Brakes that are on because too many volumes are unhealthy at the same time; nothing is healed while one is on",
);
const RELAYS: Described = ("volmedic_heal_relays", "gauge", &[], "Relays that are trusted");
const DISTRUSTED: Described = (
    "volmedic_heal_distrusted_total",
    "counter",
    &["why"],
    "CSIAddonsNode objects that were not believed, by why; they are not dialled",
);

/// All metrics of the healer, for the documentation.
pub const METRICS: &[Described] = &[HEALS, SKIPPED, RUNNING, OPEN, BRAKES, RELAYS, DISTRUSTED];

/// Cloning shares them.
#[derive(Clone, Debug)]
pub struct Metrics {
    heals: Family<Healed, Histogram, fn() -> Histogram>,
    skipped: Family<Skipped, Counter<u64, AtomicU64>>,
    running: Gauge<i64, AtomicI64>,
    open: Gauge<i64, AtomicI64>,
    brakes: Gauge<i64, AtomicI64>,
    relays: Gauge<i64, AtomicI64>,
    distrusted: Family<Why, Counter<u64, AtomicU64>>,
    drivers: std::sync::Arc<parking_lot::Mutex<std::collections::BTreeSet<String>>>,
}

impl Default for Metrics {
    fn default() -> Self {
        Self {
            heals: Family::new_with_constructor(|| Histogram::new(BUCKETS)),
            skipped: Family::default(),
            running: Gauge::default(),
            open: Gauge::default(),
            brakes: Gauge::default(),
            relays: Gauge::default(),
            distrusted: Family::default(),
            drivers: std::sync::Arc::default(),
        }
    }
}

impl Metrics {
    pub fn register(&self, registry: &mut Registry) {
        registry.register(HEALS.0, HEALS.3, self.heals.clone());
        // The encoder adds `_total` to a counter's name.
        registry.register(SKIPPED.0.trim_end_matches("_total"), SKIPPED.3, self.skipped.clone());
        registry.register(DISTRUSTED.0.trim_end_matches("_total"), DISTRUSTED.3, self.distrusted.clone());
        registry.register(RUNNING.0, RUNNING.3, self.running.clone());
        registry.register(OPEN.0, OPEN.3, self.open.clone());
        registry.register(BRAKES.0, BRAKES.3, self.brakes.clone());
        registry.register(RELAYS.0, RELAYS.3, self.relays.clone());
    }

    /// How often a registration was not believed for this reason.
    pub fn distrusted(&self, why: &'static str) -> u64 {
        self.distrusted.get_or_create(&Why { why }).get()
    }

    pub(super) fn distrust(&self, why: &'static str) {
        self.distrusted.get_or_create(&Why { why }).inc();
    }

    pub(super) fn healed(&self, driver: &str, remedy: Remedy, result: &'static str, took: Duration) {
        let (driver_name, remedy) = (self.driver(driver), remedy.name());
        self.heals.get_or_create(&Healed { driver_name, remedy, result }).observe(took.as_secs_f64());
    }

    pub(super) fn skip(&self, driver: &str, why: &'static str) {
        let driver_name = self.driver(driver);
        self.skipped.get_or_create(&Skipped { driver_name, why }).inc();
    }

    pub(super) fn stand(&self, running: usize, open: usize, brakes: usize, relays: usize) {
        for (gauge, value) in
            [(&self.running, running), (&self.open, open), (&self.brakes, brakes), (&self.relays, relays)]
        {
            gauge.set(i64::try_from(value).unwrap_or(i64::MAX));
        }
    }

    fn driver(&self, name: &str) -> String {
        let mut drivers = self.drivers.lock();
        if drivers.contains(name) || drivers.len() < MOST_DRIVERS && drivers.insert(name.to_owned()) {
            return name.to_owned();
        }
        OTHER.to_owned()
    }
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct Healed {
    driver_name: String,
    remedy: &'static str,
    result: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct Skipped {
    driver_name: String,
    why: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct Why {
    why: &'static str,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_scrape_shows_and_a_bound_on_names() {
        let mut registry = Registry::default();
        let metrics = Metrics::default();
        metrics.register(&mut registry);
        for driver in 0..200 {
            metrics.skip(&format!("d{driver}"), "brake");
        }
        metrics.healed("d0", Remedy::NodeHealer, "well", Duration::from_secs(1));
        metrics.distrust("other_pod");
        metrics.stand(1, 2, 3, 4);
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &registry).unwrap();
        assert!(
            text.contains(r#"volmedic_heal_skipped_total{driver_name="other",why="brake"} 136"#),
            "{text}"
        );
        for (name, kind, _, help) in METRICS {
            let family = if *kind == "counter" { name.trim_end_matches("_total") } else { name };
            assert!(text.contains(&format!("# TYPE {family} {kind}\n")), "{name}");
            assert!(text.contains(&format!("# HELP {family} {help}")), "{name}");
        }
    }
}
