//! Whether the mount table has changed, for a caller that asks before it uses one that it read earlier.

use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::path::Path;

use rustix::event::{PollFd, PollFlags, Timespec, poll};

/// Knows whether something was mounted, unmounted or remounted. Asking costs a call of the kernel that waits for nothing.
///
/// As with a [`Watch`](super::Watch), an emergency inside a file system is no change of the table, nor is a remount in another mount
/// namespace that makes a file system read-only.
#[derive(Debug)]
pub struct Changes(File);

impl Changes {
    /// In the mounts that this process sees, or that another one sees.
    pub fn of(process: Option<u32>) -> io::Result<Self> {
        match process {
            None => Self::at("/proc/self/mountinfo"),
            Some(process) => Self::at(format!("/proc/{process}/mountinfo")),
        }
    }

    fn at(mountinfo: impl AsRef<Path>) -> io::Result<Self> {
        let path = mountinfo.as_ref();
        // Opening it marks the point from which changes count.
        let name = |error: io::Error| {
            io::Error::new(error.kind(), format!("opening {} failed: {error}", path.display()))
        };
        File::open(path).map(Self).map_err(name)
    }

    /// Whether there was a change since the last time it said so, or since this began. It says so if it cannot know.
    ///
    /// Ask before you read the table: then a change during the reading is found the next time.
    pub fn any(&self) -> bool {
        let mut file = [PollFd::from_borrowed_fd(self.0.as_fd(), PollFlags::PRI)];
        !matches!(poll(&mut file, Some(&Timespec::default())), Ok(0))
    }
}
