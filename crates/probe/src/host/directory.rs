//! A volume that is a directory of the host, as of a `hostPath` PersistentVolume.
//!
//! Nothing is mounted for it that could be compared: the container runtime binds the directory into containers, whose
//! mounts are their own. So the directory itself is checked: that it is there, that it is the one that was there when the
//! pod began to use it, on the same file system, and that this file system works.

use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::Instant;

use volmedic_health::{NotProbed, Sight, WellKnown, WhyKind};
use volmedic_host::helper::{HelperError, HostDirectory as Found};
use volmedic_host::mounts::{Mount, Table};

use super::ask::{is_fuse, is_late, key, moved, silence};
use super::examine::Examined;
use super::expected::{Expected, Mode};
use super::findings::{Check, Finding, Verdict, conditions};
use super::memory::{Memory, Place};
use super::mounted::Suspicion;
use super::reachable::{Circumstances, Failure, judge};
use super::{Host, Looked, fullness, text, writable};
use crate::Usage;

/// What the helper came to.
struct Answered {
    found: Option<Found>,
    answers: Verdict,
    suspicions: Vec<Suspicion>,
    unprobed: Option<(NotProbed, String)>,
}

impl Host {
    pub(super) fn examine_directory(
        &self,
        expected: &Expected,
        table: &Table,
        memory: &mut Memory,
    ) -> Looked {
        let (Some(root), Some(path)) = (&self.settings.host_root, &expected.staging) else {
            let why = NotProbed::HostPathNotVisible;
            let sight = Sight::not_seen(WhyKind::NoAnswer, why.meaning());
            return Looked {
                sight,
                usage: None,
                again: None,
                unprobed: Some((why, why.meaning().to_owned())),
            };
        };
        // Pods come and go; the name of one that went is never used again.
        memory
            .baseline
            .places
            .retain(|place, _| expected.targets.iter().any(|target| target.path.to_string_lossy() == *place));
        // Where it is in our own mount table; the one of another process has other numbers.
        let lexical = || match self.settings.mounts_of {
            None => table.containing(below(root, path)),
            Some(_) => table.containing(path),
        };
        let Answered { found, answers, mut suspicions, unprobed } =
            self.ask_directory(expected, (root, path), table, lexical(), memory);
        let own = |id: u64| table.iter().find(|mount| u64::from(mount.id()) == id);
        let mount = found
            .and_then(|found| own(found.mount).filter(|_| self.settings.mounts_of.is_none()))
            .or_else(lexical);
        let mut good = 0;
        if let (Some(found), Some(mount)) = (found, mount) {
            let here = place(found, mount);
            for target in &expected.targets {
                let name = target.path.to_string_lossy();
                match memory
                    .baseline
                    .places
                    .get(&*name)
                    .map(|before| is_same(before, &here, mount, path, table))
                {
                    Some(Err(finding)) => suspicions.push(Suspicion { place: name.into_owned(), finding }),
                    Some(Ok(())) | None => {
                        memory.baseline.remember(&name, here.clone());
                        good += 1;
                    }
                }
            }
        }
        let now = Instant::now();
        let is_elsewhere = found.is_some() && good == 0;
        let (reported, again) = memory.confirm(suspicions, now, self.settings.confirm);
        let waits = again.is_some();
        let unprobed = unprobed.or_else(|| {
            let why = "what happened to the directory is being confirmed".to_owned();
            (waits && reported.is_empty() && good == 0).then_some((NotProbed::NotProbedYet, why))
        });
        let is_gone = !reported.is_empty() && good == 0;
        memory.record(Check::Mounted, Verdict::Seen(reported));
        memory.record(Check::Answers, if is_gone { Verdict::fine() } else { answers });
        // What is there instead says nothing about the volume.
        let mount = mount.filter(|_| found.is_some() && !is_elsewhere);
        let usage = found.filter(|_| mount.is_some()).map(|found| found.directory.usage);
        if let Some(mount) = mount {
            let may_be_read_only = expected.targets.iter().all(|target| target.read_only);
            // The root directory of the host is given to us read-only, whatever it is to others.
            let is_given = mount.target() == root && root != Path::new("/");
            let system = mount.super_options().has("ro");
            let is_read_only = system || !is_given && mount.is_read_only();
            let words = directory(path);
            let found = writable::check_at(&words, may_be_read_only, mount, is_read_only);
            memory.record(Check::Writable, found.into());
        } else if is_gone {
            memory.record(Check::Writable, Verdict::fine());
            memory.record(Check::Fullness, Verdict::fine());
        }
        if let Some(usage) = usage {
            let found = fullness::check(self.settings.thresholds, usage, &mut memory.baseline.full);
            memory.record(Check::Fullness, Verdict::Seen(found));
        }
        let reported =
            self.examine_below(&Examined { expected, shown: mount, device: None, now, waits }, memory);
        let sight = match &unprobed {
            Some((_, why)) if reported.is_empty() => Sight::not_seen(WhyKind::NoAnswer, why),
            _ => Sight::adverse(conditions(&reported)),
        };
        Looked { sight, usage: usage.map(Usage::from), again, unprobed }
    }

