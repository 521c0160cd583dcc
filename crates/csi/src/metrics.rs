//! How long calls take and what drivers do wrong, for Prometheus. Every label has a bounded set of values.

use std::sync::atomic::AtomicU64;
use std::time::Duration;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;

use crate::latency::{Latencies, Latency};
use crate::method::Method;
use crate::oddity::Oddities;

/// The name of a driver that has not reported its name yet; the other CSI sidecars use the same word.
const UNNAMED: &str = "unknown-driver";
const BUCKETS: [f64; 13] = [0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 15.0, 25.0, 50.0, 120.0, 300.0, 600.0];

const OPERATIONS: Described = (
    "csi_sidecar_operations_seconds",
    "histogram",
    &["driver_name", "method_name", "grpc_status_code"],
    "How long each call to the CSI driver took, by its gRPC status",
);
const ODDITIES: Described = (
    "volmedic_csi_oddities_total",
    "counter",
    &["driver_name", "oddity"],
    "Things in the driver's answers that the CSI specification does not allow or that look wrong",
);
const CONNECTIONS: Described = (
    "volmedic_csi_connections_total",
    "counter",
    &["driver_name"],
    "Connections to the driver that were opened and introduced; more than one means that it restarted",
);

/// Name, type, labels and help of a metric.
pub type Described = (&'static str, &'static str, &'static [&'static str], &'static str);

/// All metrics of this crate, for the documentation.
pub const METRICS: &[Described] = &[OPERATIONS, ODDITIES, CONNECTIONS];

/// The metrics of all drivers of this process. Cloning shares them.
#[derive(Clone, Debug)]
pub struct Metrics {
    operations: Family<Operation, Histogram, fn() -> Histogram>,
    oddities: Family<Odd, Counter<u64, AtomicU64>>,
    connections: Family<Named, Counter<u64, AtomicU64>>,
    latencies: Latencies,
}

impl Metrics {
    pub fn register(registry: &mut Registry) -> Self {
        let metrics = Self {
            operations: Family::new_with_constructor(|| Histogram::new(BUCKETS)),
            oddities: Family::default(),
            connections: Family::default(),
            latencies: Latencies::default(),
        };
        registry.register(OPERATIONS.0, OPERATIONS.3, metrics.operations.clone());
        // The encoder adds `_total` to a counter's name, and a full stop to every help text.
        registry.register(ODDITIES.0.trim_end_matches("_total"), ODDITIES.3, metrics.oddities.clone());
        registry.register(
            CONNECTIONS.0.trim_end_matches("_total"),
            CONNECTIONS.3,
            metrics.connections.clone(),
        );
        metrics
    }

    /// How long the latest calls took, of every kind that was called, whichever driver it went to.
    pub fn latencies(&self) -> Vec<Latency> {
        self.latencies.read()
    }

    pub(crate) fn called(&self, driver: Option<&str>, method: Method, code: &'static str, took: Duration) {
        let labels = Operation {
            driver_name: driver.unwrap_or(UNNAMED).to_owned(),
            method_name: method.path(),
            grpc_status_code: code,
        };
        self.operations.get_or_create(&labels).observe(took.as_secs_f64());
        // To say that there is no such call is an answer, and a proper one.
        self.latencies.called(method, !matches!(code, "OK" | "Unimplemented"), took);
    }

    pub(crate) fn odd(&self, driver: &str, oddities: &Oddities) {
        for (oddity, count) in oddities.iter() {
            let labels = Odd { driver_name: driver.to_owned(), oddity: oddity.label() };
            self.oddities.get_or_create(&labels).inc_by(count);
        }
    }

    pub(crate) fn connected(&self, driver: &str) {
        self.connections.get_or_create(&Named { driver_name: driver.to_owned() }).inc();
    }
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct Operation {
    driver_name: String,
    method_name: &'static str,
    grpc_status_code: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct Odd {
    driver_name: String,
    oddity: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct Named {
    driver_name: String,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::oddity::Oddity;

    #[test]
    fn what_a_scrape_shows() {
        let mut registry = Registry::default();
        let metrics = Metrics::register(&mut registry);
        metrics.called(None, Method::Probe, "OK", Duration::from_millis(300));
        metrics.called(Some("x.example"), Method::ListVolumes, "DeadlineExceeded", Duration::from_secs(15));
        let mut oddities = Oddities::default();
        oddities.note(Oddity::EmptyId);
        metrics.odd("x.example", &oddities);
        metrics.odd("x.example", &oddities);
        metrics.connected("x.example");

        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &registry).unwrap();
        for line in [
            r#"csi_sidecar_operations_seconds_bucket{le="0.25",driver_name="unknown-driver",method_name="/csi.v1.Identity/Probe",grpc_status_code="OK"} 0"#,
            r#"csi_sidecar_operations_seconds_bucket{le="0.5",driver_name="unknown-driver",method_name="/csi.v1.Identity/Probe",grpc_status_code="OK"} 1"#,
            r#"csi_sidecar_operations_seconds_bucket{le="600.0",driver_name="x.example",method_name="/csi.v1.Controller/ListVolumes",grpc_status_code="DeadlineExceeded"} 1"#,
            r#"csi_sidecar_operations_seconds_sum{driver_name="x.example",method_name="/csi.v1.Controller/ListVolumes",grpc_status_code="DeadlineExceeded"} 15.0"#,
            r#"volmedic_csi_oddities_total{driver_name="x.example",oddity="empty_id"} 2"#,
            r#"volmedic_csi_connections_total{driver_name="x.example"} 1"#,
        ] {
            assert!(text.contains(line), "missing {line} in\n{text}");
        }
        for (name, kind, _, help) in METRICS {
            let family = if *kind == "counter" { name.trim_end_matches("_total") } else { name };
            assert!(text.contains(&format!("# TYPE {family} {kind}\n")), "{name}");
            assert!(text.contains(&format!("# HELP {family} {help}")), "{name}");
        }
    }
}
