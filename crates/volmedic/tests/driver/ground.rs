//! A place of its own for each test, a driver process on it, and the proof that nothing is left behind.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use rustix::mount::{UnmountFlags, unmount};
use rustix::process::{Pid, Signal, kill_process};
use volmedic_driver::record::MounterRecord;
use volmedic_driver::{StateDir, VolumeDir, mounter};
use volmedic_host::mounts::Table;

pub(crate) const PROGRAM: &str = env!("CARGO_BIN_EXE_volmedic");
pub(crate) const NODE: &str = "node-1";
/// For anything that should be immediate; a busy machine may take its time.
pub(crate) const SOON: Duration = Duration::from_mins(2);

pub(crate) struct Ground {
    directory: tempfile::TempDir,
    drivers: Vec<Child>,
}

impl Ground {
    pub(crate) fn new() -> Self {
        assert!(rustix::process::geteuid().is_root(), "these tests mount; run them as root");
        let directory = tempfile::Builder::new().prefix("volmedic-driver-").tempdir().unwrap();
        let ground = Self { directory, drivers: Vec::new() };
        fs::create_dir(ground.path().join("kubelet")).unwrap();
        ground
    }

    pub(crate) fn path(&self) -> &Path {
        self.directory.path()
    }

    pub(crate) fn state(&self) -> StateDir {
        StateDir::new(self.path().join("state"))
    }

    pub(crate) fn volume(&self, id: &str) -> VolumeDir {
        self.state().volume(id)
    }

    pub(crate) fn socket(&self) -> PathBuf {
        self.path().join("csi.sock")
    }

    /// A path below the allowed root.
    pub(crate) fn kubelet(&self, below: &str) -> String {
        self.path().join("kubelet").join(below).to_str().unwrap().to_owned()
    }

    /// Starts a driver and waits until it listens.
    pub(crate) fn start(&mut self, arguments: &[&str]) -> u32 {
        self.start_at(&self.socket(), arguments)
    }

    pub(crate) fn start_at(&mut self, socket: &Path, arguments: &[&str]) -> u32 {
        let log = fs::File::options().create(true).append(true).open(self.path().join("driver.log")).unwrap();
        // What a killed driver left may answer for a moment; only another socket is the new driver's.
        let stale = fs::symlink_metadata(socket).map(|found| found.ino()).ok();
        let fresh = || fs::symlink_metadata(socket).is_ok_and(|found| Some(found.ino()) != stale);
        let mut child = self.command(socket).args(arguments).stderr(log).spawn().unwrap();
        let deadline = Instant::now() + SOON;
        while !fresh() || UnixStream::connect(socket).is_err() {
            let ended = child.try_wait().unwrap();
            assert!(ended.is_none(), "the driver ended: {ended:?}\n{}", self.log());
            assert!(Instant::now() < deadline, "the driver does not listen\n{}", self.log());
            sleep(Duration::from_millis(5));
        }
        let pid = child.id();
        self.drivers.push(child);
        pid
    }

    pub(crate) fn command(&self, socket: &Path) -> Command {
        let mut command = Command::new(PROGRAM);
        command
            .arg("driver")
            .arg(format!("--endpoint=unix://{}", socket.display()))
            .arg("--state-dir")
            .arg(self.path().join("state"))
            .arg("--allowed-root")
            .arg(self.path().join("kubelet"))
            .args(["--node-id", NODE])
            .stdin(Stdio::null())
            .stdout(Stdio::null());
        command
    }

    pub(crate) fn log(&self) -> String {
        fs::read_to_string(self.path().join("driver.log")).unwrap_or_default()
    }

    /// As the kernel does when memory is short: no goodbye.
    pub(crate) fn kill(&mut self) {
        for mut child in self.drivers.drain(..) {
            child.kill().unwrap();
            child.wait().unwrap();
        }
    }

    /// Asks the drivers to end and waits for it.
    pub(crate) fn stop(&mut self) {
        for mut child in std::mem::take(&mut self.drivers) {
            kill_process(Pid::from_child(&child), Signal::TERM).unwrap();
            let deadline = Instant::now() + SOON;
            let status = loop {
                if let Some(status) = child.try_wait().unwrap() {
                    break status;
                }
                assert!(Instant::now() < deadline, "the driver does not end\n{}", self.log());
                sleep(Duration::from_millis(5));
            };
            assert!(status.success(), "{status}");
        }
    }

    /// Loop devices on images of this ground, with what they are attached to.
    pub(crate) fn loop_devices(&self) -> Vec<(String, String)> {
        let mut found = Vec::new();
        for entry in fs::read_dir("/sys/block").unwrap() {
            let entry = entry.unwrap();
            let Ok(image) = fs::read_to_string(entry.path().join("loop/backing_file")) else { continue };
            if Path::new(image.trim_end()).starts_with(self.path()) {
                found.push((entry.file_name().into_string().unwrap(), image.trim_end().to_owned()));
            }
        }
        found
    }

    pub(crate) fn mounts(&self) -> Vec<PathBuf> {
        Table::read().unwrap().under(self.path()).map(|mount| mount.target().to_owned()).collect()
    }

    /// Processes that serve volumes of this ground, by their command line.
    pub(crate) fn mounters(&self) -> Vec<(i32, String)> {
        let mut found = Vec::new();
        for entry in fs::read_dir("/proc").unwrap().flatten() {
            let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse().ok()) else { continue };
            let Ok(line) = fs::read(entry.path().join("cmdline")) else { continue };
            let words: Vec<_> = line.split(|&byte| byte == 0).map(String::from_utf8_lossy).collect();
            let at = words.iter().position(|word| word == "--volume-dir");
            if let Some(directory) = at.and_then(|at| words.get(at + 1))
                && Path::new(directory.as_ref()).starts_with(self.path())
            {
                found.push((
                    pid,
                    Path::new(directory.as_ref()).file_name().unwrap().to_str().unwrap().to_owned(),
                ));
            }
        }
        found
    }

    pub(crate) fn mounter(&self, id: &str) -> MounterRecord {
        mounter::find(&self.volume(id)).unwrap().expect("the volume has no mounter")
    }

    /// Nothing of this test is left on the machine, and nothing half-made in the state directory.
    pub(crate) fn assert_clean(mut self) {
        self.stop();
        assert_eq!(self.mounts(), Vec::<PathBuf>::new());
        assert_eq!(self.loop_devices(), Vec::new());
        assert_eq!(self.mounters(), Vec::new());
        for place in [
            self.state().volumes(),
            self.state().snapshots(),
            self.state().new_things(),
            self.state().trash(),
        ] {
            let left: Vec<_> = fs::read_dir(&place).unwrap().map(|entry| entry.unwrap().path()).collect();
            assert_eq!(left, Vec::<PathBuf>::new());
        }
        assert!(!self.socket().exists());
    }
}

/// After a failed test: takes away what it left, so that the next one starts clean.
impl Drop for Ground {
    fn drop(&mut self) {
        for child in &mut self.drivers {
            let _ = child.kill();
            let _ = child.wait();
        }
        for (pid, _) in self.mounters() {
            let _ = kill_process(Pid::from_raw(pid).unwrap(), Signal::KILL);
        }
        for target in self.mounts().into_iter().rev() {
            let _ = unmount(target, UnmountFlags::DETACH);
        }
        for (device, _) in self.loop_devices() {
            let _ = Command::new("losetup").arg("-d").arg(Path::new("/dev").join(device)).status();
        }
    }
}
