//! What sysfs says about a block device. Reading it waits for no disk.

use std::fs;
use std::io;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

use crate::DeviceNumber;

#[cfg(test)]
mod tests;

/// Sysfs counts in sectors of this size whatever the device does.
const SECTOR: u64 = 512;

/// More slaves than any multipath or RAID device has; a longer list is cut.
const MOST_PATHS: usize = 256;

/// A mounted sysfs.
#[derive(Debug, Clone)]
pub struct Sysfs {
    root: PathBuf,
}

impl Default for Sysfs {
    fn default() -> Self {
        Self::at("/sys")
    }
}

/// What is known about a block device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Device {
    /// The kernel's name: `loop3`, `sda1`, `dm-0`.
    pub name: String,
    pub number: DeviceNumber,
    pub bytes: u64,
    pub read_only: bool,
    /// How its SCSI device or NVMe controller says it is: `running`, `offline`, `live`, `dead`, ...
    pub state: Option<String>,
    /// The devices it is made of (device mapper, RAID) or reached through (multipath), with their states.
    pub paths: Vec<DevicePath>,
    /// Of a loop device that is attached.
    pub backing: Option<Backing>,
    /// A loop device that detaches itself when the last user lets go.
    pub detaches_when_unused: bool,
}

/// One of the devices under another.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DevicePath {
    pub name: String,
    pub state: Option<String>,
}

/// The file under a loop device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Backing {
    pub file: PathBuf,
    /// The file has no name any more; the loop device keeps it alive.
    pub deleted: bool,
}

impl Device {
    /// Whether the device itself says that it cannot serve, and with what word.
    pub fn trouble(&self) -> Option<&str> {
        self.state.as_deref().filter(|state| !is_working(state))
    }

    /// How many of its paths work. `None` if it has none or they do not tell.
    pub fn working_paths(&self) -> Option<usize> {
        let told: Vec<_> = self.paths.iter().filter_map(|path| path.state.as_deref()).collect();
        (!told.is_empty()).then(|| told.into_iter().filter(|state| is_working(state)).count())
    }
}

/// A state we do not know counts as working: better silent than wrong.
fn is_working(state: &str) -> bool {
    const BROKEN: [&str; 10] = [
        // SCSI
        "offline",
        "transport-offline",
        "blocked",
        "quiesce",
        "deleted",
        "cancel",
        // NVMe
        "dead",
        "deleting",
        "deleting (no IO)",
        "connecting",
    ];
    !BROKEN.contains(&state)
}

impl Sysfs {
    pub fn at(root: impl Into<PathBuf>) -> Self {
        Self { root: root.into() }
    }

    pub(crate) fn path(&self, below: impl AsRef<Path>) -> PathBuf {
        self.root.join(below)
    }

    /// The device with this number, or `None` when there is none (any more).
    pub fn device(&self, number: DeviceNumber) -> io::Result<Option<Device>> {
        let folder = self.path(format!("dev/block/{number}"));
        // The entry is a link; what it leads to bears the kernel's name.
        match fs::canonicalize(&folder) {
            Ok(real) => self.describe(&real, number).map(Some),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(with_path(&folder, &error)),
        }
    }

    /// The device with this kernel name (`loop3`), or `None` when there is none (any more).
    pub fn device_named(&self, name: &str) -> io::Result<Option<Device>> {
        if name.is_empty() || name.starts_with('.') || name.contains('/') {
            return Ok(None);
        }
        // A slash in a device's name (`cciss/c0d0`) is an exclamation mark in sysfs.
        let number =
            read_line(&self.path("class/block").join(name).join("dev"))?.and_then(|text| text.parse().ok());
        number.map_or(Ok(None), |number| self.device(number))
    }

