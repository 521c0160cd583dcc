//! The one directory that the demo lives in: for one demo at a time, and gone after it.

use std::ffi::OsString;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use anyhow::{anyhow, bail};
use rustix::fs::{FlockOperation, OFlags, flock, statvfs};
use rustix::process::geteuid;

use super::sweep::{self, Swept};

/// Says that a directory is ours to empty.
const MARK: &str = "volmedic-demo";
/// Another demo may be taking the directory away just now.
const ATTEMPTS: usize = 20;
/// The longest path that a socket may have.
const LONGEST_SOCKET: usize = 107;
const MB: u64 = 1_000_000;

/// The directory of this demo, and of no other process.
#[derive(Debug)]
pub(super) struct Home {
    root: PathBuf,
    /// The directory itself, locked for as long as we live and no longer.
    lock: File,
    empty: bool,
}

impl Home {
    /// The default folder of demos; one for each user.
    pub(super) fn usual() -> PathBuf {
        std::env::temp_dir().join(format!("volmedic-demo-{}", geteuid().as_raw()))
    }

    /// Takes the directory, in which this many bytes must be free, and clears away what a demo that was killed left in
    /// it; also answers what that was.
    pub(super) fn claim(root: &Path, needed: u64) -> anyhow::Result<(Self, Swept)> {
        let root = absolute(root)?;
        let lock = lock(&root)?;
        let left = fs::read_dir(&root).map_err(|error| refused("list", &root, &error))?;
        let left: Vec<OsString> = left.map_while(Result::ok).map(|entry| entry.file_name()).collect();
        if !left.is_empty() && !left.iter().any(|name| name == MARK) {
            bail!(
                "{} has files in it that are not from a demo; give another --state-dir, or an empty directory",
                root.display()
            );
        }
        // From here on it is ours, and whatever fails leaves nothing behind.
        let home = Self { root, lock, empty: false };
        let root = home.root();
        let swept = sweep::sweep(root);
        if !swept.problems.is_empty() {
            bail!(
                "an earlier demo left something in {} that cannot be removed: {}; give another --state-dir",
                root.display(),
                swept.problems.join("; ")
            );
        }
        let socket = home.addons_socket();
        if socket.as_os_str().len() > LONGEST_SOCKET {
            bail!("the path {} is too long for a socket; give a shorter --state-dir", socket.display());
        }
        let free = statvfs(root).map_err(|error| refused("measure", root, &error.into()))?;
        let free = free.f_bavail.saturating_mul(free.f_frsize);
        if free < needed {
            bail!(
                "{} has {} MB free, and the demo needs {} MB; free some space, or give another --state-dir",
                root.display(),
                free / MB,
                needed / MB
            );
        }
        let mark = root.join(MARK);
        fs::write(&mark, "Made by `volmedic demo`, and removed by it.\n")
            .map_err(|error| refused("write", &mark, &error))?;
        Ok((home, swept))
    }

    pub(super) fn root(&self) -> &Path {
        &self.root
    }

    pub(super) fn state(&self) -> PathBuf {
        self.root.join(sweep::STATE)
    }

    /// What kubelet's folder is on a node.
    pub(super) fn node(&self) -> PathBuf {
        self.root.join("node")
    }

    pub(super) fn csi_socket(&self) -> PathBuf {
        self.root.join("csi.sock")
    }

    pub(super) fn addons_socket(&self) -> PathBuf {
        self.root.join("addons.sock")
    }

    pub(super) fn log(&self) -> PathBuf {
        self.root.join("driver.log")
    }

    /// Takes everything away, the directory too. Answers what did not go.
    pub(super) fn leave(mut self) -> Vec<String> {
        self.empty = true;
        let mut problems = sweep::sweep(&self.root).problems;
        if let Err(error) = fs::remove_dir(&self.root)
            // What is mounted there is the user's, and stays.
            && error.kind() != io::ErrorKind::ResourceBusy
        {
            problems.push(format!("{} cannot be removed: {error}", self.root.display()));
        }
        // Not before it is gone: the next one makes its own.
        let _ = flock(&self.lock, FlockOperation::Unlock);
        problems
    }
}

/// After a failed claim, or an internal error (bug): the next demo would find it all, but there may be none.
impl Drop for Home {
    fn drop(&mut self) {
        if !self.empty {
            sweep::sweep(&self.root);
            let _ = fs::remove_dir(&self.root);
        }
    }
}

