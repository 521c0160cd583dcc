//! What an agent shows beside the health of volumes: how full they are, its helpers, and what it cannot do.

use std::fmt;
use std::sync::Arc;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::Registry;

use super::Described;

pub(super) const HELPERS: Described = (
    "volmedic_helpers",
    "gauge",
    &["state"],
    "Number of helper processes that check volumes: running, or stuck in the kernel and left behind",
);
pub(super) const HELPERS_STARTED: Described =
    ("volmedic_helpers_started_total", "counter", &[], "Helper processes that were started");
pub(super) const HELPERS_HUNG: Described = (
    "volmedic_helpers_hung_total",
    "counter",
    &[],
    "Helper processes that did not come back before their deadline and were killed",
);
pub(super) const CHECKS: Described = (
    "volmedic_check_enabled",
    "gauge",
    &["check"],
    "1 for each check that is done on this node, 0 for those that a missing privilege or an old kernel turns off",
);
pub(super) const CAPACITY: Described = (
    "kubelet_volume_stats_capacity_bytes",
    "gauge",
    &["namespace", "persistentvolumeclaim"],
    "Bytes of the volume in all; with --volume-stats-metrics, as the kubelet names it",
);
pub(super) const AVAILABLE: Described = (
    "kubelet_volume_stats_available_bytes",
    "gauge",
    &["namespace", "persistentvolumeclaim"],
    "Bytes of the volume that can still be used; with --volume-stats-metrics",
);
pub(super) const USED: Described = (
    "kubelet_volume_stats_used_bytes",
    "gauge",
    &["namespace", "persistentvolumeclaim"],
    "Bytes of the volume that are used; with --volume-stats-metrics",
);
pub(super) const INODES: Described = (
    "kubelet_volume_stats_inodes",
    "gauge",
    &["namespace", "persistentvolumeclaim"],
    "Inodes of the volume in all; with --volume-stats-metrics",
);
pub(super) const INODES_FREE: Described = (
    "kubelet_volume_stats_inodes_free",
    "gauge",
    &["namespace", "persistentvolumeclaim"],
    "Inodes of the volume that are free; with --volume-stats-metrics",
);
pub(super) const INODES_USED: Described = (
    "kubelet_volume_stats_inodes_used",
    "gauge",
    &["namespace", "persistentvolumeclaim"],
    "Inodes of the volume that are used; with --volume-stats-metrics",
);

pub(super) const DEVICE: Described = (
    "volmedic_volume_device_info",
    "gauge",
    &["driver_name", "namespace", "persistentvolumeclaim", "persistentvolume", "node", "device", "layer"],
    "1 for each block device below a claim's volume on this node, by the kernel's name; layer is volume, between or disk",
);
pub(super) const DEVICES_OMITTED: Described = (
    "volmedic_volume_device_omitted",
    "gauge",
    &[],
    "Block devices of claims that have no series in volmedic_volume_device_info, because there are too many",
);

/// Series of devices at most.
const DEVICES: usize = 1000;

/// What a scrape wants to know of an agent.
#[derive(Debug, Clone, Default)]
pub struct AgentPicture {
    pub helpers: HelperCounts,
    /// Each check there is, and whether it is done.
    pub checks: Vec<(&'static str, bool)>,
    /// Each claim once; empty where this is not to be shown.
    pub usage: Vec<ClaimUsage>,
    /// The name of the node.
    pub node: Arc<str>,
    /// Each device of each claim once, in any order.
    pub devices: Vec<ClaimDevice>,
}

/// A block device that a claim's volume is on.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct ClaimDevice {
    pub driver: Arc<str>,
    pub namespace: Arc<str>,
    pub claim: Arc<str>,
    /// The PersistentVolume; empty where it is not known.
    pub volume: Arc<str>,
    pub device: Arc<str>,
    /// Where the device is below the volume, in one word of a closed list.
    pub layer: &'static str,
}

#[derive(Debug, Clone, Copy, Default)]
pub struct HelperCounts {
    pub running: u64,
    pub stuck: u64,
    pub started: u64,
    pub hung: u64,
}

/// How full a claim's volume is. What is not counted is absent.
#[derive(Debug, Clone)]
pub struct ClaimUsage {
    pub namespace: Arc<str>,
    pub claim: Arc<str>,
    pub capacity: Option<u64>,
    pub available: Option<u64>,
    pub used: Option<u64>,
    pub inodes: Option<u64>,
    pub inodes_free: Option<u64>,
    pub inodes_used: Option<u64>,
}

/// Shows in every scrape what this answers. It must answer quickly.
pub fn register(registry: &mut Registry, picture: impl Fn() -> AgentPicture + Send + Sync + 'static) {
    registry.register_collector(Box::new(Shown(picture)));
}

/// One of the figures.
type Figure = fn(&ClaimUsage) -> Option<u64>;

struct Shown<F>(F);

impl<F> fmt::Debug for Shown<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shown").finish_non_exhaustive()
    }
}

