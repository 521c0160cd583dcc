//! Who gets in, and who is told why not.

use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use volmedic_heal::Outcome;
use volmedic_heal::healer::{Dialer, Trust, Unverified};
use volmedic_heal::relay::{Access, CSI_ADDONS_AUDIENCE, Certificate, Metrics, Refused, Relay, RelayError};
use volmedic_proto::relay::HealRequest;

use crate::pki::Authority;
use crate::stage::{AUDIENCE, PATIENCE, Stage, eventually};

const DEADLINE: Duration = PATIENCE;

fn request(pv: &str) -> HealRequest {
    HealRequest { persistent_volume: pv.to_owned(), ..HealRequest::default() }
}

fn why(outcome: Outcome) -> String {
    match outcome {
        Outcome::NotReached { why } => why,
        other => panic!("it got in: {other:?}"),
    }
}

#[tokio::test]
async fn each_wrong_token_is_refused_counted_and_named() {
    let stage = Stage::new().await;
    let fake = stage.fake();
    let (_driver, metrics) = (fake.serve(), Metrics::default());
    let relay = stage.relay(&fake, &metrics).await;
    let pv = stage.volume("data", "vol-1").await;
    let relayed = stage.relayed(&relay);
    let other_audience = stage.token("volmedic-hub", Some("somebody-else")).await;
    let no_right = stage.token("stranger", Some(AUDIENCE)).await;
    for (token, counted, named) in [
        ("made-up", Refused::BadToken, "does not take the token"),
        (other_audience.as_str(), Refused::WrongAudience, "another audience than volmedic-relay"),
        (no_right.as_str(), Refused::NotAllowed, "stranger may not heal csiaddonsnodes"),
    ] {
        std::fs::write(stage.token_file(), token).unwrap();
        let before = metrics.refused(counted);
        let why = why(stage.dialer().ask(&relayed, request(&pv), DEADLINE).await);
        assert!(why.contains(named), "{why}");
        assert!(!why.contains(token), "the token is in the refusal");
        assert_eq!(metrics.refused(counted), before + 1, "{named}");
    }
    assert!(fake.asked().is_empty());
    let right = stage.token("volmedic-hub", Some(AUDIENCE)).await;
    std::fs::write(stage.token_file(), right).unwrap();
    let healed = stage.dialer().ask(&relayed, request(&pv), DEADLINE).await;
    assert_eq!(healed, Outcome::Well { message: "mounter restarted".into() });
    relay.stop().await;
}

#[tokio::test]
async fn a_call_without_a_token_and_plain_text_are_refused() {
    let stage = Stage::new().await;
    let fake = stage.fake();
    let (_driver, metrics) = (fake.serve(), Metrics::default());
    let relay = stage.relay(&fake, &metrics).await;
    // The beginning of an HTTP/2 connection without TLS.
    let mut plain = TcpStream::connect(relay.address()).await.unwrap();
    plain.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").await.unwrap();
    let mut answer = Vec::new();
    let _ = plain.read_to_end(&mut answer).await;
    assert!(!answer.starts_with(b"\0\0"), "it spoke HTTP/2");
    eventually("plain text is counted", async || metrics.refused(Refused::PlainText) == 1).await;
    // The healer itself never calls without one.
    std::fs::write(stage.token_file(), "").unwrap();
    let why = why(stage.dialer().ask(&stage.relayed(&relay), request("pv"), DEADLINE).await);
    assert!(why.contains("the token for relays") && why.contains("it is empty"), "{why}");
    relay.stop().await;
}

#[tokio::test]
async fn a_certificate_that_proves_nothing_gets_no_token() {
    let stage = Stage::new().await;
    let fake = stage.fake();
    let (_driver, metrics) = (fake.serve(), Metrics::default());
    let relay = stage.relay(&fake, &metrics).await;
    let pv = stage.volume("data", "vol-1").await;
    let relayed = stage.relayed(&relay);
    let ask = async |trust: Trust| {
        Dialer::new(stage.client.clone(), trust).ask(&relayed, request(&pv), DEADLINE).await
    };

    let stranger = Authority::new(stage.folder.path(), "stranger");
    drop(stranger);
    let trust = Trust { authority: stage.folder.path().join("stranger.crt"), ..stage.trust() };
    let refused = why(ask(trust).await);
    assert!(refused.contains("does not prove to be a relay"), "{refused}");

    let trust = Trust { server_name: Some("other.example".into()), ..stage.trust() };
    let refused = why(ask(trust).await);
    assert!(refused.contains("does not prove to be a relay"), "{refused}");

    let trust = Trust { authority: stage.folder.path().join("missing.crt"), ..stage.trust() };
    let refused = why(ask(trust).await);
    assert!(refused.contains("authority") && refused.contains("missing.crt"), "{refused}");

    // The file runs out while the relay runs; it is read again, and a connection made then is refused.
    let name = format!("volmedic-relay.{}.svc", stage.namespace);
    stage.authority.issue(&name, 2021);
    eventually("the expired certificate is shown", async || {
        matches!(ask(stage.trust()).await, Outcome::NotReached { why } if why.contains("has run out; renew it"))
    })
    .await;
    assert!(fake.asked().is_empty() || fake.asked().iter().all(|asked| asked.volume_id == "vol-1"));
    // And renewed again.
    stage.authority.issue(&name, 2099);
    eventually("the renewed certificate is shown", async || ask(stage.trust()).await.is_well()).await;
    relay.stop().await;
}

