//! Errors that the kernel reports when a file system finds them in itself, through fanotify.
//!
//! A mark belongs to a whole file system. It holds nothing: the volume can be unmounted at any time, and its mark goes
//! with it. Setting one means to open a folder of the volume, so a helper does it, on a group that it was handed.
//!
//! The kernel reports an error before it counts it: the counters in [`fs_state`](crate::fs_state) may follow some milliseconds later.
//!
//! On Linux 6.18 only ext4 reports errors. XFS and btrfs accept the mark and report nothing, which a newer kernel may
//! change; a caller must also check them from time to time.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

mod event;

use crate::helper::{Ask, HelperError, Helpers};
use crate::mounts::Mount;
use crate::{DeviceNumber, Off};
use event::{Event, events};

/// Marks that are kept. Without this many volumes on a node it is never reached; with more, the rest is only polled.
const MOST_MARKS: usize = 16_384;

/// Time after which a mark is set again. Setting it twice changes nothing.
const RENEWED_AFTER: Duration = Duration::from_mins(10);

/// Maximum number of bytes per read; about seventy events.
const PIECE: usize = 4096;

/// An error that a file system has found in itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FsError {
    /// Whose it is. File systems made as copies of one another bear the same id; then it is one of these.
    pub devices: Vec<DeviceNumber>,
    /// What kind, as an error number: mostly `EUCLEAN` or `EIO`. Of several errors, the first.
    pub errno: i32,
    /// How many there were since the last time.
    pub count: u32,
}

/// Why a file system could not be marked.
#[derive(Debug, thiserror::Error)]
pub enum MarkError {
    /// Says nothing about the volume, and asking again is of no use.
    #[error("the file system on {path} cannot report its errors: {}; it is checked at intervals instead", io::Error::from_raw_os_error(*errno))]
    NotSupported { path: PathBuf, errno: i32 },
    /// The mount table that was used is old. Says nothing about the volume.
    #[error("something else is at {path} by now; the next reading of the mount table will show it")]
    Moved { path: PathBuf },
    /// Says nothing about the volume.
    #[error("{limit} file systems are marked and no more are allowed; the others are checked at intervals")]
    TooMany { limit: usize },
    #[error(transparent)]
    Helper(#[from] HelperError),
}

/// The marks of this process and what was heard through them.
#[derive(Debug)]
pub struct FsErrors {
    group: AsyncFd<File>,
    marks: Mutex<HashMap<DeviceNumber, Mark>>,
    overflows: AtomicU64,
}

#[derive(Debug)]
struct Mark {
    /// The mount through which it was set. Another one on the same device may be another file system.
    mount: u32,
    /// A mount's number is given to others later, and so is its device's.
    target: Box<Path>,
    set: Instant,
    /// The file system's id, or the error number with which the kernel refused.
    outcome: Result<u64, i32>,
}

impl Mark {
    fn is_of(&self, mount: Mount<'_>) -> bool {
        self.mount == mount.id() && *self.target == *mount.target()
    }
}

impl FsErrors {
    /// Needs a tokio runtime with I/O.
    pub fn open() -> Result<Self, Off> {
        let group = crate::sys::fanotify_group()
            .and_then(|group| crate::sys::watched(File::from(group), Interest::READABLE));
        match group {
            Ok(group) => Ok(Self { group, marks: Mutex::default(), overflows: AtomicU64::new(0) }),
            Err(error) => Err(Off {
                what: "file systems are not asked to report their errors immediately",
                why: format!("making a fanotify group failed: {error}"),
                remedy: "grant CAP_SYS_ADMIN and run Linux 5.16 or newer for that; until then they are checked at intervals",
            }),
        }
    }

    /// Whether a file system of this type may be marked: those on a disk of this machine, which no server can hang.
    pub fn may_mark(fs_type: &OsStr) -> bool {
        const LOCAL: [&str; 6] = ["ext4", "ext3", "ext2", "xfs", "btrfs", "f2fs"];
        fs_type.to_str().is_some_and(|fs_type| LOCAL.contains(&fs_type))
    }

    /// Whether the file system behind this mount is marked.
    pub fn is_marked(&self, mount: Mount<'_>) -> bool {
        self.marks.lock().get(&mount.device()).is_some_and(|mark| mark.is_of(mount) && mark.outcome.is_ok())
    }

    /// Whether there is nothing to do for this mount: it is marked, or cannot be. Changes its mind now and then, so
    /// that a volume which was unmounted and mounted again unseen does not stay without its mark.
    pub fn is_settled(&self, mount: Mount<'_>) -> bool {
        !Self::may_mark(mount.fs_type()) || self.settled(mount).is_some()
    }

    fn settled(&self, mount: Mount<'_>) -> Option<Result<u64, i32>> {
        let marks = self.marks.lock();
        let mark = marks.get(&mount.device()).filter(|mark| mark.is_of(mount))?;
        (mark.set.elapsed() < RENEWED_AFTER).then_some(mark.outcome)
    }

