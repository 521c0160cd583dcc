//! A running reference driver and a volume in it, staged and published.

use std::collections::HashMap;
use std::fs;
use std::future::Future;
use std::path::PathBuf;
use std::process::{Child, Command};
use std::time::{Duration, Instant};

use rustix::mount::{UnmountFlags, unmount};
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Response, Status};
use volmedic_driver::StateDir;
use volmedic_driver::fault::{Faults, Kind};
use volmedic_host::mounts::Table;
use volmedic_proto::csi as wire;
use volmedic_proto::csi::controller_client::ControllerClient;
use volmedic_proto::csi::node_client::NodeClient;
use volmedic_proto::csi::volume_capability::access_mode::Mode;
use volmedic_proto::csi::volume_capability::{AccessMode, AccessType, BlockVolume, MountVolume};

use super::roles::DRIVER;

/// Longer than anything takes, with a hung volume and a busy machine.
pub(crate) const PATIENCE: Duration = Duration::from_mins(2);

pub(crate) struct Driver {
    folder: tempfile::TempDir,
    process: Child,
    pub(crate) runtime: tokio::runtime::Runtime,
}

impl Driver {
    /// With health reported in this dialect.
    pub(crate) fn start(dialect: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        for name in ["state", "root"] {
            fs::create_dir(folder.path().join(name)).unwrap();
        }
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let process = start(&folder, dialect);
        let driver = Self { folder, process, runtime };
        driver.wait_until_served();
        driver
    }

    /// Kills the driver and starts it with another dialect.
    pub(crate) fn restart(&mut self, dialect: &str) {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
        self.process = start(&self.folder, dialect);
        self.wait_until_served();
    }

    pub(crate) fn socket(&self) -> PathBuf {
        socket(&self.folder)
    }

    pub(crate) fn faults(&self) -> Faults {
        Faults::at(StateDir::new(self.folder.path().join("state").canonicalize().unwrap()))
    }

    pub(crate) fn root(&self) -> PathBuf {
        self.folder.path().join("root").canonicalize().unwrap()
    }

    fn channel(&self) -> Channel {
        let _inside = self.runtime.enter();
        Endpoint::from_shared(format!("unix://{}", self.socket().display())).unwrap().connect_lazy()
    }

    pub(crate) fn node(&self) -> NodeClient<Channel> {
        NodeClient::new(self.channel())
    }

    /// Waits for an answer, but not for ever.
    pub(crate) fn answer<T>(
        &self,
        call: impl Future<Output = Result<Response<T>, Status>>,
    ) -> Result<T, Status> {
        self.runtime.block_on(async {
            let answered = tokio::time::timeout(PATIENCE, call).await;
            answered.expect("a call was not answered in time").map(Response::into_inner)
        })
    }

    fn wait_until_served(&self) {
        let end = Instant::now() + PATIENCE;
        loop {
            match self.answer(self.node().node_get_info(wire::NodeGetInfoRequest {})) {
                Ok(_) => return,
                Err(status) if status.code() == Code::Unavailable && Instant::now() < end => {
                    std::thread::sleep(Duration::from_millis(20));
                }
                Err(status) => panic!("{status}"),
            }
        }
    }
}

/// Ends the driver and, should a failed test have left any, takes its mounts and loop devices away.
impl Drop for Driver {
    fn drop(&mut self) {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
        let left: Vec<PathBuf> =
            Table::read().unwrap().under(self.root()).map(|mount| mount.target().to_owned()).collect();
        for place in left.iter().rev() {
            unmount(place, UnmountFlags::DETACH).unwrap();
        }
        let state = self.folder.path().join("state").canonicalize().unwrap();
        for entry in fs::read_dir("/sys/block").unwrap().flatten() {
            let backing = fs::read_to_string(entry.path().join("loop/backing_file")).unwrap_or_default();
            if backing.starts_with(&*state.to_string_lossy()) {
                let node = PathBuf::from("/dev").join(entry.file_name());
                Command::new("losetup").arg("--detach").arg(node).status().unwrap();
            }
        }
    }
}

fn socket(folder: &tempfile::TempDir) -> PathBuf {
    folder.path().join("csi.sock")
}

fn start(folder: &tempfile::TempDir, dialect: &str) -> Child {
    let path = |name: &str| folder.path().join(name);
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.arg(DRIVER).arg(path("state")).arg(socket(folder)).arg(path("root")).arg(dialect);
    command.spawn().unwrap()
}

