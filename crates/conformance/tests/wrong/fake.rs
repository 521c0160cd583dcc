//! A small CSI driver without disks that does everything right, except for one thing.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use tokio::net::UnixListener;
use tokio_stream::wrappers::UnixListenerStream;
use tonic::codegen::Bytes;
use tonic::transport::Server;
use tonic::{Code, Request, Response, Status};
use volmedic_conformance::{Harm, Options, Report, run};
use volmedic_proto::csi as wire;
use volmedic_proto::csi::controller_server::ControllerServer;
use volmedic_proto::csi::identity_server::{Identity, IdentityServer};
use volmedic_proto::csi::node_server::NodeServer;
use volmedic_proto::csi::volume_health::VolumeHealthEntry;

/// The one thing that the driver does wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wrong {
    Nothing,
    /// Allowed: healthy volumes are in the list of health, with nothing adverse.
    ListsTheHealthyToo,
    Name,
    NoVersion,
    ControllerCapability,
    ControllerCapabilityTwice,
    NodeCapability,
    ListHealthAlone,
    ConditionAlone,
    StorageUnimplemented,
    AnotherVolumeEachTime,
    SameIdForAll,
    DeleteTwice,
    PublishTwice,
    GetHealthAdverse,
    GetHealthAbsent,
    GetHealthOther,
    GetHealthUnknown,
    GetHealthDeleted,
    GetHealthNoId,
    GetHealthChanges,
    ListHealthNoId,
    ListHealthHealthy,
    GetVolumeOther,
    GetVolumeUnknown,
    GetVolumeDeleted,
    GetVolumeNoId,
    GetVolumeNoCondition,
    ListVolumesNoCondition,
    ListVolumesOmits,
    ListVolumesDeleted,
    PublishedNodes,
    PublishedNodesForever,
    ListPublishedNodes,
    MaxEntries(List),
    Token(List),
    Skips(List),
    Doubles(List),
    BadToken(List),
    Negative(List),
    NodeHealthNeedsMount,
    NodeHealthAdverse,
    NodeHealthOther,
    NodeHealthUnknown,
    NodeHealthNoId,
    NegativeUsage,
    MoreThanWhole,
    UnknownUnit,
    UnitTwice,
    NoUsage,
    StatsNoCondition,
    StatsNeedsStaging,
    StatsNoId,
    StatsNoPath,
    StatsUnknown,
    StatsWrongPath,
    StorageStatus,
    StorageMany,
    StorageTwice,
    StorageMode,
    HarmUntold,
    HarmForever,
    Status,
    Reason,
    NoReason,
    Message,
    EntryTwice,
    ConditionMessage,
    LongNodeId,
    MuteErrors,
    Details,
    Secrets,
    Hangs,
    KeepsVolumes,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum List {
    Volumes,
    Health,
}

#[derive(Debug, Default)]
pub(crate) struct Volume {
    pub(crate) name: String,
    pub(crate) nodes: BTreeSet<String>,
    pub(crate) target: Option<String>,
    pub(crate) adverse: bool,
}

#[derive(Debug, Default)]
pub(crate) struct State {
    pub(crate) volumes: BTreeMap<String, Volume>,
    pub(crate) deleted: BTreeSet<String>,
    pub(crate) made: u32,
    pub(crate) looks: u32,
}

#[derive(Clone, Debug)]
pub(crate) struct Fake {
    pub(crate) wrong: Wrong,
    state: Arc<Mutex<State>>,
}

pub(crate) type Answer<T> = Result<Response<T>, Status>;

impl Fake {
    /// With three volumes that are not the run's own and that are unhealthy.
    pub(crate) fn new(wrong: Wrong) -> Self {
        let unhealthy = |n: u32| (format!("foreign-{n}"), Volume { adverse: true, ..Volume::default() });
        let state = State { volumes: (1..=3).map(unhealthy).collect(), ..State::default() };
        Self { wrong, state: Arc::new(Mutex::new(state)) }
    }

