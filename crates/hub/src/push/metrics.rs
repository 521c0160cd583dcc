//! How many reports came in, and what became of them.

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::registry::Registry;

use crate::Described;

const REPORTS: Described = (
    "volmedic_hub_reports_total",
    "counter",
    &["result"],
    "Reports of others' detectors: stored, or why not: no_token, bad_token, not_allowed, too_fast, not_json, too_long, \
     too_slow, invalid, contradictory, unknown_claim, not_leading, late, or api_server when that could not be asked or \
     did not store it",
);

/// The metrics of the push service, for the documentation.
pub const METRICS: &[Described] = &[REPORTS];

/// Counts reports by what became of them.
#[derive(Debug, Clone, Default)]
pub struct ReportCounts(Family<[(&'static str, &'static str); 1], Counter>);

impl ReportCounts {
    pub fn register(registry: &mut Registry) -> Self {
        let counts = Self::default();
        // The registry adds `_total` itself.
        registry.register(REPORTS.0.trim_end_matches("_total"), REPORTS.3, counts.0.clone());
        counts
    }

    pub fn count(&self, result: &'static str) {
        self.0.get_or_create(&[("result", result)]).inc();
    }
}
