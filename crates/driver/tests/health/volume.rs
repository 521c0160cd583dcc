//! A volume as a driver would make it, without the driver.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use rustix::mount::{MountFlags, UnmountFlags, mount, mount_bind, unmount};
use volmedic_driver::health::{
    Backing, Checks, Depth, DriveState, LoopFacts, Place, Report, Settings, Thresholds, VolumeFacts,
    fsck::Schedule,
};
use volmedic_host::helper::{Helpers, Limits};
use volmedic_host::mounts::Table;

pub(crate) struct Volume {
    folder: tempfile::TempDir,
    pub(crate) fs_type: &'static str,
    pub(crate) number: u32,
    pub(crate) bytes: u64,
}

pub(crate) fn bytes_for(fs_type: &str) -> u64 {
    match fs_type {
        "ext4" => 32 << 20,
        "xfs" => 300 << 20,
        _ => 128 << 20,
    }
}

pub(crate) fn run(program: &str, arguments: &[&str]) -> String {
    let output = Command::new(program).args(arguments).output().unwrap();
    assert!(output.status.success(), "{program} {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}

impl Volume {
    /// Made, formatted, staged and published.
    pub(crate) fn new(fs_type: &'static str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let bytes = bytes_for(fs_type);
        File::create_new(folder.path().join("image")).unwrap().set_len(bytes).unwrap();
        let image = folder.path().join("image").display().to_string();
        let force = if fs_type == "ext4" { "-F" } else { "-f" };
        run(&format!("mkfs.{fs_type}"), &["-q", force, &image]);
        for place in ["staging", "target"] {
            fs::create_dir(folder.path().join(place)).unwrap();
        }
        let device = run("losetup", &["--find", "--show", &image]);
        let number = device.strip_prefix("/dev/loop").unwrap().parse().unwrap();
        let volume = Self { folder, fs_type, number, bytes };
        mount(volume.device(), volume.staging(), fs_type, MountFlags::empty(), None).unwrap();
        mount_bind(volume.staging(), volume.target()).unwrap();
        volume
    }

    pub(crate) fn device(&self) -> PathBuf {
        format!("/dev/loop{}", self.number).into()
    }

    pub(crate) fn loop_facts(&self) -> LoopFacts {
        LoopFacts { number: self.number }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub(crate) fn image(&self) -> PathBuf {
        self.path("image")
    }

    pub(crate) fn staging(&self) -> PathBuf {
        self.path("staging")
    }

    pub(crate) fn target(&self) -> PathBuf {
        self.path("target")
    }

    pub(crate) fn facts(&self) -> VolumeFacts {
        let place = |path| Place { path, read_only: false, block: false };
        VolumeFacts {
            id: format!("vol-{}", self.number),
            drive: DriveState::default(),
            bytes: self.bytes,
            backing: Backing::Image {
                file: self.image(),
                device: Some(self.loop_facts()),
                fs_type: Some(self.fs_type),
            },
            staging: Some(place(self.staging())),
            targets: vec![place(self.target())],
        }
    }

    pub(crate) fn look(&self, checks: &Checks) -> Report {
        look(checks, &self.facts(), Depth::Deep)
    }

    /// What is found, as `Status/Reason` in the order of the checks.
    pub(crate) fn found(&self, checks: &Checks) -> Vec<String> {
        let report = self.look(checks);
        assert_eq!(report.blind, None);
        report.findings.iter().map(|finding| finding.condition.to_string()).collect()
    }

    pub(crate) fn messages(&self, checks: &Checks) -> String {
        self.look(checks)
            .findings
            .iter()
            .map(|finding| finding.condition.message.to_string())
            .collect::<Vec<_>>()
            .join("\n")
    }
}

impl Drop for Volume {
    fn drop(&mut self) {
        for place in [self.target(), self.staging()] {
            // As often as something is mounted there, by the test or by us.
            while Table::read().unwrap().at(&place).is_some() {
                unmount(&place, UnmountFlags::DETACH).unwrap();
            }
        }
        // Once detached, its number may be another test's.
        let file = format!("/sys/block/loop{}/loop/backing_file", self.number);
        let is_ours =
            fs::read_to_string(file).is_ok_and(|file| Path::new(&file).starts_with(self.folder.path()));
        if is_ours {
            run("losetup", &["--detach", &self.device().display().to_string()]);
        }
    }
}

/// Checks without file system checks.
pub(crate) fn checks() -> Checks {
    let off = Schedule { every: None, ..Schedule::default() };
    checks_with(off)
}

pub(crate) fn checks_with(schedule: Schedule) -> Checks {
    let settings = Settings {
        // None of these volumes hangs; a busy machine takes its time.
        deadline: Duration::from_mins(1),
        thresholds: Thresholds { bytes: 0.95, inodes: 0.95, gap: 0.05 },
        fsck: schedule,
        ..Settings::default()
    };
    Checks::new(settings, Helpers::new(Limits::default())).unwrap()
}

/// A check without another one of the same volume.
pub(crate) fn look(checks: &Checks, facts: &VolumeFacts, depth: Depth) -> Report {
    let alone = || unreachable!("there is no older check to wait for");
    checks.look(facts, &Table::read().unwrap(), Instant::now(), depth, alone)
}
