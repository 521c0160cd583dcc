use std::collections::BTreeMap;
use std::time::Instant;

use k8s_openapi::api::core::v1::Namespace;
use kube::api::{Api, DeleteParams};
use volmedic_api::{Kind, ObjectRef};
use volmedic_health::{Sight, Subject, Vantage};
use volmedic_report::Limits;
use volmedic_testkit::{ControlPlane, objects};

use crate::kit::{Desk, at, bad, counted, without_text, words};

#[tokio::test]
async fn what_kubectl_describe_shows() {
    let plane = ControlPlane::shared();
    let mut desk = Desk::open(plane, &["orders"]).await;
    desk.see(0, "orders", bad("Degraded/OutOfCapacity,99 % used"));
    desk.flush().await;

    let event = desk.events().await.pop().expect("an event");
    let claim = &desk.claims["orders"];
    let about = &event.involved_object;
    assert_eq!(about.uid.as_deref(), Some(&*claim.uid));
    assert_eq!(about.kind.as_deref(), Some("PersistentVolumeClaim"));
    assert_eq!((about.api_version.as_deref(), about.name.as_deref()), (Some("v1"), Some("orders")));
    assert_eq!(about.namespace.as_deref(), Some(&*desk.namespace));
    assert_eq!((event.type_.as_deref(), event.count), (Some("Warning"), Some(1)));
    assert_eq!(event.first_timestamp, event.last_timestamp);
    assert_eq!(event.last_timestamp.map(|time| time.0), Some(at(0)));

    desk.see(60, "orders", Sight::Healthy);
    desk.flush().await;
    let output = plane.kubectl().args(["describe", "pvc", "orders", "-n", &desk.namespace]).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let component = format!("csi-pv-monitor-controller-{}", desk.driver);
    for part in [
        "Warning",
        "VolumeConditionAbnormal",
        "Normal",
        "VolumeConditionNormal",
        &component,
        "is Degraded/OutOfCapacity (99 % used), seen by the driver's controller since",
        "Next: Free space in the volume or expand the claim.",
        "recovered from Degraded/OutOfCapacity after 1 min 0 s",
    ] {
        assert!(
            text.contains(part),
            "{part:?} is not in\n{text}\n{}",
            String::from_utf8_lossy(&output.stderr)
        );
    }
}

#[tokio::test]
async fn the_same_story_again_updates_its_event() {
    let mut desk = Desk::open(ControlPlane::shared(), &["orders"]).await;
    desk.see(0, "orders", bad("Degraded/SlowIO,5 s"));
    desk.flush().await;
    desk.see(100, "orders", Sight::Healthy);
    desk.flush().await;
    desk.see(200, "orders", bad("Degraded/SlowIO,7 s"));
    desk.flush().await;
    assert_eq!(
        desk.shown().await,
        ["orders Normal VolumeConditionNormal x1", "orders Warning VolumeConditionAbnormal x2"]
    );
    let warning = desk.events().await.pop().unwrap();
    assert!(warning.message.unwrap().contains("(7 s)"));
    assert_eq!(warning.first_timestamp.map(|time| time.0), Some(at(0)));
    assert_eq!(warning.last_timestamp.map(|time| time.0), Some(at(200)));

    // Other words are no event; a reminder is the same event again; another status is another event.
    desk.see(300, "orders", bad("Degraded/SlowIO,9 s"));
    let reminders = desk.ledger.tick(at(200 + 1_800));
    assert_eq!(reminders.len(), 1);
    desk.tell(reminders);
    desk.see(2_100, "orders", bad("DataLoss/SlowIO"));
    desk.flush().await;
    assert_eq!(
        desk.shown().await,
        [
            "orders Normal VolumeConditionNormal x1",
            "orders Warning VolumeConditionAbnormal x3",
            "orders Warning VolumeConditionAbnormal x1"
        ]
    );
}

#[tokio::test]
async fn the_same_transitions_from_another_process_count_once() {
    let mut desk = Desk::open(ControlPlane::shared(), &["a", "b"]).await;
    desk.see(0, "a", bad("Degraded/SlowIO+Inaccessible/PathsDown"));
    desk.see(0, "b", bad("DataLoss/LegsLost"));
    desk.see(60, "b", Sight::Healthy);
    desk.flush().await;
    let before = desk.events().await;
    assert_eq!(before.len(), 4);

    let notices: Vec<_> = desk.reported.iter().map(|transition| desk.notice(transition)).collect();
    let again = Desk::with(
        desk.client.clone(),
        desk.asked.clone(),
        &desk.namespace,
        desk.claims.clone(),
        Limits::default(),
    );
    for notice in &notices {
        again.reporter.tell(notice);
    }
    again.flush().await;
    assert_eq!(again.count("event", "already"), 4);
    assert_eq!(desk.events().await, before, "nothing was touched");
}

