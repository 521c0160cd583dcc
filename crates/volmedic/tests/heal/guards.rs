//! What stands in the way, one guard at a time. Each of these fails when its guard is taken out.

use serde_json::json;
use volmedic_api::resource::HealOutcome;
use volmedic_proto::healer::NodeHealerResponse;
use volmedic_testkit::objects;

use crate::stage::{ALONE, Clinic, Probes, QUICK, Ward, eventually};

/// Long enough for the healer to have acted on everything that was reported before: another volume is reported, and repaired.
async fn others_are_repaired(ward: &Ward, with: &[&str]) {
    ward.claim("witness", Some("auto")).await;
    let all: Vec<&str> = with.iter().copied().chain(["witness"]).collect();
    ward.unhealthy(&all).await;
    eventually("another volume is healed", async || ward.asked("witness") > 0).await;
}

#[tokio::test]
async fn what_passes_by_itself_is_left_alone() {
    let clinic = Clinic::open().await;
    let ward = clinic.ward(|fake| fake).await;
    ward.claim("data", Some("auto")).await;
    ward.claim("witness", None).await;
    let hub = clinic.hub(&[&QUICK[1..], &[ALONE, "--heal-debounce=1h"]].concat()).await;
    ward.unhealthy(&["data"]).await;
    let open = async |count: usize| {
        let line = format!("volmedic_heal_open {count}");
        eventually("the healer has heard of it", async || {
            hub.get("/metrics").await.1.lines().any(|found| found == line)
        })
        .await;
    };
    open(1).await;
    // It had time to act: what a person asks for is done meanwhile.
    let wish = ["witness", "-n", &ward.stage.namespace];
    eventually("another volume is healed", async || clinic.heal(&wish).await.0 == 0).await;
    assert_eq!((ward.asked("data"), ward.asked("witness")), (0, 1), "it has not lasted");
    ward.unhealthy(&[]).await;
    open(0).await;
    assert_eq!(ward.asked("data"), 0);
    assert_eq!(ward.reasons("data").await, [""; 0]);
    ward.end().await;
}

#[tokio::test]
async fn a_mounter_that_dies_again_immediately_is_given_up_and_reported_once() {
    let (clinic, hub) = Clinic::shared().await;
    let unhealthy = |_: &_| Ok(NodeHealerResponse { abnormal: true, message: "it died again".into() });
    let ward = clinic.ward(|fake| fake.that(unhealthy)).await;
    ward.claim("data", Some("auto")).await;
    ward.unhealthy(&["data"]).await;
    let reported = "3 tries brought no lasting success, so it was given up";
    ward.wait_reported("data", "HealingSkipped", reported).await;
    // Seen otherwise, and again: still given up, and said already.
    ward.unhealthy(&[]).await;
    ward.stage.wait_stored("data", &[&format!("host/{} Healthy", ward.node)]).await;
    ward.unhealthy(&["data"]).await;
    ward.stage
        .wait_stored("data", &[&format!("host/{} HealthFailure Inaccessible/MounterDead", ward.node)])
        .await;
    let skips = r#"volmedic_heal_skipped_total{driver_name="disk.example.net",why="gave_up"}"#;
    assert!(hub.get("/metrics").await.1.contains(skips));
    others_are_repaired(&ward, &["data"]).await;
    assert_eq!(ward.asked("data"), 3);
    let reasons = ward.reasons("data").await;
    let count = |wanted: &str| reasons.iter().filter(|reason| *reason == wanted).count();
    assert_eq!(
        (count("HealingStarted"), count("HealingFailed"), count("HealingSkipped")),
        (3, 3, 1),
        "{reasons:?}"
    );
    ward.end().await;
}

#[tokio::test]
async fn nothing_is_done_on_a_node_that_is_cordoned() {
    let (clinic, _) = Clinic::shared().await;
    let ward = clinic.ward(|fake| fake).await;
    ward.claim("data", Some("auto")).await;
    ward.patch_node(json!({"unschedulable": true})).await;
    ward.unhealthy(&["data"]).await;
    ward.wait_reported("data", "HealingSkipped", "the node is cordoned, so somebody may be at work there")
        .await;
    assert_eq!(ward.asked("data"), 0);
    ward.patch_node(json!({"unschedulable": false})).await;
    ward.wait_reported("data", "HealingSucceeded", "").await;
    ward.end().await;
}

