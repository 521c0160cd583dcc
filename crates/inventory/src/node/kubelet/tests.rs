use std::fs::{self, create_dir_all};
use std::os::unix::fs::symlink;

use proptest::prelude::*;
use tempfile::TempDir;

use super::*;
use crate::node::volume::Mode;

fn layout() -> Layout {
    Layout::new("/var/lib/kubelet")
}

#[track_caller]
fn check(path: Result<PathBuf, NoComponent>, expected: &str) {
    assert_eq!(path.unwrap(), Path::new("/var/lib/kubelet").join(expected));
}

#[test]
fn where_the_kubelet_has_what() {
    let kubelet = layout();
    check(Ok(kubelet.pods()), "pods");
    check(kubelet.publish("u1", "pvc-1"), "pods/u1/volumes/kubernetes.io~csi/pvc-1/mount");
    check(kubelet.vol_data("u1", "pvc-1"), "pods/u1/volumes/kubernetes.io~csi/pvc-1/vol_data.json");
    check(
        kubelet.volume("u1", "kubernetes.io~local-volume", "disk-7"),
        "pods/u1/volumes/kubernetes.io~local-volume/disk-7",
    );
    // SHA-256 of "abc" is the example in its standard.
    let hash = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
    let staging = format!("plugins/kubernetes.io/csi/disk.example.net/{hash}/globalmount");
    check(kubelet.staging("disk.example.net", "abc"), &staging);
    check(
        Layout::deeper_staging(&kubelet.staging("disk.example.net", "abc").unwrap(), "abc"),
        &format!("{staging}/abc"),
    );
    check(kubelet.old_staging("pvc-1"), "plugins/kubernetes.io/csi/pv/pvc-1/globalmount");
    check(kubelet.block_staging("pvc-1"), "plugins/kubernetes.io/csi/volumeDevices/staging/pvc-1");
    check(kubelet.block_publish("pvc-1", "u1"), "plugins/kubernetes.io/csi/volumeDevices/publish/pvc-1/u1");
    check(kubelet.block_map("u1", CSI, "pvc-1"), "pods/u1/volumeDevices/kubernetes.io~csi/pvc-1");
    check(
        kubelet.block_vol_data("pvc-1"),
        "plugins/kubernetes.io/csi/volumeDevices/pvc-1/data/vol_data.json",
    );
    check(kubelet.sub_path("u1", "pvc-1", "main", 2), "pods/u1/volume-subpaths/pvc-1/main/2");
}

/// Any handle will do where only its hash is used, whatever it looks like.
#[test]
fn names_that_lead_elsewhere_are_refused() {
    for name in ["", ".", "..", "a/b", "/etc", "../x", "a\0b", &"x".repeat(256)] {
        let kubelet = layout();
        for path in [
            kubelet.publish(name, "pv"),
            kubelet.publish("u", name),
            kubelet.volume("u", name, "pv"),
            kubelet.staging(name, "h"),
            kubelet.old_staging(name),
            kubelet.block_staging(name),
            kubelet.block_publish(name, "u"),
            kubelet.block_publish("pv", name),
            kubelet.block_map("u", CSI, name),
            kubelet.block_vol_data(name),
            kubelet.sub_path("u", "pv", name, 0),
            Layout::deeper_staging(Path::new("/s"), name),
        ] {
            let why = path.unwrap_err().to_string();
            assert!(why.ends_with("cannot be the name of a file"), "{why}");
        }
        assert!(
            kubelet.staging("d", name).unwrap().starts_with("/var/lib/kubelet/plugins/kubernetes.io/csi/d")
        );
    }
}

proptest! {
    #[test]
    fn no_path_leaves_the_root(pod in ".{0,20}", volume in ".{0,20}", driver in ".{0,20}") {
        let kubelet = layout();
        let paths = [
            kubelet.publish(&pod, &volume),
            kubelet.staging(&driver, &volume),
            kubelet.block_publish(&volume, &pod),
            kubelet.sub_path(&pod, &volume, &driver, 1),
        ];
        for path in paths.into_iter().flatten() {
            prop_assert!(path.starts_with(kubelet.root()));
            let up = path.components().any(|part| part == std::path::Component::ParentDir);
            prop_assert!(!up, "{}", path.display());
        }
    }
}

/// A kubelet's directory, made by hand.
struct Fake {
    folder: TempDir,
    layout: Layout,
}

impl Fake {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let layout = Layout::new(folder.path());
        create_dir_all(layout.pods()).unwrap();
        create_dir_all(folder.path().join(CSI_PLUGIN)).unwrap();
        Self { folder, layout }
    }

    fn note(&self, pod: &str, volume: &str, note: &str) {
        create_dir_all(self.layout.publish(pod, volume).unwrap()).unwrap();
        fs::write(self.layout.vol_data(pod, volume).unwrap(), note).unwrap();
    }

    /// `plugin/name mode driver/handle staging` of each, or what is wrong.
    fn read(&self, pod: &str) -> Vec<String> {
        let show = |found: Found| {
            let Found { dir, note, staging } = found;
            let note = match note {
                None => "none".to_owned(),
                Some(Ok(note)) => format!("{}/{}", note.driver, note.handle),
                Some(Err(why)) => why.rsplit("cannot be used: ").next().unwrap().to_owned(),
            };
            format!("{}/{} {:?} {note} {staging:?}", dir.plugin(), dir.name, dir.mode)
        };
        Reader::open(&self.layout).unwrap().pod(pod).unwrap().into_iter().map(show).collect()
    }
}

const NOTE: &str = r#"{"driverName":"d","volumeHandle":"h","specVolID":"pv"}"#;

