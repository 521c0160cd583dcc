//! A clone of this checkout as a newcomer has it, for tests that run what the documents say.
//!
//! It is kept from run to run with its own `target` folder as the build cache, and brought to the commit under test each
//! time. That folder is not the checkout's: cargo distinguishes clones by the times of their files only, so the checkout would
//! take what was compiled from the commit for what was compiled from its uncommitted changes.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, ensure};

use crate::process;

const GIT_LIMIT: Duration = Duration::from_mins(5);

/// As long as it is held, nobody brings the folder to another commit.
#[derive(Debug)]
pub struct Clone {
    folder: PathBuf,
    _in_use: File,
}

impl Clone {
    /// Of what is committed in the checkout at `root`, in a folder below `place`. Several may use it at a time.
    pub fn of_head(root: &Path, place: &Path) -> Result<Self> {
        fs::create_dir_all(place).with_context(|| format!("cannot make {}", place.display()))?;
        let path = place.join("lock");
        let lock = File::create(&path).with_context(|| format!("cannot make {}", path.display()))?;
        let cannot = || format!("cannot lock {}", path.display());
        let folder = place.join("volmedic");
        let wanted = git(&["-C", text(root)?, "rev-parse", "HEAD"])?;
        if lock.try_lock().is_ok() {
            bring_to_head(root, &folder)?;
            lock.unlock().with_context(cannot)?;
        }
        lock.lock_shared().with_context(cannot)?;
        while head(&folder) != Some(wanted.as_str().into()) {
            // Another commit is in use there.
            lock.unlock().with_context(cannot)?;
            lock.lock().with_context(cannot)?;
            bring_to_head(root, &folder)?;
            lock.unlock().with_context(cannot)?;
            lock.lock_shared().with_context(cannot)?;
        }
        Ok(Self { folder, _in_use: lock })
    }

    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// What is no longer as it was committed, a line for each file. Commands that a newcomer types change nothing of it.
    pub fn changes(&self) -> Result<String> {
        git(&["-C", text(&self.folder)?, "status", "--porcelain"])
    }

    /// For what must not happen there twice at a time, until it is dropped: cargo replaces `target/release/volmedic` by
    /// removing it first, and the README's driver has one address.
    pub fn turn(&self) -> Result<File> {
        let path = self.folder.with_file_name("turn");
        let turn = File::create(&path).with_context(|| format!("cannot make {}", path.display()))?;
        turn.lock().with_context(|| format!("cannot lock {}", path.display()))?;
        Ok(turn)
    }
}

/// Clones, or updates the clone of an earlier run, and leaves nothing in it but the commit and the build cache. Files that
/// did not change keep their times, so that cargo compiles what did change and nothing else.
fn bring_to_head(root: &Path, clone: &Path) -> Result<()> {
    let (root, folder) = (text(root)?, text(clone)?);
    if clone.join(".git").is_dir() {
        git(&["-C", folder, "fetch", "--quiet", root, "HEAD"])?;
        git(&["-C", folder, "checkout", "--quiet", "--force", "--detach", "FETCH_HEAD"])?;
        git(&["-C", folder, "clean", "-ffdxq", "--exclude=/target"])?;
    } else {
        let _ = fs::remove_dir_all(clone);
        git(&["clone", "--quiet", root, folder])?;
    }
    Ok(())
}

fn head(folder: &Path) -> Option<String> {
    git(&["-C", text(folder).ok()?, "rev-parse", "HEAD"]).ok()
}

fn text(path: &Path) -> Result<&str> {
    path.to_str().with_context(|| format!("the path {} is not text", path.display()))
}

/// What git prints, without the line break at its end.
fn git(arguments: &[&str]) -> Result<String> {
    let mut command = Command::new("git");
    command.args(arguments).stdin(Stdio::null());
    let said = process::run(command, GIT_LIMIT)?;
    ensure!(said.success, "git {} failed: {}", arguments.join(" "), said.stderr);
    Ok(said.stdout.trim_end().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clone_follows_the_commit_and_keeps_only_the_build_cache() {
        let (checkout, place) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let root = checkout.path();
        let commit = |content: &str| {
            fs::write(root.join("file"), content).unwrap();
            fs::write(root.join(".gitignore"), "/target").unwrap();
            let of = ["-C", text(root).unwrap()];
            git(&[&of[..], &["add", "file", ".gitignore"]].concat()).unwrap();
            let author = ["-c", "user.name=t", "-c", "user.email=t@example.com"];
            git(&[&of[..], &author, &["commit", "--quiet", "--message", content]].concat()).unwrap();
        };
        git(&["init", "--quiet", text(root).unwrap()]).unwrap();
        commit("one");
        fs::write(root.join("file"), "not committed").unwrap();
        let read = |clone: &Clone| fs::read_to_string(clone.folder().join("file")).unwrap();
        let first = Clone::of_head(root, place.path()).unwrap();
        assert_eq!(read(&first), "one");
        let second = Clone::of_head(root, place.path()).unwrap();
        assert_eq!(second.folder(), first.folder(), "two at a time share it");
        let stray = first.folder().join("stray");
        assert_eq!(first.changes().unwrap(), "");
        fs::write(&stray, "").unwrap();
        assert_eq!(first.changes().unwrap(), "?? stray");
        fs::create_dir(first.folder().join("target")).unwrap();
        drop((first, second));
        commit("two");
        let third = Clone::of_head(root, place.path()).unwrap();
        assert_eq!(read(&third), "two");
        assert!(!stray.exists() && third.folder().join("target").exists());
    }
}
