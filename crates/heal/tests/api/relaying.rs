//! What the driver gets to hear, what the caller gets to hear, and what nobody gets to hear.

use std::io;
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use prometheus_client::registry::Registry;
use serde_json::json;
use tonic::{Code, Status};
use volmedic_csi::Kind;
use volmedic_heal::Outcome;
use volmedic_heal::relay::Metrics;
use volmedic_proto::csi::volume_capability::AccessType;
use volmedic_proto::healer::NodeHealerResponse;
use volmedic_proto::relay::HealRequest;

use crate::stage::{PATIENCE, Stage, create, eventually};

const DEADLINE: Duration = PATIENCE;
const SECRET: &str = "correct-horse-battery-staple";

fn request(pv: &str) -> HealRequest {
    HealRequest { persistent_volume: pv.to_owned(), ..HealRequest::default() }
}

/// A volume with a secret.
async fn secretive(stage: &Stage) -> String {
    let secrets =
        kube::Api::<k8s_openapi::api::core::v1::Secret>::namespaced(stage.client.clone(), &stage.namespace);
    create(&secrets, json!({"metadata": {"name": "node-stage"}, "stringData": {"password": SECRET}})).await;
    let csi = json!({
        "driver": stage.driver, "volumeHandle": "vol-s", "fsType": "ext4", "volumeAttributes": {"pool": "a"},
        "nodeStageSecretRef": {"name": "node-stage", "namespace": stage.namespace},
    });
    let volumes = kube::Api::<k8s_openapi::api::core::v1::PersistentVolume>::all(stage.client.clone());
    let name = format!("pv-s-{}", stage.namespace);
    let object = json!({
        "metadata": {"name": name},
        "spec": {"accessModes": ["ReadWriteOnce"], "capacity": {"storage": "1Gi"}, "csi": csi,
                 "mountOptions": ["noatime"], "storageClassName": "",
                 "claimRef": {"namespace": stage.namespace, "name": "s", "uid": "u"}},
    });
    create(&volumes, object).await;
    let patch = kube::api::Patch::Merge(json!({"status": {"phase": "Bound"}}));
    volumes.patch_status(&name, &kube::api::PatchParams::default(), &patch).await.unwrap();
    name
}

#[tokio::test]
async fn the_driver_gets_what_kubelet_would_give_it() {
    let stage = Stage::new().await;
    let fake = stage.fake();
    let (_driver, metrics) = (fake.serve(), Metrics::default());
    let relay = stage.relay(&fake, &metrics).await;
    let pv = secretive(&stage).await;
    let targets = ["uid-1", "uid-2"].map(|uid| stage.publish(&pv, uid));
    let folder = stage.kubelet().join("plugins/kubernetes.io/csi").join(&stage.driver);
    std::fs::create_dir_all(folder.join(sha256("vol-s")).join("globalmount")).unwrap();

    let asked = HealRequest { volume_handle: "vol-s".into(), node: stage.node.clone(), ..request(&pv) };
    assert!(stage.dialer().ask(&stage.relayed(&relay).await, asked, DEADLINE).await.is_healthy());
    let asked = fake.asked();
    let paths: Vec<_> = asked.iter().map(|asked| asked.volume_path.clone()).collect();
    assert_eq!(paths, targets.map(|target| target.display().to_string()));
    for asked in &asked {
        assert_eq!(asked.volume_id, "vol-s");
        assert!(asked.staging_target_path.ends_with("/globalmount"), "{}", asked.staging_target_path);
        assert_eq!(asked.secrets["password"], SECRET);
        assert_eq!(asked.volume_context["pool"], "a");
        let capability = asked.volume_capability.as_ref().unwrap();
        let Some(AccessType::Mount(mount)) = &capability.access_type else { panic!("{capability:?}") };
        assert_eq!((mount.fs_type.as_str(), mount.mount_flags[0].as_str()), ("ext4", "noatime"));
    }
    relay.stop().await;
}

fn sha256(text: &str) -> String {
    let digest = ring::digest::digest(&ring::digest::SHA256, text.as_bytes());
    digest.as_ref().iter().fold(String::new(), |hex, byte| hex + &format!("{byte:02x}"))
}

#[derive(Clone, Default)]
struct Paper(Arc<Mutex<Vec<u8>>>);

