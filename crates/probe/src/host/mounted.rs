//! Is the volume mounted where its pods use it, and is it this volume?
//!
//! No caller names the device that belongs there, so a mount is compared with the staging mount and with what was there
//! before. Kubelet and drivers are at work in the same table, so all that is found here is a suspicion until it was
//! seen twice.

use std::path::Path;

use volmedic_health::WellKnown;
use volmedic_host::mounts::{Mount, Table};

use super::expected::{Expected, Mode, Target};
use super::findings::Finding;
use super::memory::{Baseline, Place};
use super::text;

/// Something to be seen again before it is reported.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Suspicion {
    pub(super) place: String,
    pub(super) finding: Finding,
}

/// What the mount table says of one volume.
#[derive(Debug)]
pub(super) struct Mounted<'t, 'e> {
    pub(super) suspicions: Vec<Suspicion>,
    /// The targets where it is, with what is mounted there. Of a raw device that need be nothing.
    pub(super) good: Vec<(&'e Target, Option<Mount<'t>>)>,
    /// The staging mount, if there is one.
    pub(super) staging: Option<Mount<'t>>,
}

/// Compares, and remembers what was right.
pub(super) fn check<'t, 'e>(
    expected: &'e Expected,
    table: &'t Table,
    baseline: &mut Baseline,
) -> Mounted<'t, 'e> {
    let mut mounted = Mounted { suspicions: Vec::new(), good: Vec::new(), staging: None };
    // Pods come and go; the place of one that went is never used again.
    baseline
        .places
        .retain(|place, _| expected.targets.iter().any(|target| target.path.to_string_lossy() == *place));
    if let (Mode::Filesystem, Some(path)) = (expected.mode, &expected.staging) {
        mounted.staging = table.at(path);
        mounted.suspicions.extend(staging(path, mounted.staging, baseline));
    }
    for target in &expected.targets {
        let place = target.path.to_string_lossy();
        let remembered = baseline.places.get(&*place);
        match at(expected.mode, target, table, mounted.staging, remembered) {
            Ok(found) => {
                if let Some(mount) = found {
                    // Of several that are stacked at first sight nobody knows which one is right.
                    if remembered.is_some() || table.stacked(&target.path).count() == 1 {
                        baseline.remember(&place, Place::of(mount));
                    }
                }
                mounted
                    .suspicions
                    .extend(found.into_iter().flat_map(|mount| left_behind(target, mount, table)));
                mounted.good.push((target, found));
            }
            Err(finding) => mounted.suspicions.push(Suspicion { place: place.into_owned(), finding }),
        }
    }
    mounted
}

/// Many drivers mount nothing there, so only what was there and is gone counts.
fn staging(path: &Path, found: Option<Mount<'_>>, baseline: &mut Baseline) -> Option<Suspicion> {
    let place = path.to_string_lossy().into_owned();
    if found.is_some() {
        baseline.staged = Some(place);
        return None;
    }
    if baseline.staged.as_ref() != Some(&place) {
        baseline.staged = None;
        return None;
    }
    let message = format!(
        "the staging path {} is not mounted any more; pods that have the volume keep it, but no other can get it",
        text::path(path)
    );
    Some(Suspicion { place, finding: Finding::degraded(WellKnown::VolumeUnmounted, message) })
}

/// A container that was given a part of the volume has a mount of its own of it, made once. When the volume is mounted
/// again, as by a mounter that was restarted, that one stays what it was. One that is not there is no finding: the
/// kubelet makes it just before the container starts. Nor is one of another kind: a server may show another export there.
fn left_behind(target: &Target, whole: Mount<'_>, table: &Table) -> Vec<Suspicion> {
    let stale = target.parts.iter().filter_map(|path| {
        let is_like = |part: &Mount<'_>| part.fs_type() == whole.fs_type() && part.source() == whole.source();
        let is_mounted_again = |part: &Mount<'_>| part.device().is_anonymous() && part.device() != whole.device();
        let part = table.at(path).filter(|part| is_like(part) && is_mounted_again(part))?;
        let message = format!(
            "a container of pod {} has a part of the volume (subPath) from before the volume was mounted again: {} shows {} \
             instead of {}; start the pod again",
            text::name(&target.pod),
            text::path(path),
            describe(&Place::of(part)),
            describe(&Place::of(whole))
        );
        let place = path.to_string_lossy().into_owned();
        Some(Suspicion { place, finding: Finding::inaccessible(WellKnown::WrongMount, message) })
    });
    stale.collect()
}

