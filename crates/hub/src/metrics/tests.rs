use serde_json::json;

use super::*;
use crate::world::Source;
use crate::{Now, shape};

fn scrape(registry: &Registry) -> String {
    let mut text = String::new();
    prometheus_client::encoding::text::encode(&mut text, registry).unwrap();
    text
}

fn claim(world: &mut World, name: &str, status: Option<&str>) {
    let conditions = status.map(|status| json!([{"status": status, "reason": "Broken"}]));
    let body: shape::Claim = serde_json::from_value(json!({
        "metadata": {"annotations": {"volume.kubernetes.io/storage-provisioner": "disk.example.net"}},
        "spec": {"volumeName": format!("pv-{name}")},
        "status": {"healthStatus": {"healthConditions": conditions}},
    }))
    .unwrap();
    world.put_claim("shop", name, &format!("uid-{name}"), &body);
}

fn judged(mut world: World) -> Arc<Mutex<World>> {
    while let Some(key) = world.take_unjudged() {
        world.judge("2026-08-21T12:00:00Z".parse().unwrap(), &key);
    }
    Arc::new(Mutex::new(world))
}

#[test]
fn what_a_scrape_of_the_hub_shows() {
    let mut registry = Registry::default();
    let metrics = Metrics::register(&mut registry);
    metrics.wrote("applied");
    assert!(!scrape(&registry).contains("volmedic_claims"), "a replica that does not lead knows nothing");
    let mut world = World::default();
    claim(&mut world, "broken", Some("Inaccessible"));
    claim(&mut world, "slow", Some("Degraded"));
    claim(&mut world, "odd", Some("Surprising"));
    claim(&mut world, "alone", None);
    let volume = json!({"spec": {"claimRef": {"namespace": "shop", "name": "alone", "uid": "uid-alone"}}});
    world.put_volume("pv-alone", &serde_json::from_value(volume).unwrap());
    let pod = json!({"spec": {"nodeName": "w", "volumes": [{"name": "x", "persistentVolumeClaim": {"claimName": "alone"}}]}});
    world.put_pod("shop", "web", &serde_json::from_value(pod).unwrap());
    world.set_nodes(["w".into()].into());
    for source in [Source::Claims, Source::Volumes, Source::Reports, Source::Leases, Source::Controllers] {
        world.heard(source);
    }
    let now = Now { day: "2026-08-21T12:00:00Z".parse().unwrap(), clock: std::time::Instant::now() };
    world.tick(now, true);
    metrics.attach(judged(world));
    let text = scrape(&registry);
    for line in [
        r#"volmedic_claim_health_status{driver_name="disk.example.net",namespace="shop",persistentvolumeclaim="broken",node="",vantage="controller",status="Inaccessible",reason="Broken"} 1"#,
        r#"volmedic_claim_health_status{driver_name="disk.example.net",namespace="shop",persistentvolumeclaim="slow",node="",vantage="controller",status="Degraded",reason="Broken"} 1"#,
        r#"volmedic_claim_health_status{driver_name="disk.example.net",namespace="shop",persistentvolumeclaim="odd",node="",vantage="controller",status="Unrecognized",reason="Broken"} 1"#,
        "volmedic_claim_health_omitted 0",
        r#"volmedic_claims{health="HealthFailure",reason="",in_use="false"} 1"#,
        r#"volmedic_claims{health="HealthWarning",reason="",in_use="false"} 1"#,
        r#"volmedic_claims{health="HealthUnknown",reason="Other",in_use="false"} 1"#,
        r#"volmedic_claims{health="HealthUnknown",reason="NotProbed",in_use="true"} 1"#,
        r#"volmedic_claims{health="HealthUnknown",reason="NotProbed",in_use="false"} 0"#,
        r#"volmedic_claims{health="Healthy",reason="",in_use="true"} 0"#,
        r#"volmedic_hub_claims{health="HealthFailure"} 0"#,
    ] {
        assert_eq!(text.lines().filter(|found| *found == line).count(), 1, "{line} in\n{text}");
    }
    assert_eq!(text.lines().filter(|line| line.starts_with("volmedic_claims{")).count(), 26, "{text}");
    assert!(!text.contains("persistentvolumeclaim=\"alone\""), "only its number is known:\n{text}");
    for (name, kind, _, help) in METRICS {
        let family = if *kind == "counter" { name.trim_end_matches("_total") } else { name };
        assert!(text.contains(&format!("# TYPE {family} {kind}\n")), "{name}");
        assert!(text.contains(&format!("# HELP {family} {help}")), "{name}");
    }
}

#[test]
fn series_of_single_claims_are_bounded_and_the_rest_counted() {
    let mut registry = Registry::default();
    let metrics = Metrics::register(&mut registry);
    let mut world = World::default();
    for number in 0..SERIES + 25 {
        claim(&mut world, &format!("slow-{number:04}"), Some("Degraded"));
    }
    claim(&mut world, "worse", Some("DataLoss"));
    metrics.attach(judged(world));
    let text = scrape(&registry);
    let series = text.lines().filter(|line| line.starts_with("volmedic_claim_health_status{"));
    assert_eq!(series.count(), SERIES);
    assert!(text.contains("persistentvolumeclaim=\"worse\""), "the worst is shown first");
    assert!(text.contains("\nvolmedic_claim_health_omitted 26\n"), "{text}");
}
