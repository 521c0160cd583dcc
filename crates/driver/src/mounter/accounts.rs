//! How much a volume holds, how much it may, and whether a fault makes it fail.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use crate::error::{Error, Result};
use crate::state_dir::VolumeDir;

/// How old what was read of the control files may be.
const FRESH: Duration = Duration::from_millis(100);
const BYTES_PER_FILE: u64 = 16 * 1024;
/// Directories inside of each other; deeper ones are not counted.
const DEPTH: usize = 512;

#[derive(Debug)]
pub(super) struct Accounts {
    quota_file: PathBuf,
    fault_file: PathBuf,
    read: Mutex<Option<Instant>>,
    quota: AtomicU64,
    fails: AtomicBool,
    /// Kept by differences, so it can be off by what is deleted while open; never shown below zero.
    used: AtomicI64,
    files: AtomicI64,
}

impl Accounts {
    /// Counts what is there.
    pub(super) fn open(directory: &VolumeDir) -> Result<Self> {
        let files = directory.files();
        let (used, count) =
            count(&files, DEPTH).map_err(Error::io(format_args!("count {}", files.display())))?;
        let accounts = Self {
            quota_file: directory.mounter_quota(),
            fault_file: directory.mounter_fault(),
            read: Mutex::new(None),
            quota: AtomicU64::new(0),
            fails: AtomicBool::new(false),
            used: AtomicI64::new(used),
            files: AtomicI64::new(count),
        };
        // Before any request: who comes while another one reads them takes what was read before.
        accounts.refresh();
        Ok(accounts)
    }

    /// Reads the control files, if that was not done just now.
    fn refresh(&self) {
        let Some(mut read) = self.read.try_lock() else { return };
        if read.is_some_and(|at| at.elapsed() < FRESH) {
            return;
        }
        *read = Some(Instant::now());
        match fs::read_to_string(&self.quota_file).map(|text| text.trim().parse()) {
            Ok(Ok(quota)) => self.quota.store(quota, Ordering::Relaxed),
            Ok(Err(error)) => tracing::warn!(%error, "the quota file has no number in it"),
            Err(error) => tracing::warn!(%error, "the quota file cannot be read"),
        }
        let fails = fs::read_to_string(&self.fault_file).is_ok_and(|text| text.trim() == "eio");
        self.fails.store(fails, Ordering::Relaxed);
    }

    /// Whether every request shall be answered with EIO.
    pub(super) fn fails(&self) -> bool {
        self.refresh();
        self.fails.load(Ordering::Relaxed)
    }

    pub(super) fn quota(&self) -> u64 {
        self.refresh();
        self.quota.load(Ordering::Relaxed)
    }

    pub(super) fn used(&self) -> u64 {
        u64::try_from(self.used.load(Ordering::Relaxed)).unwrap_or(0)
    }

    pub(super) fn files(&self) -> u64 {
        u64::try_from(self.files.load(Ordering::Relaxed)).unwrap_or(0)
    }

    /// How many files there may be, one for each `BYTES_PER_FILE` bytes, as file systems with fixed tables have it.
    pub(super) fn file_quota(&self) -> u64 {
        self.quota() / BYTES_PER_FILE
    }

    pub(super) fn has_room_for(&self, bytes: u64) -> bool {
        self.used().saturating_add(bytes) <= self.quota()
    }

    /// A file went from `before` to `after` blocks of 512 bytes.
    pub(super) fn changed(&self, before: u64, after: u64) {
        let bytes = |blocks: u64| i64::try_from(blocks * 512).unwrap_or(i64::MAX);
        self.used.fetch_add(bytes(after) - bytes(before), Ordering::Relaxed);
    }

    pub(super) fn files_changed(&self, by: i64) {
        self.files.fetch_add(by, Ordering::Relaxed);
    }

    /// Forgets what was read of the control files.
    #[cfg(test)]
    fn forget(&self) {
        *self.read.lock() = None;
    }
}

fn count(directory: &Path, depth: usize) -> io::Result<(i64, i64)> {
    let (mut bytes, mut files) = (0, 0);
    if depth == 0 {
        return Ok((0, 0));
    }
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        let metadata = entry.metadata()?;
        // A file with several names is counted a part for each.
        bytes += i64::try_from(metadata.blocks() * 512 / metadata.nlink().max(1)).unwrap_or(0);
        files += 1;
        if metadata.is_dir() {
            let (more_bytes, more_files) = count(&entry.path(), depth - 1)?;
            bytes += more_bytes;
            files += more_files;
        }
    }
    Ok((bytes, files))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn room_and_faults_follow_the_files() {
        let directory = tempfile::tempdir().unwrap();
        let volume = VolumeDir::at(directory.path());
        fs::create_dir_all(volume.files().join("a/b")).unwrap();
        fs::write(volume.files().join("a/b/c"), vec![1; 100_000]).unwrap();
        fs::write(volume.mounter_quota(), "1000000").unwrap();
        let accounts = Accounts::open(&volume).unwrap();
        {
            let _another_request_reads_them = accounts.read.lock();
            assert!(accounts.has_room_for(500_000));
        }
        assert_eq!(accounts.files(), 3);
        assert!(accounts.used() >= 100_000 && !accounts.fails());
        assert!(accounts.has_room_for(500_000) && !accounts.has_room_for(950_000));
        accounts.changed(10_000, 0);
        assert_eq!(accounts.used(), 0);

        fs::write(volume.mounter_fault(), "eio\n").unwrap();
        accounts.forget();
        assert!(accounts.fails());
        fs::remove_file(volume.mounter_fault()).unwrap();
        accounts.forget();
        assert!(!accounts.fails());
    }
}
