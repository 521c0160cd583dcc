use kube::api::{Api, DeleteParams, ListParams};
use serde_json::Value;
use volmedic_health::{Sight, Subject};
use volmedic_testkit::ControlPlane;

use crate::kit::{Desk, at, bad, words};

#[tokio::test]
async fn a_restart_neither_repeats_nor_loses() {
    let mut desk = Desk::open_lasting(ControlPlane::shared(), &["a", "b", "c"]).await;
    desk.see(0, "a", bad("Degraded/SlowIO,5 s+Odd/Haunted"));
    desk.see(1, "b", bad("Degraded/MirrorLegLost"));
    desk.see(2, "b", bad("DataLoss/MirrorLegLost"));
    desk.see(3, "c", bad("Inaccessible/DiskRemoved"));
    desk.see(4, "c", Sight::Healthy);
    desk.flush().await;
    let (memos, shown) = (desk.ledger.memos(), desk.shown().await);

    let (mut desk, recalled) = desk.restart().await;
    assert_eq!(recalled.memos, memos, "all that the ledger would have kept");
    assert_eq!(recalled.unsettled, Vec::new());
    let asked = desk.asked.lock().unwrap().len();
    desk.see(100, "a", bad("Degraded/SlowIO,5 s+Odd/Haunted"));
    desk.see(100, "b", bad("DataLoss/MirrorLegLost"));
    desk.see(100, "c", Sight::Healthy);
    desk.flush().await;
    assert_eq!(desk.asked.lock().unwrap().len(), asked, "nothing changed, so nothing is written");
    assert_eq!(desk.shown().await, shown);

    // What recovered while nobody looked is reported once.
    let (mut desk, _) = desk.restart().await;
    desk.see(200, "b", Sight::Healthy);
    desk.see(201, "b", Sight::Healthy);
    desk.flush().await;
    assert_eq!(desk.reported.len(), 1);
    assert_eq!(desk.stored("b").await, Vec::<String>::new());
    assert_eq!(words(&desk.recall().await.memos), words(&desk.ledger.memos()));
}

#[tokio::test]
async fn status_remembers_after_the_events_are_gone() {
    let mut desk = Desk::open_lasting(ControlPlane::shared(), &["a", "b"]).await;
    desk.see(0, "a", bad("Degraded/SlowIO"));
    desk.see(5, "b", bad("Degraded/SlowIO"));
    desk.see(6, "b", Sight::Healthy);
    desk.flush().await;
    let events = Api::<k8s_openapi::api::core::v1::Event>::namespaced(desk.client.clone(), &desk.namespace);
    events.delete_collection(&DeleteParams::default(), &ListParams::default()).await.unwrap();
    let (mut desk, recalled) = desk.restart().await;
    assert_eq!(words(&recalled.memos), words(&[recalled.memos[0].clone()]));
    assert_eq!(recalled.memos[0].reported[0].since, at(0));
    desk.see(100, "a", bad("Degraded/SlowIO"));
    desk.see(100, "b", Sight::Healthy);
    desk.flush().await;
    assert_eq!(desk.shown().await, Vec::<String>::new(), "it was told; a reminder will say it again");
    let reminders = desk.ledger.tick(at(3_600));
    desk.tell(reminders);
    desk.see(4_000, "a", Sight::Healthy);
    desk.flush().await;
    assert_eq!(
        desk.shown().await,
        ["a Warning VolumeConditionAbnormal x1", "a Normal VolumeConditionNormal x1"]
    );
}

/// Where claims keep nothing, the first write of a process may be to take away what an earlier one stored.
#[tokio::test]
async fn what_nothing_stands_for_any_more_is_taken_from_a_volume_health_after_a_restart() {
    let plane =
        tokio::task::spawn_blocking(|| ControlPlane::options().gate("CSIVolumeHealth", false).start());
    let plane = plane.await.unwrap().unwrap();
    let mut desk = Desk::open_in_volume_healths(&plane, &["orders"]).await;
    desk.see(0, "orders", bad("Degraded/SlowIO"));
    desk.flush().await;
    assert_eq!(desk.stored("orders").await, ["Degraded/SlowIO"]);
    let (mut desk, _) = desk.restart().await;
    let left = desk.ledger.forget(at(80), &Subject::volume(desk.driver.as_str(), "orders"));
    desk.tell(left);
    desk.flush().await;
    assert_eq!(desk.controller_report("orders").await, Value::Null);
}

/// Numbers that look random and are the same for the same seed.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, limit: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(self.0 >> 33).unwrap_or(0) % limit
    }
}

#[tokio::test]
async fn killed_at_any_moment_the_end_is_the_same() {
    let handles = ["a", "b", "c", "d", "e", "f"];
    let sights =
        ["", "Degraded/SlowIO", "DataLoss/SlowIO", "Degraded/SlowIO+Inaccessible/PathsDown", "Odd/Haunted"];
    let sight = |what: usize| if what == 0 { Sight::Healthy } else { bad(sights[what]) };
    let mut desk = Desk::open_lasting(ControlPlane::shared(), &handles).await;
    let mut numbers = Numbers(volmedic_testkit::seed("killed_at_any_moment_the_end_is_the_same"));
    let mut now = 0;
    let mut last = [0_usize; 6];
    for round in 0..20 {
        for _ in 0..10 {
            now += 1;
            let (which, what) = (numbers.below(6), numbers.below(5));
            last[which] = what;
            desk.see(now, handles[which], sight(what));
        }
        // Dies with some of it sent, some on the way, some not.
        let pause = u64::try_from(numbers.below(40)).unwrap();
        tokio::time::sleep(std::time::Duration::from_millis(pause)).await;
        (desk, _) = desk.restart().await;
        // Checks everything, as every pass does.
        for (handle, what) in handles.iter().zip(last) {
            now += 1;
            desk.see(now, handle, sight(what));
        }
        desk.flush().await;
        for (handle, what) in handles.iter().zip(last) {
            let mut expected: Vec<&str> = sights[what].split('+').collect();
            expected.retain(|word| !word.is_empty() && !word.starts_with("Odd"));
            expected.sort_unstable();
            assert_eq!(desk.stored(handle).await, expected, "{handle} in round {round}");
        }
        let wrong = words(&desk.ledger.memos());
        let by_events = desk.recall_from(false).await;
        assert_eq!(
            words(&by_events.memos),
            wrong,
            "what the events say is open is what is wrong, round {round}"
        );
        let recalled = desk.recall().await;
        assert_eq!(words(&recalled.memos), wrong, "round {round}");
        assert_eq!(recalled.unsettled, Vec::new(), "round {round}");
    }
}
