//! The node probe against a node plugin on a real socket that answers as each test wants. What a right one answers is
//! seen with the reference driver; this one is odd, late, or of two minds.

use std::future::pending;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use prometheus_client::registry::Registry;
use tempfile::TempDir;
use tokio::net::UnixListener;
use tokio_stream::wrappers::UnixListenerStream;
use tonic::{Code, Request, Response, Status};
use volmedic_csi::{Address, Driver, Metrics, Settings};
use volmedic_health::Sight;
use volmedic_monitor::{Seen, Way};
use volmedic_probe::node::{Looked, Node, Published};
use volmedic_proto::csi as wire;
use volmedic_proto::csi::identity_server::{Identity, IdentityServer};
use volmedic_proto::csi::node_server::{self, NodeServer};
use volmedic_proto::csi::node_service_capability::{Rpc, Type};
use volmedic_proto::csi::volume_health::VolumeHealthEntry;

/// Capability numbers of the node service, as they are on the wire.
const STAGE: i32 = 1;
const STATS: i32 = 2;
const CONDITION: i32 = 4;
const HEALTH: i32 = 7;
const STORAGE: i32 = 8;

type Reply<T> = Result<Response<T>, Status>;

/// What each call does. A question about the volume `hung` is never answered.
#[derive(Debug, Default)]
struct Behaviour {
    capabilities: Vec<i32>,
    failing: Option<Code>,
    health_unimplemented: bool,
    /// Nothing at all is answered any more.
    frozen: bool,
    /// Targets at which something is wrong.
    bad_targets: Vec<String>,
    /// (volume, target, staging) of each question for health.
    asked: Vec<(String, String, String)>,
}

#[derive(Debug, Clone, Default)]
struct Fake(Arc<Mutex<Behaviour>>);

impl Fake {
    fn with<T>(&self, act: impl FnOnce(&mut Behaviour) -> T) -> T {
        act(&mut self.0.lock().expect("no test panics with the lock"))
    }

    async fn enter(&self, volume: &str) -> Result<(), Status> {
        if volume == "hung" || self.with(|behaviour| behaviour.frozen) {
            pending::<()>().await;
        }
        match self.with(|behaviour| behaviour.failing) {
            Some(code) => Err(Status::new(code, "as told")),
            None => Ok(()),
        }
    }
}

#[tonic::async_trait]
impl Identity for Fake {
    async fn get_plugin_info(
        &self,
        _: Request<wire::GetPluginInfoRequest>,
    ) -> Reply<wire::GetPluginInfoResponse> {
        Ok(Response::new(wire::GetPluginInfoResponse { name: "fake.example".into(), ..Default::default() }))
    }

    async fn get_plugin_capabilities(
        &self,
        _: Request<wire::GetPluginCapabilitiesRequest>,
    ) -> Reply<wire::GetPluginCapabilitiesResponse> {
        Ok(Response::new(wire::GetPluginCapabilitiesResponse::default()))
    }

    async fn probe(&self, _: Request<wire::ProbeRequest>) -> Reply<wire::ProbeResponse> {
        if self.with(|behaviour| behaviour.frozen) {
            pending::<()>().await;
        }
        Ok(Response::new(wire::ProbeResponse::default()))
    }
}

