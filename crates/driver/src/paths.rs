//! Staging and target paths: which are acceptable, and how they are reached without following a link that was put
//! there.
//!
//! A path must be absolute, plain (no `.` or `..`), at most 4095 bytes, and lie below an allowed root and clear of
//! the state directory. It is then opened component by component from the root, so that a symbolic link below the
//! root is an error and not a way out.

use std::ffi::OsString;
use std::fs;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::{Component, Path, PathBuf};

use rustix::fs::{
    AtFlags, FileType, Mode, OFlags, ResolveFlags, mkdirat, open, openat, openat2, statat, unlinkat,
};
use rustix::io::Errno;

use crate::error::{Error, Result};

/// The longest path that the kernel takes, without its final NUL.
const PATH_MAX: usize = 4095;

#[derive(Clone, Debug)]
pub(crate) struct Roots {
    allowed: Vec<PathBuf>,
    state: PathBuf,
}

impl Roots {
    /// `state` must be free of symbolic links already.
    pub(crate) fn new(allowed: Vec<PathBuf>, state: PathBuf) -> Self {
        Self { allowed, state }
    }

    /// Checks a path of a request and says where it is. Touches nothing but the allowed root itself.
    pub(crate) fn place(&self, field: &'static str, text: &str) -> Result<Place> {
        let path = plain(field, text)?;
        for allowed in &self.allowed {
            // Only a root that exists can contain anything; its own links are the administrator's.
            let Ok(root) = fs::canonicalize(allowed) else { continue };
            let Ok(below) = path.strip_prefix(allowed).or_else(|_| path.strip_prefix(&root)) else {
                continue;
            };
            let Some(name) = below.file_name() else { continue };
            let full = root.join(below);
            if full.starts_with(&self.state) || self.state.starts_with(&full) {
                return Err(Error::invalid(
                    field,
                    "it lies in, or contains, the state directory of the driver",
                ));
            }
            let parent = below.parent().unwrap_or(Path::new("")).to_owned();
            return Ok(Place { field, name: name.to_owned(), root, parent, full });
        }
        let allowed: Vec<_> = self.allowed.iter().map(|root| root.display().to_string()).collect();
        Err(Error::invalid(
            field,
            format_args!("it is not below an allowed root ({}); see --allowed-root", allowed.join(", ")),
        ))
    }
}

/// The textual rules.
fn plain(field: &'static str, text: &str) -> Result<PathBuf> {
    if text.is_empty() {
        return Err(Error::Missing { field });
    }
    if text.len() > PATH_MAX {
        return Err(Error::invalid(field, format_args!("it is longer than {PATH_MAX} bytes")));
    }
    if text.bytes().any(|byte| byte == 0) {
        return Err(Error::invalid(field, "it contains a NUL byte"));
    }
    let path = Path::new(text);
    if !path.is_absolute() {
        return Err(Error::invalid(field, "it is not an absolute path"));
    }
    // `components` hides a `.` in the middle, and both are refused alike.
    if text.split('/').any(|part| part == "." || part == "..") {
        return Err(Error::invalid(field, "it contains . or .. ; give the plain path"));
    }
    Ok(path.components().filter(|part| matches!(part, Component::RootDir | Component::Normal(_))).collect())
}

/// An acceptable path. Nothing is known yet about what is there.
#[derive(Clone, Debug)]
pub(crate) struct Place {
    field: &'static str,
    root: PathBuf,
    parent: PathBuf,
    name: OsString,
    full: PathBuf,
}

/// What is at a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum There {
    Nothing,
    Directory,
    File,
    Other,
}

impl Place {
    /// The path as the mount table will show it.
    pub(crate) fn path(&self) -> &Path {
        &self.full
    }

