//! A running driver, and one volume in it.

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::time::{Duration, Instant};

use rustix::mount::{UnmountFlags, unmount};
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Status};
use volmedic_driver::StateDir;
use volmedic_driver::fault::{Faults, Kind};
use volmedic_host::mounts::Table;
use volmedic_proto::csi as wire;
use volmedic_proto::csi::controller_client::ControllerClient;
use volmedic_proto::csi::identity_client::IdentityClient;
use volmedic_proto::csi::node_client::NodeClient;
use volmedic_proto::csi::volume_capability::access_mode::Mode;
use volmedic_proto::csi::volume_capability::{AccessMode, AccessType, BlockVolume, MountVolume};

use super::roles::DRIVER;

/// Longer than any single answer may take, with a hung volume and a slow machine.
pub(crate) const PATIENCE: Duration = Duration::from_mins(3);

pub(crate) struct Driver {
    folder: tempfile::TempDir,
    process: Child,
    arguments: Vec<String>,
    pub(crate) runtime: tokio::runtime::Runtime,
}

impl Driver {
    pub(crate) fn start() -> Self {
        Self::start_with(&[])
    }

    /// One that can be asked to heal.
    pub(crate) fn start_healing(arguments: &[&str]) -> Self {
        Self::start_with(&[&["--addons-endpoint=unix://@/addons.sock"], arguments].concat())
    }

    /// In an argument, `@` is the folder of this driver.
    pub(crate) fn start_with(arguments: &[&str]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        for name in ["state", "root"] {
            fs::create_dir(folder.path().join(name)).unwrap();
        }
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let at = folder.path().to_str().unwrap();
        let arguments: Vec<String> = arguments.iter().map(|argument| argument.replace('@', at)).collect();
        let process = start(&folder, &arguments);
        let driver = Self { folder, process, arguments, runtime };
        driver.wait_until_served();
        driver
    }

    pub(crate) fn folder(&self) -> &Path {
        self.folder.path()
    }

    pub(crate) fn addons_channel(&self) -> Channel {
        let _inside = self.runtime.enter();
        let address = format!("unix://{}", self.folder.path().join("addons.sock").display());
        Endpoint::from_shared(address).unwrap().connect_lazy()
    }

    /// Without a goodbye.
    pub(crate) fn kill(&mut self) {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
    }

    /// The process was killed; waits until it is gone.
    pub(crate) fn wait_for_the_end(&mut self) {
        self.process.wait().unwrap();
    }

    pub(crate) fn restart(&mut self) {
        self.process = start(&self.folder, &self.arguments);
        self.wait_until_served();
    }

    pub(crate) fn faults(&self) -> Faults {
        Faults::at(StateDir::new(self.folder.path().join("state").canonicalize().unwrap()))
    }

    pub(crate) fn root(&self) -> PathBuf {
        self.folder.path().join("root").canonicalize().unwrap()
    }

    pub(crate) fn channel(&self) -> Channel {
        let _inside = self.runtime.enter();
        let address = format!("unix://{}", socket(&self.folder).display());
        Endpoint::from_shared(address).unwrap().connect_lazy()
    }

    pub(crate) fn controller(&self) -> ControllerClient<Channel> {
        ControllerClient::new(self.channel())
    }

    pub(crate) fn node(&self) -> NodeClient<Channel> {
        NodeClient::new(self.channel())
    }

    /// Waits for an answer, but not for ever.
    pub(crate) fn answer<T>(
        &self,
        call: impl Future<Output = Result<tonic::Response<T>, Status>>,
    ) -> Result<T, Status> {
        self.runtime.block_on(async {
            let answered = tokio::time::timeout(PATIENCE, call).await;
            answered.expect("a call was not answered in time").map(tonic::Response::into_inner)
        })
    }

    fn wait_until_served(&self) {
        let end = Instant::now() + PATIENCE;
        loop {
            let mut identity = IdentityClient::new(self.channel());
            match self.answer(identity.get_plugin_info(wire::GetPluginInfoRequest {})) {
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
        for entry in fs::read_dir("/sys/block").unwrap() {
            let device = entry.unwrap();
            let backing = fs::read_to_string(device.path().join("loop/backing_file")).unwrap_or_default();
            if backing.starts_with(&*state.to_string_lossy()) {
                let node = PathBuf::from("/dev").join(device.file_name());
                Command::new("losetup").arg("--detach").arg(node).status().unwrap();
            }
        }
    }
}

fn socket(folder: &tempfile::TempDir) -> PathBuf {
    folder.path().join("csi.sock")
}

fn start(folder: &tempfile::TempDir, arguments: &[String]) -> Child {
    let path = |name: &str| folder.path().join(name);
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.arg(DRIVER).arg(path("state")).arg(socket(folder)).arg(path("root")).args(arguments);
    command.spawn().unwrap()
}

/// A volume that is staged and published.
pub(crate) struct Volume<'d> {
    driver: &'d Driver,
    pub(crate) kind: Kind,
    pub(crate) id: String,
    pub(crate) staging: PathBuf,
    pub(crate) target: PathBuf,
}

impl<'d> Volume<'d> {
    pub(crate) fn new(driver: &'d Driver, kind: Kind) -> Self {
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
            name: format!("volume-{}", kind.name()),
            capacity_range: Some(wire::CapacityRange { required_bytes: bytes, limit_bytes: 0 }),
            volume_capabilities: vec![capability(kind)],
            parameters,
            ..Default::default()
        };
        let made = driver.answer(driver.controller().create_volume(request)).unwrap();
        let volume = Self::again(driver, kind, made.volume.unwrap().volume_id);
        fs::create_dir(&volume.staging).unwrap();
        volume.put_up();
        volume
    }

    /// One that an earlier process of the driver had.
    pub(crate) fn again(driver: &'d Driver, kind: Kind, id: String) -> Self {
        let [staging, target] =
            ["staging", "target"].map(|name| driver.root().join(format!("{}-{name}", kind.name())));
        Self { driver, kind, id, staging, target }
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
        let publish = wire::NodePublishVolumeRequest {
            volume_id: self.id.clone(),
            staging_target_path: self.staging.display().to_string(),
            target_path: self.target.display().to_string(),
            volume_capability: Some(capability(self.kind)),
            ..Default::default()
        };
        self.driver.answer(self.driver.node().node_publish_volume(publish)).unwrap();
    }

    /// Unpublishes and unstages it; tries the second even if the first fails.
    pub(crate) fn take_down(&self) -> Result<(), Status> {
        let unpublish = wire::NodeUnpublishVolumeRequest {
            volume_id: self.id.clone(),
            target_path: self.target.display().to_string(),
        };
        let unstage = wire::NodeUnstageVolumeRequest {
            volume_id: self.id.clone(),
            staging_target_path: self.staging.display().to_string(),
        };
        let unpublished = self.driver.answer(self.driver.node().node_unpublish_volume(unpublish));
        let unstaged = self.driver.answer(self.driver.node().node_unstage_volume(unstage));
        unpublished.map(drop).and(unstaged.map(drop))
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
        let down = self.take_down();
        // A test that already fails shall fail with its own words.
        if !std::thread::panicking() {
            down.unwrap();
        }
    }
}

pub(crate) fn capability(kind: Kind) -> wire::VolumeCapability {
    let access_type = match kind {
        Kind::Block => AccessType::Block(BlockVolume {}),
        _ => AccessType::Mount(MountVolume::default()),
    };
    wire::VolumeCapability {
        access_mode: Some(AccessMode { mode: Mode::SingleNodeWriter.into() }),
        access_type: Some(access_type),
    }
}
