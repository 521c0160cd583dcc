//! A relay renews its certificate while the healer works with it.

use std::collections::BTreeSet;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::time::timeout;
use volmedic_heal::healer::{Metrics, Options, Registry, RelayNews, Relayed};
use volmedic_heal::relay::Validity;
use volmedic_proto::healer::NodeHealerResponse;
use volmedic_proto::relay::HealRequest;

use crate::stage::{PATIENCE, Stage};

/// Longer than it takes until a registration reaches the healer, on a busy machine too.
const NOTICE: Duration = Duration::from_secs(10);

#[tokio::test]
async fn heals_go_on_while_the_certificate_is_renewed_twice() {
    let stage = Stage::new().await;
    // The heal of one volume waits until it is released.
    let (started, begun): (Sender<()>, Receiver<()>) = channel();
    let (release, wait): (Sender<()>, Receiver<()>) = channel();
    let wait = Arc::new(Mutex::new((started, wait)));
    let fake = stage.fake().that(move |asked| {
        if asked.volume_id == "vol-slow" {
            let (started, wait) = &*wait.lock().unwrap();
            started.send(()).unwrap();
            wait.recv().unwrap();
        }
        Ok(NodeHealerResponse { abnormal: false, message: "mounter restarted".into() })
    });
    let _driver = fake.serve();
    let options = Options {
        allow_loopback: true,
        trusted_namespaces: [stage.namespace.clone()].into(),
        ..Options::default()
    };
    let client = stage.plane.client_for(&stage.namespace, "volmedic-hub").await.unwrap();
    let dialer = stage.dialer();
    let registry = Registry::new(client, dialer.clone(), &options, Metrics::default());
    let (news, mut heard) = mpsc::channel(8);
    tokio::spawn(registry.run(news));
    let quick = Validity { renewal: Duration::from_secs(1), notice: NOTICE, ..Validity::default() };
    let metrics = volmedic_heal::relay::Metrics::default();
    let relay = stage.relay_with(&fake, &metrics, |options| options.certificates = quick).await;
    let (pv, slow) = (stage.volume("data", "vol-1").await, stage.volume("slow", "vol-slow").await);

    let mut hear = async || match timeout(PATIENCE, heard.recv()).await.unwrap().unwrap() {
        RelayNews::Came(relay) => relay,
        RelayNews::Went(_) => panic!("the relay was lost"),
    };
    let first = hear().await;
    let under_way = {
        let (dialer, first) = (dialer.clone(), first.clone());
        let request = HealRequest { persistent_volume: slow, ..HealRequest::default() };
        tokio::spawn(async move { dialer.ask(&first, request, PATIENCE).await })
    };
    tokio::task::spawn_blocking(move || begun.recv_timeout(PATIENCE).unwrap()).await.unwrap();

    let heal = async |relayed: &Relayed| {
        let request = HealRequest { persistent_volume: pv.clone(), ..HealRequest::default() };
        let outcome = dialer.ask(relayed, request, PATIENCE).await;
        assert!(outcome.is_healthy(), "{outcome:?} with {relayed:?}");
    };
    let (mut current, mut seen) = (first.clone(), BTreeSet::new());
    let mut shown = Vec::new();
    while shown.len() < 3 {
        heal(&current).await;
        if let [one] = &*current.certificates
            && seen.insert(one.clone())
        {
            shown.push(one.clone());
        }
        let next = hear().await;
        assert_eq!(next.generation, current.generation, "nothing has restarted");
        assert!(next.certificates.len() <= 2);
        // What was the next one is the one that is shown.
        if next.certificates.len() == 1 {
            assert_eq!(next.certificates[0], current.certificates[1]);
        } else {
            assert_eq!(next.certificates[0], current.certificates[0]);
        }
        current = next;
    }
    // A heal that began with the first certificate ends as it would have without the others.
    release.send(()).unwrap();
    assert!(timeout(PATIENCE, under_way).await.unwrap().unwrap().is_healthy());
    // The first one is of no use any more.
    let request = HealRequest { persistent_volume: pv.clone(), ..HealRequest::default() };
    let outcome = stage.dialer().ask(&first, request, PATIENCE).await;
    assert!(format!("{outcome:?}").contains("does not name"), "{outcome:?}");
    relay.stop().await;
}
