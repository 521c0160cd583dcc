//! Volumes that are directories of the host, on real file systems.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use rustix::mount::{UnmountFlags, unmount};
use volmedic_health::NotProbed;
use volmedic_host::helper::{Helpers, Limits};
use volmedic_probe::host::{Expected, Host, Mode, Settings, Target};

use super::Test;
use super::eyes::{look, messages, settle, shown};

pub(crate) const TESTS: &[Test] = &[
    ("a_directory_of_the_host_that_is_deleted_or_replaced_is_reported", deleted),
    ("a_directory_of_the_host_whose_file_system_is_unmounted_is_reported", unmounted),
    ("a_directory_of_the_host_that_is_read_only_or_full_is_reported", read_only_and_full),
    ("links_in_the_path_of_a_directory_lead_where_they_lead_on_the_host", links),
    ("a_directory_of_the_host_that_the_agent_cannot_see_is_not_probed", out_of_reach),
];

fn host(root: Option<&Path>) -> Host {
    let settings = Settings {
        deadline: Duration::from_secs(30),
        table_age: Duration::ZERO,
        host_root: root.map(Into::into),
        ..Settings::default()
    };
    Host::new(Arc::new(Helpers::new(Limits::default())), settings)
}

/// A directory of the host in use by a pod with this uid.
fn expected(path: &Path, uid: &str) -> Expected {
    let target = Target {
        path: format!("/k/{uid}").into(),
        read_only: false,
        pod: "shop/web-0".into(),
        parts: Vec::new(),
    };
    Expected {
        driver: "kubernetes.io/host-path".into(),
        handle: "pv".into(),
        mode: Mode::Directory,
        staging: Some(path.into()),
        targets: vec![target],
    }
}

/// A small file system of its own, unmounted when dropped.
struct Disk {
    folder: tempfile::TempDir,
}

impl Disk {
    fn new() -> Self {
        let disk = Self { folder: tempfile::tempdir().unwrap() };
        fs::create_dir(disk.at("")).unwrap();
        disk.mount();
        disk
    }

    fn at(&self, name: &str) -> PathBuf {
        let disk = self.folder.path().canonicalize().unwrap().join("disk");
        if name.is_empty() { disk } else { disk.join(name) }
    }

    fn run(arguments: &[&str]) {
        let output = Command::new("mount").args(arguments).output().unwrap();
        assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    }

    fn mount(&self) {
        Self::run(&["-t", "tmpfs", "-o", "size=1m", "the-disk", self.at("").to_str().unwrap()]);
    }

    fn remount(&self, options: &str) {
        Self::run(&["-o", &format!("remount,{options}"), self.at("").to_str().unwrap()]);
    }

    fn unmount(&self) {
        unmount(self.at(""), UnmountFlags::DETACH).unwrap();
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        let _ = unmount(self.at(""), UnmountFlags::DETACH);
    }
}

fn root() -> &'static Path {
    Path::new("/")
}

fn deleted() {
    let disk = Disk::new();
    let (host, volume) = (host(Some(root())), disk.at("pv"));
    fs::create_dir(&volume).unwrap();
    let first = look(&host, &expected(&volume, "first"));
    assert_eq!(shown(&first.sight), "-");
    assert!(first.unprobed.is_none() && first.usage.is_some(), "{first:?}");
    // Its place must not be taken by the next directory.
    let _holder = fs::File::open(&volume).unwrap();
    fs::remove_dir(&volume).unwrap();
    let gone =
        settle(&host, &expected(&volume, "first"), "deleted", |seen| seen == "Inaccessible/VolumeNotFound");
    assert!(messages(&gone.sight).contains("is not there"), "{}", messages(&gone.sight));
    fs::create_dir(&volume).unwrap();
    let other =
        settle(&host, &expected(&volume, "first"), "replaced", |seen| seen == "Inaccessible/VolumeNotFound");
    assert!(messages(&other.sight).contains("another one is there now"), "{}", messages(&other.sight));
    // A pod that starts now has the directory that is there.
    settle(&host, &expected(&volume, "second"), "another pod", |seen| seen == "-");
}

fn unmounted() {
    let disk = Disk::new();
    let (host, volume) = (host(Some(root())), disk.at("pv"));
    fs::create_dir(&volume).unwrap();
    assert_eq!(shown(&look(&host, &expected(&volume, "u")).sight), "-");
    disk.unmount();
    let gone =
        settle(&host, &expected(&volume, "u"), "unmounted", |seen| seen == "Inaccessible/VolumeUnmounted");
    assert!(
        messages(&gone.sight).contains("the-disk (tmpfs) is not mounted any more"),
        "{}",
        messages(&gone.sight)
    );
    // As a runtime does for a pod that starts: on the disk of the host.
    fs::create_dir(&volume).unwrap();
    let bare = settle(&host, &expected(&volume, "u"), "on another disk", |seen| {
        seen == "Inaccessible/VolumeUnmounted"
    });
    assert!(messages(&bare.sight).contains("instead of the-disk (tmpfs)"), "{}", messages(&bare.sight));
}

fn read_only_and_full() {
    let disk = Disk::new();
    let (host, volume) = (host(Some(root())), disk.at("pv"));
    fs::create_dir(&volume).unwrap();
    let wanted = expected(&volume, "u");
    assert_eq!(shown(&look(&host, &wanted).sight), "-");
    disk.remount("ro");
    settle(&host, &wanted, "read-only", |seen| seen == "Inaccessible/ReadOnlyFilesystem");
    let mut reader = wanted.clone();
    reader.targets[0].read_only = true;
    settle(&host, &reader, "read-only by intent", |seen| seen == "-");
    disk.remount("rw");
    settle(&host, &wanted, "writable again", |seen| seen == "-");
    // Beside the volume, on the same file system.
    let _ = fs::write(disk.at("filler"), vec![1; 1 << 20]);
    let full = settle(&host, &wanted, "full", |seen| seen == "Degraded/OutOfCapacity");
    assert!(full.usage.is_some());
    fs::remove_file(disk.at("filler")).unwrap();
    settle(&host, &wanted, "free again", |seen| seen == "-");
}

fn links() {
    let disk = Disk::new();
    fs::create_dir(disk.at("pv")).unwrap();
    // On that host, this is `/data -> /disk`.
    let root = disk.folder.path().canonicalize().unwrap();
    symlink("/disk", root.join("data")).unwrap();
    let (host, wanted) = (host(Some(&root)), expected(Path::new("/data/pv"), "u"));
    assert_eq!(shown(&look(&host, &wanted).sight), "-");
    disk.remount("ro");
    settle(&host, &wanted, "the mount behind the link", |seen| seen == "Inaccessible/ReadOnlyFilesystem");
    disk.remount("rw");
    settle(&host, &wanted, "writable again", |seen| seen == "-");
    // Nothing leads out of the host's root directory.
    symlink("/proc", root.join("out")).unwrap();
    let outside = settle(&host, &expected(Path::new("/out"), "u"), "a link outside", |seen| seen != "-");
    assert_eq!(shown(&outside.sight), "Inaccessible/VolumeNotFound");
}

fn out_of_reach() {
    let disk = Disk::new();
    fs::create_dir(disk.at("pv")).unwrap();
    let looked = look(&host(None), &expected(&disk.at("pv"), "u"));
    assert_eq!(looked.unprobed.map(|(why, _)| why), Some(NotProbed::HostPathNotVisible));
    assert!(shown(&looked.sight).starts_with("not seen"), "{}", shown(&looked.sight));
}