    pub(crate) fn is(&self, wrong: Wrong) -> bool {
        self.wrong == wrong
    }

    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }

    pub(crate) fn ours(&self) -> Vec<String> {
        self.state().volumes.keys().filter(|id| !id.starts_with("foreign")).cloned().collect()
    }

    pub(crate) fn no_volume(&self, id: &str, secrets: &HashMap<String, String>) -> Status {
        match self.wrong {
            Wrong::MuteErrors => Status::new(Code::NotFound, ""),
            Wrong::Details => Status::with_details(Code::NotFound, "gone", Bytes::from_static(b"more")),
            Wrong::Secrets => Status::not_found(format!("no volume {id} with {secrets:?}")),
            _ => Status::not_found(format!("there is no volume {id}")),
        }
    }

    pub(crate) fn condition(&self, adverse: bool) -> wire::VolumeCondition {
        let message = match (adverse, self.wrong) {
            (_, Wrong::ConditionMessage) => "",
            (true, _) => "the disk is degrading",
            (false, _) => "all is well",
        };
        wire::VolumeCondition { abnormal: adverse, message: message.to_owned() }
    }

    pub(crate) fn health(&self, id: &str, adverse: bool) -> wire::VolumeHealth {
        let mut entry = VolumeHealthEntry {
            status: wire::VolumeHealthErrorType::Degraded.into(),
            reason: "DiskDegrading".to_owned(),
            message: String::new(),
        };
        match self.wrong {
            Wrong::Status => entry.status = 0,
            Wrong::Reason => entry.reason.insert(0, 'd'),
            Wrong::NoReason => entry.reason.clear(),
            Wrong::Message => entry.message = "x".repeat(2000),
            _ => {}
        }
        let twice = usize::from(self.is(Wrong::EntryTwice)) + 1;
        let count = if adverse { twice } else { 0 };
        wire::VolumeHealth { volume_id: id.to_owned(), health_statuses: vec![entry; count] }
    }

    /// Serves on a socket in the directory until the runtime ends.
    pub(crate) fn serve(&self, directory: &std::path::Path) -> Options {
        let socket = directory.join("csi.sock");
        let listener = UnixListener::bind(&socket).unwrap();
        let server = Server::builder()
            .add_service(IdentityServer::new(self.clone()))
            .add_service(ControllerServer::new(self.clone()))
            .add_service(NodeServer::new(self.clone()))
            .serve_with_incoming(UnixListenerStream::new(listener));
        tokio::spawn(server);
        Options {
            socket,
            node_socket: None,
            parameters: HashMap::new(),
            secrets: HashMap::new(),
            staging_dir: directory.to_owned(),
            target_dir: directory.to_owned(),
            block: false,
            volume_bytes: 1 << 20,
            // Only what hangs takes so long, however busy the machine is.
            deadline: if self.is(Wrong::Hangs) { Duration::from_secs(3) } else { Duration::from_mins(2) },
            notice: Duration::from_millis(50),
            only: Vec::new(),
        }
    }

    /// Everything about this driver, judged.
    pub(crate) async fn judge(&self) -> Report {
        let directory = tempfile::tempdir().unwrap();
        let options = self.serve(directory.path());
        run(options, Some(Arc::new(self.clone())), std::future::pending()).await.unwrap()
    }
}

impl Harm for Fake {
    fn injuries(&self) -> Vec<String> {
        vec!["spell".to_owned()]
    }

    fn hurt(&self, _: &str, volume_id: &str) -> Result<(), String> {
        self.state().volumes.get_mut(volume_id).ok_or("no such volume")?.adverse = true;
        Ok(())
    }

    fn heal(&self, _: &str, volume_id: &str) -> Result<(), String> {
        if !self.is(Wrong::HarmForever) {
            self.state().volumes.get_mut(volume_id).ok_or("no such volume")?.adverse = false;
        }
        Ok(())
    }
}

#[tonic::async_trait]
impl Identity for Fake {
    async fn get_plugin_info(
        &self,
        _: Request<wire::GetPluginInfoRequest>,
    ) -> Answer<wire::GetPluginInfoResponse> {
        let name = if self.is(Wrong::Name) { "my driver!" } else { "fake.example" };
        let version = if self.is(Wrong::NoVersion) { "" } else { "1" };
        Ok(Response::new(wire::GetPluginInfoResponse {
            name: name.to_owned(),
            vendor_version: version.to_owned(),
            manifest: HashMap::new(),
        }))
    }
}
