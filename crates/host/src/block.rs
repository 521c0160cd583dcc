//! What sysfs says about a block device. Reading it waits for no disk.

use std::ffi::OsStr;
use std::fs;
use std::io;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

use crate::DeviceNumber;

mod io_counts;
mod read;
#[cfg(test)]
mod tests;

pub use io_counts::IoCounts;
use read::with_path;
pub(crate) use read::{names, read_bytes, read_line, read_number};

/// Sysfs counts in sectors of this size whatever the device does.
const SECTOR: u64 = 512;

/// Devices under a device, all together, and how deep: a file system on LVM on dm-crypt on multipath has four floors.
const MOST_UNDER: usize = 256;
const DEEPEST: usize = 8;

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
    /// The disk that this is a partition of; otherwise its own name.
    pub disk: String,
    /// What it hangs on, as the kernel calls it in its log: `nvme0`; or `ata3`, `host2`, `session1`, `2:0:0:0`.
    pub attachments: Vec<String>,
    pub bytes: u64,
    pub read_only: bool,
    /// How its SCSI device or NVMe controller says it is: `running`, `offline`, `live`, `dead`, ...
    pub state: Option<String>,
    /// The devices it is made of (device mapper, RAID) or reached through (multipath), with their states.
    pub paths: Vec<DevicePath>,
    /// Of a device-mapper device.
    pub mapper: Option<Mapper>,
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

/// What device mapper says of one of its devices.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mapper {
    /// As in `/dev/mapper`.
    pub name: String,
    /// Begins with what made it: `mpath-`, `LVM-`, `CRYPT-`.
    pub uuid: String,
    /// Somebody holds all requests back, for a snapshot or a change of the table. They wait until it is resumed.
    pub suspended: bool,
}

/// The file under a loop device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Backing {
    pub file: PathBuf,
    /// The file has no name any more; the loop device keeps it alive.
    pub deleted: bool,
    /// Where in the file the device begins. A file shorter than this and the device's size has lost its end, which
    /// the device does not notice: its size stays as it was.
    pub offset: u64,
}

impl Device {
    /// Every name under which the kernel may speak of it or of what it is directly made of.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        let paths = self.paths.iter().map(|path| path.name.as_str());
        let attachments = self.attachments.iter().map(String::as_str);
        [self.name.as_str(), self.disk.as_str()].into_iter().chain(attachments).chain(paths)
    }

    /// Whether its paths are several ways to one disk, so that losing one of them loses nothing yet.
    pub fn is_multipath(&self) -> bool {
        self.mapper.as_ref().is_some_and(|mapper| mapper.uuid.starts_with("mpath-"))
            || (self.mapper.is_none() && self.name.starts_with("nvme") && !self.paths.is_empty())
    }

    /// Whether the device itself says that it cannot serve, and with what word.
    pub fn trouble(&self) -> Option<&str> {
        self.state.as_deref().filter(|state| !is_working(state))
    }

    /// How many of its paths work. `None` if it has none or they do not report a state.
    pub fn working_paths(&self) -> Option<usize> {
        let states: Vec<_> = self.paths.iter().filter_map(|path| path.state.as_deref()).collect();
        (!states.is_empty()).then(|| states.into_iter().filter(|state| is_working(state)).count())
    }
}

