use http::Request;
use kube::api::{DeleteParams, Patch, PatchParams};
use serde_json::{Value, json};
use volmedic_api::{Kind, ObjectRef};
use volmedic_health::{Sight, Subject};
use volmedic_report::Support;
use volmedic_testkit::feature::is_not_run_without;
use volmedic_testkit::{ControlPlane, Feature, objects, server_has};

use crate::kit::{Desk, at, bad, without_text};

fn time(second: i64) -> String {
    format!("{:.0}", at(second))
}

#[tokio::test]
async fn a_claims_status_from_the_first_trouble_to_the_end() {
    if is_not_run_without(Feature::ClaimHealth, "a_claims_status_from_the_first_trouble_to_the_end") {
        return;
    }
    let mut desk = Desk::open(ControlPlane::shared(), &["orders"]).await;
    desk.see(0, "orders", Sight::Healthy);
    desk.flush().await;
    assert_eq!(desk.health_status("orders").await, Value::Null, "health leaves no trace");

    desk.see(10, "orders", bad("Degraded/SlowIO,5 s+Degraded/MirrorLegLost,1 of 2"));
    desk.flush().await;
    let expected = json!({
        "healthConditions": [
            {"status": "Degraded", "reason": "MirrorLegLost", "message": "1 of 2"},
            {"status": "Degraded", "reason": "SlowIO", "message": "5 s"},
        ],
        "lastTransitionTime": time(10),
    });
    assert_eq!(desk.health_status("orders").await, expected);
    assert_eq!(*desk.reporter.support().unwrap().borrow(), Support::Kept);

    desk.see(20, "orders", bad("Degraded/SlowIO,9 s+Degraded/MirrorLegLost,1 of 2"));
    desk.flush().await;
    let stored = desk.health_status("orders").await;
    assert_eq!(stored["healthConditions"][1]["message"], "9 s");
    assert_eq!(stored["lastTransitionTime"], time(10), "other words are no transition");

    desk.see(30, "orders", bad("Degraded/SlowIO,9 s"));
    desk.flush().await;
    assert_eq!(desk.stored("orders").await, ["Degraded/SlowIO"]);
    assert_eq!(desk.health_status("orders").await["lastTransitionTime"], time(30));

    desk.see(35, "orders", bad("Degraded/SlowIO,11 s"));
    desk.flush().await;
    let stored = desk.health_status("orders").await;
    assert_eq!(stored["healthConditions"][0]["message"], "11 s");
    assert_eq!(stored["lastTransitionTime"], time(30), "the set stands since the other one ended");

    desk.see(40, "orders", bad("Inaccessible/SlowIO"));
    desk.flush().await;
    assert_eq!(desk.stored("orders").await, ["Inaccessible/SlowIO"]);

    desk.see(50, "orders", Sight::Healthy);
    desk.flush().await;
    assert_eq!(
        desk.health_status("orders").await,
        json!({"lastTransitionTime": time(50)}),
        "over, and since when"
    );

    desk.see(60, "orders", bad("DataLoss/LegsLost"));
    desk.see(70, "orders", bad("DataLoss/LegsLost+Degraded/SlowIO"));
    desk.flush().await;
    let left = desk.ledger.forget(at(80), &Subject::volume(desk.driver.as_str(), "orders"));
    desk.tell(left);
    desk.flush().await;
    assert_eq!(desk.health_status("orders").await, Value::Null, "nobody says anything any more");
    let claim = desk.claim("orders").await;
    assert_eq!(claim["status"]["phase"], "Bound", "the rest of the status is not ours");
}

#[tokio::test]
async fn nothing_is_written_while_nothing_changes() {
    let mut desk = Desk::open(ControlPlane::shared(), &["orders"]).await;
    desk.see(0, "orders", bad("Degraded/SlowIO"));
    desk.flush().await;
    let asked = desk.asked.lock().unwrap().len();
    assert_eq!(asked, 2, "one event, one status: {:?}", desk.asked.lock().unwrap());
    let standing = desk.notice(&desk.reported[0]).standing;
    for second in 1..50 {
        desk.see(second, "orders", bad("Degraded/SlowIO"));
        desk.reporter.restate(&desk.claims["orders"], &standing, at(second));
    }
    desk.flush().await;
    assert_eq!(desk.asked.lock().unwrap().len(), asked);
}

