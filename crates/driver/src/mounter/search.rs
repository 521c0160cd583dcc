//! Finding a file by its number, in a session that another process began.

use std::collections::HashMap;
use std::ffi::OsString;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStringExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use rustix::fs::{Dir, FileType, Mode, OFlags, fstat, openat};
use rustix::io::{Errno, Result};

/// Directories inside of each other; what is deeper is not found.
const DEPTH: usize = 512;

/// Where every file of the volume was when the volume was last walked.
#[derive(Debug, Default)]
pub(super) struct Search {
    index: Mutex<Option<Index>>,
    /// How often a name changed under which a file may be in the index.
    moves: AtomicU64,
}

#[derive(Debug)]
struct Index {
    moves: u64,
    /// The directory and the name in it, by number. The root's own directory is none.
    names: HashMap<u64, (u64, OsString)>,
    root: u64,
}

impl Search {
    /// Opens the file with this number. `ESTALE` when the volume has none. The volume is walked at the first
    /// question, and again only after something was moved.
    pub(super) fn find(&self, root: &Arc<OwnedFd>, device: u64, inode: u64) -> Result<OwnedFd> {
        let mut index = self.index.lock();
        let moves = self.moves.load(Ordering::Acquire);
        if let Some(index) = &*index {
            match index.open(root, device, inode) {
                Err(_) if index.moves != moves => {}
                outcome => return outcome,
            }
        }
        index.insert(Index::walk(root, device, moves)?).open(root, device, inode)
    }

    /// Something got or lost a name.
    pub(super) fn moved(&self) {
        self.moves.fetch_add(1, Ordering::Release);
    }
}

impl Index {
    fn walk(root: &Arc<OwnedFd>, device: u64, moves: u64) -> Result<Self> {
        let root_number = fstat(&**root)?.st_ino;
        let mut names = HashMap::new();
        let mut open = vec![directory(&**root, c".")?];
        // Depth first, with one open directory for each level.
        let mut waiting: Vec<Vec<(OsString, u64)>> = vec![list(&open[0], root_number, &mut names)?];
        while let Some(level) = waiting.last_mut() {
            let Some((name, inode)) = level.pop() else {
                waiting.pop();
                open.pop();
                continue;
            };
            let Some(parent) = open.last() else { break };
            if open.len() >= DEPTH {
                continue;
            }
            // Gone or replaced meanwhile, or mounted over: not what we search for.
            let Ok(opened) = directory(parent, &*name) else { continue };
            match fstat(&opened) {
                Ok(stat) if stat.st_ino == inode && stat.st_dev == device => {}
                _ => continue,
            }
            let Ok(below) = list(&opened, inode, &mut names) else { continue };
            waiting.push(below);
            open.push(opened);
        }
        Ok(Self { moves, names, root: root_number })
    }

    fn open(&self, root: &Arc<OwnedFd>, device: u64, inode: u64) -> Result<OwnedFd> {
        let mut way = Vec::new();
        let mut at = inode;
        while at != self.root {
            let (parent, name) = self.names.get(&at).ok_or(Errno::STALE)?;
            way.push(name);
            if way.len() > DEPTH {
                return Err(Errno::STALE);
            }
            at = *parent;
        }
        let step = |from: &OwnedFd, name: &OsString| {
            openat(from, name, OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty())
        };
        let mut found = None;
        for name in way.into_iter().rev() {
            found = Some(step(found.as_ref().unwrap_or(&**root), name).map_err(|_| Errno::STALE)?);
        }
        let found = found.ok_or(Errno::STALE)?;
        let stat = fstat(&found)?;
        if stat.st_ino == inode && stat.st_dev == device { Ok(found) } else { Err(Errno::STALE) }
    }
}

fn directory(parent: impl AsFd, name: impl rustix::path::Arg) -> Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    openat(parent, name, flags, Mode::empty())
}

/// Notes all entries of a directory and returns those that are directories themselves.
fn list(
    opened: &OwnedFd,
    number: u64,
    names: &mut HashMap<u64, (u64, OsString)>,
) -> Result<Vec<(OsString, u64)>> {
    let mut below = Vec::new();
    for entry in Dir::read_from(opened)? {
        let entry = entry?;
        let name = entry.file_name().to_bytes();
        if name == b"." || name == b".." {
            continue;
        }
        let name = OsString::from_vec(name.to_vec());
        if matches!(entry.file_type(), FileType::Directory | FileType::Unknown) {
            below.push((name.clone(), entry.ino()));
        }
        names.insert(entry.ino(), (number, name));
    }
    Ok(below)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::MetadataExt;
    use std::path::Path;

    use super::*;

    fn root(path: &Path) -> (Arc<OwnedFd>, u64) {
        let opened = openat(rustix::fs::CWD, path, OFlags::PATH | OFlags::DIRECTORY, Mode::empty()).unwrap();
        let device = fstat(&opened).unwrap().st_dev;
        (Arc::new(opened), device)
    }

    #[test]
    fn files_are_found_by_number_also_after_they_moved() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        fs::create_dir_all(at("a/b/c")).unwrap();
        fs::write(at("a/b/c/deep"), "x").unwrap();
        fs::write(at("top"), "x").unwrap();
        let (root, device) = root(folder.path());
        let search = Search::default();
        let find = |inode: u64| {
            let found = search.find(&root, device, inode)?;
            assert_eq!(fstat(&found).unwrap().st_ino, inode);
            Ok::<_, Errno>(())
        };
        let deep = fs::metadata(at("a/b/c/deep")).unwrap().ino();
        find(deep).unwrap();
        find(fs::metadata(at("top")).unwrap().ino()).unwrap();
        find(fs::metadata(at("a/b")).unwrap().ino()).unwrap();

        fs::rename(at("a/b"), at("moved")).unwrap();
        assert_eq!(find(deep), Err(Errno::STALE), "the move was not announced");
        search.moved();
        find(deep).unwrap();
        fs::remove_file(at("moved/c/deep")).unwrap();
        search.moved();
        assert_eq!(find(deep), Err(Errno::STALE));
    }
}