/// An unknown state counts as working: a missed failure is better than a wrong alarm.
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

    /// The kernel's name of the device whose node has this path, for example `dm-0` of `/dev/mapper/data`. The node need
    /// not be there: a container sees the host's sysfs, but not its `/dev`.
    pub fn name_of_node(&self, node: &Path) -> io::Result<Option<String>> {
        let Some(below) = node.strip_prefix("/dev").ok().and_then(Path::to_str) else { return Ok(None) };
        let all = self.path("class/block");
        if let Some(mapped) = below.strip_prefix("mapper/") {
            for name in names(&all)?.into_iter().filter(|name| is_numbered(name, "dm-")) {
                if read_line(&all.join(&name).join("dm/name"))?.as_deref() == Some(mapped) {
                    return Ok(Some(name));
                }
            }
        }
        let name = below.replace('/', "!");
        if !below.contains('/') || all.join(&name).exists() {
            return Ok(Some(name).filter(|name| !name.is_empty()));
        }
        // A link, which leads somewhere only where the host's /dev can be seen.
        let real = fs::canonicalize(node).ok();
        Ok(real.and_then(|real| Some(real.strip_prefix("/dev").ok()?.to_str()?.replace('/', "!"))))
    }

    /// The device and everything that it stands on, itself first: a partition's disk is in its facts, but LVM over
    /// dm-crypt over multipath is three devices and their disks. Empty when there is no such device (any more).
    pub fn stack(&self, number: DeviceNumber) -> io::Result<Vec<Device>> {
        let mut stack: Vec<Device> = self.device(number)?.into_iter().collect();
        let mut floor = 0..stack.len();
        for _ in 0..DEEPEST {
            for at in floor.clone() {
                for name in stack[at].paths.iter().map(|path| path.name.clone()).collect::<Vec<_>>() {
                    if stack.len() < MOST_UNDER && !stack.iter().any(|known| known.name == name) {
                        stack.extend(self.device_named(&name)?);
                    }
                }
            }
            floor = floor.end..stack.len();
        }
        Ok(stack)
    }

    fn describe(&self, folder: &Path, number: DeviceNumber) -> io::Result<Device> {
        let name = folder.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let sectors = read_number(&folder.join("size"))?.unwrap_or(0);
        // A partition's state is its disk's, one folder up.
        let disk = if folder.join("partition").exists() { folder.parent().unwrap_or(folder) } else { folder };
        let disk_name = disk.file_name().unwrap_or_default().to_string_lossy().into_owned();
        Ok(Device {
            disk: disk_name,
            attachments: attachments(&disk.join("device")),
            mapper: mapper(&disk.join("dm"))?,
            bytes: sectors.saturating_mul(SECTOR),
            read_only: read_number(&folder.join("ro"))? == Some(1),
            state: read_line(&disk.join("device/state"))?,
            paths: self.paths(disk)?,
            backing: backing(&disk.join("loop"))?,
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
                if is_numbered(&name, "nvme") && state.exists() {
                    paths.push(DevicePath { state: read_line(&state)?, name });
                }
            }
        }
        Ok(paths)
    }
}

/// Sysfs writes the path raw, newlines and all, and ends it with one newline.
fn backing(folder: &Path) -> io::Result<Option<Backing>> {
    const DELETED: &[u8] = b" (deleted)";
    let Some(mut bytes) = read_bytes(&folder.join("backing_file"))? else { return Ok(None) };
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
    let offset = read_number(&folder.join("offset"))?.unwrap_or(0);
    Ok(Some(Backing { file: std::ffi::OsString::from_vec(bytes).into(), deleted, offset }))
}

fn mapper(folder: &Path) -> io::Result<Option<Mapper>> {
    let Some(name) = read_line(&folder.join("name"))? else { return Ok(None) };
    let uuid = read_line(&folder.join("uuid"))?.unwrap_or_default();
    Ok(Some(Mapper { name, uuid, suspended: read_number(&folder.join("suspended"))? == Some(1) }))
}

/// What is on the way to where the link `device` of a disk leads, as far as the kernel's log speaks of it.
fn attachments(link: &Path) -> Vec<String> {
    let speaks_of = |name: &&str| {
        name.split(':').count() == 4
            || ["ata", "host", "session", "nvme"].iter().any(|kind| is_numbered(name, kind))
    };
    let way = fs::canonicalize(link).unwrap_or_default();
    way.iter().filter_map(OsStr::to_str).filter(speaks_of).map(str::to_owned).collect()
}

fn is_numbered(name: &str, kind: &str) -> bool {
    let number = name.strip_prefix(kind).unwrap_or_default();
    !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit())
}