/// What a recovery that was lost is made good by.
#[tokio::test]
async fn which_claims_are_said_to_be_unhealthy_is_remembered() {
    let mut desk = Desk::open_lasting(ControlPlane::shared(), &["orders", "users"]).await;
    desk.see(0, "orders", bad("Degraded/SlowIO"));
    desk.see(0, "users", bad("Degraded/SlowIO"));
    desk.flush().await;
    desk.see(10, "users", Sight::Healthy);
    desk.flush().await;
    assert_eq!(desk.reporter.reported_unhealthy(), [desk.claims["orders"].clone()]);
    desk.reporter.restate(&desk.claims["orders"], &[], at(20));
    desk.flush().await;
    assert_eq!(desk.stored("orders").await, [""; 0]);
    assert_eq!(desk.reporter.reported_unhealthy(), []);
}

#[tokio::test]
async fn a_status_that_the_api_has_no_word_for_is_not_written_and_is_not_health() {
    let mut desk = Desk::open_lasting(ControlPlane::shared(), &["orders"]).await;
    desk.see(0, "orders", bad("Degraded/SlowIO+Odd/Haunted"));
    desk.flush().await;
    assert_eq!(desk.stored("orders").await, ["Degraded/SlowIO"]);
    desk.see(10, "orders", bad("Odd/Haunted"));
    desk.flush().await;
    assert_eq!(desk.health_status("orders").await, Value::Null);
    assert_eq!(desk.count("status", "refused"), 0);
}

#[tokio::test]
async fn as_many_conditions_as_a_driver_likes() {
    if is_not_run_without(Feature::ClaimHealth, "as_many_conditions_as_a_driver_likes") {
        return;
    }
    let mut desk = Desk::open(ControlPlane::shared(), &["orders"]).await;
    let many: Vec<String> =
        (0..40).map(|n| format!("Degraded/Leg{n:02}-is.broken!,{}", "ü".repeat(900))).collect();
    desk.see(0, "orders", bad(&many.join("+")));
    desk.flush().await;
    assert_eq!(desk.stored("orders").await.len(), 16);
    assert_eq!((desk.count("status", "sent"), desk.count("status", "refused")), (1, 0));
}

#[tokio::test]
async fn another_claim_of_the_same_name_is_left_alone() {
    let mut desk = Desk::open(ControlPlane::shared(), &["orders", "carts"]).await;
    let delete = async |desk: &Desk, name: &str| {
        let patch = Patch::Merge(json!({"metadata": {"finalizers": null}}));
        desk.claims_api().patch(name, &PatchParams::default(), &patch).await.unwrap();
        desk.claims_api().delete(name, &DeleteParams::default()).await.unwrap();
    };
    delete(&desk, "orders").await;
    desk.see(0, "orders", bad("Degraded/SlowIO"));
    desk.flush().await;
    assert_eq!(desk.count("status", "gone"), 1, "deleted");

    delete(&desk, "carts").await;
    let again = json!({
        "apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "carts"},
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}, "storageClassName": ""},
    });
    let path = format!("/api/v1/namespaces/{}/persistentvolumeclaims", desk.namespace);
    let request = Request::post(path).header("content-type", "application/json");
    let _: Value = desk.client.request(request.body(again.to_string().into_bytes()).unwrap()).await.unwrap();
    desk.see(0, "carts", bad("Degraded/SlowIO"));
    desk.flush().await;
    // That the first claim was deleted is found out before the server reads the field, which older releases do not know.
    let ended = ["gone", "unsupported"].map(|end| desk.count("status", end));
    assert_eq!(ended, if server_has(Feature::ClaimHealth) { [2, 0] } else { [1, 1] }, "made anew");
    assert_eq!(desk.health_status("carts").await, Value::Null);
    assert_eq!(desk.count("event", "sent"), 2, "the events still say what happened to the old ones");
}

/// Another writer, with its own field manager.
async fn meddle(desk: &Desk, manager: &str, status: Value) {
    let params =
        PatchParams { field_manager: Some(manager.to_owned()), force: true, ..PatchParams::default() };
    let body = json!({
        "apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "orders"},
        "status": {"healthStatus": status},
    });
    desk.claims_api().patch_status("orders", &params, &Patch::Apply(body)).await.expect("a write");
}