#[tokio::test]
async fn two_volumes_of_a_pod_and_two_vantages_are_different_stories() {
    let plane = ControlPlane::shared();
    let mut desk = Desk::open(plane, &["a", "b"]).await;
    let pod = objects::pod(&desk.client, &desk.namespace, "web", "worker-7", &["a", "b"]).await.unwrap();
    let pod = ObjectRef::new(Kind::Pod, &desk.namespace, "web", pod.metadata.uid.as_deref().unwrap());
    for handle in ["a", "b"] {
        for vantage in [Vantage::Node("worker-7".into()), Vantage::Host("worker-7".into())] {
            let subject = Subject::volume(desk.driver.as_str(), handle);
            for transition in
                desk.ledger.record(at(0), &subject, &vantage, bad("Inaccessible/VolumeUnmounted"))
            {
                let mut notice = desk.notice(&transition);
                notice.about = vec![pod.clone()];
                desk.reporter.tell(&notice);
            }
        }
    }
    desk.flush().await;
    assert_eq!(desk.shown().await, ["web Warning VolumeConditionAbnormal x1"; 4]);
    let text =
        plane.kubectl().args(["describe", "pod", "web", "-n", &desk.namespace]).output().unwrap().stdout;
    let text = String::from_utf8_lossy(&text).into_owned();
    assert_eq!(text.matches("VolumeConditionAbnormal").count(), 4, "{text}");
    assert_eq!(desk.stored("a").await, Vec::<String>::new(), "a pod's notice writes no claim");
}

#[tokio::test]
async fn a_thousand_immediately_and_quiet_before_and_after() {
    let plane = ControlPlane::shared();
    let namespace = plane.namespace("report").await.unwrap();
    let claim = |n: usize| {
        let name = format!("claim-{n:04}");
        (name.clone(), ObjectRef::new(Kind::PersistentVolumeClaim, &namespace, &name, &format!("uid-{n}")))
    };
    let claims: BTreeMap<String, ObjectRef> = (0..1_000).map(claim).collect();
    let (client, asked) = counted(plane, None).await;
    let mut desk = Desk::with(client, asked, &namespace, claims, Limits::default());
    let handles: Vec<String> = desk.claims.keys().cloned().collect();
    for handle in &handles {
        desk.see(0, handle, Sight::Healthy);
    }
    desk.flush().await;
    assert_eq!(desk.asked.lock().unwrap().len(), 0, "health is no news and costs no request");

    let begun = Instant::now();
    for handle in &handles {
        desk.see(60, handle, bad("Inaccessible/DiskFailure,path /dev/sdb"));
    }
    // Their status comes after the events; these claims do not exist, so it ends as gone.
    let done = || desk.count("event", "sent");
    while done() < 1_000 {
        assert!(begun.elapsed() < crate::kit::LIMIT, "{} events", done());
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
    let took = begun.elapsed();
    println!(
        "1,000 events at once: {:.2} s, {} requests",
        took.as_secs_f64(),
        desk.asked.lock().unwrap().len()
    );
    // That this takes less than ten seconds where the server keeps up is proved on a clock of its own.
    desk.flush().await;
    assert_eq!(desk.count("status", "gone"), 1_000);
    assert_eq!(desk.count("event", "retried"), 0, "the server did not have to hold us back");
    let written = desk.asked.lock().unwrap().iter().filter(|asked| asked.starts_with("POST ")).count();
    assert_eq!(written, 1_000, "one request each, and none for what was healthy");
    assert_eq!(desk.events().await.len(), 1_000);

    // More than one page of them comes back.
    let quiet = desk.asked.lock().unwrap().len();
    let begun = Instant::now();
    let recalled = desk.recall().await;
    let since = desk.asked.lock().unwrap().split_off(quiet);
    assert!(since.iter().all(|asked| asked.starts_with("GET ")), "there is nothing left to write: {since:?}");
    println!("recalling 1,000 stories: {:.2} s", begun.elapsed().as_secs_f64());
    assert_eq!(recalled.memos, without_text(desk.ledger.memos()));
    assert_eq!(words(&recalled.memos).len(), 1_000);
}

#[tokio::test]
async fn what_nobody_can_take_is_dropped_and_counted() {
    let plane = ControlPlane::shared();
    // No rights at all.
    let namespace = plane.namespace("report").await.unwrap();
    let token = plane.token(&namespace, "nobody", None).await.unwrap();
    let (client, asked) = counted(plane, Some(token)).await;
    let claim = ObjectRef::new(Kind::PersistentVolumeClaim, &namespace, "orders", "uid");
    let claims = BTreeMap::from([("orders".to_owned(), claim)]);
    let mut desk = Desk::with(client, asked, &namespace, claims, Limits::default());
    desk.see(0, "orders", bad("Degraded/SlowIO"));
    desk.flush().await;
    assert_eq!((desk.count("event", "forbidden"), desk.count("status", "forbidden")), (1, 1));
    desk.see(60, "orders", Sight::Healthy);
    desk.flush().await;
    assert_eq!(desk.count("status", "unsupported"), 1, "missing rights are not asked about at every change");

    // The namespace is going away: it never ends here, because nobody runs that would empty it.
    let mut desk = Desk::open(plane, &["orders"]).await;
    let namespaces = Api::<Namespace>::all(desk.client.clone());
    namespaces.delete(&desk.namespace, &DeleteParams::default()).await.unwrap();
    desk.see(0, "orders", bad("Degraded/SlowIO"));
    desk.flush().await;
    assert_eq!(desk.count("event", "gone"), 1);
    let nowhere = ObjectRef::new(Kind::PersistentVolumeClaim, "no-such-namespace", "orders", "uid");
    desk.claims.insert("orders".to_owned(), nowhere);
    desk.see(60, "orders", Sight::Healthy);
    desk.flush().await;
    assert_eq!(desk.count("event", "gone"), 2);
}