#[tokio::test]
async fn a_broken_certificate_file_leaves_the_old_one_in_place() {
    let stage = Stage::new().await;
    let fake = stage.fake();
    let (_driver, metrics) = (fake.serve(), Metrics::default());
    let relay = stage.relay(&fake, &metrics).await;
    let pv = stage.volume("data", "vol-1").await;
    std::fs::write(stage.folder.path().join("tls.crt"), "half a certif").unwrap();
    tokio::time::sleep(Duration::from_millis(500)).await;
    assert!(stage.dialer().ask(&stage.relayed(&relay), request(&pv), DEADLINE).await.is_well());
    relay.stop().await;
}

#[tokio::test]
async fn the_scheme_of_csi_addons_takes_any_token_and_only_when_asked_for_by_name() {
    let stage = Stage::new().await;
    let fake = stage.fake();
    let (_driver, metrics) = (fake.serve(), Metrics::default());
    let relay = stage.relay_with(&fake, &metrics, |options| options.access = Access::CsiAddons).await;
    let pv = stage.volume("data", "vol-1").await;
    let any = stage.token("stranger", Some(CSI_ADDONS_AUDIENCE)).await;
    std::fs::write(stage.token_file(), any).unwrap();
    assert!(stage.dialer().ask(&stage.relayed(&relay), request(&pv), DEADLINE).await.is_well());
    std::fs::write(stage.token_file(), "made-up").unwrap();
    let refused = why(stage.dialer().ask(&stage.relayed(&relay), request(&pv), DEADLINE).await);
    assert!(refused.contains("does not take the token"), "{refused}");
    relay.stop().await;

    let mut options = stage.relay_options("agent-x");
    options.certificate = Certificate::SelfSigned;
    let refused = Relay::start(&stage.client, fake.connect(), options.clone(), metrics.clone()).await;
    assert!(matches!(refused, Err(RelayError::Unverifiable)));
    options.access = Access::CsiAddons;
    let relay = Relay::start(&stage.client, fake.connect(), options, metrics).await.unwrap();
    let refused = why(stage.dialer().ask(&stage.relayed(&relay), request(&pv), DEADLINE).await);
    assert!(refused.contains("does not prove to be a relay"), "our own healer is not fooled: {refused}");
    relay.stop().await;
}

#[tokio::test]
async fn who_proves_nothing_is_asked_only_by_name_and_gets_another_token() {
    let stage = Stage::new().await;
    let fake = stage.fake();
    let (_driver, metrics) = (fake.serve(), Metrics::default());
    let scheme = |options: &mut volmedic_heal::relay::Options| {
        (options.access, options.certificate) = (Access::CsiAddons, Certificate::SelfSigned);
    };
    let relay = stage.relay_with(&fake, &metrics, scheme).await;
    let pv = stage.volume("data", "vol-1").await;
    let relayed = stage.relayed(&relay);
    let token = stage.folder.path().join("csi-addons-token");
    std::fs::write(&token, stage.token("volmedic-hub", Some(CSI_ADDONS_AUDIENCE)).await).unwrap();
    let ask = async |driver: &str| {
        let unverified = Some(Unverified { drivers: [driver.to_owned()].into(), token: token.clone() });
        let trust = Trust { unverified, ..stage.trust() };
        Dialer::new(stage.client.clone(), trust).ask(&relayed, request(&pv), DEADLINE).await
    };
    let refused = why(ask("another.example.net").await);
    assert!(refused.contains("does not prove to be a relay"), "{refused}");
    assert!(fake.asked().is_empty());
    // The token of all other relays would be refused here: it is for another audience.
    assert!(ask(&stage.driver).await.is_well());
    relay.stop().await;
}

