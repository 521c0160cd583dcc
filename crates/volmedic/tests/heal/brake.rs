//! When many fail together, nobody is touched.

use crate::stage::{ALONE, Clinic, QUICK};

const VOLUMES: usize = 60;
const UNHEALTHY: usize = 50;

#[tokio::test]
async fn fifty_at_the_same_time_pull_the_brake_and_the_last_one_is_repaired() {
    let clinic = Clinic::open().await;
    let ward = clinic.ward(|fake| fake).await;
    let names: Vec<String> = (0..VOLUMES).map(|n| format!("v{n}")).collect();
    for name in &names {
        ward.claim(name, Some("auto")).await;
    }
    let hub = clinic.hub(&[&QUICK[..7], &[ALONE]].concat()).await;
    let unhealthy: Vec<&str> = names[..UNHEALTHY].iter().map(String::as_str).collect();
    ward.unhealthy(&unhealthy).await;
    for name in [&names[0], &names[UNHEALTHY - 1]] {
        let text =
            "50 of 60 volumes in the cluster are unhealthy at the same time, which looks like an outage";
        ward.wait_reported(name, "HealingSkipped", text).await;
    }
    let metrics = hub.get("/metrics").await.1;
    assert!(metrics.contains("volmedic_heal_brakes 2"), "of the driver and of the cluster");
    assert_eq!(hub.says("HealingBraked"), 2, "{}", hub.log());
    assert!(ward.fake.asked().is_empty(), "nobody is touched");
    ward.unhealthy(&unhealthy[..1]).await;
    ward.wait_reported(&names[0], "HealingSucceeded", "").await;
    assert_eq!(ward.fake.asked().len(), 1);
    ward.end().await;
}
