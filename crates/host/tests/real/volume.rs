//! Real file systems on loop devices.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use rustix::mount::{MountFlags, mount};
use volmedic_host::DeviceNumber;
use volmedic_host::block::{Device, Sysfs};
use volmedic_host::mounts::Table;

use super::mounts::Mounted;
use super::until;

/// A loop device, detached when dropped.
pub(crate) struct Loop(pub(crate) String);

impl Loop {
    pub(crate) fn attach(image: &Path) -> Self {
        Self::attach_with(image, &[])
    }

    pub(crate) fn attach_with(image: &Path, options: &[&str]) -> Self {
        let output =
            Command::new("losetup").args(["--find", "--show"]).args(options).arg(image).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        Self(String::from_utf8(output.stdout).unwrap().trim().to_owned())
    }

    pub(crate) fn facts(&self) -> Device {
        let name = self.0.strip_prefix("/dev/").unwrap();
        Sysfs::default().device_named(name).unwrap().unwrap()
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        assert!(Command::new("losetup").args(["--detach", &self.0]).status().unwrap().success());
    }
}

/// A file system of its own, mounted. The fields are dropped in this order.
pub(crate) struct Volume {
    mounted: Option<Mounted>,
    pub(crate) device: Loop,
    pub(crate) folder: tempfile::TempDir,
}

pub(crate) fn image(folder: &Path, fs_type: &str) -> PathBuf {
    let image = folder.join("image");
    let bytes = match fs_type {
        "xfs" => 320 << 20,
        "btrfs" => 128 << 20,
        _ => 32 << 20,
    };
    fs::File::create(&image).unwrap().set_len(bytes).unwrap();
    let made = Command::new(format!("mkfs.{fs_type}")).arg("-q").arg(&image).output().unwrap();
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    image
}

impl Volume {
    pub(crate) fn new(fs_type: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        image(folder.path(), fs_type);
        Self::mount(folder, fs_type)
    }

    /// From the image that is in the folder already.
    pub(crate) fn mount(folder: tempfile::TempDir, fs_type: &str) -> Self {
        let device = Loop::attach(&folder.path().join("image"));
        let target = folder.path().join("mount");
        fs::create_dir(&target).unwrap();
        mount(&device.0, &target, fs_type, MountFlags::empty(), None).unwrap();
        Self { mounted: Some(Mounted(target)), device, folder }
    }

    pub(crate) fn path(&self) -> PathBuf {
        self.folder.path().join("mount")
    }

    pub(crate) fn number(&self) -> DeviceNumber {
        Table::read().unwrap().at(self.path()).unwrap().device()
    }

    /// Makes ext4 believe that it is damaged.
    pub(crate) fn hurt(&self, why: &str) {
        fs::write(format!("/sys/fs/ext4/{}/trigger_fs_error", self.device.facts().name), why).unwrap();
    }

    /// Unmounts, or fails: nothing may hold the volume. A process that another test has just forked may for a moment, until it
    /// runs its program.
    pub(crate) fn unmount(&mut self) {
        let mounted = self.mounted.take().unwrap();
        let flags = rustix::mount::UnmountFlags::empty();
        until("nothing holds the volume", || match rustix::mount::unmount(&mounted.0, flags) {
            Err(rustix::io::Errno::BUSY) => false,
            unmounted => {
                unmounted.unwrap();
                true
            }
        });
        std::mem::forget(mounted);
    }
}