impl io::Write for Paper {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Everything that any test of this program logs meanwhile is checked, too; they all use the same secret.
#[tokio::test]
async fn a_secret_is_in_no_log_no_answer_and_no_metric() {
    let paper = Paper::default();
    let writer = paper.clone();
    let subscriber = tracing_subscriber::fmt()
        .with_max_level(tracing::Level::TRACE)
        .with_writer(move || writer.clone())
        .finish();
    tracing::subscriber::set_global_default(subscriber).unwrap();
    let stage = Stage::new().await;
    let fake = stage.fake().that(|asked| {
        let secret = &asked.secrets["password"];
        if asked.volume_path.contains("uid-1") {
            return Ok(NodeHealerResponse {
                abnormal: true,
                message: format!("mount -o pass={secret} failed"),
            });
        }
        Err(Status::unauthenticated(format!("login with {secret} failed")))
    });
    let _driver = fake.serve();
    let metrics = Metrics::default();
    let mut registry = Registry::default();
    metrics.register(&mut registry);
    let relay = stage.relay(&fake, &metrics).await;
    let pv = secretive(&stage).await;
    stage.publish(&pv, "uid-1");
    let first = stage.dialer().ask(&stage.relayed(&relay).await, request(&pv), DEADLINE).await;
    assert_eq!(first, Outcome::StillUnhealthy { message: "mount -o pass=[secret] failed".into() });
    stage.publish(&pv, "uid-2");
    let second = stage.dialer().ask(&stage.relayed(&relay).await, request(&pv), DEADLINE).await;
    assert_eq!(fake.asked().last().unwrap().secrets["password"], SECRET, "it did reach the driver");
    relay.stop().await;
    let mut scraped = String::new();
    prometheus_client::encoding::text::encode(&mut scraped, &registry).unwrap();
    let logged = String::from_utf8_lossy(&paper.0.lock().unwrap()).into_owned();
    assert!(logged.contains("a heal was relayed"), "nothing was caught: {logged}");
    let token = std::fs::read_to_string(stage.token_file()).unwrap();
    let encoded = "Y29ycmVjdC1ob3JzZS1iYXR0ZXJ5LXN0YXBsZQ";
    for (what, text) in [("log", &logged), ("metrics", &scraped), ("answer", &format!("{second:?}"))] {
        for secret in [SECRET, encoded, token.trim()] {
            assert!(!text.contains(secret), "the {what} holds a secret");
        }
    }
}

#[tokio::test]
async fn the_drivers_own_error_is_distinguished_and_a_refused_secret_is_not_sent_twice() {
    let stage = Stage::new().await;
    let fake = stage.fake().that(|_| Err(Status::unauthenticated("who are you")));
    let (_driver, metrics) = (fake.serve(), Metrics::default());
    let relay = stage.relay(&fake, &metrics).await;
    let pv = secretive(&stage).await;
    stage.publish(&pv, "uid-1");
    let relayed = stage.relayed(&relay).await;
    let Outcome::Failed { kind: Kind::Unauthenticated, message, secret: Some(version) } =
        stage.dialer().ask(&relayed, request(&pv), DEADLINE).await
    else {
        panic!("not the driver's word")
    };
    assert!(message.contains("who are you"), "{message}");
    let again = HealRequest { refused_secret: version.to_string(), ..request(&pv) };
    let outcome = stage.dialer().ask(&relayed, again.clone(), DEADLINE).await;
    assert_eq!((outcome, fake.asked().len()), (Outcome::SecretUnchanged, 1));
    let secrets =
        kube::Api::<k8s_openapi::api::core::v1::Secret>::namespaced(stage.client.clone(), &stage.namespace);
    let patch = kube::api::Patch::Merge(json!({"stringData": {"password": "another"}}));
    secrets.patch("node-stage", &kube::api::PatchParams::default(), &patch).await.unwrap();
    let outcome = stage.dialer().ask(&relayed, again, DEADLINE).await;
    assert!(matches!(outcome, Outcome::Failed { kind: Kind::Unauthenticated, .. }), "{outcome:?}");
    assert_eq!(fake.asked().len(), 2);
    relay.stop().await;
}

#[tokio::test]
async fn every_code_of_the_driver_comes_back_as_it_was() {
    let stage = Stage::new().await;
    let codes = Arc::new(Mutex::new(Vec::new()));
    let next = codes.clone();
    let fake = stage.fake().that(move |_| Err(Status::new(next.lock().unwrap().pop().unwrap(), "because")));
    let (_driver, metrics) = (fake.serve(), Metrics::default());
    let relay = stage.relay(&fake, &metrics).await;
    let pv = stage.volume("data", "vol-1").await;
    for code in [
        Code::InvalidArgument,
        Code::NotFound,
        Code::Aborted,
        Code::Unimplemented,
        Code::Unauthenticated,
        Code::Unknown,
        Code::Internal,
        Code::Unavailable,
        Code::FailedPrecondition,
    ] {
        codes.lock().unwrap().push(code);
        let outcome = stage.dialer().ask(&stage.relayed(&relay).await, request(&pv), DEADLINE).await;
        let Outcome::Failed { kind, message, .. } = &outcome else { panic!("{code}: {outcome:?}") };
        assert_eq!(*kind, Kind::from_code(code));
        assert!(message.contains("because"), "{message}");
    }
    relay.stop().await;
}

#[tokio::test]
async fn what_is_not_to_be_repaired_here_never_reaches_the_driver() {
    let stage = Stage::new().await;
    let fake = stage.fake();
    let (_driver, metrics) = (fake.serve(), Metrics::default());
    let relay = stage.relay(&fake, &metrics).await;
    let (dialer, relayed) = (stage.dialer(), stage.relayed(&relay).await);
    let good = stage.volume("data", "vol-1").await;

    volmedic_testkit::objects::bound_claim(
        &stage.client,
        &stage.namespace,
        "foreign",
        "other.example",
        "vol-2",
    )
    .await
    .unwrap();
    let foreign = format!("pv-{}-foreign", stage.namespace);
    volmedic_testkit::objects::bound_claim(&stage.client, &stage.namespace, "absent", &stage.driver, "vol-3")
        .await
        .unwrap();
    let absent = format!("pv-{}-absent", stage.namespace);
    let linked = {
        volmedic_testkit::objects::bound_claim(
            &stage.client,
            &stage.namespace,
            "linked",
            &stage.driver,
            "vol-4",
        )
        .await
        .unwrap();
        let pv = format!("pv-{}-linked", stage.namespace);
        let folder = stage.kubelet().join("pods/uid-9/volumes/kubernetes.io~csi");
        std::fs::create_dir_all(&folder).unwrap();
        std::os::unix::fs::symlink("/etc", folder.join(&pv)).unwrap();
        pv
    };
    for (asked, named) in [
        (request(""), "name of the PersistentVolume is missing"),
        (request("no-such"), "does not exist"),
        (request("../../etc"), ""),
        (request(&"x".repeat(5000)), "longer than 4096 bytes"),
        (request(&foreign), "belongs to other.example, and this relay serves"),
        (request(&absent), "has not set up the volume on this node"),
        (request(&linked), "leads out of kubelet's folder"),
        (HealRequest { node: "elsewhere".into(), ..request(&good) }, "node elsewhere is meant"),
        (HealRequest { volume_handle: "other".into(), ..request(&good) }, "is another volume by now"),
    ] {
        let outcome = dialer.ask(&relayed, asked, DEADLINE).await;
        let Outcome::NotReached { why } = outcome else { panic!("{named}: {outcome:?}") };
        assert!(why.contains(named), "{why}");
    }
    assert!(fake.asked().is_empty());
    relay.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_volume_has_one_heal_at_a_time_and_it_outlives_its_caller() {
    let stage = Stage::new().await;
    let (release, held) = channel::<()>();
    let held: Mutex<Receiver<()>> = Mutex::new(held);
    let fake = stage.fake().that(move |_| {
        let _ = held.lock().unwrap().recv_timeout(PATIENCE);
        Ok(NodeHealerResponse { abnormal: false, message: "at last".into() })
    });
    let (_driver, metrics) = (fake.serve(), Metrics::default());
    let relay = stage.relay(&fake, &metrics).await;
    let pv = stage.volume("data", "vol-1").await;
    let relayed = stage.relayed(&relay).await;
    let first = {
        let (dialer, relayed, pv) = (stage.dialer(), relayed.clone(), pv.clone());
        tokio::spawn(async move { dialer.ask(&relayed, request(&pv), DEADLINE).await })
    };
    eventually("the driver is at work", async || fake.asked().len() == 1).await;
    let second = stage.dialer().ask(&relayed, request(&pv), DEADLINE).await;
    assert!(matches!(second, Outcome::Failed { kind: Kind::Aborted, .. }), "{second:?}");
    // The healer dies in the middle of it.
    first.abort();
    let _ = first.await;
    tokio::time::sleep(Duration::from_millis(200)).await;
    let third = stage.dialer().ask(&relayed, request(&pv), DEADLINE).await;
    assert!(matches!(third, Outcome::Failed { kind: Kind::Aborted, .. }), "still under way: {third:?}");
    release.send(()).unwrap();
    release.send(()).unwrap();
    eventually("the volume is free again", async || {
        stage.dialer().ask(&relayed, request(&pv), DEADLINE).await.is_healthy()
    })
    .await;
    assert_eq!(fake.asked().len(), 2, "nothing was done twice");
    relay.stop().await;
}

#[tokio::test]
async fn a_driver_that_is_away_was_not_asked() {
    let stage = Stage::new().await;
    let fake = stage.fake();
    let (driver, metrics) = (fake.serve(), Metrics::default());
    let relay = stage.relay(&fake, &metrics).await;
    let pv = stage.volume("data", "vol-1").await;
    assert!(stage.dialer().ask(&stage.relayed(&relay).await, request(&pv), DEADLINE).await.is_healthy());
    drop(driver);
    eventually("the relay says that the driver is away", async || {
        let outcome = stage.dialer().ask(&stage.relayed(&relay).await, request(&pv), DEADLINE).await;
        matches!(outcome, Outcome::NotReached { .. })
    })
    .await;
    let _driver = fake.serve();
    eventually("and that it is back", async || {
        stage.dialer().ask(&stage.relayed(&relay).await, request(&pv), DEADLINE).await.is_healthy()
    })
    .await;
    relay.stop().await;
}
