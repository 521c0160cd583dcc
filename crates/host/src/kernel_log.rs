//! What the kernel has said lately, as evidence: it explains a finding and never is one.
//!
//! Lines are remembered per device or server they are about, a few of each, in bounded memory. Only the kernel's own
//! words count; what a program wrote into the log is passed over.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

mod about;
mod evidence;
mod record;
#[cfg(test)]
mod tests;

pub use about::{Subject, subjects};
pub use evidence::{Evidence, Line};
pub use record::Record;

use crate::Off;

/// No record is longer: the kernel cuts a message at 1 KiB and may write each byte of it as four.
const LONGEST_RECORD: usize = 16 << 10;

/// Records per call, so that a flood of them leaves its reader time for something else.
const MOST_PER_READ: usize = 512;

/// Where to begin.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Start {
    /// With the oldest record that the kernel still has. What broke before we came is explained by it.
    Oldest,
    /// With what is said from now on.
    Now,
}

/// The kernel's log, followed record by record. Reading never waits and never takes a record from another reader.
#[derive(Debug)]
pub struct KernelLog {
    file: AsyncFd<File>,
    reading: Reading,
}

#[derive(Debug)]
struct Reading {
    piece: Box<[u8]>,
    /// The sequence number that should come next.
    next: Option<u64>,
    lost: u64,
    unreadable: u64,
}

impl KernelLog {
    /// Opens `/dev/kmsg`. Needs a tokio runtime with I/O.
    pub fn open(start: Start) -> Result<Self, Off> {
        Self::open_at(Path::new("/dev/kmsg"), start)
    }

    /// As [`open`](Self::open), for a host whose `/dev` is elsewhere in our tree.
    pub fn open_at(path: &Path, start: Start) -> Result<Self, Off> {
        let opened = OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK).open(path);
        let ready = opened.and_then(|mut file| {
            file.seek(match start {
                Start::Oldest => SeekFrom::Start(0),
                Start::Now => SeekFrom::End(0),
            })?;
            crate::sys::watched(file, Interest::READABLE)
        });
        match ready {
            Ok(file) => Ok(Self { file, reading: Reading::default() }),
            Err(error) => Err(Off {
                what: "the kernel log is not read",
                why: format!("opening {} failed: {error}", path.display()),
                remedy: "grant CAP_SYSLOG and give us the host's /dev/kmsg to have the kernel's messages as evidence",
            }),
        }
    }

    /// Waits until there is something new and gives it, at most a few hundred records at a time. May be dropped
    /// and called again.
    pub async fn next(&mut self) -> io::Result<Vec<Record>> {
        loop {
            self.file.readable().await?.retain_ready();
            let Self { file, reading } = self;
            let records =
                reading.records(|piece| file.try_io(Interest::READABLE, |mut file| file.read(piece)))?;
            if !records.is_empty() {
                return Ok(records);
            }
        }
    }

    /// What there is already, without waiting for more: a few hundred records at a time, none when there is no more.
    pub fn so_far(&mut self) -> io::Result<Vec<Record>> {
        let Self { file, reading } = self;
        let mut file = file.get_ref();
        reading.records(|piece| file.read(piece))
    }

    /// Records that were overwritten before we came to read them.
    pub fn lost(&self) -> u64 {
        self.reading.lost
    }

    /// Records that made no sense.
    pub fn unreadable(&self) -> u64 {
        self.reading.unreadable
    }
}

impl Default for Reading {
    fn default() -> Self {
        Self { piece: vec![0; LONGEST_RECORD].into_boxed_slice(), next: None, lost: 0, unreadable: 0 }
    }
}

impl Reading {
    /// What there is at this moment. Each read gives one record.
    fn records(&mut self, mut read: impl FnMut(&mut [u8]) -> io::Result<usize>) -> io::Result<Vec<Record>> {
        let mut records = Vec::new();
        for _ in 0..MOST_PER_READ {
            match read(&mut self.piece) {
                Ok(0) => return Err(io::Error::other("the kernel log ended; is it really /dev/kmsg?")),
                Ok(count) => match Record::parse(&self.piece[..count]) {
                    Some(record) => {
                        self.count_lost(record.sequence);
                        records.push(record);
                    }
                    None => self.unreadable += 1,
                },
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                // The kernel has overwritten what was next and goes on with the oldest it has; the gap in the numbers shows it.
                Err(error) if error.raw_os_error() == Some(libc::EPIPE) => {}
                // Longer than any record can be. The kernel has stepped over it.
                Err(error) if error.raw_os_error() == Some(libc::EINVAL) => self.unreadable += 1,
                Err(error) => {
                    return Err(io::Error::new(
                        error.kind(),
                        format!("reading the kernel log failed: {error}"),
                    ));
                }
            }
        }
        Ok(records)
    }

    fn count_lost(&mut self, sequence: u64) {
        if let Some(next) = self.next {
            self.lost = self.lost.saturating_add(sequence.saturating_sub(next));
        }
        self.next = sequence.checked_add(1);
    }
}

/// The clock that the log's times are of, give or take a little: how old a line is, is this less its time.
pub fn since_boot() -> Duration {
    Duration::try_from(clock_gettime(ClockId::Monotonic)).unwrap_or_default()
}