#[test]
fn what_is_set_up_for_a_pod() {
    let fake = Fake::new();
    assert_eq!(fake.read("u1"), [""; 0]);
    fake.note("u1", "pv", NOTE);
    for (plugin, name) in [
        ("kubernetes.io~secret", "token"),
        ("kubernetes.io~empty-dir", "tmp"),
        ("kubernetes.io~nfs", "share"),
    ] {
        create_dir_all(fake.layout.volume("u1", plugin, name).unwrap()).unwrap();
    }
    create_dir_all(fake.layout.staging("d", "h").unwrap()).unwrap();
    // Block: a link in the pod's directory, the note elsewhere.
    let map = fake.layout.block_map("u1", CSI, "raw").unwrap();
    create_dir_all(map.parent().unwrap()).unwrap();
    symlink("/dev/null", map).unwrap();
    let note = fake.layout.block_vol_data("raw").unwrap();
    create_dir_all(note.parent().unwrap()).unwrap();
    fs::write(note, r#"{"driverName":"d","volumeHandle":"r","specVolID":"raw"}"#).unwrap();
    assert_eq!(
        fake.read("u1"),
        [
            "kubernetes.io~csi/pv Filesystem d/h Hashed",
            "kubernetes.io~csi/raw Block d/r Block",
            "kubernetes.io~nfs/share Filesystem none None",
        ]
    );
    // An older kubelet staged it elsewhere.
    fs::remove_dir_all(fake.layout.staging("d", "h").unwrap()).unwrap();
    assert_eq!(fake.read("u1")[0], "kubernetes.io~csi/pv Filesystem d/h None");
    create_dir_all(fake.layout.old_staging("pv").unwrap()).unwrap();
    assert_eq!(fake.read("u1")[0], "kubernetes.io~csi/pv Filesystem d/h Named");
}

#[test]
fn a_node_that_never_had_a_pod() {
    let folder = tempfile::tempdir().unwrap();
    let layout = Layout::new(folder.path());
    assert_eq!(Reader::open(&layout).unwrap().pod("u").unwrap(), []);
    assert!(Reader::open(&Layout::new(folder.path().join("missing"))).is_err());
}

#[test]
fn planted_files_are_not_followed() {
    let fake = Fake::new();
    fake.note("u1", "pv", NOTE);
    let note = fake.layout.vol_data("u1", "pv").unwrap();
    let elsewhere = fake.folder.path().join("elsewhere");
    fs::write(&elsewhere, NOTE).unwrap();
    fs::remove_file(&note).unwrap();
    assert_eq!(
        fake.read("u1"),
        ["kubernetes.io~csi/pv Filesystem No such file or directory (os error 2) None"]
    );
    symlink(&elsewhere, &note).unwrap();
    assert!(fake.read("u1")[0].contains("Too many levels of symbolic links"), "{:?}", fake.read("u1"));
    fs::remove_file(&note).unwrap();
    // Opening a pipe that nobody writes to would wait for ever.
    rustix::fs::mknodat(rustix::fs::CWD, &note, rustix::fs::FileType::Fifo, 0o600.into(), 0).unwrap();
    assert!(fake.read("u1")[0].contains("it is not a regular file"), "{:?}", fake.read("u1"));
    fs::remove_file(&note).unwrap();
    fs::create_dir(&note).unwrap();
    assert!(fake.read("u1")[0].contains("it is not a regular file"), "{:?}", fake.read("u1"));
    fs::remove_dir(&note).unwrap();
    fs::write(&note, vec![b' '; 1_000_000]).unwrap();
    assert!(fake.read("u1")[0].contains("it is longer than"), "{:?}", fake.read("u1"));

    // Nor is a pod whose directory is a link.
    symlink(fake.layout.pods().join("u1"), fake.layout.pods().join("u2")).unwrap();
    assert!(Reader::open(&fake.layout).unwrap().pod("u2").is_err());
    for uid in ["..", "../pods/u1", ".", ""] {
        assert!(Reader::open(&fake.layout).unwrap().pod(uid).is_err(), "{uid}");
    }
}

/// Without openat2 it is done step by step.
#[test]
fn older_kernels_come_to_the_same() {
    let fake = Fake::new();
    fake.note("u1", "pv", NOTE);
    symlink(fake.layout.pods().join("u1"), fake.layout.pods().join("u2")).unwrap();
    let pods = fs::File::open(fake.layout.pods()).unwrap();
    let path = |pod: &str| format!("{pod}/{VOLUMES}/{CSI}/pv/{VOL_DATA}");
    let flags = rustix::fs::OFlags::RDONLY | rustix::fs::OFlags::NOFOLLOW;
    assert!(read::walk(std::os::fd::AsFd::as_fd(&pods), Path::new(&path("u1")), flags).is_ok());
    assert!(read::walk(std::os::fd::AsFd::as_fd(&pods), Path::new(&path("u2")), flags).is_err());
    assert!(read::walk(std::os::fd::AsFd::as_fd(&pods), Path::new(&path("u3")), flags).is_err());
}

/// What is mounted is never entered, so it cannot hang us. The mount is seen as a name and no more.
#[test]
fn mounts_are_not_entered() {
    let fake = Fake::new();
    fake.note("u1", "pv", NOTE);
    // A file system that is already there, seen through a directory that must not be entered.
    let parts = ["proc", "version"];
    let root = fs::File::open("/").unwrap();
    let entered = read::open_below(std::os::fd::AsFd::as_fd(&root), &parts, rustix::fs::OFlags::RDONLY);
    assert_eq!(entered.unwrap_err(), rustix::io::Errno::XDEV);
    assert_eq!(fake.read("u1")[0], "kubernetes.io~csi/pv Filesystem d/h None");
    assert!(matches!(Reader::open(&fake.layout).unwrap().pod("u1").unwrap()[0].dir.mode, Mode::Filesystem));
}
