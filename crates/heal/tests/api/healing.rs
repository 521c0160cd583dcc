//! The healer with everything around it: real registrations, real attachments, a relay with real certificates.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use kube::Api;
use kube::api::{Patch, PatchParams};
use serde_json::json;
use volmedic_api::Kind;
use volmedic_heal::healer::{Answer, Eyes, Handle, Metrics, Options, Record, Teller, Trigger};
use volmedic_heal::{Again, Healer, Mode, Place, Policy, Refusal, Relay};
use volmedic_health::{Reason, Remedy, WellKnown};
use volmedic_proto::healer::NodeHealerResponse;
use volmedic_testkit::objects;

use crate::driver::{Fake, Serving};
use crate::stage::{PATIENCE, Stage, eventually};

/// Sees what it is asked to see.
#[derive(Clone)]
struct Reported {
    unhealthy: Arc<Mutex<bool>>,
    records: Arc<Mutex<Vec<Record>>>,
}

impl Eyes for Reported {
    async fn again(&self, _: &Place) -> Again {
        if *self.unhealthy.lock().unwrap() { Again::StillUnhealthy } else { Again::Well }
    }

    async fn confirm(&self, place: &Place, _: &Reason, remedy: Remedy) -> Result<(), Refusal> {
        match self.again(place).await {
            Again::StillUnhealthy => Ok(()),
            _ => Err(Refusal::ProbedHealthy { remedy }),
        }
    }

    fn in_use(&self, _: Option<&str>) -> Option<usize> {
        Some(100)
    }
}

impl Teller for Reported {
    fn tell(&self, record: &Record) {
        self.records.lock().unwrap().push(record.clone());
    }
}

pub(crate) struct Scene {
    stage: Stage,
    fake: Fake,
    reported: Reported,
    healer: Healer,
    relay: Relay,
    _driver: Serving,
}

impl Scene {
    /// A healer with the shipped rights, and a relay whose driver heals as set.
    pub(crate) async fn new(
        mode: Mode,
        prepare: impl AsyncFnOnce(&Stage),
        fake: impl FnOnce(Fake) -> Fake,
    ) -> Self {
        let stage = Stage::new().await;
        prepare(&stage).await;
        let fake = fake(stage.fake());
        let driver = fake.serve();
        let reported = Reported { unhealthy: Arc::new(Mutex::new(true)), records: Arc::default() };
        let mut options = Options {
            policy: Policy {
                debounce: SignedDuration::from_millis(300),
                look_again: SignedDuration::from_millis(500),
                first_pause: SignedDuration::from_millis(500),
                cooldown: SignedDuration::from_secs(1),
                ..Policy::default()
            },
            allow_loopback: true,
            trusted_namespaces: [stage.namespace.clone()].into(),
            deadline: PATIENCE,
            ..Options::default()
        };
        options.rules.default = mode;
        let client = stage.plane.client_for(&stage.namespace, "volmedic-hub").await.unwrap();
        let healer = Healer::start(
            &client,
            options,
            stage.dialer(),
            reported.clone(),
            reported.clone(),
            Metrics::default(),
        );
        let relay = stage.relay(&fake, &volmedic_heal::relay::Metrics::default()).await;
        Self { stage, fake, reported, healer, relay, _driver: driver }
    }

    fn place(&self, handle: &str) -> Place {
        Place::new(self.stage.driver.as_str(), handle, self.stage.node.as_str())
    }

    fn unhealthy(&self, handle: &str, pv: &str) {
        let (place, since) = (self.place(handle), Timestamp::now());
        let reason = WellKnown::MounterDead.into();
        assert!(self.healer.handle().tell(Trigger::Unhealthy { place, pv: pv.into(), reason, since }));
    }

