//! The folder of one cluster, and who owns it.

use std::fs::{self, File, TryLockError};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use anyhow::{Context, Result, bail};

use crate::cache;
use crate::remains;

/// A cluster's folder. The lock beside it is held as long as this value lives; the kernel lets go of it when the
/// process ends, however it ends, and the process that gets it then may clear the folder away.
#[derive(Debug)]
pub(crate) struct Home {
    path: PathBuf,
    lock_path: PathBuf,
    _lock: File,
}

impl Home {
    /// A new folder for a cluster that ends with this process. Clears away those whose owners are gone.
    pub(crate) fn for_this_process(kind: &str) -> Result<Self> {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let base = cache::folder()?.join("run");
        make(&base)?;
        clear_abandoned(&base);
        // A number may come round again, and its former folder may have resisted clearing.
        for _ in 0..100 {
            let number = COUNT.fetch_add(1, Ordering::Relaxed);
            let path = base.join(format!("{kind}-{}-{number}", std::process::id()));
            if let Some(home) = Self::claim(&path)? {
                if path.exists() {
                    continue;
                }
                home.furnish()?;
                return Ok(home);
            }
        }
        bail!("no folder for a cluster is free in {}; remove what is in there", base.display())
    }

    /// Takes possession of `path`, which may be there or not. `None` when somebody else has it.
    pub(crate) fn claim(path: &Path) -> Result<Option<Self>> {
        let lock_path = path.with_extension("lock");
        let cannot = || format!("cannot lock {}", lock_path.display());
        let lock =
            File::options().create(true).truncate(false).write(true).open(&lock_path).with_context(cannot)?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Ok(None),
            Err(TryLockError::Error(error)) => return Err(error).with_context(cannot),
        }
        // A process that clears a folder away removes its lock last. A lock on a removed file protects nothing.
        let same = |there: fs::Metadata| lock.metadata().is_ok_and(|held| held.ino() == there.ino());
        if !fs::metadata(&lock_path).is_ok_and(same) {
            return Ok(None);
        }
        Ok(Some(Self { path: path.to_owned(), lock_path, _lock: lock }))
    }

    /// Makes the folder and what is in every cluster's.
    pub(crate) fn furnish(&self) -> Result<()> {
        make(&self.path)?;
        make(&self.logs())
    }

    /// Ends whatever of the cluster still runs and removes the folder.
    pub(crate) fn clear(self) -> Result<()> {
        remains::clear(&self.path)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    pub(crate) fn logs(&self) -> PathBuf {
        self.path.join("logs")
    }

    pub(crate) fn pki(&self) -> PathBuf {
        self.path.join("pki")
    }

    pub(crate) fn kubeconfig(&self) -> PathBuf {
        self.path.join("kubeconfig")
    }
}

impl Drop for Home {
    /// The lock stays as long as there is something to protect: at no moment is there a folder without a lock.
    fn drop(&mut self) {
        if !self.path.exists() {
            let _ = fs::remove_file(&self.lock_path);
        }
    }
}

/// Makes a folder that only its owner can look into.
pub(crate) fn make(folder: &Path) -> Result<()> {
    let made = fs::DirBuilder::new().recursive(true).mode(0o700).create(folder);
    made.with_context(|| format!("cannot make {}", folder.display()))
}

/// Clears every folder whose owner has ended without doing so. One that resists is reported and left for the next time:
/// it must not keep a test from running.
fn clear_abandoned(base: &Path) {
    let entries = fs::read_dir(base).into_iter().flatten().flatten();
    for lock in
        entries.map(|entry| entry.path()).filter(|path| path.extension().is_some_and(|end| end == "lock"))
    {
        let cleared = match Home::claim(&lock.with_extension("")) {
            Ok(Some(abandoned)) => abandoned.clear(),
            Ok(None) => Ok(()),
            Err(error) => Err(error),
        };
        if let Err(error) = cleared {
            cache::say(&format!("an abandoned cluster could not be cleared away: {error:#}"));
        }
    }
}

/// Removes a folder and everything in it; one that is not there is fine.
pub(crate) fn remove_folder(folder: &Path) -> Result<()> {
    match fs::remove_dir_all(folder) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(error).with_context(|| format!("cannot remove {}", folder.display()))
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_has_one_owner_and_is_cleared_once_abandoned() {
        let base = tempfile::tempdir().unwrap();
        let path = base.path().join("x-1");
        let home = Home::claim(&path).unwrap().unwrap();
        home.furnish().unwrap();
        assert!(Home::claim(&path).unwrap().is_none(), "it is owned");
        clear_abandoned(base.path());
        assert!(path.exists(), "cleared under its owner's feet");

        drop(home);
        clear_abandoned(base.path());
        assert_eq!(fs::read_dir(base.path()).unwrap().count(), 0, "folder and lock are gone");
    }
}