impl<F: Fn() -> AgentPicture + Send + Sync + 'static> Collector for Shown<F> {
    fn encode(&self, mut encoder: DescriptorEncoder) -> fmt::Result {
        let AgentPicture { helpers, checks, usage, node, devices } = (self.0)();
        let HelperCounts { running, stuck, started, hung } = helpers;
        let mut family = encoder.encode_descriptor(HELPERS.0, HELPERS.3, None, MetricType::Gauge)?;
        for (state, count) in [("running", running), ("stuck", stuck)] {
            gauge(count).encode(family.encode_family(&[("state", state)])?)?;
        }
        for ((name, _, _, help), count) in [(HELPERS_STARTED, started), (HELPERS_HUNG, hung)] {
            let name = name.trim_end_matches("_total");
            let metric = encoder.encode_descriptor(name, help, None, MetricType::Counter)?;
            ConstCounter::new(count).encode(metric)?;
        }
        let mut family = encoder.encode_descriptor(CHECKS.0, CHECKS.3, None, MetricType::Gauge)?;
        for (check, on) in checks {
            gauge(u64::from(on)).encode(family.encode_family(&[("check", check)])?)?;
        }
        encode_devices(&mut encoder, &node, devices)?;
        let figures: [(Described, Figure); 6] = [
            (CAPACITY, |usage| usage.capacity),
            (AVAILABLE, |usage| usage.available),
            (USED, |usage| usage.used),
            (INODES, |usage| usage.inodes),
            (INODES_FREE, |usage| usage.inodes_free),
            (INODES_USED, |usage| usage.inodes_used),
        ];
        // Where it is not asked for, not even the names are there: the kubelet has them too.
        if usage.is_empty() {
            return Ok(());
        }
        for ((name, _, _, help), figure) in figures {
            let mut family = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
            for claim in &usage {
                if let Some(value) = figure(claim) {
                    let labels = [("namespace", &*claim.namespace), ("persistentvolumeclaim", &*claim.claim)];
                    gauge(value).encode(family.encode_family(&labels)?)?;
                }
            }
        }
        Ok(())
    }
}

fn encode_devices(
    encoder: &mut DescriptorEncoder<'_>,
    node: &str,
    mut devices: Vec<ClaimDevice>,
) -> fmt::Result {
    // In order, so that the same ones are shown at each scrape.
    devices.sort_unstable();
    devices.dedup();
    let omitted = devices.len().saturating_sub(DEVICES);
    devices.truncate(DEVICES);
    let mut family = encoder.encode_descriptor(DEVICE.0, DEVICE.3, None, MetricType::Gauge)?;
    for ClaimDevice { driver, namespace, claim, volume, device, layer } in &devices {
        let labels = [
            ("driver_name", &**driver),
            ("namespace", &**namespace),
            ("persistentvolumeclaim", &**claim),
            ("persistentvolume", &**volume),
            ("node", node),
            ("device", &**device),
            ("layer", *layer),
        ];
        gauge(1).encode(family.encode_family(&labels)?)?;
    }
    let (name, _, _, help) = DEVICES_OMITTED;
    let omitted = u64::try_from(omitted).unwrap_or(u64::MAX);
    gauge(omitted).encode(encoder.encode_descriptor(name, help, None, MetricType::Gauge)?)
}

fn gauge(value: u64) -> ConstGauge<i64> {
    ConstGauge::new(i64::try_from(value).unwrap_or(i64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn device(claim: &str, device: &str) -> ClaimDevice {
        ClaimDevice {
            driver: "d".into(),
            namespace: "shop".into(),
            claim: claim.into(),
            volume: format!("pv-{claim}").into(),
            device: device.into(),
            layer: "disk",
        }
    }

    #[test]
    fn series_of_devices_are_bounded_and_the_rest_counted() {
        let mut registry = Registry::default();
        register(&mut registry, || AgentPicture {
            devices: (0..DEVICES + 7).map(|number| device(&format!("data-{number:05}"), "sda")).collect(),
            ..AgentPicture::default()
        });
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &registry).unwrap();
        let series = text.lines().filter(|line| line.starts_with("volmedic_volume_device_info{"));
        assert_eq!(series.count(), DEVICES);
        assert!(text.contains("\nvolmedic_volume_device_omitted 7\n"), "{text}");
    }

    #[test]
    fn what_a_scrape_of_an_agent_shows() {
        let mut registry = Registry::default();
        register(&mut registry, || AgentPicture {
            helpers: HelperCounts { running: 1, stuck: 2, started: 30, hung: 4 },
            checks: vec![("mounted", true), ("kernel_log", false)],
            usage: vec![ClaimUsage {
                namespace: "shop".into(),
                claim: "data".into(),
                capacity: Some(100),
                available: Some(40),
                used: Some(60),
                inodes: None,
                inodes_free: None,
                inodes_used: None,
            }],
            node: "w".into(),
            devices: vec![device("data", "sda"), device("data", "sda")],
        });
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &registry).unwrap();
        for line in [
            "volmedic_helpers{state=\"stuck\"} 2",
            "volmedic_helpers_started_total 30",
            "volmedic_helpers_hung_total 4",
            "volmedic_check_enabled{check=\"kernel_log\"} 0",
            "kubelet_volume_stats_used_bytes{namespace=\"shop\",persistentvolumeclaim=\"data\"} 60",
            r#"volmedic_volume_device_info{driver_name="d",namespace="shop",persistentvolumeclaim="data",persistentvolume="pv-data",node="w",device="sda",layer="disk"} 1"#,
            "volmedic_volume_device_omitted 0",
        ] {
            assert!(text.lines().any(|found| found == line), "{line} is not in\n{text}");
        }
        assert!(!text.contains("kubelet_volume_stats_inodes{"), "{text}");
    }
}