    fn parent(&self) -> Result<OwnedFd> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let root = open(&self.root, flags, Mode::empty())
            .map_err(Error::io(format_args!("open the allowed root {}", self.root.display())))?;
        if self.parent.as_os_str().is_empty() {
            return Ok(root);
        }
        let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS;
        openat2(&root, &self.parent, flags, Mode::empty(), resolve).map_err(|errno| match errno {
            Errno::LOOP => {
                Error::invalid(self.field, "a part of it is a symbolic link, which is never followed")
            }
            Errno::NOENT => {
                Error::invalid(self.field, "the directory it lies in does not exist; create it first")
            }
            Errno::NOTDIR => Error::invalid(self.field, "a part of it is not a directory"),
            Errno::NAMETOOLONG => {
                Error::invalid(self.field, "a part of it is longer than a file name can be")
            }
            errno => Error::io(format_args!("open the directory of {}", self.full.display()))(errno),
        })
    }

    /// What is there. Not for a path that may be a mount point: a broken file system would answer, or not.
    pub(crate) fn look(&self) -> Result<There> {
        let parent = match self.parent() {
            Ok(parent) => parent,
            // Where the directory is gone, so is what was in it.
            Err(Error::Invalid { .. }) if !self.full.parent().is_some_and(Path::exists) => {
                return Ok(There::Nothing);
            }
            Err(error) => return Err(error),
        };
        match statat(&parent, &self.name, AtFlags::SYMLINK_NOFOLLOW | AtFlags::NO_AUTOMOUNT) {
            Ok(stat) => Ok(match FileType::from_raw_mode(stat.st_mode) {
                FileType::Directory => There::Directory,
                FileType::RegularFile => There::File,
                _ => There::Other,
            }),
            Err(Errno::NOENT) => Ok(There::Nothing),
            Err(Errno::NAMETOOLONG) => Err(Error::invalid(self.field, "its last part is too long")),
            Err(error) => Err(Error::io(format_args!("examine {}", self.full.display()))(error)),
        }
    }

    /// Whether something of this sort is there or can be made. Not for a path that may be a mount point.
    pub(crate) fn check_free_for(&self, sort: There) -> Result<()> {
        let found = self.look()?;
        if found == There::Nothing {
            // Says what is wrong with the way there, if anything is.
            return self.parent().map(drop);
        }
        if found == sort {
            return if sort == There::File { self.open_file().map(drop) } else { Ok(()) };
        }
        let wanted = if sort == There::Directory { "a directory" } else { "a regular file" };
        Err(Error::invalid(self.field, format_args!("it exists and is not {wanted}")))
    }

    /// Makes the directory unless it is there, and opens it.
    pub(crate) fn open_directory(&self) -> Result<Opened> {
        let parent = self.parent()?;
        match mkdirat(&parent, &self.name, Mode::from(0o750)) {
            Ok(()) | Err(Errno::EXIST) => {}
            Err(error) => {
                return Err(Error::io(format_args!("make the directory {}", self.full.display()))(error));
            }
        }
        self.open_in(&parent, OFlags::PATH | OFlags::DIRECTORY, "a directory")
    }

    /// Makes an empty file unless one is there, and opens it. A file with content is user data: a device on top
    /// would hide it, and [`Self::remove`] would never remove it, so the volume could not be unpublished.
    pub(crate) fn open_file(&self) -> Result<Opened> {
        let parent = self.parent()?;
        let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        match openat(&parent, &self.name, flags, Mode::from(0o600)) {
            Ok(_) | Err(Errno::EXIST) => {}
            Err(error) => {
                return Err(Error::io(format_args!("make the file {}", self.full.display()))(error));
            }
        }
        let opened = self.open_in(&parent, OFlags::PATH, "a regular file")?;
        let stat = rustix::fs::fstat(&opened.0)
            .map_err(Error::io(format_args!("examine {}", self.full.display())))?;
        if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
            return Err(Error::invalid(self.field, "it exists and is not a regular file"));
        }
        if stat.st_size != 0 {
            return Err(Error::invalid(self.field, "there is a file with content, which would be hidden"));
        }
        Ok(opened)
    }

    fn open_in(&self, parent: &OwnedFd, flags: OFlags, kind: &str) -> Result<Opened> {
        openat(parent, &self.name, flags | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty())
            .map(Opened)
            .map_err(|errno| match errno {
                Errno::LOOP | Errno::NOTDIR => {
                    Error::invalid(self.field, format_args!("it exists and is not {kind}"))
                }
                errno => Error::io(format_args!("open {}", self.full.display()))(errno),
            })
    }

    /// Removes an empty directory or an empty file. Anything with content in it stays.
    pub(crate) fn remove(&self) -> Result<()> {
        let what = || format!("remove {}", self.full.display());
        let removed = match self.look()? {
            There::Nothing => return Ok(()),
            There::Directory => unlinkat(self.parent()?, &self.name, AtFlags::REMOVEDIR),
            There::File => {
                let parent = self.parent()?;
                let stat =
                    statat(&parent, &self.name, AtFlags::SYMLINK_NOFOLLOW).map_err(Error::io(what()))?;
                if stat.st_size != 0 {
                    return Err(Error::invalid(
                        self.field,
                        "there is a file with content, which is not ours to remove",
                    ));
                }
                unlinkat(parent, &self.name, AtFlags::empty())
            }
            There::Other => {
                return Err(Error::invalid(self.field, "there is neither a directory nor a regular file"));
            }
        };
        match removed {
            Ok(()) | Err(Errno::NOENT) => Ok(()),
            Err(Errno::NOTEMPTY | Errno::EXIST) => {
                Err(Error::invalid(self.field, "the directory is not empty, so it is not ours to remove"))
            }
            Err(error) => Err(Error::io(what())(error)),
        }
    }

    /// A way to name this path to the kernel that no link can divert. Lives as long as the directory it holds.
    pub(crate) fn through_parent(&self) -> Result<(OwnedFd, PathBuf)> {
        let parent = self.parent()?;
        let path = descriptor_path(parent.as_raw_fd()).join(&self.name);
        Ok((parent, path))
    }
}