fn at<'t>(
    mode: Mode,
    target: &Target,
    table: &'t Table,
    staging: Option<Mount<'t>>,
    remembered: Option<&Place>,
) -> Result<Option<Mount<'t>>, Finding> {
    let shown = text::target(target);
    let wrong = |message: String| Finding::inaccessible(WellKnown::WrongMount, message);
    let Some(mount) = table.at(&target.path) else {
        let around = table.containing(&target.path);
        if let (Some(around), Some(_)) = (around, table.stacked(&target.path).next()) {
            let over = text::path(around.target());
            return Err(wrong(format!("what is mounted at {shown} is hidden by a mount on {over}")));
        }
        // A device node may have been made in place; the device itself is asked then.
        if mode == Mode::Block && remembered.is_none() {
            return Ok(None);
        }
        let behind = around.map_or_else(String::new, |around| {
            format!(
                "; what is written there goes to {} at {}",
                text::name(around.source().display()),
                text::path(around.target())
            )
        });
        let message = format!("nothing is mounted at {shown}{behind}");
        return Err(Finding::inaccessible(WellKnown::VolumeUnmounted, message));
    };
    if mount.root_is_deleted() {
        let message =
            format!("what is mounted at {shown} was deleted from {}", text::name(mount.source().display()));
        return Err(Finding::inaccessible(WellKnown::VolumeNotFound, message));
    }
    let Err(expected) = is_right(mode, mount, target, table, staging, remembered) else {
        return Ok(Some(mount));
    };
    let seen = describe(&Place::of(mount));
    let covered = table.stacked(&target.path).filter(|other| other.id() != mount.id()).any(|other| {
        remembered.is_some_and(|place| Place::of(other) == *place)
            || staging.is_some_and(|staging| staging.device() == other.device())
    });
    Err(wrong(if covered {
        format!("{shown} is covered by a mount of {seen}; the volume, {expected}, is still below it")
    } else {
        format!("{shown} shows {seen} instead of {expected}")
    }))
}

/// Whether this mount is of the volume; if not, of what it should be.
fn is_right(
    mode: Mode,
    mount: Mount<'_>,
    target: &Target,
    table: &Table,
    staging: Option<Mount<'_>>,
    remembered: Option<&Place>,
) -> Result<(), String> {
    let found = Place::of(mount);
    if let Some(before) = remembered {
        let below = || table.stacked(&target.path).any(|other| other.device().to_string() == before.device);
        // A file system without a device of its own gets a new number whenever it is mounted again, as a mounter
        // that was restarted does. Unless the old one is still there: then the new one covers it.
        let is_mounted_again = || {
            mount.device().is_anonymous()
                && found.is_like(before)
                && (found.device == before.device || !below())
        };
        if found == *before || is_mounted_again() {
            return Ok(());
        }
    }
    let staged = staging.filter(|staging| staging.device() == mount.device());
    match (staged, remembered) {
        // Mounted again from another device, and staging says the same.
        (Some(staging), Some(before)) if before.device != found.device || staging.root() == mount.root() => {
            Ok(())
        }
        (Some(_), None) => Ok(()),
        (_, Some(before)) => Err(describe(before)),
        (None, None) => match staging {
            Some(staging) if mode == Mode::Filesystem && is_foreign(mount, target, table, staging) => {
                Err(describe(&Place::of(staging)))
            }
            _ => Ok(()),
        },
    }
}

/// Whether a mount that is not the staging mount cannot be the volume either. Some drivers stage one thing and publish
/// another, such as a userspace file system on top of a disk; but none publishes a second disk, or the host's own.
fn is_foreign(mount: Mount<'_>, target: &Target, table: &Table, staging: Mount<'_>) -> bool {
    let disks = !mount.device().is_anonymous() && !staging.device().is_anonymous();
    let host = target.path.parent().and_then(|parent| table.containing(parent));
    disks || host.is_some_and(|host| host.device() == mount.device())
}

impl Place {
    fn of(mount: Mount<'_>) -> Self {
        Self {
            device: mount.device().to_string(),
            root: mount.root().to_string_lossy().into_owned(),
            fs_type: mount.fs_type().to_string_lossy().into_owned(),
            source: mount.source().to_string_lossy().into_owned(),
        }
    }

    /// The same but for the device's number.
    fn is_like(&self, other: &Self) -> bool {
        let Self { device: _, root, fs_type, source } = self;
        (root, fs_type, source) == (&other.root, &other.fs_type, &other.source)
    }
}

fn describe(place: &Place) -> String {
    let Place { device, root, fs_type, source } = place;
    let root = if root == "/" { String::new() } else { format!(", directory {}", text::name(root)) };
    format!("{} ({} on {device}{root})", text::name(source), text::name(fs_type))
}

#[cfg(test)]
mod tests;
