//! Which version a process runs, for Prometheus.

use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

/// Name, type, labels and help of a metric.
pub type Described = (&'static str, &'static str, &'static [&'static str], &'static str);

const BUILD: Described =
    ("volmedic_build_info", "gauge", &["version"], "1, with the version of Volmedic that this process runs");

/// All metrics of this crate, for the documentation.
pub const METRICS: &[Described] = &[BUILD];

/// Every role that serves metrics serves this one.
pub(crate) fn register(registry: &mut Registry) {
    let build: Family<[(&'static str, &'static str); 1], Gauge> = Family::default();
    build.get_or_create(&[("version", env!("CARGO_PKG_VERSION"))]).set(1);
    registry.register(BUILD.0, BUILD.3, build);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scrape_shows_the_version() {
        let mut registry = Registry::default();
        register(&mut registry);
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &registry).unwrap();
        let line = format!("volmedic_build_info{{version=\"{}\"}} 1", env!("CARGO_PKG_VERSION"));
        assert!(text.lines().any(|found| found == line), "{line} is not in\n{text}");
        for (name, kind, _, help) in METRICS {
            assert!(text.contains(&format!("# TYPE {name} {kind}\n")), "{text}");
            assert!(text.contains(&format!("# HELP {name} {help}")), "{text}");
        }
    }
}
