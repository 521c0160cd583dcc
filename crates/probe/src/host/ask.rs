//! Asks the volume itself, through a helper, at the places where it really is.

use std::ffi::OsStr;
use std::path::Path;
use std::time::{Duration, Instant};

use volmedic_health::NotProbed;
use volmedic_host::DeviceNumber;
use volmedic_host::block::IoCounts;
use volmedic_host::helper::{Answer, HelperError, Question};
use volmedic_host::mounts::Mount;
use volmedic_host::usage::Usage as Counted;

use super::Host;
use super::examine::node_name;
use super::expected::{Expected, Mode, Target};
use super::findings::{Finding, Verdict};
use super::memory::Memory;
use super::mounted::{Mounted, Suspicion};
use super::reachable::{Circumstances, Failure, judge};
use super::text;

/// A volume is asked once for each file system it shows as; mostly that is one for all its pods.
const MOST_ASKED: usize = 4;

/// What the volume said.
#[derive(Debug)]
pub(super) struct Asked {
    pub(super) answers: Verdict,
    pub(super) measured: Option<Measured>,
    /// The places where it was not, although the mount table said so.
    pub(super) suspicions: Vec<Suspicion>,
    /// Why nothing was learnt.
    pub(super) blind: Option<(NotProbed, String)>,
    /// Why it never will be.
    pub(super) limited: Option<(NotProbed, String)>,
    /// The block device that a raw volume is.
    pub(super) device: Option<DeviceNumber>,
}

#[derive(Debug, Clone, Copy)]
pub(super) enum Measured {
    FileSystem(Counted),
    Device(u64),
}

struct Place<'a> {
    path: &'a Path,
    words: String,
    mount: Option<Mount<'a>>,
}

impl Host {
    pub(super) fn ask(&self, expected: &Expected, mounted: &Mounted<'_, '_>, memory: &mut Memory) -> Asked {
        let mut asked = Asked {
            answers: Verdict::Unseen,
            measured: None,
            suspicions: Vec::new(),
            blind: None,
            limited: None,
            device: None,
        };
        let mut found: Vec<Finding> = Vec::new();
        let places = places(expected, mounted);
        let mounts: Vec<u32> = places.iter().filter_map(|place| place.mount.map(Mount::id)).collect();
        if memory.is_backing_off(&mounts, Instant::now()) {
            return asked;
        }
        for place in &places {
            let question = self.question(expected.mode, place.path);
            let began = Instant::now();
            let counts = || self.counts(expected.mode, place.mount);
            let before = counts();
            let error = match self.helpers.look(&key(expected), &question, self.settings.deadline) {
                Ok(answer) => {
                    memory.hung_since = None;
                    memory.baseline.answered = true;
                    found.extend(asked.take(&answer, &place.words));
                    continue;
                }
                Err(error) => error,
            };
            let silent = silence(&error, began, memory);
            let fs_type = place.mount.map(Mount::fs_type).unwrap_or_default().to_string_lossy();
            let about = Circumstances {
                place: &place.words,
                fs_type: if expected.mode == Mode::Block { "" } else { &fs_type },
                mounted: place.mount.is_some(),
                answered: memory.baseline.answered,
                silent,
                busy: is_late(&error) && moved(before, counts()),
                waiting: self.waiting(place.mount),
            };
            match judge(&error, about) {
                Failure::Trouble(trouble) => found.push(trouble),
                Failure::NotThere(finding) => {
                    let place = place.path.to_string_lossy().into_owned();
                    asked.suspicions.push(Suspicion { place, finding });
                }
                Failure::Unknown(kind, why) => asked.blind = Some((kind, why)),
                Failure::Closed(kind, why) => asked.limited = Some((kind, why)),
            }
            if is_late(&error) {
                // The next place would most likely hang as well, and hold a helper for as long.
                break;
            }
        }
        let is_on_disk =
            |place: &Place<'_>| expected.mode == Mode::Block || place.mount.is_some_and(is_on_disk);
        let of_disk = if places.iter().all(is_on_disk) { &found[..] } else { &[] };
        memory.accessed(of_disk, mounts, Instant::now(), self.settings.back_off);
        if asked.blind.is_none() && !places.is_empty() {
            asked.answers = Verdict::Seen(found);
        } else if !found.is_empty() {
            // One place failed and another could not be asked: what is wrong is wrong.
            asked.answers = Verdict::Seen(found);
        }
        asked
    }