/// A relay that gets a token for the API server could do there whatever its account may.
#[tokio::test]
async fn a_token_that_the_api_server_accepts_is_sent_to_nobody() {
    let stage = Stage::new().await;
    let fake = stage.fake();
    let (_driver, metrics) = (fake.serve(), Metrics::default());
    let scheme = |options: &mut volmedic_heal::relay::Options| {
        (options.access, options.certificate) = (Access::CsiAddons, Certificate::SelfSigned);
    };
    let relay = stage.relay_with(&fake, &metrics, scheme).await;
    let pv = stage.volume("data", "vol-1").await;
    let relayed = stage.relayed(&relay);
    let token = stage.folder.path().join("csi-addons-token");
    let unverified = Some(Unverified { drivers: [stage.driver.clone()].into(), token: token.clone() });
    let trust = Trust { unverified, ..stage.trust() };
    std::fs::write(&token, stage.token("volmedic-hub", None).await).unwrap();
    let refused = trust.check(&stage.client).await.unwrap_err().to_string();
    assert!(refused.contains("csi-addons-token is accepted by the API server itself"), "{refused}");
    // Also if it is put there later.
    let dialer = Dialer::new(stage.client.clone(), trust.clone());
    let refused = why(dialer.ask(&relayed, request(&pv), DEADLINE).await);
    assert!(refused.contains("is accepted by the API server itself"), "{refused}");
    assert!(fake.asked().is_empty());
    // The same for the token of all other relays.
    let dangerous = Trust { token: Some(token.clone()), unverified: None, ..trust.clone() };
    dangerous.check(&stage.client).await.unwrap_err();

    std::fs::write(&token, stage.token("volmedic-hub", Some(CSI_ADDONS_AUDIENCE)).await).unwrap();
    trust.check(&stage.client).await.unwrap();
    assert!(dialer.ask(&relayed, request(&pv), DEADLINE).await.is_well());
    relay.stop().await;
}

/// The address of a pod that is gone is given to another pod, which must not get a connection.
#[tokio::test]
async fn a_relay_whose_pod_was_replaced_is_not_dialled() {
    let stage = Stage::new().await;
    let fake = stage.fake();
    let (_driver, metrics) = (fake.serve(), Metrics::default());
    let relay = stage.relay(&fake, &metrics).await;
    let pv = stage.volume("data", "vol-1").await;
    let relayed = stage.relayed(&relay);
    assert!(stage.dialer().ask(&relayed, request(&pv), DEADLINE).await.is_well());
    let asked = fake.asked().len();
    let pods =
        kube::Api::<k8s_openapi::api::core::v1::Pod>::namespaced(stage.client.clone(), &stage.namespace);
    let now = kube::api::DeleteParams { grace_period_seconds: Some(0), ..Default::default() };
    pods.delete("agent-x", &now).await.unwrap();
    let refused = why(stage.dialer().ask(&relayed, request(&pv), DEADLINE).await);
    assert!(refused.contains("agent-x does not exist any more"), "{refused}");
    // Another pod of the same name and address.
    stage.agent("agent-x").await;
    let refused = why(stage.dialer().ask(&relayed, request(&pv), DEADLINE).await);
    assert!(refused.contains("agent-x was replaced by another one"), "{refused}");
    assert_eq!(fake.asked().len(), asked);
    assert!(stage.dialer().ask(&stage.relayed(&relay), request(&pv), DEADLINE).await.is_well());
    relay.stop().await;
}

/// The token that one node's relay gets, held by an attacker there: the relay of another node refuses it.
#[tokio::test]
async fn each_node_gets_a_token_that_is_of_no_use_at_another() {
    let stage = Stage::new().await;
    let fake = stage.fake();
    let (_driver, metrics) = (fake.serve(), Metrics::default());
    let of = |node: &str| Access::Checked { audience: volmedic_heal::relay::audience_of(node) };
    let relay = stage.relay_with(&fake, &metrics, |options| options.access = of(&stage.node)).await;
    let pv = stage.volume("data", "vol-1").await;
    let relayed = stage.relayed(&relay);
    // With the rights that are shipped.
    let hub = stage.plane.client_for(&stage.namespace, "volmedic-hub").await.unwrap();
    let dialer = Dialer::new(hub, Trust { token: None, ..stage.trust() });
    assert!(dialer.ask(&relayed, request(&pv), DEADLINE).await.is_well());
    let stolen = stage.token("volmedic-hub", Some(&volmedic_heal::relay::audience_of("another-node"))).await;
    std::fs::write(stage.token_file(), stolen).unwrap();
    let refused = why(stage.dialer().ask(&relayed, request(&pv), DEADLINE).await);
    let named = format!("another audience than volmedic-relay/{}", stage.node);
    assert!(refused.contains(&named), "{refused}");
    relay.stop().await;
}