#[tokio::test]
async fn nothing_is_done_on_a_node_that_is_down() {
    let (clinic, _) = Clinic::shared().await;
    let ward = clinic.ward(|fake| fake).await;
    ward.claim("data", Some("auto")).await;
    objects::set_node_ready(&ward.stage.client, &ward.node, "Unknown").await.unwrap();
    ward.unhealthy(&["data"]).await;
    ward.wait_reported("data", "HealingSkipped", "the node is down").await;
    assert_eq!(ward.asked("data"), 0);
    ward.end().await;
}

#[tokio::test]
async fn an_agent_that_does_not_respond_is_not_believed_any_more() {
    let (clinic, hub) = Clinic::shared().await;
    let ward = clinic.ward(|fake| fake).await;
    ward.claim("data", Some("auto")).await;
    ward.unhealthy(&[]).await;
    ward.stage.beat(&ward.node, 1).await;
    let silent = format!("host/{} HealthUnknown -/AgentNotResponding", ward.node);
    ward.stage.wait_stored("data", &[&silent]).await;
    ward.unhealthy(&["data"]).await;
    let skipped = r#"volmedic_heal_skipped_total{driver_name="disk.example.net",why="not_seen"}"#;
    eventually("it is not acted on", async || hub.get("/metrics").await.1.contains(skipped)).await;
    assert_eq!(ward.asked("data"), 0);
    ward.stage.beat(&ward.node, 600).await;
    ward.wait_reported("data", "HealingSucceeded", "").await;
    ward.end().await;
}

/// The hub's reports may be older than the volume, so the driver is asked only when a new probe confirms them.
#[tokio::test]
async fn what_a_new_probe_does_not_confirm_is_left_alone() {
    let (clinic, _) = Clinic::shared().await;
    for (probes, text) in [
        (Probes::Healthy, "found it healthy, so nothing was done"),
        (Probes::NoAnswer, "did not answer within 30 s"),
    ] {
        let ward = clinic.ward(|fake| fake).await;
        ward.claim("data", Some("auto")).await;
        ward.new_probes(probes);
        ward.unhealthy(&["data"]).await;
        ward.wait_reported("data", "HealingSkipped", text).await;
        assert_eq!(ward.asked("data"), 0, "{text}");
        let heals = ward.heals("data").await;
        assert!(heals.iter().all(|heal| heal.outcome == HealOutcome::Skipped), "{heals:#?}");
        ward.new_probes(Probes::AsReported);
        ward.wait_reported("data", "HealingSucceeded", "").await;
        assert_eq!(ward.asked("data"), 1, "{text}");
        ward.end().await;
    }
}

#[tokio::test]
async fn what_only_a_person_can_repair_is_left_alone() {
    let (clinic, _) = Clinic::shared().await;
    let ward = clinic.ward(|fake| fake).await;
    ward.claim("data", Some("auto")).await;
    ward.claim("witness", Some("auto")).await;
    let report =
        ward.stage.report(&[("data", "DataLoss", "LegsLost"), ("witness", "Inaccessible", "IOHung")]);
    ward.stage.tell(&ward.node, &report).await;
    ward.wait_reported("witness", "HealingSucceeded", "").await;
    assert_eq!(ward.asked("data"), 0);
    ward.end().await;
}

#[tokio::test]
async fn after_its_driver_restarted_each_attached_volume_is_checked_once_and_nobody_bothered() {
    let (clinic, hub) = Clinic::shared().await;
    let mut ward = clinic.ward_with(&[("data", "auto"), ("watched", "observe")]).await;
    ward.claim("detached", Some("auto")).await;
    // The answer must have come, too: a driver that ends in the middle of a check has not found the volume well.
    let (handle, end) = (ward.stage.handle("data"), "was checked: the node plugin says that it is healthy");
    let checked = || hub.log().lines().filter(|line| line.contains(&handle) && line.contains(end)).count();
    eventually("it is checked", async || checked() == 1).await;
    ward.restart_driver();
    eventually("it is checked again", async || checked() == 2).await;
    others_are_repaired(&ward, &[]).await;
    assert_eq!(ward.asked("data"), 2, "once in each life of the driver");
    assert_eq!((ward.asked("watched"), ward.asked("detached")), (0, 0));
    assert_eq!(ward.reasons("data").await, [""; 0], "it is well");
    let healing = hub.log().lines().filter(|line| line.contains(&handle) && line.contains("Healing")).count();
    assert_eq!(healing, 0, "checking is not healing");
    ward.end().await;
}
