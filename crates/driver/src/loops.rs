//! Loop devices: attached by ioctl, known by number and by the identity of the image behind them.
//!
//! Autoclear stays off. With it a device would vanish at its last close, which is before anyone opens a raw block
//! volume; and a mount torn down by accident would take the device away, where only one thing should be reported
//! broken. So devices stay until [`LoopDevice::detach`]; what a killed driver left is found by [`attached_below`].

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::Duration;

use parking_lot::Mutex;
use rustix::fs::{major, minor};
use volmedic_host::DeviceNumber;

use crate::error::{Error, Result};
use crate::record::Attached;
use crate::sys::{self, Backing};

/// Tries for a free device while other processes take them too.
const ATTEMPTS: u32 = 64;
const CLAIMS: u32 = 100;
const CLAIM_PAUSE: Duration = Duration::from_millis(50);
/// The kernel's major number of loop devices.
const LOOP_MAJOR: u32 = 7;

/// One of this process at a time asks for a free number, so that we do not race ourselves.
static FINDING_FREE: Mutex<()> = Mutex::new(());

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LoopDevice(pub u32);

impl LoopDevice {
    pub fn path(self) -> PathBuf {
        PathBuf::from(format!("/dev/loop{}", self.0))
    }

    pub fn number(self) -> DeviceNumber {
        // Without partitions, minors and numbers are the same.
        DeviceNumber::new(LOOP_MAJOR, self.0)
    }

    fn open(self, readonly: bool) -> io::Result<File> {
        OpenOptions::new().read(true).write(!readonly).open(self.path())
    }

    fn backing(self) -> io::Result<Backing> {
        sys::loop_backing(self.open(true)?)
    }

    /// Attaches an image to a free device.
    pub(crate) fn attach(image: &Path, readonly: bool) -> Result<Attached> {
        let file = open_image(image, readonly)?;
        let control = OpenOptions::new()
            .read(true)
            .write(true)
            .open("/dev/loop-control")
            .map_err(Error::io("open /dev/loop-control; load the loop module and run as root"))?;
        let failed = |error| Error::io(format_args!("attach {} to a loop device", image.display()))(error);
        let mut last = io::Error::from(io::ErrorKind::ResourceBusy);
        for attempt in 0..ATTEMPTS {
            let _alone = FINDING_FREE.lock();
            let device = Self(sys::loop_free_number(&control).map_err(failed)?);
            match device.configure(&file, readonly)? {
                Ok(attached) => return Ok(attached),
                // Taken meanwhile, or its node is not there yet.
                Err(error) if is_taken(&error) => {
                    last = error;
                    sleep(Duration::from_millis(u64::from(attempt.min(20))));
                }
                Err(error) => return Err(failed(error)),
            }
        }
        Err(failed(last))
    }

    /// Attaches an image to this very device; `None` when it is taken.
    pub(crate) fn attach_again(self, image: &Path, readonly: bool) -> Result<Option<Attached>> {
        match self.configure(&open_image(image, readonly)?, readonly)? {
            Ok(attached) => Ok(Some(attached)),
            Err(error) if is_taken(&error) => Ok(None),
            Err(error) => {
                let device = self.path();
                Err(Error::io(format_args!("attach {} to {}", image.display(), device.display()))(error))
            }
        }
    }

    fn configure(self, image: &File, readonly: bool) -> Result<io::Result<Attached>> {
        if let Err(error) =
            self.open(readonly).and_then(|opened| sys::loop_configure(opened, image, readonly))
        {
            return Ok(Err(error));
        }
        let metadata = image.metadata().map_err(Error::io("examine the image"))?;
        // The setting outlives an attachment; the previous user of the number may have left it on.
        self.set_readonly(readonly)?;
        Ok(Ok(self.attached_to(identity(&metadata))))
    }

    /// Calls off a detaching that waits for the last user to let go. False when there was none.
    pub(crate) fn stay(self) -> Result<bool> {
        let what = format!("keep {} attached", self.path().display());
        let mut waited = false;
        self.open(false)
            .and_then(|device| {
                sys::loop_change(device, |flags, _| {
                    waited = *flags & sys::LO_FLAGS_AUTOCLEAR != 0;
                    *flags &= !sys::LO_FLAGS_AUTOCLEAR;
                })
            })
            .map_err(Error::io(what))?;
        Ok(waited)
    }

