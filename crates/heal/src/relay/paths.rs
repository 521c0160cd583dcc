//! Where kubelet put a volume: staged once, published once per pod. Nothing here opens a path inside a volume.

use std::fs;
use std::io;
use std::path::{Component, Path, PathBuf};

use thiserror::Error;

use super::names::sha256_hex;

/// As long as the system allows a path to be.
const LONGEST_PATH: usize = 4096;
const LONGEST_NAME: usize = 253;
const LONGEST_DRIVER: usize = 63;
/// No node runs this many pods.
const MOST_PODS: usize = 10_000;
/// A volume that is published more often is repaired at its first targets; a driver knows the others.
const MOST_TARGETS: usize = 16;

/// Why there is no path to give to the driver.
#[derive(Debug, Error, PartialEq, Eq)]
pub(super) enum PathError {
    #[error("{what} \"{name}\" cannot be part of a path below kubelet's folder")]
    Name { what: &'static str, name: String },
    #[error("{path} leads out of kubelet's folder {root}")]
    Outside { path: PathBuf, root: PathBuf },
    #[error("{path} is longer than a path can be")]
    TooLong { path: PathBuf },
    #[error("{path} cannot be read ({why})")]
    Unreadable { path: PathBuf, why: String },
    #[error("kubelet has not set up the volume on this node")]
    Absent,
}

/// Where a volume is on this node.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Places {
    /// `None` if the driver does not stage.
    pub(super) staging: Option<PathBuf>,
    /// At least one, unless it is only staged.
    pub(super) targets: Vec<PathBuf>,
}

/// Which volume, by the names that kubelet makes folders of.
#[derive(Debug, Clone, Copy)]
pub(super) struct Wanted<'a> {
    pub(super) driver: &'a str,
    pub(super) handle: &'a str,
    pub(super) pv: &'a str,
    pub(super) block: bool,
}

/// Looks where kubelet would have put it. Blocks on a disk, though never on the volume.
pub(super) fn find(root: &Path, wanted: Wanted<'_>) -> Result<Places, PathError> {
    let Wanted { driver, handle: _, pv, block: _ } = wanted;
    check_name("the PersistentVolume's name", pv, LONGEST_NAME)?;
    check_name("the driver's name", driver, LONGEST_DRIVER)?;
    let real = fs::canonicalize(root).map_err(|error| unreadable(root, &error))?;
    let kubelet = Kubelet { root, real: &real };
    let places = if wanted.block { kubelet.block(wanted)? } else { kubelet.filesystem(wanted)? };
    if places.targets.is_empty() && places.staging.is_none() {
        return Err(PathError::Absent);
    }
    Ok(places)
}

struct Kubelet<'a> {
    root: &'a Path,
    /// Without links.
    real: &'a Path,
}