    fn reasons(&self, handle: &str) -> Vec<&'static str> {
        let records = self.reported.records.lock().unwrap();
        let about = records
            .iter()
            .filter(|record| record.place.as_ref().is_some_and(|place| *place.handle == *handle));
        about.map(|record| record.news.reason()).collect()
    }

    /// The driver was asked about this volume and no other. Where it stays unhealthy, it is asked again and again.
    fn asked_about(&self, handle: &str) -> bool {
        let asked = self.asked();
        !asked.is_empty() && asked.iter().all(|volume| volume == handle)
    }

    pub(crate) fn asked(&self) -> Vec<String> {
        let mut asked: Vec<_> = self.fake.asked().into_iter().map(|asked| asked.volume_id).collect();
        asked.sort();
        asked
    }

    pub(crate) async fn end(self) {
        drop(self.healer);
        self.relay.stop().await;
    }
}

#[tokio::test]
async fn after_a_restart_each_attached_volume_of_the_node_is_checked_once() {
    let scene = Scene::new(
        Mode::Auto,
        async |stage| {
            for (claim, attached) in [("a", true), ("b", true), ("not-attached", false)] {
                let pv = stage.volume(claim, &format!("vol-{claim}")).await;
                stage.attach(&pv, attached).await;
            }
            stage.volume("not-used", "vol-unused").await;
        },
        |fake| fake,
    )
    .await;
    eventually("both are checked", async || scene.asked() == ["vol-a", "vol-b"]).await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(scene.asked(), ["vol-a", "vol-b"], "once");
    assert!(scene.healer.runs());
    scene.end().await;
}

#[tokio::test]
async fn volumes_of_a_driver_that_attaches_nothing_are_found_through_pods() {
    let scene = Scene::new(
        Mode::Auto,
        async |stage| {
            stage.csi_driver(false).await;
            stage.volume("a", "vol-a").await;
            stage.volume("b", "vol-b").await;
            objects::pod(&stage.client, &stage.namespace, "user", &stage.node, &["a"]).await.unwrap();
        },
        |fake| fake,
    )
    .await;
    eventually("the one in use is checked", async || scene.asked() == ["vol-a"]).await;
    scene.end().await;
}

#[tokio::test]
async fn an_unhealthy_volume_is_repaired_and_the_story_reported_in_order() {
    let scene = Scene::new(
        Mode::Auto,
        async |stage| {
            stage.volume("data", "vol-1").await;
            objects::pod(&stage.client, &stage.namespace, "user", &stage.node, &["data"]).await.unwrap();
        },
        |fake| fake,
    )
    .await;
    let pv = format!("pv-{}-data", scene.stage.namespace);
    scene.unhealthy("vol-1", &pv);
    eventually("it is mended", async || scene.reasons("vol-1").contains(&"HealingSucceeded")).await;
    *scene.reported.unhealthy.lock().unwrap() = false;
    // As long as it was seen to be unhealthy it may have been tried again.
    assert_eq!(scene.reasons("vol-1")[..2], ["HealingStarted", "HealingSucceeded"]);
    let records = scene.reported.records.lock().unwrap().clone();
    let of = |reason: &str| records.iter().find(|record| record.news.reason() == reason).unwrap();
    let started = of("HealingStarted");
    let kinds: Vec<_> = started.about.iter().map(|object| (object.kind, &*object.name)).collect();
    assert_eq!(kinds, [(Kind::PersistentVolumeClaim, "data"), (Kind::Pod, "user")]);
    assert!(
        started.is_event() && started.text().contains("because of MounterDead since"),
        "{}",
        started.text()
    );
    let succeeded = of("HealingSucceeded").text();
    assert!(succeeded.contains("(mounter restarted)"), "{succeeded}");
    scene.end().await;
}