    fn ask_directory(
        &self,
        expected: &Expected,
        (root, path): (&Path, &Path),
        table: &Table,
        around: Option<Mount<'_>>,
        memory: &mut Memory,
    ) -> Answered {
        let mut answered =
            Answered { found: None, answers: Verdict::Unseen, suspicions: Vec::new(), unprobed: None };
        let began = Instant::now();
        let counts = || self.counts(Mode::Filesystem, around);
        let before = counts();
        let (entries, deadline) = (self.settings.entries, self.settings.deadline);
        let error = match self.helpers.host_directory(&key(expected), root, path, entries, deadline) {
            Ok(found) => {
                memory.hung_since = None;
                memory.baseline.answered = true;
                answered.found = Some(found);
                answered.answers = Verdict::fine();
                return answered;
            }
            Err(error) => error,
        };
        let silent = silence(&error, began, memory);
        let words = directory(path);
        if let HelperError::Failed { errno: libc::ENOENT | libc::ENOTDIR, .. } = error {
            let finding = missing(&words, memory, table);
            answered.suspicions.push(Suspicion { place: path.to_string_lossy().into_owned(), finding });
            return answered;
        }
        let fs_type = around.map(Mount::fs_type).unwrap_or_default().to_string_lossy();
        let about = Circumstances {
            place: &words,
            fs_type: &fs_type,
            mounted: true,
            answered: memory.baseline.answered,
            silent,
            busy: is_late(&error) && moved(before, counts()),
            waiting: self.waiting(around),
        };
        match judge(&error, about) {
            Failure::Trouble(finding) => answered.answers = Verdict::Seen(vec![finding]),
            Failure::NotThere(finding) => {
                answered.suspicions.push(Suspicion { place: path.to_string_lossy().into_owned(), finding });
            }
            Failure::Unknown(kind, why) | Failure::Closed(kind, why) => answered.unprobed = Some((kind, why)),
        }
        answered
    }
}

/// The directory is not there. Where its file system is not mounted any more, that is why.
fn missing(words: &str, memory: &Memory, table: &Table) -> Finding {
    let unmounted = memory.baseline.places.values().find(|place| !is_mounted(place, table));
    match unmounted {
        Some(place) => {
            let message = format!(
                "{words} is not there, because {} is not mounted any more; containers that run keep the file system, and \
                 none can start",
                shown(place)
            );
            Finding::inaccessible(WellKnown::VolumeUnmounted, message)
        }
        None => {
            let message =
                format!("{words} is not there; containers that run keep a directory that was deleted");
            Finding::inaccessible(WellKnown::VolumeNotFound, message)
        }
    }
}

fn is_mounted(place: &Place, table: &Table) -> bool {
    table.iter().any(|mount| mount.device().to_string() == place.device)
}

fn shown(place: &Place) -> String {
    format!("{} ({})", text::name(&place.source), text::name(&place.fs_type))
}

/// By what the directory is known again. The root of a mount says nothing here; which directory it is does.
fn place(found: Found, mount: Mount<'_>) -> Place {
    Place {
        device: found.directory.device.to_string(),
        root: format!("inode {}", found.inode),
        fs_type: mount.fs_type().to_string_lossy().into_owned(),
        source: mount.source().to_string_lossy().into_owned(),
    }
}

/// Whether this is the directory that was there before; if not, what happened.
fn is_same(
    before: &Place,
    here: &Place,
    mount: Mount<'_>,
    path: &Path,
    table: &Table,
) -> Result<(), Finding> {
    if before.device == here.device && (before.root == here.root || !has_stable_numbers(mount)) {
        return Ok(());
    }
    let words = directory(path);
    if before.device == here.device {
        let message = format!(
            "{words} was deleted or replaced, and another one is there now; containers that run keep the old one"
        );
        return Err(Finding::inaccessible(WellKnown::VolumeNotFound, message));
    }
    // A file system without a device of its own gets a new number whenever it is mounted.
    let is_anonymous = mount.device().is_anonymous();
    if is_anonymous
        && (&before.fs_type, &before.source, &before.root) == (&here.fs_type, &here.source, &here.root)
    {
        return Ok(());
    }
    let (reason, what) = if is_mounted(before, table) {
        (WellKnown::WrongMount, "is mounted elsewhere")
    } else {
        (WellKnown::VolumeUnmounted, "is not mounted any more")
    };
    let message = format!(
        "{words} is on {} instead of {}, which {what}; containers that run keep the old file system, and those that start \
         now get another one",
        shown(here),
        shown(before)
    );
    Err(Finding::inaccessible(reason, message))
}

/// Whether a directory keeps its number for as long as it exists. On overlays and userspace file systems it may get
/// another one at any time.
fn has_stable_numbers(mount: Mount<'_>) -> bool {
    let kept: [&[u8]; 4] = [b"tmpfs", b"btrfs", b"nfs", b"nfs4"];
    !mount.device().is_anonymous() && !is_fuse(mount.fs_type()) || kept.contains(&mount.fs_type().as_bytes())
}

fn directory(path: &Path) -> String {
    format!("the directory {} of the host", text::path(path))
}

/// A path of the host as this process has it.
fn below(root: &Path, path: &Path) -> std::path::PathBuf {
    root.join(path.strip_prefix("/").unwrap_or(path))
}