    fn attached_to(self, backing: Backing) -> Attached {
        let Backing { major, minor, inode } = backing;
        Attached { number: self.0, image_major: major, image_minor: minor, image_inode: inode }
    }

    pub(crate) fn set_readonly(self, readonly: bool) -> Result<()> {
        let what = format_args!("set {} read-only={readonly}", self.path().display()).to_string();
        self.open(true).and_then(|device| sys::block_set_readonly(device, readonly)).map_err(Error::io(what))
    }

    /// Waits until no process has claimed the device. A tool that a killed driver had started may need a moment to die.
    pub(crate) fn wait_until_free(self) -> Result<()> {
        let mut outcome = self.claim();
        for _ in 0..CLAIMS {
            if !matches!(&outcome, Err(error) if error.raw_os_error() == Some(libc::EBUSY)) {
                break;
            }
            sleep(CLAIM_PAUSE);
            outcome = self.claim();
        }
        outcome
            .map_err(Error::io(format_args!("claim {}; end the process that uses it", self.path().display())))
    }

    /// Succeeds when nothing is mounted from the device and no tool is at work on it.
    fn claim(self) -> io::Result<()> {
        OpenOptions::new().read(true).custom_flags(libc::O_EXCL).open(self.path()).map(drop)
    }

    /// Informs the kernel that the image grew.
    pub(crate) fn grow(self) -> Result<()> {
        let what = format_args!("grow {}", self.path().display()).to_string();
        self.open(true).and_then(sys::loop_set_capacity).map_err(Error::io(what))
    }
}

impl Attached {
    pub fn device(self) -> LoopDevice {
        LoopDevice(self.number)
    }

    fn backing(self) -> Backing {
        Backing { major: self.image_major, minor: self.image_minor, inode: self.image_inode }
    }

    /// Whether the device is still attached to the image it was attached to.
    pub fn is_live(self) -> bool {
        self.device().backing().is_ok_and(|backing| backing == self.backing())
    }

    /// Whether the image at this path is the one behind the device.
    pub(crate) fn is_of(self, image: &Path) -> bool {
        fs::metadata(image).is_ok_and(|metadata| identity(&metadata) == self.backing())
    }

    /// Writes back and detaches, unless the number belongs to another program by now.
    pub fn detach(self) -> Result<()> {
        if !self.is_live() {
            return Ok(());
        }
        let what = format_args!("detach {}", self.device().path().display()).to_string();
        let device = self.device().open(true).map_err(Error::io(&what))?;
        if let Err(error) = sys::block_flush(&device) {
            tracing::warn!(device = self.number, %error, "a loop device could not be flushed before detaching");
        }
        if let Err(error) = sys::block_set_readonly(&device, false) {
            tracing::warn!(device = self.number, %error, "a loop device stays read-only for its next user");
        }
        match sys::loop_clear(device) {
            Err(error) if error.raw_os_error() != Some(libc::ENXIO) => Err(Error::io(what)(error)),
            _ => Ok(()),
        }
    }
}

/// Every attached loop device whose image lies, or lay, below a directory. One pass over sysfs.
pub fn attached_below(directory: &Path) -> io::Result<Vec<(PathBuf, Attached)>> {
    let mut found = Vec::new();
    for entry in fs::read_dir("/sys/block")? {
        let entry = entry?;
        let name = entry.file_name();
        let Some(number) =
            name.to_str().and_then(|name| name.strip_prefix("loop")).and_then(|n| n.parse().ok())
        else {
            continue;
        };
        // Absent for devices that are not attached.
        let Ok(path) = fs::read_to_string(entry.path().join("loop/backing_file")) else { continue };
        let path = path.trim_end_matches('\n');
        let image = PathBuf::from(path.strip_suffix(" (deleted)").unwrap_or(path));
        if !image.starts_with(directory) {
            continue;
        }
        // Detached between the two reads: not ours any more.
        if let Ok(backing) = LoopDevice(number).backing() {
            found.push((image, LoopDevice(number).attached_to(backing)));
        }
    }
    Ok(found)
}

fn open_image(image: &Path, readonly: bool) -> Result<File> {
    OpenOptions::new()
        .read(true)
        .write(!readonly)
        .open(image)
        .map_err(Error::io(format_args!("open the image {}", image.display())))
}

fn is_taken(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EBUSY | libc::ENXIO | libc::ENOENT))
}

fn identity(metadata: &fs::Metadata) -> Backing {
    Backing { major: major(metadata.dev()), minor: minor(metadata.dev()), inode: metadata.ino() }
}
