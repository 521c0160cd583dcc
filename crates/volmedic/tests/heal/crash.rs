//! Healers that are killed: nothing is done twice, nothing is lost, and nothing is reported again.

use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use volmedic_api::resource::HealOutcome;
use volmedic_proto::healer::NodeHealerResponse;

use crate::stage::{ALONE, Clinic, QUICK, eventually};

/// A driver that is at work until it is let go, for each question in turn.
#[derive(Default)]
struct Gate {
    open: Mutex<bool>,
    turned: Condvar,
}

impl Gate {
    fn pass(&self) {
        let open = self.open.lock().unwrap();
        let limit = Duration::from_mins(1);
        drop(self.turned.wait_timeout_while(open, limit, |open| !*open).unwrap());
    }

    fn open(&self) {
        *self.open.lock().unwrap() = true;
        self.turned.notify_all();
    }
}

#[tokio::test]
async fn killed_in_the_middle_it_neither_doubles_nor_loses() {
    const DEADLINE: SignedDuration = SignedDuration::from_secs(8);
    let clinic = Clinic::open().await;
    let (gate, began) = (Arc::new(Gate::default()), Arc::new(Mutex::new(Vec::new())));
    let (at_work, times) = (gate.clone(), began.clone());
    let ward = clinic
        .ward(|fake| {
            fake.that(move |_| {
                times.lock().unwrap().push(Timestamp::now());
                at_work.pass();
                Ok(NodeHealerResponse { abnormal: false, message: "mended".into() })
            })
        })
        .await;
    ward.claim("data", Some("auto")).await;
    let arguments = [&QUICK[..6], &QUICK[7..], &[ALONE, "--heal-deadline=8s"]].concat();
    let mut first = clinic.hub(&arguments).await;
    ward.unhealthy(&["data"]).await;
    eventually("the driver is asked", async || ward.asked("data") == 1).await;
    let begun = ward.heals("data").await;
    assert!(
        matches!(&begun[..], [heal] if heal.outcome == HealOutcome::Started),
        "written before: {begun:?}"
    );
    first.kill();
    gate.open();

    let second = clinic.hub(&arguments).await;
    assert!(second.says("was under way when an earlier healer ended") >= 1, "{}", second.log());
    ward.wait_reported("data", "HealingFailed", "nobody knows what became of it").await;
    // The agent still sees it unhealthy, so it is not lost, either.
    ward.wait_reported("data", "HealingSucceeded", "(mended)").await;
    ward.unhealthy(&[]).await;
    let times = began.lock().unwrap().clone();
    assert_eq!(times.len(), 2);
    let over = begun[0].time.0 + DEADLINE;
    assert!(times[1] >= over, "asked again at {}, and the first may last until {over}", times[1]);
    let reasons = ward.reasons("data").await;
    let story = ["HealingStarted", "HealingFailed", "HealingStarted", "HealingSucceeded"];
    assert_eq!(reasons, story, "the first is closed before the second begins");
    eventually("both are kept", async || {
        let heals = ward.heals("data").await;
        let kept: Vec<_> =
            heals.iter().map(|heal| (heal.outcome, heal.attempt, heal.code.as_str())).collect();
        kept == [(HealOutcome::Succeeded, 2, "well"), (HealOutcome::Failed, 1, "lost")]
    })
    .await;
    ward.end().await;
}

#[tokio::test]
async fn what_was_given_up_and_reported_stays_so_in_the_next_life() {
    let clinic = Clinic::open().await;
    let unhealthy = |_: &_| Ok(NodeHealerResponse { abnormal: true, message: "it died again".into() });
    let ward = clinic.ward(|fake| fake.that(unhealthy)).await;
    ward.claim("data", Some("auto")).await;
    ward.claim("watched", None).await;
    // Healthy, so that what the next life checks on its own has an end that can be waited for.
    let arguments = [&QUICK[..], &[ALONE]].concat();
    let mut first = clinic.hub(&arguments).await;
    ward.unhealthy(&["data", "watched"]).await;
    ward.wait_reported("data", "HealingSkipped", "so it was given up").await;
    ward.wait_reported("watched", "HealingSkipped", "healing only observes").await;
    eventually("it is written down", async || {
        let kept =
            |heals: &[volmedic_api::resource::Heal], code: &str| heals.iter().any(|heal| heal.code == code);
        kept(&ward.heals("data").await, "gave_up") && kept(&ward.heals("watched").await, "observe")
    })
    .await;
    let before = (ward.reasons("data").await, ward.reasons("watched").await);
    first.kill();
    // As if the API server had forgotten its events, which it does after an hour.
    let events = kube::Api::<k8s_openapi::api::core::v1::Event>::namespaced(
        ward.stage.client.clone(),
        &ward.stage.namespace,
    );
    events
        .delete_collection(&kube::api::DeleteParams::default(), &kube::api::ListParams::default())
        .await
        .unwrap();

    let second = clinic.hub(&arguments).await;
    ward.claim("witness", Some("auto")).await;
    ward.unhealthy(&["data", "watched", "witness"]).await;
    ward.wait_reported("witness", "HealingSkipped", "so it was given up").await;
    assert_eq!(ward.asked("data"), 3, "{before:?}\n{}", second.log());
    assert_eq!(ward.reasons("data").await, [""; 0], "told once: {before:?}");
    assert_eq!(ward.reasons("watched").await, [""; 0], "told once: {before:?}");
    ward.end().await;
}
