//! Every account that may create events can write what looks like ours. A controller that starts does not act on it.

use k8s_openapi::api::core::v1::Event;
use kube::Api;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use serde_json::json;
use volmedic_testkit::sim::capability as can;
use volmedic_testkit::{Feature, server_has};

use crate::server::Request;
use crate::stage::{DATA_LOSS, DEGRADED, Stage};

const STORY: &str = "volmedic.dev/story";
const ROUND: &str = "ControllerListVolumeHealth";

/// An event of a tenant of another namespace, on an object of theirs, with a record about somebody else's volume.
async fn forge(stage: &Stage, claim: &str, status: &str, reason: &str, state: &str) {
    let evil = stage.plane.namespace("tenant").await.expect("a namespace");
    let now = jiff::Timestamp::now();
    let story = json!({
        "driver": stage.driver, "handle": stage.handle(claim), "vantage": "controller", "about": "condition",
        "status": status, "reason": reason, "kind": "appeared", "message": "forged text",
        "since": now, "at": now, "state": state,
    });
    let component = format!("csi-pv-monitor-controller-{}", stage.driver);
    let event = json!({
        "metadata": {"name": "forged", "annotations": {STORY: story.to_string()}},
        "involvedObject": {"apiVersion": "v1", "kind": "ConfigMap", "namespace": evil, "name": "mine", "uid": "1"},
        "reason": "VolumeConditionAbnormal", "message": "forged text", "type": "Warning", "count": 1,
        "source": {"component": component}, "reportingComponent": component,
        "firstTimestamp": "2026-01-01T00:00:00Z", "lastTimestamp": "2026-01-01T00:00:00Z",
    });
    let event: Event = serde_json::from_value(event).expect("an event");
    let api: Api<Event> = Api::namespaced(stage.client.clone(), &evil);
    api.create(&PostParams::default(), &event).await.expect("any account that may create events can do this");
}

fn texts(events: &[Event]) -> Vec<&str> {
    events.iter().filter_map(|event| event.message.as_deref()).collect()
}

#[tokio::test]
async fn an_event_of_another_namespace_reports_nothing_about_a_volume() {
    let stage = Stage::new(&[can::LIST_VOLUME_HEALTH]).await;
    stage.claims(&["victim"]).await;
    forge(&stage, "victim", "DataLoss", "DiskFailure", "open").await;
    let controller = stage.watching(&[]).await;
    stage.rounds(ROUND, 4).await;
    assert_eq!(controller.terminate(), Some(0), "all that was to be reported is sent");
    assert_eq!(texts(&stage.events("victim").await), Vec::<&str>::new());
    assert_eq!(stage.stored("victim").await, Vec::<String>::new());
}

#[tokio::test]
async fn an_event_of_another_namespace_neither_hides_nor_words_real_trouble() {
    let stage = Stage::new(&[can::LIST_VOLUME_HEALTH]).await;
    stage.claims(&["victim"]).await;
    stage.harm("victim", DEGRADED, "OutOfCapacity", "99 % used");
    forge(&stage, "victim", "Degraded", "OutOfCapacity", "open").await;
    let controller = stage.watching(&[]).await;
    stage.event("victim", "VolumeConditionAbnormal", "99 % used").await;
    stage.wait_stored("victim", &["Degraded/OutOfCapacity"]).await;
    assert_eq!(controller.terminate(), Some(0), "all that was to be reported is sent");
    let events = stage.events("victim").await;
    assert_eq!(events.len(), 1, "{:?}", texts(&events));
    assert!(texts(&events).iter().all(|text| !text.contains("forged")), "{:?}", texts(&events));
}

/// The end of a real problem is forged while no controller runs.
#[tokio::test]
async fn an_end_forged_in_another_namespace_does_not_hide_the_real_one() {
    let stage = Stage::new(&[can::LIST_VOLUME_HEALTH]).await;
    stage.claims(&["victim"]).await;
    stage.harm("victim", DEGRADED, "OutOfCapacity", "99 % used");
    let mut controller = stage.watching(&[]).await;
    stage.wait_stored("victim", &["Degraded/OutOfCapacity"]).await;
    controller.kill();
    forge(&stage, "victim", "Degraded", "OutOfCapacity", "closed").await;
    stage.repair("victim");
    let _controller = stage.watching(&[]).await;
    stage.event("victim", "VolumeConditionNormal", "recovered from").await;
    stage.wait_stored("victim", &[]).await;
}

/// An account of the claim's own namespace can forge an event on the claim, under the right name. It is not stored as the
/// claim's health, and its text is not used.
#[tokio::test]
async fn an_event_forged_on_the_claim_itself_is_not_stored_as_its_health() {
    let stage = Stage::new(&[can::LIST_VOLUME_HEALTH]).await;
    stage.claims(&["data"]).await;
    let mut controller = stage.watching(&[]).await;
    stage.harm("data", DATA_LOSS, "DiskFailure", "gone");
    stage.wait_stored("data", &["DataLoss/DiskFailure"]).await;
    stage.repair("data");
    let end = stage.event("data", "VolumeConditionNormal", "recovered from").await;
    stage.wait_stored("data", &[]).await;
    controller.kill();

    let api: Api<Event> = Api::namespaced(stage.client.clone(), &stage.namespace);
    let end = end.metadata.name.expect("a name");
    api.delete(&end, &DeleteParams::default()).await.expect("it is deleted");
    let warning = api.list(&ListParams::default()).await.expect("events").items.remove(0).metadata;
    let story = &warning.annotations.as_ref().expect("a record")[STORY];
    let mut story: serde_json::Value = serde_json::from_str(story).expect("JSON");
    story["message"] = json!("forged text");
    story["at"] = json!("2999-01-01T00:00:00Z");
    let patch = json!({"metadata": {"annotations": {STORY: story.to_string()}}});
    let name = warning.name.expect("a name");
    api.patch(&name, &PatchParams::default(), &Patch::Merge(patch)).await.expect("it is forged");

    let before = stage.requests_noted().await;
    let controller = stage.watching(&[]).await;
    stage.rounds(ROUND, 4).await;
    assert_eq!(controller.terminate(), Some(0), "all that was to be reported is sent");
    stage.requests_noted().await;
    let stored: Vec<_> =
        stage.writes_after(before).into_iter().filter(|write| write.resource != "events").collect();
    // A new process finds out by one write that a release refuses that it keeps no health in claims.
    let refused = |write: &Request| {
        !server_has(Feature::ClaimHealth)
            && write.is("patch", "persistentvolumeclaims/status")
            && write.code == 500
    };
    assert!(stored.iter().all(|write| write.resource == "leases" || refused(write)), "{stored:?}");
    assert!(stored.iter().filter(|write| refused(write)).count() <= 1, "{stored:?}");
    let events = stage.events("data").await;
    assert!(texts(&events).iter().all(|text| !text.contains("forged")), "{:?}", texts(&events));
}