#[tokio::test]
async fn observing_asks_nobody_and_says_what_it_would_do() {
    let scene =
        Scene::new(Mode::Observe, async |stage| drop(stage.volume("data", "vol-1").await), |fake| fake).await;
    let pv = format!("pv-{}-data", scene.stage.namespace);
    scene.unhealthy("vol-1", &pv);
    eventually("it is told", async || scene.reasons("vol-1") == ["HealingSkipped"]).await;
    let text = scene.reported.records.lock().unwrap()[0].text();
    assert!(text.contains("healing only observes by default; it would ask the node plugin"), "{text}");
    let handle = scene.healer.handle();
    let claims = Api::<k8s_openapi::api::core::v1::PersistentVolumeClaim>::namespaced(
        scene.stage.client.clone(),
        &scene.stage.namespace,
    );
    // Nobody uses it, so there is no place to repair it at.
    let answer = handle.person(&scene.stage.namespace, "data", false).await.unwrap();
    assert!(answer.is_empty(), "{answer:?}");
    assert!(scene.fake.asked().is_empty());
    // The claim's own word counts from the next look on.
    let patch = Patch::Merge(json!({"metadata": {"annotations": {"volmedic.dev/heal": "auto"}}}));
    claims.patch("data", &PatchParams::default(), &patch).await.unwrap();
    eventually("it is mended", async || scene.asked_about("vol-1")).await;
    scene.end().await;
}

#[tokio::test]
async fn a_consent_on_the_claim_opens_the_way() {
    let scene =
        Scene::new(Mode::Approve, async |stage| drop(stage.volume("data", "vol-1").await), |fake| fake).await;
    let pv = format!("pv-{}-data", scene.stage.namespace);
    scene.unhealthy("vol-1", &pv);
    eventually("it is told", async || scene.reasons("vol-1") == ["HealingSkipped"]).await;
    let claims = Api::<k8s_openapi::api::core::v1::PersistentVolumeClaim>::namespaced(
        scene.stage.client.clone(),
        &scene.stage.namespace,
    );
    let now = Timestamp::now().to_string();
    let patch = Patch::Merge(json!({"metadata": {"annotations": {"volmedic.dev/heal-approved": now}}}));
    claims.patch("data", &PatchParams::default(), &patch).await.unwrap();
    eventually("it is mended", async || scene.asked_about("vol-1")).await;
    scene.end().await;
}

#[tokio::test]
async fn a_person_gets_an_answer() {
    let scene = Scene::new(
        Mode::Observe,
        async |stage| {
            stage.volume("data", "vol-1").await;
            objects::pod(&stage.client, &stage.namespace, "user", &stage.node, &["data"]).await.unwrap();
        },
        |fake| fake.that(|_| Ok(NodeHealerResponse { abnormal: true, message: "no luck".into() })),
    )
    .await;
    let handle: Handle = scene.healer.handle();
    let namespace = scene.stage.namespace.clone();
    let place = scene.place("vol-1");
    let ask = async |claim: &str, dry_run| handle.person(&namespace, claim, dry_run).await.unwrap();
    eventually("a relay is there", async || {
        let answer = ask("data", true).await;
        matches!(&answer[..], [(at, Answer::WouldHeal(how))] if *at == place && how.starts_with("NodeHealer: "))
    })
    .await;
    assert!(scene.fake.asked().is_empty(), "a dry run");
    assert_eq!(ask("data", false).await, [(place.clone(), Answer::StillUnhealthy("no luck".into()))]);
    let missing = ask("missing", false).await;
    assert!(matches!(&missing[0].1, Answer::Failed(why) if why.contains("does not exist")), "{missing:?}");

    let nodes = Api::<k8s_openapi::api::core::v1::Node>::all(scene.stage.client.clone());
    let patch = Patch::Merge(json!({"spec": {"unschedulable": true}}));
    nodes.patch(&scene.stage.node, &PatchParams::default(), &patch).await.unwrap();
    eventually("the cordon is seen", async || {
        let answer = ask("data", false).await;
        matches!(&answer[0].1, Answer::Refused(why) if why[0].contains("cordoned"))
    })
    .await;
    scene.end().await;
}
