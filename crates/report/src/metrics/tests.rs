use volmedic_health::{Change, Condition, Ending, Reason, Status, Subject, Tally, Vantage};

use super::*;

fn scrape(registry: &Registry) -> String {
    let mut text = String::new();
    prometheus_client::encoding::text::encode(&mut text, registry).unwrap();
    text
}

fn sick(claim: &str, status: Status, reason: &str) -> Sick {
    Sick {
        driver: "x.example".into(),
        namespace: "shop".into(),
        pod: None,
        claim: claim.into(),
        condition: Condition::new(status, Reason::new(reason), "words that are no label"),
    }
}

#[test]
fn what_a_scrape_shows() {
    let mut registry = Registry::default();
    let metrics = Metrics::register(&mut registry);
    register_view(&mut registry, 1000, |_| Picture {
        drivers: vec![
            DriverPicture {
                driver: "x.example".into(),
                tally: Tally { healthy: 5, data_loss: 1, unrecognized: 1, ..Tally::default() },
                blind_since: None,
            },
            DriverPicture {
                driver: "y.example".into(),
                tally: Tally::default(),
                blind_since: Some("2026-08-21T10:00:00Z".parse().unwrap()),
            },
        ],
        // The same through two vantages.
        sick: vec![
            sick("orders", Status::DataLoss, "LegsLost"),
            sick("carts", Status::Unrecognized(9), "Odd"),
            sick("orders", Status::DataLoss, "LegsLost"),
        ],
        omitted: 2,
    });
    let usage = ClaimUsage {
        namespace: "shop".into(),
        claim: "orders".into(),
        capacity: Some(1),
        available: None,
        used: None,
        inodes: None,
        inodes_free: None,
        inodes_used: None,
    };
    let picture = AgentPicture { usage: vec![usage], ..AgentPicture::default() };
    register_agent(&mut registry, move || picture.clone());
    metrics.probes.probed(
        "x.example",
        "/csi.v1.Controller/ListVolumes",
        ProbeResult::Error,
        Duration::from_secs(2),
    );
    metrics.reports.count(Outlet::Status, Verdict::Unsupported);
    metrics.reports.queued(3);
    metrics.changed(&Transition {
        at: Timestamp::UNIX_EPOCH,
        subject: Subject::backend("x.example"),
        vantage: Vantage::Controller,
        change: Change::SeesAgain { since: Timestamp::UNIX_EPOCH, ending: Ending::Recovered },
    });

    let text = scrape(&registry);
    for line in [
        r#"csi_controller_volume_health_status{driver_name="x.example",namespace="shop",persistentvolumeclaim="orders",status="DataLoss",reason="LegsLost"} 1"#,
        r#"csi_controller_volume_health_status{driver_name="x.example",namespace="shop",persistentvolumeclaim="carts",status="Unrecognized",reason="Odd"} 1"#,
        "volmedic_volume_series_omitted 2",
        r#"volmedic_volumes{driver_name="x.example",health="healthy"} 5"#,
        r#"volmedic_volumes{driver_name="x.example",health="degraded"} 0"#,
        r#"volmedic_volumes{driver_name="x.example",health="inaccessible"} 0"#,
        r#"volmedic_volumes{driver_name="x.example",health="data_loss"} 1"#,
        r#"volmedic_volumes{driver_name="x.example",health="unrecognized"} 1"#,
        r#"volmedic_volumes{driver_name="x.example",health="unknown"} 0"#,
        r#"volmedic_blind_since_seconds{driver_name="x.example"} 0"#,
        r#"volmedic_blind_since_seconds{driver_name="y.example"} 1787306400"#,
        r#"csi_volume_health_probe_total{driver_name="x.example",method_name="/csi.v1.Controller/ListVolumes",result="error"} 1"#,
        r#"csi_volume_health_probe_duration_seconds_bucket{le="2.5",driver_name="x.example",method_name="/csi.v1.Controller/ListVolumes"} 1"#,
        r#"volmedic_transitions_total{driver_name="x.example",kind="sees_again"} 1"#,
        r#"volmedic_reports_total{outlet="status",result="unsupported"} 1"#,
        "volmedic_report_queue 3",
    ] {
        assert_eq!(text.lines().filter(|found| *found == line).count(), 1, "{line} in\n{text}");
    }
    assert!(text.contains("\nprocess_start_time_seconds 1"), "{text}");
    for (name, kind, _, help) in METRICS {
        let family = if *kind == "counter" { name.trim_end_matches("_total") } else { name };
        assert!(text.contains(&format!("# TYPE {family} {kind}\n")), "{name}");
        assert!(text.contains(&format!("# HELP {family} {help}")), "{name}");
    }
}

#[test]
fn a_view_that_shows_too_much_is_cut_and_the_rest_counted() {
    let mut registry = Registry::default();
    register_view(&mut registry, 10, |limit| {
        assert_eq!(limit, 10);
        let many = (0..25).map(|n| sick(&format!("claim-{n}"), Status::Degraded, "SlowIO")).collect();
        Picture { drivers: Vec::new(), sick: many, omitted: 100 }
    });
    let text = scrape(&registry);
    assert_eq!(
        text.lines().filter(|line| line.starts_with("csi_controller_volume_health_status{")).count(),
        10
    );
    assert!(text.contains("\nvolmedic_volume_series_omitted 115\n"), "{text}");
}