    fn question(&self, mode: Mode, path: &Path) -> Question {
        let path = path.to_path_buf();
        match mode {
            Mode::Filesystem | Mode::Directory => Question::Directory { path, most: self.settings.entries },
            Mode::Block => Question::Device { path, read: self.settings.read_devices },
        }
    }

    pub(super) fn counts(&self, mode: Mode, mount: Option<Mount<'_>>) -> Option<IoCounts> {
        let mount = mount?;
        let number = match node_name(&self.sysfs, mode, mount) {
            Some(name) => self.sysfs.device_named(&name).ok()??.number,
            None => Some(mount.device()).filter(|device| !device.is_anonymous())?,
        };
        self.sysfs.io_counts(number).ok().flatten()
    }

    pub(super) fn waiting(&self, mount: Option<Mount<'_>>) -> Option<u64> {
        let mount = mount.filter(|mount| is_fuse(mount.fs_type()))?;
        self.connections.as_ref().ok()?.waiting(mount.device()).ok().flatten()
    }
}

impl Asked {
    fn take(&mut self, answer: &Answer, place: &str) -> Option<Finding> {
        match answer {
            Answer::Directory(directory) => {
                self.measured.get_or_insert(Measured::FileSystem(directory.usage));
                None
            }
            Answer::Device(device) => {
                self.device.get_or_insert(device.number);
                if device.bytes > 0 {
                    self.measured.get_or_insert(Measured::Device(device.bytes));
                    return None;
                }
                let message = format!("the device at {place} has no size: nothing is behind it");
                Some(Finding::inaccessible(volmedic_health::WellKnown::DiskRemoved, message))
            }
        }
    }
}

/// What the volume is called among the helpers: at most one is at it.
pub(super) fn key(expected: &Expected) -> String {
    format!("{}/{}", expected.driver, expected.handle)
}

/// One good place for each file system; if there is none, the staging path.
fn places<'a>(expected: &'a Expected, mounted: &Mounted<'a, 'a>) -> Vec<Place<'a>> {
    let mut places: Vec<Place<'a>> = Vec::new();
    let target = |target: &'a Target, mount| Place { path: &target.path, words: text::target(target), mount };
    for (at, mount) in &mounted.good {
        let known = expected.mode == Mode::Filesystem
            && places.iter().any(|place| place.mount.map(Mount::device) == mount.map(Mount::device));
        if !known && places.len() < MOST_ASKED {
            places.push(target(at, *mount));
        }
    }
    if let (true, Some(mount), Some(path)) = (places.is_empty(), mounted.staging, &expected.staging) {
        places.push(Place {
            path,
            words: format!("the staging path {}", text::path(path)),
            mount: Some(mount),
        });
    }
    places
}

/// Whether it did not answer everything in time, be it hung or slow.
pub(super) fn is_late(error: &HelperError) -> bool {
    error.is_hang() || matches!(error, HelperError::Slow { .. })
}

/// For how long it has not answered everything.
pub(super) fn silence(error: &HelperError, began: Instant, memory: &mut Memory) -> Duration {
    if is_late(error) {
        return memory.hung_since.get_or_insert(began).elapsed();
    }
    if error.is_about_the_volume() {
        memory.hung_since = None;
    }
    Duration::ZERO
}

pub(super) fn moved(before: Option<IoCounts>, after: Option<IoCounts>) -> bool {
    before.zip(after).is_some_and(|(before, after)| after.completed > before.completed)
}

/// btrfs has no device number of its own, but devices below it.
fn is_on_disk(mount: Mount<'_>) -> bool {
    !mount.device().is_anonymous() || mount.fs_type() == "btrfs"
}

pub(super) fn is_fuse(fs_type: &OsStr) -> bool {
    let fs_type = fs_type.to_string_lossy();
    fs_type == "fuse" || fs_type == "fuseblk" || fs_type.starts_with("fuse.")
}
