//! The machine under a stage: whose turn it is to have a cluster, the cluster, and what volumes leave on the machine.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread::sleep;
use std::time::{Duration, Instant};

use volmedic_driver::StateDir;
use volmedic_host::mounts::Table;
use volmedic_testkit::cluster::{self, Name};
use volmedic_testkit::image::Image;
use volmedic_testkit::{Cluster, cache};

use super::{DRIVER, PAUSE};

/// How long other tests may keep us waiting for our own cluster.
const TURN: Duration = Duration::from_mins(25);

/// While this lives, no other test on this machine has a cluster: two at a time would slow each other down, and an agent
/// that looks for its kubelet might find the other's. The kernel lets go of it however a test ends.
pub(crate) struct Turn {
    _lock: File,
}

impl Turn {
    /// Waits for it, and clears away what a test that was killed left.
    pub(crate) fn take() -> Self {
        assert!(rustix::process::geteuid().is_root(), "a node takes root; run this as root");
        let path = cache::folder().unwrap().join("cluster-tests.lock");
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        let file = File::create(&path).unwrap();
        let deadline = Instant::now() + TURN;
        while let Err(error) = file.try_lock() {
            assert!(Instant::now() < deadline, "another test keeps {} to itself: {error}", path.display());
            sleep(PAUSE);
        }
        detach_left_over();
        cluster::down(&newcomers()).unwrap();
        Self { _lock: file }
    }
}

/// The cluster that a test has `cargo xtask cluster up` start.
pub(crate) fn newcomers() -> Name {
    "newcomer".parse().unwrap()
}

/// The cluster under a stage.
pub(super) enum Ground {
    /// Ends with the test's process.
    Own(Cluster),
    /// Was started by `cargo xtask cluster up` and is ended with the stage.
    Named(Named),
}

impl Ground {
    pub(super) fn kubelet(&self) -> PathBuf {
        match self {
            Self::Own(cluster) => cluster.kubelet_folder().unwrap(),
            Self::Named(name) => cluster::kubelet_folder(&name.0).unwrap(),
        }
    }

    pub(super) fn kubectl(&self) -> Command {
        match self {
            Self::Own(cluster) => cluster.kubectl(),
            Self::Named(name) => cluster::kubectl(&name.0).unwrap(),
        }
    }

    pub(super) fn kubeconfig(&self) -> PathBuf {
        match self {
            Self::Own(cluster) => cluster.plane().kubeconfig().to_owned(),
            Self::Named(name) => cluster::kubeconfig(&name.0).unwrap(),
        }
    }

    pub(super) fn import(&self, image: &Image) {
        match self {
            Self::Own(cluster) => cluster.import(image).unwrap(),
            Self::Named(name) => {
                let archive = tempfile::NamedTempFile::new().unwrap();
                fs::write(archive.path(), image.archive().unwrap()).unwrap();
                cluster::load(&name.0, archive.path()).unwrap();
            }
        }
    }

    pub(super) fn stop(self) {
        match self {
            Self::Own(cluster) => cluster.stop().unwrap(),
            Self::Named(name) => assert!(cluster::down(&name.0).unwrap(), "the cluster is gone already"),
        }
    }
}

/// A named cluster that is ended also when the test fails.
pub(crate) struct Named(pub(crate) Name);

impl Drop for Named {
    fn drop(&mut self) {
        let _ = cluster::down(&self.0);
    }
}

/// Where volumes leave traces outside of the cluster.
pub(super) struct Machine {
    pub(super) kubelet: PathBuf,
    pub(super) state: StateDir,
}

impl Machine {
    pub(super) fn socket(&self) -> PathBuf {
        self.kubelet.join("plugins").join(DRIVER).join("csi.sock")
    }

    pub(super) fn addons(&self) -> PathBuf {
        self.socket().with_file_name("addons.sock")
    }

    pub(super) fn traces(&self) -> Vec<String> {
        let mut found: Vec<String> =
            self.mounts().iter().map(|path| format!("mount {}", path.display())).collect();
        found.extend(
            self.loop_devices()
                .into_iter()
                .map(|(device, image)| format!("loop {device} on {}", image.display())),
        );
        found.extend(self.mounters().into_iter().map(|line| format!("mounter {line}")));
        for place in
            [self.state.volumes(), self.state.snapshots(), self.state.new_things(), self.state.trash()]
        {
            let entries = fs::read_dir(&place).unwrap();
            found.extend(entries.map(|entry| format!("file {}", entry.unwrap().path().display())));
        }
        found
    }

    fn mounts(&self) -> Vec<PathBuf> {
        let table = Table::read().unwrap();
        let below =
            |folder: &Path| table.under(folder).map(|mount| mount.target().to_owned()).collect::<Vec<_>>();
        let mut found = [below(&self.kubelet), below(self.state.root())].concat();
        // The kubelet mounts its own folder onto itself, to share what appears below it.
        found.retain(|target| *target != self.kubelet);
        found
    }

    /// The driver's, and those that the kubelet puts on raw block volumes.
    fn loop_devices(&self) -> Vec<(String, PathBuf)> {
        loop_devices(|image| image.starts_with(&self.kubelet) || image.starts_with(self.state.root()))
    }

    /// Processes that serve volumes of this driver, by their command lines.
    fn mounters(&self) -> Vec<String> {
        let volumes = self.state.volumes().display().to_string();
        let entries = fs::read_dir("/proc").unwrap().flatten();
        let lines = entries.filter_map(|entry| fs::read(entry.path().join("cmdline")).ok());
        let lines = lines.map(|line| String::from_utf8_lossy(&line).replace('\0', " "));
        lines.filter(|line| line.contains(" mounter ") && line.contains(&volumes)).collect()
    }
}

/// After a failed test: the cluster clears its mounts and processes away, but knows nothing of loop devices. A device
/// that is in use goes with its last user, so this comes first, while the kubelet's devices still have names.
impl Drop for Machine {
    fn drop(&mut self) {
        detach(self.loop_devices());
    }
}

/// The same for runs that were killed: the next cluster to start clears the rest away.
fn detach_left_over() {
    let cache = cache::folder().unwrap();
    let (runs, newcomers) = (cache.join("run"), cache.join("cluster").join(newcomers().to_string()));
    detach(loop_devices(|image| {
        if image.starts_with(&newcomers) {
            return true;
        }
        let name = image.strip_prefix(&runs).ok().and_then(|rest| rest.iter().next()?.to_str());
        let owner = name.and_then(|name| name.strip_prefix("cluster-")?.split_once('-'));
        owner.is_some_and(|(pid, _)| !Path::new("/proc").join(pid).exists())
    }));
}

fn loop_devices(wanted: impl Fn(&Path) -> bool) -> Vec<(String, PathBuf)> {
    let mut found = Vec::new();
    for entry in fs::read_dir("/sys/block").unwrap() {
        let entry = entry.unwrap();
        let Ok(image) = fs::read_to_string(entry.path().join("loop/backing_file")) else { continue };
        let image = PathBuf::from(image.trim_end());
        if wanted(&image) {
            found.push((entry.file_name().into_string().unwrap(), image));
        }
    }
    found
}

fn detach(devices: Vec<(String, PathBuf)>) {
    for (device, _) in devices {
        let mut losetup = Command::new("timeout");
        // What cannot be detached is in nobody's way.
        let _ = losetup.args(["20", "losetup", "-d"]).arg(Path::new("/dev").join(device)).status();
    }
}
