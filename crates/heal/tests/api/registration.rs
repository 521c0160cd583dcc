//! The relay's CSIAddonsNode, as csi-addons would have written it.

use std::pin::pin;

use futures_util::TryStreamExt;
use kube::api::{DeleteParams, ListParams, WatchEvent, WatchParams};
use volmedic_api::addons::{CREATED_BY, RELAY, UPDATED_AT};
use volmedic_heal::Relay;
use volmedic_heal::relay::Metrics;

use crate::stage::{PATIENCE, Stage, eventually};

#[tokio::test]
async fn it_has_the_names_owners_and_annotations_that_csi_addons_gives_it() {
    let stage = Stage::new().await;
    let fake = stage.fake();
    let _driver = fake.serve();
    let relay = stage.relay(&fake, &Metrics::default()).await;
    let object = stage.registration().await.unwrap();
    let pods =
        kube::Api::<k8s_openapi::api::core::v1::Pod>::namespaced(stage.client.clone(), &stage.namespace);
    let pod = pods.get("agent-x").await.unwrap();
    assert_eq!(object.annotation(CREATED_BY), pod.metadata.uid.unwrap());
    assert!(object.annotation(UPDATED_AT).parse::<jiff::Timestamp>().is_ok());
    assert_eq!(object.annotation(RELAY), "v1");
    let owner = &object.owners()[0];
    assert_eq!((owner.kind.as_str(), owner.name.as_str(), object.owners().len()), ("DaemonSet", "agent", 1));
    let driver = &object.spec.driver;
    assert_eq!(
        (driver.name.as_str(), driver.node_id.as_str()),
        (stage.driver.as_str(), format!("id-of-{}", stage.node).as_str())
    );
    let port = relay.address().port();
    assert_eq!(driver.endpoint, format!("pod://agent-x.{}:{port}", stage.namespace));
    relay.stop().await;
    assert!(stage.registration().await.is_none(), "it is taken back at the end");
}

#[tokio::test]
async fn a_restarted_driver_is_registered_again_and_a_deleted_registration_comes_back() {
    let stage = Stage::new().await;
    let fake = stage.fake();
    let driver = fake.serve();
    let relay = stage.relay(&fake, &Metrics::default()).await;
    let first = stage.registration().await.unwrap();
    drop(driver);
    let _driver = fake.serve();
    eventually("it is written anew", async || {
        let now = stage.registration().await;
        now.is_some_and(|now| now.annotation(UPDATED_AT) != first.annotation(UPDATED_AT))
    })
    .await;
    let second = stage.registration().await.unwrap();
    assert_eq!(second.metadata.uid, first.metadata.uid, "the same object");
    stage.registrations().delete(&stage.registration_name(), &DeleteParams::default()).await.unwrap();
    eventually("it comes back", async || {
        stage.registration().await.is_some_and(|now| now.metadata.uid != first.metadata.uid)
    })
    .await;
    let third = stage.registration().await.unwrap();
    assert_eq!(third.annotation(UPDATED_AT), second.annotation(UPDATED_AT), "nothing has restarted");
    relay.stop().await;
}

#[tokio::test]
async fn the_next_pod_of_the_daemonset_takes_over_and_the_old_one_does_not_take_it_along() {
    let stage = Stage::new().await;
    let fake = stage.fake();
    let _driver = fake.serve();
    let old = stage.relay(&fake, &Metrics::default()).await;
    let first = stage.registration().await.unwrap();
    stage.agent("agent-y").await;
    let client = stage.plane.client_for(&stage.namespace, "volmedic-relay").await.unwrap();
    let options = stage.relay_options("agent-y");
    let new = Relay::start(&client, fake.connect(), options, Metrics::default()).await.unwrap();
    eventually("the new pod has it", async || {
        stage.registration().await.is_some_and(|now| now.spec.driver.endpoint.contains("agent-y"))
    })
    .await;
    assert_eq!(stage.registration().await.unwrap().metadata.uid, first.metadata.uid);
    old.stop().await;
    assert!(stage.registration().await.is_some_and(|now| now.spec.driver.endpoint.contains("agent-y")));
    new.stop().await;
    assert!(stage.registration().await.is_none());
}

#[tokio::test]
async fn a_driver_that_cannot_heal_is_not_registered() {
    let stage = Stage::new().await;
    let fake = stage.fake().cannot_heal();
    let unable = fake.serve();
    stage.agent("agent-x").await;
    let driver = fake.connect();
    let options = stage.relay_options("agent-x");
    let registrations = stage.registrations();
    let version =
        registrations.list(&ListParams::default()).await.unwrap().metadata.resource_version.unwrap();
    let relay = Relay::start(&stage.client, driver.clone(), options, Metrics::default()).await.unwrap();
    assert!(driver.ready_within(PATIENCE).await.is_ok());
    // The next one can: the first that was registered is that one.
    drop(unable);
    let able = jiff::Timestamp::now();
    let _driver = stage.fake().serve();
    let mut events = pin!(registrations.watch(&WatchParams::default(), &version).await.unwrap());
    let first = tokio::time::timeout(PATIENCE, events.try_next()).await.unwrap().unwrap();
    let Some(WatchEvent::Added(object)) = first else { panic!("{first:?}") };
    assert!(object.annotation(UPDATED_AT).parse::<jiff::Timestamp>().unwrap() >= able, "{object:?}");
    relay.stop().await;
}