    fn describe(&self, folder: &Path, number: DeviceNumber) -> io::Result<Device> {
        let name = folder.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let sectors = read_number(&folder.join("size"))?.unwrap_or(0);
        // A partition's state is its disk's, one folder up.
        let disk = if folder.join("partition").exists() { folder.parent().unwrap_or(folder) } else { folder };
        Ok(Device {
            bytes: sectors.saturating_mul(SECTOR),
            read_only: read_number(&folder.join("ro"))? == Some(1),
            state: read_line(&disk.join("device/state"))?,
            paths: self.paths(disk)?,
            backing: backing(&disk.join("loop/backing_file"))?,
            detaches_when_unused: read_number(&disk.join("loop/autoclear"))? == Some(1),
            name,
            number,
        })
    }

    fn paths(&self, disk: &Path) -> io::Result<Vec<DevicePath>> {
        let mut paths = Vec::new();
        for name in names(&disk.join("slaves"))? {
            let state = self.path("class/block").join(&name).join("device/state");
            paths.push(DevicePath { state: read_line(&state)?, name });
        }
        // An NVMe namespace with several controllers belongs to a subsystem, which lists them.
        let subsystem = disk.join("device");
        if paths.is_empty() && subsystem.join("subsysnqn").exists() && !subsystem.join("state").exists() {
            for name in names(&subsystem)? {
                let state = subsystem.join(&name).join("state");
                let is_controller =
                    name.strip_prefix("nvme").is_some_and(|rest| rest.bytes().all(|b| b.is_ascii_digit()));
                if is_controller && state.exists() {
                    paths.push(DevicePath { state: read_line(&state)?, name });
                }
            }
        }
        Ok(paths)
    }
}

/// The names in a folder, sorted; none when the folder is not there.
pub(crate) fn names(folder: &Path) -> io::Result<Vec<String>> {
    let entries = match fs::read_dir(folder) {
        Ok(entries) => entries,
        Err(error) if is_gone(&error) => return Ok(Vec::new()),
        Err(error) => return Err(with_path(folder, &error)),
    };
    let mut names: Vec<String> = entries
        .filter_map(Result::ok)
        .filter_map(|entry| entry.file_name().into_string().ok())
        .take(MOST_PATHS)
        .collect();
    names.sort();
    Ok(names)
}

/// The first line of a sysfs file, or `None` when it is not there.
pub(crate) fn read_line(file: &Path) -> io::Result<Option<String>> {
    Ok(read_bytes(file)?.map(|bytes| String::from_utf8_lossy(first_line(&bytes)).into_owned()))
}

pub(crate) fn read_number(file: &Path) -> io::Result<Option<u64>> {
    Ok(read_line(file)?.and_then(|text| text.trim().parse().ok()))
}

pub(crate) fn read_bytes(file: &Path) -> io::Result<Option<Vec<u8>>> {
    match fs::read(file) {
        Ok(bytes) => Ok(Some(bytes)),
        Err(error) if is_gone(&error) => Ok(None),
        Err(error) => Err(with_path(file, &error)),
    }
}

fn first_line(bytes: &[u8]) -> &[u8] {
    bytes.split(|byte| *byte == b'\n').next().unwrap_or_default()
}

/// A device that goes away while we read answers in one of these ways.
fn is_gone(error: &io::Error) -> bool {
    const NO_SUCH_DEVICE: [i32; 2] = [libc::ENODEV, libc::ENXIO];
    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory)
        || error.raw_os_error().is_some_and(|errno| NO_SUCH_DEVICE.contains(&errno))
}

fn with_path(path: &Path, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("reading {} failed: {error}", path.display()))
}

/// Sysfs writes the path raw, newlines and all, and ends it with one newline.
fn backing(file: &Path) -> io::Result<Option<Backing>> {
    const DELETED: &[u8] = b" (deleted)";
    let Some(mut bytes) = read_bytes(file)? else { return Ok(None) };
    if bytes.last() == Some(&b'\n') {
        bytes.pop();
    }
    if bytes.is_empty() {
        return Ok(None);
    }
    // A living file could bear such a name, but asking for it could wait for the disk it is on.
    let deleted = bytes.ends_with(DELETED);
    if deleted {
        bytes.truncate(bytes.len() - DELETED.len());
    }
    Ok(Some(Backing { file: std::ffi::OsString::from_vec(bytes).into(), deleted }))
}