#[tonic::async_trait]
impl node_server::Node for Fake {
    async fn node_get_capabilities(
        &self,
        _: Request<wire::NodeGetCapabilitiesRequest>,
    ) -> Reply<wire::NodeGetCapabilitiesResponse> {
        let capability =
            |number: i32| wire::NodeServiceCapability { r#type: Some(Type::Rpc(Rpc { r#type: number })) };
        let capabilities = self.with(|behaviour| behaviour.capabilities.clone());
        let capabilities = capabilities.into_iter().map(capability).collect();
        Ok(Response::new(wire::NodeGetCapabilitiesResponse { capabilities }))
    }

    async fn node_get_volume_health(
        &self,
        request: Request<wire::NodeGetVolumeHealthRequest>,
    ) -> Reply<wire::NodeGetVolumeHealthResponse> {
        let wire::NodeGetVolumeHealthRequest { volume_id, volume_publish_path, staging_target_path } =
            request.into_inner();
        self.enter(&volume_id).await?;
        if self.with(|behaviour| behaviour.health_unimplemented) {
            return Err(Status::unimplemented("only announced"));
        }
        let bad = self.with(|behaviour| {
            behaviour.asked.push((volume_id.clone(), volume_publish_path.clone(), staging_target_path));
            behaviour.bad_targets.contains(&volume_publish_path)
        });
        let entry = VolumeHealthEntry {
            status: 2,
            reason: "Gone".into(),
            message: format!("at {volume_publish_path}\n\u{1b}[2J"),
        };
        let health_statuses = if bad { vec![entry] } else { Vec::new() };
        let volume_health = Some(wire::VolumeHealth { volume_id, health_statuses });
        Ok(Response::new(wire::NodeGetVolumeHealthResponse { volume_health }))
    }

    async fn node_get_volume_stats(
        &self,
        request: Request<wire::NodeGetVolumeStatsRequest>,
    ) -> Reply<wire::NodeGetVolumeStatsResponse> {
        self.enter(&request.get_ref().volume_id).await?;
        let usage = vec![wire::VolumeUsage { available: 3, total: 10, used: 7, unit: 1 }];
        let reported = self.with(|behaviour| behaviour.capabilities.contains(&CONDITION));
        let volume_condition =
            reported.then(|| wire::VolumeCondition { abnormal: true, message: "LUN 7 offline".into() });
        Ok(Response::new(wire::NodeGetVolumeStatsResponse { usage, volume_condition }))
    }

    async fn node_get_storage_health(
        &self,
        _: Request<wire::NodeGetStorageHealthRequest>,
    ) -> Reply<wire::NodeGetStorageHealthResponse> {
        self.enter("").await?;
        let backend = wire::node_get_storage_health_response::StorageBackendHealth {
            status: 2,
            reason: "NoRoute".into(),
            message: "the array does not answer".into(),
            volume_capability: None,
        };
        Ok(Response::new(wire::NodeGetStorageHealthResponse { backend_health: vec![backend] }))
    }
}

struct Stage {
    fake: Fake,
    node: Node,
    _folder: TempDir,
}

/// Only what hangs takes this long, however busy the machine is.
const LONG: Duration = Duration::from_mins(2);

async fn stage(capabilities: &[i32]) -> Stage {
    stage_within(capabilities, LONG).await
}

/// One in which every call has this long for its answer.
async fn stage_within(capabilities: &[i32], deadline: Duration) -> Stage {
    let folder = tempfile::tempdir().expect("a folder for the socket");
    let socket = folder.path().join("csi.sock");
    let fake = Fake::default();
    fake.with(|behaviour| behaviour.capabilities = capabilities.to_vec());
    let listener = UnixListener::bind(&socket).expect("the fake listens");
    let server = tonic::transport::Server::builder()
        .add_service(IdentityServer::new(fake.clone()))
        .add_service(NodeServer::new(fake.clone()))
        .serve_with_incoming(UnixListenerStream::new(listener));
    tokio::spawn(server);
    let address: Address = socket.to_str().expect("plain path").parse().expect("a socket path");
    let settings = Settings { deadline, ..Settings::default() };
    let driver = Driver::start(address, settings, Metrics::register(&mut Registry::default()));
    driver.ready_within(LONG).await.expect("the fake is ready");
    Stage { fake, node: Node::new(driver, true), _folder: folder }
}

fn volume(handle: &str, targets: &[&str]) -> Published {
    Published {
        handle: handle.into(),
        staging: Some("/staging".into()),
        targets: targets.iter().map(PathBuf::from).collect(),
    }
}

fn shown(looked: &Looked) -> String {
    match &looked.seen {
        Seen::Volume(Sight::Healthy) => "ok".into(),
        Seen::Volume(Sight::Adverse(set)) => {
            set.iter().map(|c| format!("{c}: {}", c.message)).collect::<Vec<_>>().join("; ")
        }
        Seen::Volume(Sight::Missing(_)) => "missing".into(),
        Seen::Volume(Sight::NotSeen(why)) => format!("not seen: {}", why.kind),
        Seen::Volume(Sight::Unlisted) => "unlisted".into(),
        Seen::Overloaded(_) => "overloaded".into(),
        Seen::Nothing => "nothing".into(),
        Seen::DriverGone(_) => "driver gone".into(),
    }
}

#[tokio::test]
async fn each_target_is_asked_at_its_own_path_and_the_worst_counts() {
    let stage = stage(&[HEALTH, STAGE, STATS]).await;
    stage.fake.with(|behaviour| behaviour.bad_targets.push("/b".into()));
    let looked = stage.node.look(&volume("v", &["/a", "/b", "/c"])).await;
    assert_eq!(shown(&looked), "Inaccessible/Gone: at /b [2J", "and its words are made harmless");
    assert_eq!(looked.usage.and_then(|usage| usage.bytes).map(|bytes| bytes.total), Some(10));
    let asked = stage.fake.with(|behaviour| std::mem::take(&mut behaviour.asked));
    let question = |target: &str| ("v".to_owned(), target.to_owned(), "/staging".to_owned());
    assert_eq!(asked, ["/a", "/b", "/c"].map(question));
}

#[tokio::test]
async fn a_driver_that_does_not_stage_is_not_given_a_staging_path() {
    let stage = stage(&[HEALTH]).await;
    assert_eq!(shown(&stage.node.look(&volume("v", &["/a"])).await), "ok");
    let asked = stage.fake.with(|behaviour| behaviour.asked.clone());
    assert_eq!(asked, [("v".to_owned(), "/a".to_owned(), String::new())]);
}

#[tokio::test]
async fn a_volume_of_very_many_pods_is_asked_about_a_bounded_number_of_times() {
    let stage = stage(&[HEALTH]).await;
    let targets: Vec<String> = (0..100).map(|number| format!("/t{number}")).collect();
    let targets: Vec<&str> = targets.iter().map(String::as_str).collect();
    assert_eq!(shown(&stage.node.look(&volume("v", &targets)).await), "ok");
    assert_eq!(stage.fake.with(|behaviour| behaviour.asked.len()), 16);
}

#[tokio::test]
async fn a_hung_volume_is_distinguished_from_a_hung_driver() {
    let stage = stage_within(&[HEALTH], Duration::from_secs(3)).await;
    let hung = stage.node.look(&volume("hung", &["/a", "/b"])).await;
    assert_eq!(shown(&hung), "not seen: no answer in time");
    assert_eq!(shown(&stage.node.look(&volume("v", &["/a"])).await), "ok", "nobody else is held up");
    stage.fake.with(|behaviour| behaviour.frozen = true);
    // An answer of a moment ago still speaks for the driver.
    let end = tokio::time::Instant::now() + LONG;
    while shown(&stage.node.look(&volume("v", &["/a"])).await) != "driver gone" {
        assert!(tokio::time::Instant::now() < end, "a frozen driver is never told");
    }
}

#[tokio::test]
async fn the_ladder_goes_down_to_nothing() {
    let of_condition = stage(&[CONDITION]).await;
    let looked = of_condition.node.look(&volume("v", &["/a"])).await;
    assert_eq!(shown(&looked), "Degraded/VolumeConditionAbnormal: LUN 7 offline");
    assert!(looked.usage.is_some() && of_condition.node.way() == Way::Look);

    let of_usage = stage(&[STATS]).await;
    let looked = of_usage.node.look(&volume("v", &["/a"])).await;
    assert_eq!(shown(&looked), "not seen: says nothing about health");
    assert!(looked.usage.is_some() && of_usage.node.way() == Way::Nothing);

    let of_nothing = stage(&[]).await;
    let looked = of_nothing.node.look(&volume("v", &["/a"])).await;
    assert_eq!((shown(&looked).as_str(), looked.usage), ("not seen: says nothing about health", None));
    assert_eq!(of_nothing.node.storage().await, None);
    assert!(of_nothing.node.choice().is_ok_and(|choice| choice.sentence.contains("host checks")));
}

#[tokio::test]
async fn a_driver_that_only_announces_the_newer_dialect_is_asked_in_the_older_one() {
    let both = stage(&[HEALTH, CONDITION]).await;
    both.fake.with(|behaviour| behaviour.health_unimplemented = true);
    let looked = both.node.look(&volume("v", &["/a"])).await;
    assert_eq!(shown(&looked), "Degraded/VolumeConditionAbnormal: LUN 7 offline");
    let only = stage(&[HEALTH]).await;
    only.fake.with(|behaviour| behaviour.health_unimplemented = true);
    let looked = only.node.look(&volume("v", &["/a"])).await;
    assert_eq!(shown(&looked), "not seen: answered with an error");
}

#[tokio::test]
async fn errors_never_look_like_health() {
    for capabilities in [&[HEALTH][..], &[CONDITION], &[STATS]] {
        let stage = stage(capabilities).await;
        for (code, expected) in [
            (Code::Internal, "not seen: answered with an error"),
            (Code::Aborted, "not seen: answered with an error"),
            (Code::InvalidArgument, "not seen: answered with an error"),
            (Code::ResourceExhausted, "overloaded"),
            (Code::NotFound, "missing"),
        ] {
            stage.fake.with(|behaviour| behaviour.failing = Some(code));
            let looked = stage.node.look(&volume("v", &["/a"])).await;
            assert_eq!((shown(&looked).as_str(), looked.usage), (expected, None), "{code:?}");
        }
    }
}

#[tokio::test]
async fn the_storage_behind_the_node_is_reported_with_its_own_numbers() {
    let stage = stage(&[STORAGE]).await;
    assert!(stage.node.choice().is_ok_and(|choice| choice.storage) && stage.node.way() == Way::Nothing);
    let seen = Seen::Volume(stage.node.storage().await.expect("it reports"));
    let looked = Looked { seen, usage: None };
    assert_eq!(shown(&looked), "Inaccessible/NoRoute: the array does not answer");
    stage.fake.with(|behaviour| behaviour.failing = Some(Code::Internal));
    let seen = Seen::Volume(stage.node.storage().await.expect("it reports"));
    let looked = Looked { seen, usage: None };
    assert_eq!(shown(&looked), "not seen: answered with an error");
}

#[tokio::test]
async fn paths_that_cannot_be_sent_are_not_sent() {
    use std::os::unix::ffi::OsStringExt;
    let stage = stage(&[HEALTH]).await;
    let odd = Published {
        handle: "v".into(),
        staging: None,
        targets: vec![PathBuf::from(std::ffi::OsString::from_vec(b"/a\xff".to_vec()))],
    };
    assert_eq!(shown(&stage.node.look(&odd).await), "not seen: the answer makes no sense");
    assert_eq!(stage.fake.with(|behaviour| behaviour.asked.len()), 0);
    assert_eq!(shown(&stage.node.look(&volume("v", &[])).await), "not seen: says nothing about health");
}