/// A path that is open; mounts land on exactly this object.
#[derive(Debug)]
pub(crate) struct Opened(OwnedFd);

impl AsFd for Opened {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl Opened {
    /// Opens a device node, by a path that no request has a say in.
    pub(crate) fn device(path: &Path) -> Result<Self> {
        open(path, OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty())
            .map(Self)
            .map_err(Error::io(format_args!("open {}", path.display())))
    }

    pub(crate) fn path(&self) -> PathBuf {
        descriptor_path(self.0.as_raw_fd())
    }

    pub(crate) fn into_fd(self) -> OwnedFd {
        self.0
    }
}

fn descriptor_path(descriptor: i32) -> PathBuf {
    PathBuf::from(format!("/proc/self/fd/{descriptor}"))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    struct Ground {
        directory: tempfile::TempDir,
        roots: Roots,
    }

    fn ground() -> Ground {
        let directory = tempfile::tempdir().unwrap();
        let base = directory.path().canonicalize().unwrap();
        fs::create_dir_all(base.join("kubelet/pods")).unwrap();
        fs::create_dir_all(base.join("kubelet/plugins/state")).unwrap();
        fs::create_dir(base.join("outside")).unwrap();
        symlink(base.join("kubelet"), base.join("alias")).unwrap();
        symlink(base.join("outside"), base.join("kubelet/out")).unwrap();
        symlink("/etc/passwd", base.join("kubelet/pods/file")).unwrap();
        let roots = Roots::new(vec![base.join("alias")], base.join("kubelet/plugins/state"));
        Ground { directory, roots }
    }

    impl Ground {
        fn check(&self, path: &str, expected: &str) {
            let path = path.replace('@', self.directory.path().to_str().unwrap());
            let result = self.roots.place("target_path", &path).and_then(|place| place.open_directory());
            let result = result.map_or_else(|error| error.to_string(), |_| "ok".to_owned());
            assert!(result.contains(expected), "{path}: {result}");
        }
    }

    #[test]
    fn only_plain_paths_below_a_root_are_opened() {
        let ground = ground();
        ground.check("@/alias/pods/new", "ok");
        ground.check("@/kubelet/pods//new/", "ok");
        ground.check("", "is missing");
        ground.check("relative/path", "not an absolute path");
        ground.check("@/alias/pods/../../outside", "contains . or ..");
        ground.check("@/alias/./pods", "contains . or ..");
        ground.check("@/alias/a\0b", "NUL");
        ground.check("@/outside/x", "not below an allowed root");
        ground.check("@/alias", "not below an allowed root");
        ground.check("/etc", "not below an allowed root");
        ground.check("@/alias/out/x", "symbolic link");
        ground.check("@/alias/pods/file", "not a directory");
        ground.check("@/alias/plugins/state/volumes", "state directory");
        ground.check("@/alias/plugins", "state directory");
        ground.check("@/alias/none/x", "does not exist");
        ground.check(&format!("@/alias/{}", "x/".repeat(4096)), "longer than 4095");
        ground.check(&format!("@/alias/{}", "x".repeat(300)), "File name too long");
    }

    #[test]
    fn content_is_never_removed_or_hidden() {
        let ground = ground();
        let base = ground.directory.path();
        fs::create_dir_all(base.join("kubelet/full/inside")).unwrap();
        fs::write(base.join("kubelet/text"), "precious").unwrap();
        fs::write(base.join("kubelet/empty"), "").unwrap();
        let remove = |name: &str| {
            let path = base.join("kubelet").join(name);
            ground.roots.place("target_path", path.to_str().unwrap()).unwrap().remove()
        };
        remove("full").unwrap_err();
        remove("text").unwrap_err();
        remove("pods/file").unwrap_err();
        let open = |name: &str| {
            let path = base.join("kubelet").join(name);
            let place = ground.roots.place("target_path", path.to_str().unwrap()).unwrap();
            place.check_free_for(There::File).and_then(|()| place.open_file().map(drop))
        };
        open("text").unwrap_err();
        open("empty").unwrap();
        open("created").unwrap();
        remove("empty").unwrap();
        remove("created").unwrap();
        remove("never/was").unwrap();
        assert!(base.join("kubelet/full/inside").exists() && base.join("kubelet/text").exists());
    }
}
