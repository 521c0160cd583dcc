//! How much the healer does, by whose word.

use jiff::Timestamp;
use volmedic_api::resource::HealOutcome;

use crate::stage::{Clinic, eventually};

#[tokio::test]
async fn auto_repairs_and_reports_the_story_in_order() {
    let (clinic, hub) = Clinic::shared().await;
    let ward = clinic.ward(|fake| fake).await;
    ward.claim("data", Some("auto")).await;
    ward.unhealthy(&["data"]).await;
    ward.wait_reported("data", "HealingSucceeded", "(mounter restarted)").await;
    ward.unhealthy(&[]).await;
    for (kind, name) in [("PersistentVolumeClaim", "data"), ("Pod", "data")] {
        eventually("the whole story is reported", async || ward.events(kind, name).await.len() == 2).await;
        let events = ward.events(kind, name).await;
        let reported: Vec<_> = events.iter().map(|(reason, _)| reason.as_str()).collect();
        assert_eq!(reported, ["HealingStarted", "HealingSucceeded"], "on the {kind}");
        assert!(
            events[0].1.contains("because of MounterDead since 2026-08-21T10:00:00Z (try 1)"),
            "{events:?}"
        );
    }
    assert_eq!(ward.asked("data"), 1);
    eventually("it is kept", async || {
        let heals = ward.heals("data").await;
        matches!(&heals[..], [heal] if heal.outcome == HealOutcome::Succeeded && heal.attempt == 1)
    })
    .await;
    let heals = ward.heals("data").await;
    assert_eq!(heals[0].node.as_deref(), Some(ward.node.as_str()));
    let metrics = hub.get("/metrics").await.1;
    let series =
        r#"volmedic_heal_seconds_count{driver_name="disk.example.net",remedy="NodeHealer",result="well"}"#;
    assert!(metrics.contains(series));
    let handle = ward.stage.handle("data");
    let lines = |kind: &str| {
        let log = hub.log();
        log.lines().filter(|line| line.contains(&handle) && line.contains(kind)).count()
    };
    assert_eq!(
        (lines("HealingStarted"), lines("HealingSucceeded")),
        (1, 1),
        "one record in the log for each"
    );
    ward.end().await;
}

#[tokio::test]
async fn observe_says_once_what_it_would_do_and_the_claims_word_counts_immediately() {
    let (clinic, _) = Clinic::shared().await;
    let ward = clinic.ward(|fake| fake).await;
    ward.claim("data", None).await;
    ward.claim("off", Some("off")).await;
    ward.unhealthy(&["data", "off"]).await;
    let text = "healing only observes by default; it would ask the node plugin to heal the volume";
    ward.wait_reported("data", "HealingSkipped", text).await;
    assert!(ward.fake.asked().is_empty());
    let namespace = ward.stage.namespace.as_str();
    let report = async |format: &str| {
        let (code, said, log) = clinic.heal(&["--report", "-n", namespace, "-o", format]).await;
        assert_eq!(code, 0, "{said}{log}");
        said
    };
    eventually("the report has it", async || {
        let report: serde_json::Value = serde_json::from_str(&report("json").await).unwrap();
        let rows = report["rows"].as_array().unwrap();
        let expected = serde_json::json!({"claim": "data", "remedy": "NodeHealer", "whyNot": "observe",
                                          "reason": "MounterDead", "node": ward.node});
        let same = |row: &serde_json::Value| {
            expected.as_object().unwrap().iter().all(|(key, value)| row[key] == *value)
        };
        rows.len() == 1 && same(&rows[0]) && rows[0]["unhealthyUntil"].is_null()
    })
    .await;
    let table = report("table").await;
    assert!(
        table.contains(&format!("{namespace}/data  {}  NodeHealer  MounterDead  observe", ward.node)),
        "{table}"
    );
    assert!(report("markdown").await.contains("1 in all, of which 1 are not over."));
    ward.annotate("data", "volmedic.dev/heal", "auto").await;
    ward.wait_reported("data", "HealingSucceeded", "").await;
    assert_eq!(ward.reasons("data").await, ["HealingSkipped", "HealingStarted", "HealingSucceeded"]);
    assert_eq!(ward.reasons("off").await, [""; 0], "nothing is done and nothing is said");
    assert_eq!(ward.asked("off"), 0);
    ward.end().await;
}

#[tokio::test]
async fn approve_waits_for_a_persons_consent() {
    let (clinic, _) = Clinic::shared().await;
    let ward = clinic.ward(|fake| fake).await;
    ward.claim("data", Some("approve")).await;
    // Given in another trouble than this one.
    ward.annotate("data", "volmedic.dev/heal-approved", "2026-08-21T09:00:00Z").await;
    ward.unhealthy(&["data"]).await;
    ward.wait_reported(
        "data",
        "HealingSkipped",
        "healing needs a person's consent by the claim's annotation",
    )
    .await;
    let namespace = ward.stage.namespace.as_str();
    let approve = async |remedy: &str| {
        let (code, said, log) =
            clinic.heal(&["data", "-n", namespace, "--approve", "--remedy", remedy]).await;
        assert_eq!(code, 0, "{said}{log}");
        said
    };
    let said = approve("RecreatePods").await;
    assert!(said.contains("consent to RecreatePods for the current problem"), "{said}");
    let annotations = ward.claims().get("data").await.unwrap().metadata.annotations.unwrap();
    let at: Timestamp = annotations["volmedic.dev/heal-recreate-pods-approved"].parse().unwrap();
    assert!(Timestamp::now().duration_since(at).as_secs() < 60);
    assert_eq!(annotations["volmedic.dev/heal-approved"], "2026-08-21T09:00:00Z", "that is another remedy");
    assert!(ward.fake.asked().is_empty());
    approve("NodeHealer").await;
    ward.wait_reported("data", "HealingSucceeded", "").await;
    assert_eq!(ward.asked("data"), 1);
    ward.end().await;
}