impl Kubelet<'_> {
    fn filesystem(&self, wanted: Wanted<'_>) -> Result<Places, PathError> {
        let Wanted { driver, handle, pv, block: _ } = wanted;
        let plugins = self.root.join("plugins/kubernetes.io/csi");
        let staged = plugins.join(driver).join(sha256_hex(handle.as_bytes())).join("globalmount");
        // Before Kubernetes 1.24; pods that outlived the upgrade still have it.
        let staged_of_old = plugins.join("pv").join(pv).join("globalmount");
        let mut staging = None;
        for path in [staged, staged_of_old] {
            if self.is_there(&path)? {
                staging = Some(path);
                break;
            }
        }
        let mut targets = Vec::new();
        for pod in self.pods()? {
            let target = pod.join("volumes/kubernetes.io~csi").join(pv).join("mount");
            if targets.len() < MOST_TARGETS && self.is_there(&target)? {
                targets.push(target);
            }
        }
        Ok(Places { staging, targets })
    }

    fn block(&self, wanted: Wanted<'_>) -> Result<Places, PathError> {
        let devices = self.root.join("plugins/kubernetes.io/csi/volumeDevices");
        let staging = devices.join("staging").join(wanted.pv);
        let published = devices.join("publish").join(wanted.pv);
        let mut targets = Vec::new();
        if self.is_there(&published.join("any"))? {
            for uid in entries(&published)? {
                let target = published.join(uid);
                if targets.len() < MOST_TARGETS {
                    self.check(&target)?;
                    targets.push(target);
                }
            }
        }
        let staging = self.is_there(&staging.join("any"))?.then_some(staging);
        Ok(Places { staging, targets })
    }

    fn pods(&self) -> Result<Vec<PathBuf>, PathError> {
        let pods = self.root.join("pods");
        let mut found: Vec<_> = entries(&pods)?.into_iter().map(|uid| pods.join(uid)).collect();
        found.sort();
        Ok(found)
    }

    /// Whether kubelet made the folder around the path. The path itself may be a dead mount and is not touched.
    fn is_there(&self, path: &Path) -> Result<bool, PathError> {
        let Some(folder) = path.parent() else { return Ok(false) };
        match fs::symlink_metadata(folder) {
            Ok(found) if found.is_dir() => self.check(path).map(|()| true),
            Ok(_) => Err(PathError::Outside { path: folder.to_owned(), root: self.root.to_owned() }),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(error) => Err(unreadable(folder, &error)),
        }
    }

    /// Refuses a path that is no plain way down from the root, be it by its words or by a link on the way.
    fn check(&self, path: &Path) -> Result<(), PathError> {
        let outside = || PathError::Outside { path: path.to_owned(), root: self.root.to_owned() };
        if path.as_os_str().len() > LONGEST_PATH {
            return Err(PathError::TooLong { path: path.to_owned() });
        }
        let below = path.strip_prefix(self.root).map_err(|_| outside())?;
        if !below.components().all(|part| matches!(part, Component::Normal(_))) {
            return Err(outside());
        }
        let folder = path.parent().ok_or_else(outside)?;
        let real = fs::canonicalize(folder).map_err(|error| unreadable(folder, &error))?;
        let expected = self.real.join(below.parent().ok_or_else(outside)?);
        if real == expected { Ok(()) } else { Err(outside()) }
    }
}

fn entries(folder: &Path) -> Result<Vec<std::ffi::OsString>, PathError> {
    let read = match fs::read_dir(folder) {
        Ok(read) => read,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(unreadable(folder, &error)),
    };
    let names = read.take(MOST_PODS).map(|entry| entry.map(|entry| entry.file_name()));
    names.collect::<io::Result<_>>().map_err(|error| unreadable(folder, &error))
}

fn unreadable(path: &Path, error: &io::Error) -> PathError {
    PathError::Unreadable { path: path.to_owned(), why: error.to_string() }
}

