use tokio::sync::Notify;

use super::*;
use crate::fake::{DRIVER, arrived, volume};
use crate::follow::Sink;

fn scrape(registry: &Registry) -> String {
    let mut text = String::new();
    prometheus_client::encoding::text::encode(&mut text, registry).unwrap();
    text
}

#[tokio::test(start_paused = true)]
async fn what_a_scrape_shows() {
    let mut registry = Registry::default();
    let metrics = Metrics::register(&mut registry);
    assert_eq!(scrape(&registry), "# EOF\n");

    let volumes = Arc::new(Volumes::new(DRIVER, Arc::new(Notify::new())));
    for object in [volume("a", "h", "ns/x/u1"), volume("b", "i", "")] {
        let object = arrived(&object);
        volumes.put(&object, object.body.as_ref().unwrap()).unwrap();
    }
    let links =
        ["persistentvolumes", "nodes"].map(|resource| Arc::new(Link::new(resource, Arc::new(Notify::new()))));
    links[0].listed();
    links[1].skipped("", "n1", "no sense");
    metrics.attach(Counted::Driver(volumes), links.to_vec());
    tokio::time::advance(std::time::Duration::from_secs(90)).await;

    let text = scrape(&registry);
    for line in [
        "volmedic_inventory_volumes{driver_name=\"disk.example.net\"} 1",
        "volmedic_inventory_persistentvolumes{driver_name=\"disk.example.net\"} 2",
        "volmedic_inventory_stale_seconds{resource=\"persistentvolumes\"} 0.0",
        "volmedic_inventory_stale_seconds{resource=\"nodes\"} 90.0",
        "volmedic_inventory_malformed_total{resource=\"persistentvolumes\"} 0",
        "volmedic_inventory_malformed_total{resource=\"nodes\"} 1",
        "volmedic_inventory_lists_total{resource=\"persistentvolumes\"} 1",
        "volmedic_inventory_lists_total{resource=\"nodes\"} 0",
    ] {
        assert!(text.contains(&format!("{line}\n")), "missing {line} in\n{text}");
    }
    for (name, kind, labels, help) in METRICS {
        let family = name.trim_end_matches("_total");
        assert!(text.contains(&format!("# TYPE {family} {kind}\n")), "{name}");
        assert!(text.contains(&format!("# HELP {family} {help}")), "{name}");
        assert!(text.contains(&format!("\n{name}{{{}=", labels.join(","))), "{name}");
    }
}