/// A volume that is staged and published at one or more targets.
pub(crate) struct Volume<'d> {
    driver: &'d Driver,
    pub(crate) kind: Kind,
    pub(crate) id: String,
    pub(crate) staging: PathBuf,
    pub(crate) targets: Vec<PathBuf>,
    read_only: bool,
}

impl<'d> Volume<'d> {
    pub(crate) fn new(driver: &'d Driver, kind: Kind) -> Self {
        Self::published(driver, kind, 1, false)
    }

    pub(crate) fn published(driver: &'d Driver, kind: Kind, targets: usize, read_only: bool) -> Self {
        let bytes = if kind == Kind::Xfs { 300 << 20 } else { 128 << 20 };
        let (class, fs_type) = match kind {
            Kind::Fuse => ("fuse", ""),
            Kind::Block => ("loop", "ext4"),
            other => ("loop", other.name()),
        };
        let mut parameters = HashMap::from([("kind".to_owned(), class.to_owned())]);
        if !fs_type.is_empty() {
            parameters.insert("csi.storage.k8s.io/fstype".to_owned(), fs_type.to_owned());
        }
        let request = wire::CreateVolumeRequest {
            name: format!("volume-{}-{targets}-{read_only}", kind.name()),
            capacity_range: Some(wire::CapacityRange { required_bytes: bytes, limit_bytes: 0 }),
            volume_capabilities: vec![capability(kind)],
            parameters,
            ..Default::default()
        };
        let mut controller = ControllerClient::new(driver.channel());
        let id = driver.answer(controller.create_volume(request)).unwrap().volume.unwrap().volume_id;
        let staging = driver.root().join(format!("{id}-staging"));
        fs::create_dir(&staging).unwrap();
        let targets = (0..targets).map(|at| driver.root().join(format!("{id}-target-{at}"))).collect();
        let volume = Self { driver, kind, id, staging, targets, read_only };
        volume.put_up();
        volume
    }

    /// Stages and publishes; twice does no harm.
    pub(crate) fn put_up(&self) {
        let stage = wire::NodeStageVolumeRequest {
            volume_id: self.id.clone(),
            staging_target_path: self.staging.display().to_string(),
            volume_capability: Some(capability(self.kind)),
            ..Default::default()
        };
        self.driver.answer(self.driver.node().node_stage_volume(stage)).unwrap();
        for target in &self.targets {
            let publish = wire::NodePublishVolumeRequest {
                volume_id: self.id.clone(),
                staging_target_path: self.staging.display().to_string(),
                target_path: target.display().to_string(),
                volume_capability: Some(capability(self.kind)),
                readonly: self.read_only,
                ..Default::default()
            };
            self.driver.answer(self.driver.node().node_publish_volume(publish)).unwrap();
        }
    }
}

/// Leaves nothing: no mount, no loop device, no mounter.
impl Drop for Volume<'_> {
    fn drop(&mut self) {
        // Only a test that failed half way has left any.
        let faults = self.driver.faults();
        for fault in faults.active(Some(&self.id)).unwrap() {
            let _ = faults.clear(fault, Some(&self.id));
        }
        let mut taken_down = Vec::new();
        for target in &self.targets {
            let request = wire::NodeUnpublishVolumeRequest {
                volume_id: self.id.clone(),
                target_path: target.display().to_string(),
            };
            taken_down
                .push(self.driver.answer(self.driver.node().node_unpublish_volume(request)).map(|_| ()));
        }
        let request = wire::NodeUnstageVolumeRequest {
            volume_id: self.id.clone(),
            staging_target_path: self.staging.display().to_string(),
        };
        taken_down.push(self.driver.answer(self.driver.node().node_unstage_volume(request)).map(|_| ()));
        // A test that already fails shall fail with its own words.
        if !std::thread::panicking() {
            for outcome in taken_down {
                outcome.unwrap();
            }
        }
    }
}

fn capability(kind: Kind) -> wire::VolumeCapability {
    let access_type = match kind {
        Kind::Block => AccessType::Block(BlockVolume {}),
        _ => AccessType::Mount(MountVolume::default()),
    };
    wire::VolumeCapability {
        access_mode: Some(AccessMode { mode: Mode::SingleNodeMultiWriter.into() }),
        access_type: Some(access_type),
    }
}
