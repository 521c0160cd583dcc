//! Who gets in, and who is informed why not.

use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use volmedic_heal::Outcome;
use volmedic_heal::healer::{Dialer, Relayed, Trust, Unverified};
use volmedic_heal::relay::{Access, CSI_ADDONS_AUDIENCE, Metrics, Options, Refused};
use volmedic_proto::relay::HealRequest;

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
    let relayed = stage.relayed(&relay).await;
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
    let why = why(stage.dialer().ask(&stage.relayed(&relay).await, request("pv"), DEADLINE).await);
    assert!(why.contains("the token for relays") && why.contains("it is empty"), "{why}");
    relay.stop().await;
}

/// An attacker who has one node, and gets the connections to another one.
#[tokio::test]
async fn a_relay_of_another_node_gets_no_token() {
    let (stage, other) = (Stage::new().await, Stage::new().await);
    let (fake, stranger) = (stage.fake(), other.fake());
    let (_driver, _other_driver) = (fake.serve(), stranger.serve());
    let (metrics, others) = (Metrics::default(), Metrics::default());
    let relay = stage.relay(&fake, &metrics).await;
    let captured = other.relay(&stranger, &others).await;
    let pv = stage.volume("data", "vol-1").await;
    let honest = stage.relayed(&relay).await;
    let ask = async |relayed: &Relayed| stage.dialer().ask(relayed, request(&pv), DEADLINE).await;

    let redirected = Relayed { address: captured.address(), ..honest.clone() };
    let refused = why(ask(&redirected).await);
    let named = format!("does not prove to be the relay on node {}", stage.node);
    assert!(refused.contains(&named) && refused.contains("does not name"), "{refused}");
    eventually("the handshake ended there", async || others.refused(Refused::Handshake) == 1).await;
    assert!(stranger.asked().is_empty());

    // One that is older than this hub names none.
    let refused = why(ask(&Relayed { certificates: Arc::default(), ..honest.clone() }).await);
    assert!(refused.contains("names no certificate") && refused.contains("upgrade the agent"), "{refused}");
    assert_eq!(metrics.refused(Refused::Handshake), 0, "it was dialled");
    assert!(ask(&honest).await.is_healthy());
    relay.stop().await;
    captured.stop().await;
}

#[tokio::test]
async fn a_certificate_that_has_run_out_is_refused_by_that_name() {
    let stage = Stage::new().await;
    let fake = stage.fake();
    let (_driver, metrics) = (fake.serve(), Metrics::default());
    let short = |options: &mut Options| options.certificates.lifetime = Duration::ZERO;
    let relay = stage.relay_with(&fake, &metrics, short).await;
    let relayed = stage.relayed(&relay).await;
    eventually("it has run out", async || {
        let outcome = stage.dialer().ask(&relayed, request("pv"), DEADLINE).await;
        matches!(outcome, Outcome::NotReached { why } if why.contains("has run out"))
    })
    .await;
    relay.stop().await;
}

#[tokio::test]
async fn the_scheme_of_csi_addons_takes_any_token() {
    let stage = Stage::new().await;
    let fake = stage.fake();
    let (_driver, metrics) = (fake.serve(), Metrics::default());
    let relay = stage.relay_with(&fake, &metrics, |options| options.access = Access::CsiAddons).await;
    let pv = stage.volume("data", "vol-1").await;
    let any = stage.token("stranger", Some(CSI_ADDONS_AUDIENCE)).await;
    std::fs::write(stage.token_file(), any).unwrap();
    assert!(stage.dialer().ask(&stage.relayed(&relay).await, request(&pv), DEADLINE).await.is_healthy());
    std::fs::write(stage.token_file(), "made-up").unwrap();
    let refused = why(stage.dialer().ask(&stage.relayed(&relay).await, request(&pv), DEADLINE).await);
    assert!(refused.contains("does not take the token"), "{refused}");
    relay.stop().await;
}

#[tokio::test]
async fn who_proves_nothing_is_asked_only_by_name_and_gets_another_token() {
    let stage = Stage::new().await;
    let fake = stage.fake();
    let (_driver, metrics) = (fake.serve(), Metrics::default());
    let relay = stage.relay_with(&fake, &metrics, |options| options.access = Access::CsiAddons).await;
    let pv = stage.volume("data", "vol-1").await;
    // A sidecar of csi-addons names no certificate.
    let relayed = Relayed { certificates: Arc::default(), ..stage.relayed(&relay).await };
    let token = stage.folder.path().join("csi-addons-token");
    std::fs::write(&token, stage.token("volmedic-hub", Some(CSI_ADDONS_AUDIENCE)).await).unwrap();
    let ask = async |driver: &str| {
        let unverified = Some(Unverified { drivers: [driver.to_owned()].into(), token: token.clone() });
        let trust = Trust { unverified, ..stage.trust() };
        Dialer::new(stage.client.clone(), trust).ask(&relayed, request(&pv), DEADLINE).await
    };
    let refused = why(ask("another.example.net").await);
    assert!(refused.contains("names no certificate"), "{refused}");
    assert!(fake.asked().is_empty());
    // The token of all other relays would be refused here: it is for another audience.
    assert!(ask(&stage.driver).await.is_healthy());
    relay.stop().await;
}

/// A relay that gets a token for the API server could do there whatever its account may.
#[tokio::test]
async fn a_token_that_the_api_server_accepts_is_sent_to_nobody() {
    let stage = Stage::new().await;
    let fake = stage.fake();
    let (_driver, metrics) = (fake.serve(), Metrics::default());
    let relay = stage.relay_with(&fake, &metrics, |options| options.access = Access::CsiAddons).await;
    let pv = stage.volume("data", "vol-1").await;
    let relayed = stage.relayed(&relay).await;
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
    let dangerous = Trust { token: Some(token.clone()), unverified: None };
    dangerous.check(&stage.client).await.unwrap_err();

    std::fs::write(&token, stage.token("volmedic-hub", Some(CSI_ADDONS_AUDIENCE)).await).unwrap();
    trust.check(&stage.client).await.unwrap();
    assert!(dialer.ask(&relayed, request(&pv), DEADLINE).await.is_healthy());
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
    let relayed = stage.relayed(&relay).await;
    assert!(stage.dialer().ask(&relayed, request(&pv), DEADLINE).await.is_healthy());
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
    assert!(stage.dialer().ask(&stage.relayed(&relay).await, request(&pv), DEADLINE).await.is_healthy());
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
    let relayed = stage.relayed(&relay).await;
    // With the rights that are shipped.
    let hub = stage.plane.client_for(&stage.namespace, "volmedic-hub").await.unwrap();
    let dialer = Dialer::new(hub, Trust { token: None, ..stage.trust() });
    assert!(dialer.ask(&relayed, request(&pv), DEADLINE).await.is_healthy());
    let stolen = stage.token("volmedic-hub", Some(&volmedic_heal::relay::audience_of("another-node"))).await;
    std::fs::write(stage.token_file(), stolen).unwrap();
    let refused = why(stage.dialer().ask(&relayed, request(&pv), DEADLINE).await);
    let named = format!("another audience than volmedic-relay/{}", stage.node);
    assert!(refused.contains(&named), "{refused}");
    relay.stop().await;
}