#[tokio::test]
async fn another_writer_is_overruled_until_it_insists() {
    if is_not_run_without(Feature::ClaimHealth, "another_writer_is_overruled_until_it_insists") {
        return;
    }
    let mut desk = Desk::open(ControlPlane::shared(), &["orders"]).await;
    let theirs = json!({
        "healthConditions": [{"status": "DataLoss", "reason": "Theirs"}],
        "lastTransitionTime": time(-99),
    });
    meddle(&desk, "other", theirs.clone()).await;
    desk.see(0, "orders", bad("Degraded/SlowIO"));
    desk.flush().await;
    assert_eq!(
        desk.stored("orders").await,
        ["Degraded/SlowIO"],
        "what the driver says replaces what was stored"
    );
    desk.see(1, "orders", Sight::Healthy);
    desk.flush().await;
    assert_eq!(desk.stored("orders").await, Vec::<String>::new());

    for round in 0..10 {
        meddle(&desk, "other", theirs.clone()).await;
        let sight = if round % 2 == 0 { bad("Degraded/SlowIO") } else { Sight::Healthy };
        desk.see(10 + round, "orders", sight);
        desk.flush().await;
    }
    assert!(desk.count("status", "contested") >= 5, "{}", desk.count("status", "contested"));
    assert_eq!(desk.stored("orders").await, ["DataLoss/Theirs"], "it is theirs for now");
    let asked = desk
        .asked
        .lock()
        .unwrap()
        .iter()
        .filter(|line| line.starts_with("PATCH") && line.contains("status"))
        .count();
    assert!(asked < 40, "{asked} writes in a fight of twelve rounds, ten of them theirs");
    assert_eq!(desk.count("event", "sent"), 12, "events are told all the same");
}

#[tokio::test]
async fn a_server_that_drops_the_field_is_noticed_and_asked_rarely() {
    let plane =
        tokio::task::spawn_blocking(|| ControlPlane::options().gate("CSIVolumeHealth", false).start());
    let plane = plane.await.unwrap().unwrap();
    let mut desk = Desk::open(&plane, &["a", "b", "c"]).await;
    desk.see(0, "a", bad("Degraded/SlowIO"));
    desk.flush().await;
    assert_eq!(*desk.reporter.support().unwrap().borrow(), Support::Dropped);
    desk.see(1, "b", bad("Degraded/SlowIO"));
    desk.see(2, "a", Sight::Healthy);
    desk.flush().await;
    assert_eq!(desk.count("status", "unsupported"), 3);
    let writes = || desk.asked.lock().unwrap().iter().filter(|line| line.ends_with("/status")).count();
    assert_eq!(writes(), 1, "one write found out");
    desk.reporter.look_again();
    desk.reporter.restate(&desk.claims["b"], &desk.notice(&desk.reported[1]).standing, at(3));
    desk.flush().await;
    assert_eq!(writes(), 2, "asked to look again, it does");
    assert_eq!(desk.count("event", "sent"), 3);

    // Events alone carry a restart.
    desk.see(10, "c", bad("DataLoss/LegsLost,2 of 2"));
    desk.flush().await;
    let before = desk.ledger.memos();
    let shown = desk.shown().await;
    let (mut desk, recalled) = desk.restart().await;
    assert_eq!(recalled.memos, without_text(before));
    desk.see(20, "b", bad("Degraded/SlowIO"));
    desk.see(20, "c", bad("DataLoss/LegsLost,2 of 2"));
    desk.flush().await;
    assert_eq!(desk.shown().await, shown, "nothing is repeated");
    desk.see(30, "c", Sight::Healthy);
    desk.flush().await;
    assert!(desk.shown().await.contains(&"c Normal VolumeConditionNormal x1".to_owned()));
}

#[tokio::test]
async fn only_claims_have_a_status() {
    let plane = ControlPlane::shared();
    let mut desk = Desk::open(plane, &[]).await;
    let pod = objects::pod(&desk.client, &desk.namespace, "web", "worker-7", &[]).await.unwrap();
    let pod = ObjectRef::new(Kind::Pod, &desk.namespace, "web", pod.metadata.uid.as_deref().unwrap());
    desk.claims.insert("orders".to_owned(), pod.clone());
    desk.asked.lock().unwrap().clear();
    desk.see(0, "orders", bad("Degraded/SlowIO"));
    desk.reporter.restate(&pod, &desk.notice(&desk.reported[0]).standing, at(1));
    desk.flush().await;
    let events = format!("POST /api/v1/namespaces/{}/events", desk.namespace);
    assert_eq!(*desk.asked.lock().unwrap(), [events]);
}