    /// Asks the kernel to report the errors of the file system behind this mount. Blocks as a check by the helper
    /// does; `key` is the volume's, as there.
    pub fn mark(
        &self,
        helpers: &Helpers,
        key: &str,
        mount: Mount<'_>,
        deadline: Duration,
    ) -> Result<(), MarkError> {
        let path = mount.target();
        let not_supported = |errno| MarkError::NotSupported { path: path.to_path_buf(), errno };
        if !Self::may_mark(mount.fs_type()) {
            return Err(not_supported(libc::EOPNOTSUPP));
        }
        if let Some(outcome) = self.settled(mount) {
            return outcome.map(drop).map_err(not_supported);
        }
        if self.marks.lock().len() >= MOST_MARKS {
            // Those of devices that are gone are forgotten by `keep`.
            return Err(MarkError::TooMany { limit: MOST_MARKS });
        }
        let question = MarkQuestion { path, device: mount.device(), group: self.group.get_ref() };
        let settle = |outcome| {
            let mark = Mark { mount: mount.id(), target: path.into(), set: Instant::now(), outcome };
            self.marks.lock().insert(mount.device(), mark)
        };
        match helpers.send(key, &question, deadline.into()) {
            Ok(fsid) => {
                settle(Ok(fsid));
                Ok(())
            }
            Err(HelperError::Failed { step, errno, .. }) if step == MARK_STEP => {
                settle(Err(errno));
                Err(not_supported(errno))
            }
            Err(HelperError::Failed { step, path, .. }) if step == COMPARE_STEP => {
                Err(MarkError::Moved { path })
            }
            Err(error) => Err(error.into()),
        }
    }

    /// Forgets the marks of devices that are not wanted any more. The kernel has dropped those of file systems that
    /// are not mounted; events of the others are ignored from now on.
    pub fn keep(&self, wanted: impl Fn(DeviceNumber) -> bool) {
        self.marks.lock().retain(|device, _| wanted(*device));
    }

    /// How many file systems are marked.
    pub fn marked(&self) -> usize {
        self.marks.lock().values().filter(|mark| mark.outcome.is_ok()).count()
    }

    /// Waits for errors and gives them. May be dropped and called again.
    pub async fn next(&self) -> io::Result<Vec<FsError>> {
        let mut piece = [0; PIECE];
        loop {
            let mut ready = self.group.readable().await?;
            let read = ready.try_io(|group| group.get_ref().read(&mut piece));
            let count = match read {
                Err(_) => continue,
                Ok(Err(error)) if error.kind() == io::ErrorKind::Interrupted => continue,
                Ok(Err(error)) => {
                    return Err(io::Error::new(
                        error.kind(),
                        format!("reading fanotify events failed: {error}"),
                    ));
                }
                Ok(Ok(count)) => count,
            };
            let errors: Vec<FsError> =
                events(&piece[..count]).into_iter().filter_map(|event| self.name(event)).collect();
            if !errors.is_empty() {
                return Ok(errors);
            }
        }
    }

    /// How often the kernel had more events than it could keep.
    pub fn overflows(&self) -> u64 {
        self.overflows.load(Ordering::Relaxed)
    }

    fn name(&self, event: Event) -> Option<FsError> {
        match event {
            Event::Overflow => {
                self.overflows.fetch_add(1, Ordering::Relaxed);
                None
            }
            Event::Error { fsid, errno, count } => {
                let marks = self.marks.lock();
                let mut devices: Vec<_> = marks
                    .iter()
                    .filter(|(_, mark)| mark.outcome == Ok(fsid))
                    .map(|(device, _)| *device)
                    .collect();
                devices.sort_unstable();
                (!devices.is_empty()).then_some(FsError { devices, errno, count })
            }
        }
    }
}

/// The helper's name for the step in which the kernel may refuse.
pub(crate) const MARK_STEP: &str = "mark";

/// And for the one in which it finds out whether it is at the right place.
pub(crate) const COMPARE_STEP: &str = "compare";

struct MarkQuestion<'q> {
    path: &'q Path,
    device: DeviceNumber,
    group: &'q File,
}

impl Ask for MarkQuestion<'_> {
    /// The file system's id.
    type Answer = u64;

    fn path(&self) -> &Path {
        self.path
    }

    fn kind(&self) -> (&'static str, String) {
        ("mark", self.device.to_string())
    }

    /// The helper finds the group as its standard input: everything else it inherits is closed.
    fn stdin(&self) -> io::Result<Option<Stdio>> {
        Ok(Some(OwnedFd::from(self.group.try_clone()?).into()))
    }

    fn answer_from(&self, numbers: &[u64]) -> Option<u64> {
        let &[fsid] = numbers else { return None };
        Some(fsid)
    }
}