/// Without symbolic links on the way, as the mount table has it.
fn absolute(root: &Path) -> anyhow::Result<PathBuf> {
    let (Some(parent), Some(name)) = (root.parent(), root.file_name()) else {
        bail!("{} cannot be the directory of a demo; give another --state-dir", root.display());
    };
    let parent = if parent.as_os_str().is_empty() { Path::new(".") } else { parent };
    let found = parent.canonicalize().map_err(|error| refused("find", parent, &error))?;
    Ok(found.join(name))
}

/// Makes the directory if need be, makes sure that it is ours alone, and locks it.
fn lock(root: &Path) -> anyhow::Result<File> {
    for _ in 0..ATTEMPTS {
        match DirBuilder::new().mode(0o700).create(root) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
                return Err(refused("create", root, &error));
            }
            _ => {}
        }
        let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW;
        let opened = OpenOptions::new().read(true).custom_flags(flags.bits().cast_signed()).open(root);
        let directory = match opened {
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            other => other.map_err(|error| refused("open", root, &error))?,
        };
        let found = directory.metadata()?;
        if found.uid() != geteuid().as_raw() || found.mode() & 0o022 != 0 {
            bail!(
                "{} belongs to another user, or others may write to it; give another --state-dir",
                root.display()
            );
        }
        if flock(&directory, FlockOperation::NonBlockingLockExclusive).is_err() {
            bail!("another demo is running in {}; stop it, or give another --state-dir", root.display());
        }
        // An earlier demo may have removed it after we opened it.
        if fs::symlink_metadata(root).is_ok_and(|now| (now.dev(), now.ino()) == (found.dev(), found.ino())) {
            return Ok(directory);
        }
    }
    bail!(
        "{} keeps disappearing: another demo starts and ends there; give another --state-dir",
        root.display()
    )
}

/// What cannot be done to the directory, why, and the next step.
fn refused(what: &str, path: &Path, error: &io::Error) -> anyhow::Error {
    anyhow!("cannot {what} {}: {error}; give a --state-dir where you may write", path.display())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_at_a_time_and_nothing_stays() {
        let room = tempfile::tempdir().unwrap();
        let root = room.path().join("demo");
        let (home, swept) = Home::claim(&root, 0).unwrap();
        assert_eq!(swept, Swept::default());
        let error = Home::claim(&root, 0).unwrap_err().to_string();
        assert!(error.contains("another demo is running in"), "{error}");
        fs::write(home.log(), "words").unwrap();
        assert_eq!(home.leave(), Vec::<String>::new());
        assert!(!root.exists());
    }

    #[test]
    fn what_a_killed_demo_left_is_cleared_and_nothing_else() {
        let room = tempfile::tempdir().unwrap();
        let root = room.path().join("demo");
        let (home, _) = Home::claim(&root, 0).unwrap();
        let log = home.log();
        fs::write(&log, "words").unwrap();
        // As after a kill: nothing is dropped in good order.
        flock(&home.lock, FlockOperation::Unlock).unwrap();
        std::mem::forget(home);
        let (home, _) = Home::claim(&root, 0).unwrap();
        assert!(!log.exists());
        drop(home);

        let other = room.path().join("foreign");
        fs::create_dir(&other).unwrap();
        fs::write(other.join("thesis"), "all of it").unwrap();
        let error = Home::claim(&other, 0).unwrap_err().to_string();
        assert!(error.contains("not from a demo"), "{error}");
        assert!(other.join("thesis").exists());
    }

    #[test]
    fn without_enough_space_nothing_is_made() {
        let room = tempfile::tempdir().unwrap();
        let root = room.path().join("demo");
        let error = Home::claim(&root, u64::MAX).unwrap_err().to_string();
        assert!(error.contains("MB free, and the demo needs"), "{error}");
        assert!(!root.exists());
    }

    #[test]
    fn a_directory_that_others_may_write_to_is_not_taken() {
        use std::os::unix::fs::PermissionsExt;
        let room = tempfile::tempdir().unwrap();
        let root = room.path().join("demo");
        fs::create_dir(&root).unwrap();
        fs::set_permissions(&root, fs::Permissions::from_mode(0o777)).unwrap();
        assert!(Home::claim(&root, 0).unwrap_err().to_string().contains("belongs to another user"));
        let link = room.path().join("link");
        std::os::unix::fs::symlink(room.path(), &link).unwrap();
        assert!(Home::claim(&link, 0).is_err(), "a link is not followed");
    }
}