/// Letters, digits, dots, dashes and underscores, with a letter or digit first: never a way out, never hidden.
fn check_name(what: &'static str, name: &str, longest: usize) -> Result<(), PathError> {
    let plain = name.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'-' | b'_'));
    if plain && name.len() <= longest && name.starts_with(|c: char| c.is_ascii_alphanumeric()) {
        return Ok(());
    }
    let name = name.chars().take(64).flat_map(char::escape_debug).collect();
    Err(PathError::Name { what, name })
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    const WANTED: Wanted<'_> = Wanted { driver: "d.example", handle: "h/../1", pv: "pv-1", block: false };

    fn root() -> tempfile::TempDir {
        tempfile::tempdir().unwrap()
    }

    fn make(root: &Path, path: &str) -> PathBuf {
        let path = root.join(path);
        fs::create_dir_all(&path).unwrap();
        path
    }

    #[test]
    fn a_file_system_is_found_where_kubelet_puts_it() {
        let root = root();
        let root = root.path();
        assert_eq!(find(root, WANTED), Err(PathError::Absent));
        let hash = sha256_hex(b"h/../1");
        let staging = make(root, &format!("plugins/kubernetes.io/csi/d.example/{hash}/globalmount"));
        let targets =
            ["a", "b"].map(|uid| make(root, &format!("pods/{uid}/volumes/kubernetes.io~csi/pv-1/mount")));
        make(root, "pods/c/volumes/kubernetes.io~csi/pv-2/mount");
        make(root, "pods/d");
        assert_eq!(find(root, WANTED), Ok(Places { staging: Some(staging), targets: targets.to_vec() }));
    }

    #[test]
    fn a_dead_or_missing_mount_point_does_not_hide_its_target() {
        let root = root();
        make(root.path(), "pods/a/volumes/kubernetes.io~csi/pv-1");
        let found = find(root.path(), WANTED).unwrap();
        assert_eq!(found.targets, [root.path().join("pods/a/volumes/kubernetes.io~csi/pv-1/mount")]);
        assert_eq!(found.staging, None);
    }

    #[test]
    fn a_block_volume_is_found_where_kubelet_puts_it() {
        let root = root();
        let root = root.path();
        let staging = make(root, "plugins/kubernetes.io/csi/volumeDevices/staging/pv-1");
        make(root, "plugins/kubernetes.io/csi/volumeDevices/publish/pv-1");
        let target = root.join("plugins/kubernetes.io/csi/volumeDevices/publish/pv-1/uid-1");
        fs::write(&target, "").unwrap();
        let found = find(root, Wanted { block: true, ..WANTED });
        assert_eq!(found, Ok(Places { staging: Some(staging), targets: vec![target] }));
    }

    #[test]
    fn names_that_could_lead_elsewhere_are_refused() {
        let root = root();
        for pv in ["", ".", "..", "../../etc", "a/b", "/etc", ".hidden", "a\0b", "ä", &"x".repeat(254)] {
            let refused = find(root.path(), Wanted { pv, ..WANTED });
            assert!(matches!(refused, Err(PathError::Name { .. })), "{pv:?}: {refused:?}");
        }
        for driver in ["", "..", "a/../b", &"x".repeat(64)] {
            let refused = find(root.path(), Wanted { driver, ..WANTED });
            assert!(matches!(refused, Err(PathError::Name { .. })), "{driver:?}: {refused:?}");
        }
    }

    #[test]
    fn links_that_lead_elsewhere_are_refused() {
        let elsewhere = root();
        make(elsewhere.path(), "volumes/kubernetes.io~csi/pv-1/mount");
        let outside = |root: &tempfile::TempDir| {
            let refused = find(root.path(), WANTED);
            assert!(matches!(refused, Err(PathError::Outside { .. })), "{refused:?}");
        };
        let a = root();
        make(a.path(), "pods");
        symlink(elsewhere.path(), a.path().join("pods/uid")).unwrap();
        outside(&a);
        let b = root();
        make(b.path(), "pods/uid/volumes/kubernetes.io~csi");
        symlink("/etc", b.path().join("pods/uid/volumes/kubernetes.io~csi/pv-1")).unwrap();
        outside(&b);
        // Even to another place below the root: another pod's volume is another volume.
        let c = root();
        make(c.path(), "pods/real/volumes/kubernetes.io~csi/pv-2/mount");
        make(c.path(), "pods/uid/volumes/kubernetes.io~csi");
        let other = c.path().join("pods/real/volumes/kubernetes.io~csi/pv-2");
        symlink(other, c.path().join("pods/uid/volumes/kubernetes.io~csi/pv-1")).unwrap();
        outside(&c);
    }

    #[test]
    fn the_root_itself_may_be_a_link() {
        let real = root();
        make(real.path(), "pods/a/volumes/kubernetes.io~csi/pv-1/mount");
        let link = root();
        let root = link.path().join("kubelet");
        symlink(real.path(), &root).unwrap();
        let found = find(&root, WANTED).unwrap();
        assert_eq!(found.targets, [root.join("pods/a/volumes/kubernetes.io~csi/pv-1/mount")]);
    }

    #[test]
    fn targets_are_bounded() {
        let root = root();
        for pod in 0..30 {
            make(root.path(), &format!("pods/p{pod}/volumes/kubernetes.io~csi/pv-1"));
        }
        assert_eq!(find(root.path(), WANTED).unwrap().targets.len(), MOST_TARGETS);
    }
}
