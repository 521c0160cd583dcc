use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use volmedic_api::ObjectRef;
use volmedic_health::Sight;
use volmedic_report::Limits;
use volmedic_testkit::{ControlPlane, Feature, Part, server_has};

use crate::kit::{Desk, LIMIT, bad, words};

#[tokio::test]
async fn what_happens_while_the_api_server_is_away_is_reported_when_it_is_back() {
    let plane = tokio::task::spawn_blocking(|| ControlPlane::options().start()).await.unwrap().unwrap();
    let plane = Arc::new(plane);
    let handles: Vec<String> = (0..30).map(|n| format!("claim-{n:02}")).collect();
    let names: Vec<&str> = handles.iter().map(String::as_str).collect();
    let mut desk = Desk::open_lasting(&plane, &names).await;
    desk.see(0, "claim-00", bad("Degraded/SlowIO"));
    desk.flush().await;

    let stopped = plane.clone();
    tokio::task::spawn_blocking(move || stopped.stop_apiserver().unwrap()).await.unwrap();
    // Bad, well, bad again; the last third recovers for good.
    for round in 0..3 {
        for (n, handle) in handles.iter().enumerate() {
            let well = round == 1 || (round == 2 && n >= 20);
            let sight = if well { Sight::Healthy } else { bad("Degraded/SlowIO+Inaccessible/PathsDown") };
            desk.see(100 * (round + 1), handle, sight);
        }
        tokio::time::sleep(Duration::from_millis(700)).await;
    }
    // Two stories, each with its end, and a status for each claim, or also a VolumeHealth: no more, however often it changed.
    let each = if server_has(Feature::ClaimHealth) { 5 } else { 6 };
    assert!(desk.reporter.backlog() <= 30 * each, "{} wait", desk.reporter.backlog());
    assert!(desk.count("event", "sent") <= 1);
    let flush = tokio::time::timeout(LIMIT, desk.reporter.flush(Duration::from_secs(1)));
    assert!(flush.await.expect("a flush ends") > 0, "sent or not");

    let started = plane.clone();
    tokio::task::spawn_blocking(move || started.start_apiserver().unwrap()).await.unwrap();
    desk.flush().await;
    for (n, handle) in handles.iter().enumerate() {
        let expected: &[&str] = if n < 20 { &["Degraded/SlowIO", "Inaccessible/PathsDown"] } else { &[] };
        assert_eq!(desk.stored(handle).await, expected, "{handle}");
    }
    let shown = desk.shown().await;
    let times = |line: &str| shown.iter().filter(|found| *found == line).count();
    assert_eq!(times("claim-05 Warning VolumeConditionAbnormal x2"), 2, "each occurrence counts: {shown:?}");
    assert_eq!(times("claim-05 Normal VolumeConditionNormal x1"), 2);
    assert_eq!(times("claim-25 Warning VolumeConditionAbnormal x1"), 2);
    assert_eq!(desk.count("event", "overflow"), 0);
    assert_eq!(words(&desk.recall().await.memos), words(&desk.ledger.memos()));
}

#[tokio::test]
async fn a_queue_that_runs_over_stays_bounded_and_a_frozen_server_holds_nobody() {
    let plane = tokio::task::spawn_blocking(|| ControlPlane::options().start()).await.unwrap().unwrap();
    let desk = Desk::open(&plane, &[]).await;
    let claim = |n: usize| {
        let name = format!("claim-{n}");
        let uid = format!("uid-{n}");
        (
            name.clone(),
            ObjectRef::new(volmedic_api::Kind::PersistentVolumeClaim, &desk.namespace, &name, &uid),
        )
    };
    let claims: BTreeMap<String, ObjectRef> = (0..500).map(claim).collect();
    let limits = Limits { capacity: 100, ..Limits::default() };
    let mut desk = Desk::with(desk.client.clone(), desk.asked.clone(), &desk.namespace, claims, limits);
    plane.pause(Part::ApiServer).unwrap();
    let handles: Vec<String> = desk.claims.keys().cloned().collect();
    // Reporting never waits: this is the only thread, and the server answers nobody.
    for handle in &handles {
        desk.see(0, handle, bad("Degraded/SlowIO"));
        assert!(desk.reporter.backlog() <= 100 + 16);
    }
    let lost = desk.count("event", "overflow") + desk.count("status", "overflow");
    assert!((1_000 - 116..=1_000 - 100).contains(&lost), "{lost}");
    plane.resume(Part::ApiServer).unwrap();
    desk.flush().await;
    let ended = ["sent", "already", "gone"].map(|end| desk.count("event", end) + desk.count("status", end));
    assert_eq!(ended.iter().sum::<u64>() + lost, 1_000, "every report is accounted for");
}
