//! What a scrape shows. Every label has a bounded set of values, and per-volume series exist for sick volumes only.

mod agent;
mod view;

use std::sync::atomic::{AtomicI64, AtomicU64};
use std::time::Duration;

use jiff::Timestamp;
use parking_lot::Mutex;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::{ConstGauge, Gauge};
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;
use volmedic_health::Transition;

use crate::sender::{Outlet, Verdict};
pub use agent::{AgentPicture, ClaimDevice, ClaimUsage, HelperCounts, register as register_agent};
pub use view::{DriverPicture, Picture, Sick, View, register as register_view};

const BUCKETS: [f64; 13] = [0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 15.0, 25.0, 50.0, 120.0, 300.0, 600.0];

/// Name, type, labels and help of a metric.
pub type Described = (&'static str, &'static str, &'static [&'static str], &'static str);

const PROBES: Described = (
    "csi_volume_health_probe_total",
    "counter",
    &["driver_name", "method_name", "result"],
    "Probes of the health of volumes, by what came of them: success or error",
);
const PROBE_SECONDS: Described = (
    "csi_volume_health_probe_duration_seconds",
    "histogram",
    &["driver_name", "method_name"],
    "Duration of checks of volumes, in seconds",
);
const TRANSITIONS: Described = (
    "volmedic_transitions_total",
    "counter",
    &["driver_name", "kind"],
    "Changes of what is believed about volumes and backends, by kind",
);
const REPORTS: Described = (
    "volmedic_reports_total",
    "counter",
    &["outlet", "result"],
    "Events and status writes by what became of them; retried ones are counted again when they end",
);
const QUEUE: Described =
    ("volmedic_report_queue", "gauge", &[], "Reports that wait to be sent or are on the way");
const START: Described = (
    "process_start_time_seconds",
    "gauge",
    &[],
    "When this process started, in seconds since the beginning of 1970",
);

/// All metrics of this crate, for the documentation.
pub const METRICS: &[Described] = &[
    view::VOLUME,
    view::POD_VOLUME,
    view::OMITTED,
    view::VOLUMES,
    view::BLIND,
    PROBES,
    PROBE_SECONDS,
    TRANSITIONS,
    REPORTS,
    QUEUE,
    START,
    agent::HELPERS,
    agent::HELPERS_STARTED,
    agent::HELPERS_HUNG,
    agent::CHECKS,
    agent::CAPACITY,
    agent::AVAILABLE,
    agent::USED,
    agent::INODES,
    agent::INODES_FREE,
    agent::INODES_USED,
    agent::DEVICE,
    agent::DEVICES_OMITTED,
];

/// All that this crate counts by itself. What is believed about volumes is shown by a [`View`] beside it.
#[derive(Debug, Clone)]
pub struct Metrics {
    pub probes: Probes,
    pub reports: Reports,
    transitions: Family<Changed, Counter<u64, AtomicU64>>,
}

/// Counts the sights of volumes.
#[derive(Debug, Clone)]
pub struct Probes {
    count: Family<Probed, Counter<u64, AtomicU64>>,
    seconds: Family<Timed, Histogram, fn() -> Histogram>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ProbeResult {
    Success,
    Error,
}

/// Counts what became of reports.
#[derive(Debug, Clone)]
pub struct Reports {
    count: Family<Reported, Counter<u64, AtomicU64>>,
    queue: Gauge<i64, AtomicI64>,
    reported: std::sync::Arc<Mutex<Vec<Outlet>>>,
}

impl Metrics {
    /// The start time counts from this call, so make it early.
    pub fn register(registry: &mut Registry) -> Self {
        let probes = Probes {
            count: Family::default(),
            seconds: Family::new_with_constructor(|| Histogram::new(BUCKETS)),
        };
        let transitions = Family::default();
        // The encoder adds `_total` to a counter's name, and a full stop to every help text.
        registry.register(PROBES.0.trim_end_matches("_total"), PROBES.3, probes.count.clone());
        registry.register(PROBE_SECONDS.0, PROBE_SECONDS.3, probes.seconds.clone());
        registry.register(
            TRANSITIONS.0.trim_end_matches("_total"),
            TRANSITIONS.3,
            Family::clone(&transitions),
        );
        let reports = Reports::register(registry);
        registry.register(START.0, START.3, ConstGauge::new(Timestamp::now().as_second()));
        Self { probes, reports, transitions }
    }

    pub(crate) fn changed(&self, transition: &Transition) {
        let labels =
            Changed { driver_name: transition.subject.driver().to_string(), kind: transition.change.kind() };
        self.transitions.get_or_create(&labels).inc();
    }
}

impl Probes {
    /// `method` is the full name of the RPC, or of our own check; a fixed set either way.
    pub fn probed(&self, driver: &str, method: &'static str, result: ProbeResult, took: Duration) {
        let driver_name = driver.to_owned();
        let result = match result {
            ProbeResult::Success => "success",
            ProbeResult::Error => "error",
        };
        let timed = Timed { driver_name: driver_name.clone(), method_name: method };
        self.seconds.get_or_create(&timed).observe(took.as_secs_f64());
        self.count.get_or_create(&Probed { driver_name, method_name: method, result }).inc();
    }
}

impl Reports {
    /// For a caller that reports and counts nothing else.
    pub fn register(registry: &mut Registry) -> Self {
        let (count, queue) = (Family::default(), Gauge::default());
        registry.register(REPORTS.0.trim_end_matches("_total"), REPORTS.3, Family::clone(&count));
        registry.register(QUEUE.0, QUEUE.3, Gauge::clone(&queue));
        Self { count, queue, reported: std::sync::Arc::default() }
    }

    pub(crate) fn count(&self, outlet: Outlet, verdict: Verdict) {
        let outlet = outlet.word();
        let result = match verdict {
            Verdict::Sent => "sent",
            Verdict::Already => "already",
            Verdict::Gone => "gone",
            Verdict::Forbidden => "forbidden",
            Verdict::Refused => "refused",
            Verdict::Unsupported => "unsupported",
            Verdict::Contested => "contested",
            Verdict::Overflow => "overflow",
            Verdict::GaveUp => "gave_up",
            Verdict::Retried => "retried",
        };
        self.count.get_or_create(&Reported { outlet, result }).inc();
    }

    pub(crate) fn queued(&self, count: usize) {
        self.queue.set(i64::try_from(count).unwrap_or(i64::MAX));
    }

    /// Missing rights are reported once for each outlet; the counter shows the rest.
    pub(crate) fn forbidden(&self, outlet: Outlet, why: &str) {
        let mut reported = self.reported.lock();
        if !reported.contains(&outlet) {
            reported.push(outlet);
            let what = match outlet {
                Outlet::Event => "events: grant on events what the rights shipped for this role grant",
                Outlet::Status => "claim status: grant patch on persistentvolumeclaims/status",
                Outlet::Health => {
                    "VolumeHealths: grant create on volumehealths and patch on volumehealths/status"
                }
            };
            tracing::warn!("the API server does not let us write {what}; logged once: {why}");
        }
    }
}

impl Outlet {
    fn word(self) -> &'static str {
        match self {
            Self::Event => "event",
            Self::Status => "status",
            Self::Health => "health",
        }
    }
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct Probed {
    driver_name: String,
    method_name: &'static str,
    result: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct Timed {
    driver_name: String,
    method_name: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct Changed {
    driver_name: String,
    kind: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct Reported {
    outlet: &'static str,
    result: &'static str,
}

#[cfg(test)]
mod tests;
