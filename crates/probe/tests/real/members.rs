//! A btrfs on two devices, seen from a container that has no nodes of them, as the agent of the default chart is.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use rustix::mount::{UnmountFlags, unmount};
use volmedic_probe::host::{Expected, Key, Layer, Mode, Target};

use super::Test;
use super::eyes::{host, look, messages, settle, shown};

pub(crate) const TESTS: &[Test] = &[
    ("a_btrfs_with_a_missing_device_is_reported_without_its_nodes", missing),
    ("a_device_of_a_btrfs_that_dies_is_reported_without_its_nodes", dies),
];

fn run(program: &str, arguments: &[&str]) -> String {
    let output = Command::new(program).args(arguments).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{program} {arguments:?}: {said}");
    String::from_utf8_lossy(&output.stdout).trim().to_owned()
}

/// Two loop devices with one btrfs, and a place to mount it.
struct Mirror {
    folder: tempfile::TempDir,
    devices: Vec<String>,
}

impl Mirror {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let mut mirror = Self { folder, devices: Vec::new() };
        for name in ["a", "b"] {
            let image = mirror.path(name);
            fs::File::create(&image).unwrap().set_len(200 << 20).unwrap();
            mirror.devices.push(run("losetup", &["--find", "--show", image.to_str().unwrap()]));
        }
        fs::create_dir(mirror.path("target")).unwrap();
        let [first, second] = [0, 1].map(|at| mirror.devices[at].as_str());
        run("mkfs.btrfs", &["-q", "-f", "-m", "raid1", "-d", "raid1", first, second]);
        mirror
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().canonicalize().unwrap().join(name)
    }

    fn mount(&self, options: &str) {
        let target = self.path("target");
        run("mount", &["-t", "btrfs", "-o", options, &self.devices[0], target.to_str().unwrap()]);
    }

    fn expected(&self) -> Expected {
        let path = self.path("target");
        let target = Target { path, read_only: false, pod: "shop/web-0".into(), parts: Vec::new() };
        Expected {
            driver: "test".into(),
            handle: "mirror".into(),
            mode: Mode::Filesystem,
            staging: None,
            targets: vec![target],
        }
    }

    fn hidden_nodes(&self) -> HiddenNodes {
        let nodes = self.devices.iter().map(PathBuf::from).filter(|node| node.exists());
        HiddenNodes::new(nodes.collect())
    }
}

impl Drop for Mirror {
    fn drop(&mut self) {
        let _ = unmount(self.path("target"), UnmountFlags::DETACH);
        for device in &self.devices {
            let _ = Command::new("losetup").args(["--detach", device]).status();
        }
    }
}

/// The nodes of these devices are not at their paths, until dropped.
struct HiddenNodes(Vec<PathBuf>);

impl HiddenNodes {
    fn new(nodes: Vec<PathBuf>) -> Self {
        for node in &nodes {
            fs::rename(node, aside(node)).unwrap();
        }
        Self(nodes)
    }
}

impl Drop for HiddenNodes {
    fn drop(&mut self) {
        for node in &self.0 {
            fs::rename(aside(node), node).unwrap();
        }
    }
}

fn aside(node: &Path) -> PathBuf {
    node.with_extension("hidden-by-a-test")
}

fn missing() {
    let mut mirror = Mirror::new();
    let wanted = mirror.expected();
    run("btrfs", &["device", "scan", "--forget", &mirror.devices[1]]);
    run("losetup", &["--detach", &mirror.devices[1]]);
    mirror.devices.truncate(1);
    mirror.mount("degraded");
    let hidden = mirror.hidden_nodes();
    let host = host();
    let seen = look(&host, &wanted).sight;
    let off = host.checks().into_iter().find(|check| check.name == "error-counters").unwrap().off;
    drop(hidden);
    assert_eq!(shown(&seen), "Degraded/DiskRemoved");
    let name = mirror.devices[0].strip_prefix("/dev/").unwrap();
    let expected = format!("device 2 of the btrfs on {name} is missing; present: {name}");
    assert_eq!(messages(&seen), expected);
    assert_eq!(off, None);
}

fn dies() {
    let mirror = Mirror::new();
    mirror.mount("defaults");
    let wanted = mirror.expected();
    let hidden = mirror.hidden_nodes();
    let host = host();
    assert_eq!(shown(&look(&host, &wanted).sight), "-");
    let key = Key { driver: wanted.driver.clone(), handle: wanted.handle.clone() };
    let mut names: Vec<String> = mirror.devices.iter().map(|node| node.replace("/dev/", "")).collect();
    names.sort();
    let named = |layer: Layer| names.iter().map(move |name| (layer, name.clone()));
    let both: Vec<_> = [Layer::Volume, Layer::Disk].into_iter().flat_map(named).collect();
    assert_eq!(&*host.devices(&key), both, "each device has its name, although no node of it can be seen");
    let file = mirror.path("target/file");
    fs::write(&file, vec![7; 16 << 20]).unwrap();
    fs::File::open(&file).unwrap().sync_all().unwrap();
    // Nothing is behind the second device any more. The file system goes on with the first. Which of the two is read
    // depends on the process that reads.
    fs::OpenOptions::new().write(true).open(mirror.path("b")).unwrap().set_len(0).unwrap();
    for _ in 0..16 {
        run("dd", &[&format!("if={}", file.display()), "of=/dev/null", "bs=1M", "iflag=direct"]);
    }
    let seen = settle(&host, &wanted, "reads fail", |seen| seen != "-").sight;
    drop(hidden);
    assert_eq!(shown(&seen), "Degraded/RWIOError");
    assert!(
        messages(&seen).contains("failed reads, writes and flushes of btrfs on loop"),
        "{}",
        messages(&seen)
    );
}
