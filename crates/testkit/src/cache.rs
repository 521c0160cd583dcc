//! The folder outside of the checkout where built programs and running clusters live.

use std::env;
use std::ffi::OsString;
use std::fs::{self, File, TryLockError};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

/// `VOLMEDIC_CACHE`, else `volmedic` in the user's cache folder. Made if it is not there.
pub fn folder() -> Result<PathBuf> {
    let folder = choose(|name| env::var_os(name))?;
    fs::create_dir_all(&folder)
        .with_context(|| format!("cannot make the cache folder {}", folder.display()))?;
    // Paths are compared with those the kernel shows in mountinfo, which have no symbolic links.
    folder.canonicalize().with_context(|| format!("cannot resolve the cache folder {}", folder.display()))
}

/// Removes a folder and all in it; one that is not there needs no removing.
pub(crate) fn remove(folder: &Path) -> Result<()> {
    match fs::remove_dir_all(folder) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            bail!("cannot remove {}: {error}", folder.display())
        }
        _ => Ok(()),
    }
}

fn choose(variable: impl Fn(&str) -> Option<OsString>) -> Result<PathBuf> {
    let set = |name: &str| variable(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let folder = set("VOLMEDIC_CACHE")
        .or_else(|| Some(set("XDG_CACHE_HOME")?.join("volmedic")))
        .or_else(|| Some(set("HOME")?.join(".cache/volmedic")));
    match folder {
        Some(folder) if folder.is_absolute() => Ok(folder),
        Some(folder) => {
            bail!("the cache folder {} is not an absolute path; set VOLMEDIC_CACHE to one", folder.display())
        }
        None => bail!("there is no place for built programs: set VOLMEDIC_CACHE to a folder, or set HOME"),
    }
}

/// Fails with a sentence when fewer than `needed` bytes are free where `path` is.
pub(crate) fn require_space(path: &Path, needed: u64) -> Result<()> {
    const GIB: u64 = 1 << 30;
    let usage =
        rustix::fs::statvfs(path).with_context(|| format!("cannot ask how full {} is", path.display()))?;
    let free = usage.f_bavail.saturating_mul(usage.f_frsize);
    if free < needed {
        bail!(
            "{}.{} GiB are free where {} is, {} GiB are needed: make room, or set VOLMEDIC_CACHE (and GOCACHE) to a \
             folder on a larger disk",
            free / GIB,
            free % GIB * 10 / GIB,
            path.display(),
            needed / GIB,
        );
    }
    Ok(())
}

/// Takes the lock `file`, waiting for its holder, and says so every ten seconds. Released when dropped.
pub(crate) fn lock(file: &Path, why: &str, limit: Duration) -> Result<File> {
    let cannot = || format!("cannot lock {}", file.display());
    let lock = File::options().create(true).truncate(false).write(true).open(file).with_context(cannot)?;
    let (start, mut reported) = (Instant::now(), 0);
    loop {
        match lock.try_lock() {
            Ok(()) => return Ok(lock),
            Err(TryLockError::WouldBlock) => {}
            Err(TryLockError::Error(error)) => return Err(error).with_context(cannot),
        }
        let waited = start.elapsed();
        if waited >= limit {
            bail!(
                "{why} for {} s and holds {}; end it or wait for it, then try again",
                waited.as_secs(),
                file.display()
            );
        }
        if waited.as_secs() / 10 >= reported {
            reported = waited.as_secs() / 10 + 1;
            say(&format!("{why} and holds {}; waiting, {} s so far", file.display(), waited.as_secs()));
        }
        thread::sleep(Duration::from_millis(100));
    }
}

/// One line of progress for a person, also from inside a test whose output is captured.
pub(crate) fn say(line: &str) {
    // A closed stderr is no reason to stop.
    let _ = writeln!(io::stderr(), "{line}");
}

/// Writes a file so that nobody ever sees half of it, and so that it is whole after a power cut.
pub(crate) fn write_whole(path: &Path, content: &[u8]) -> Result<()> {
    let part = path.with_extension("part");
    let write = || -> io::Result<()> {
        let mut file = File::create(&part)?;
        file.write_all(content)?;
        file.sync_all()?;
        fs::rename(&part, path)
    };
    write().with_context(|| format!("cannot write {}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_folder_is_the_first_that_is_set() {
        let check = |set: &[(&str, &str)], expected: &str| {
            let found =
                |name: &str| set.iter().find(|(known, _)| *known == name).map(|(_, value)| value.into());
            assert_eq!(choose(found).unwrap(), Path::new(expected), "{set:?}");
        };
        check(&[("VOLMEDIC_CACHE", "/a"), ("XDG_CACHE_HOME", "/b"), ("HOME", "/c")], "/a");
        check(&[("VOLMEDIC_CACHE", ""), ("XDG_CACHE_HOME", "/b"), ("HOME", "/c")], "/b/volmedic");
        check(&[("HOME", "/c")], "/c/.cache/volmedic");
        assert!(choose(|_| None).unwrap_err().to_string().contains("set VOLMEDIC_CACHE"));
        assert!(choose(|_| Some("here".into())).unwrap_err().to_string().contains("not an absolute path"));
    }

    #[test]
    fn a_disk_without_room_is_named_with_what_is_needed() {
        let error = require_space(Path::new("/"), u64::MAX).unwrap_err().to_string();
        assert!(error.contains("free where / is") && error.contains("make room"), "{error}");
        require_space(Path::new("/"), 0).unwrap();
    }

    #[test]
    fn a_lock_that_is_held_is_waited_for_and_then_given_up() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("lock");
        let held = lock(&file, "nobody", Duration::ZERO).unwrap();
        let error = lock(&file, "another build runs", Duration::from_millis(50)).unwrap_err().to_string();
        assert!(error.starts_with("another build runs for 0 s and holds"), "{error}");
        drop(held);
        // Not immediately: a child that another test starts just now shares the lock until it has become another program.
        lock(&file, "a child of another test", Duration::from_mins(1)).unwrap();
    }
}
