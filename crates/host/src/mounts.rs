//! The mount table of a process, read in one go, parsed once, and asked many times.
//!
//! ```
//! use volmedic_host::mounts::Table;
//!
//! let table = Table::parse(b"21 1 8:1 / / rw - ext4 /dev/sda1 rw\n22 21 7:0 / /data rw - xfs /dev/loop0 rw\n".to_vec());
//! assert_eq!(table.at("/data").unwrap().source(), "/dev/loop0");
//! assert!(table.at("/data/sub").is_none());
//! assert_eq!(table.containing("/data/sub").unwrap().id(), 22);
//! ```

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

mod changes;
mod line;
mod mount;
#[cfg(test)]
mod tests;
mod watch;

use crate::DeviceNumber;
pub use changes::Changes;
use line::Record;
pub use mount::{Mount, Options};
pub use watch::Watch;

/// No host has a mount table this long; a longer one is cut, and the cut line counted as skipped.
const LONGEST: u64 = 256 << 20;

/// A parsed mount table.
///
/// A path resolves through it as the kernel would do it: the topmost of stacked mounts wins, and a mount that
/// a later one on a directory above hides is not found by its path.
#[derive(Debug, Default)]
pub struct Table {
    text: Vec<u8>,
    records: Vec<Record>,
    skipped: usize,
    /// Positions in `records`, ordered by (position of the parent, target). A mount without a parent in this
    /// table has the parent [`NOWHERE`].
    by_parent: Vec<(u32, u32)>,
    /// Positions in `records`, ordered by device.
    by_device: Vec<u32>,
    /// Positions in `records`, ordered by target.
    by_target: Vec<u32>,
}

const NOWHERE: u32 = u32::MAX;

impl Table {
    /// The mounts that this process sees.
    pub fn read() -> io::Result<Self> {
        Self::read_from("/proc/self/mountinfo")
    }

    /// The mounts that another process sees. Process 1 stands for the host when run in the host's PID namespace.
    pub fn read_of(process: u32) -> io::Result<Self> {
        Self::read_from(format!("/proc/{process}/mountinfo"))
    }

    /// The mounts in this file, which is the `mountinfo` of some process.
    pub fn read_from(path: impl AsRef<Path>) -> io::Result<Self> {
        let path = path.as_ref();
        let name = |error: io::Error| {
            io::Error::new(error.kind(), format!("reading {} failed: {error}", path.display()))
        };
        let mut text = Vec::with_capacity(64 << 10);
        File::open(path).and_then(|file| file.take(LONGEST).read_to_end(&mut text)).map_err(name)?;
        Ok(Self::parse(text))
    }

    /// Takes any bytes. A line that is not a mount is skipped and counted; nothing here panics on any input.
    pub fn parse(mut text: Vec<u8>) -> Self {
        text.truncate(usize::try_from(LONGEST).unwrap_or(usize::MAX));
        let mut records = Vec::with_capacity(text.len() / 128);
        let mut skipped = 0;
        let mut start = 0;
        while start < text.len() {
            let length = text[start..].iter().position(|byte| *byte == b'\n');
            let end = length.map_or(text.len(), |length| start + length);
            match line::parse(&mut text, start..end) {
                Some(record) => records.push(record),
                None => skipped += 1,
            }
            start = end + 1;
        }
        Self { text, records, skipped, ..Self::default() }.indexed()
    }

    fn indexed(mut self) -> Self {
        let text = &self.text;
        let records = &self.records;
        // A later line with the same id wins; there is none in a table that a kernel wrote.
        let places: HashMap<u32, u32> = records.iter().map(|record| record.id).zip(0..).collect();
        let parents = records.iter().map(|record| match places.get(&record.parent) {
            Some(&place) if record.parent != record.id => place,
            _ => NOWHERE,
        });
        let target = |place: u32| records[place as usize].target.of(text);
        self.by_parent = parents.zip(0..).collect();
        self.by_parent.sort_by(|a, b| a.0.cmp(&b.0).then_with(|| target(a.1).cmp(target(b.1))));
        self.by_device = (0..).take(records.len()).collect();
        self.by_device.sort_by_key(|&place| records[place as usize].device);
        self.by_target = (0..).take(records.len()).collect();
        self.by_target.sort_by(|&a, &b| target(a).cmp(target(b)));
        self
    }

    pub fn len(&self) -> usize {
        self.records.len()
    }

    pub fn is_empty(&self) -> bool {
        self.records.is_empty()
    }

    /// How many lines were not mounts.
    pub fn skipped(&self) -> usize {
        self.skipped
    }

    /// Every mount, in the kernel's order.
    pub fn iter(&self) -> impl Iterator<Item = Mount<'_>> {
        self.records.iter().map(|record| Mount { text: &self.text, record })
    }

    /// What is mounted exactly here and can be reached by this path; the topmost, if mounts are stacked.
    pub fn at(&self, target: impl AsRef<Path>) -> Option<Mount<'_>> {
        let target = bytes(target.as_ref());
        self.resolve(target).filter(|mount| mount.target_bytes() == target)
    }

    /// The mount on which this path lies. The path is taken as it is: absolute, without links or dots.
    pub fn containing(&self, path: impl AsRef<Path>) -> Option<Mount<'_>> {
        self.resolve(bytes(path.as_ref()))
    }

    /// All mounts with exactly this target, hidden ones too, in the kernel's order.
    pub fn stacked(&self, target: impl AsRef<Path>) -> impl Iterator<Item = Mount<'_>> {
        let target = bytes(target.as_ref()).to_vec();
        let start = self.by_target.partition_point(|&place| self.target(place) < target.as_slice());
        self.by_target[start..]
            .iter()
            .map(|&place| self.mount(place))
            .take_while(move |mount| mount.target_bytes() == target)
    }

    /// All mounts at or below this directory, ordered by target.
    pub fn under(&self, prefix: impl AsRef<Path>) -> impl Iterator<Item = Mount<'_>> {
        let prefix = bytes(prefix.as_ref()).to_vec();
        let start = self.by_target.partition_point(|&place| self.target(place) < prefix.as_slice());
        let longer = prefix.clone();
        self.by_target[start..]
            .iter()
            .map(|&place| self.mount(place))
            .take_while(move |mount| mount.target_bytes().starts_with(&longer))
            // `/a/b.old` sorts among the mounts below `/a/b`.
            .filter(move |mount| is_below(mount.target_bytes(), &prefix))
    }

    /// All mounts of one file system.
    pub fn of_device(&self, device: DeviceNumber) -> impl Iterator<Item = Mount<'_>> {
        let start = self.by_device.partition_point(|&place| self.records[place as usize].device < device);
        self.by_device[start..]
            .iter()
            .map(|&place| self.mount(place))
            .take_while(move |mount| mount.device() == device)
    }

    fn mount(&self, place: u32) -> Mount<'_> {
        Mount { text: &self.text, record: &self.records[place as usize] }
    }

    fn target(&self, place: u32) -> &[u8] {
        self.records[place as usize].target.of(&self.text)
    }

    /// Walks the path from the root as the kernel does, crossing into each mount on the way.
    fn resolve(&self, path: &[u8]) -> Option<Mount<'_>> {
        if !path.starts_with(b"/") {
            return None;
        }
        let mut here = NOWHERE;
        // Each crossing goes to another mount, so more crossings than mounts are a circle.
        let mut crossings = self.records.len();
        for prefix in prefixes(path) {
            while let Some(place) = self.child(here, prefix) {
                if crossings == 0 {
                    return None;
                }
                crossings -= 1;
                here = place;
            }
        }
        (here != NOWHERE).then(|| self.mount(here))
    }

    /// The mount on `target` whose parent is at `parent`; the latest, should there be several.
    fn child(&self, parent: u32, target: &[u8]) -> Option<u32> {
        let above =
            self.by_parent.partition_point(|&(of, place)| (of, self.target(place)) <= (parent, target));
        let &(of, place) = self.by_parent.get(above.checked_sub(1)?)?;
        (of == parent && self.target(place) == target).then_some(place)
    }
}

/// `/a/b` gives `/`, `/a` and `/a/b`.
fn prefixes(path: &[u8]) -> impl Iterator<Item = &[u8]> {
    let inner = path.iter().enumerate().skip(1).filter(|(_, byte)| **byte == b'/').map(|(at, _)| &path[..at]);
    let whole = (path.len() > 1).then_some(path);
    std::iter::once(&path[..1]).chain(inner).chain(whole)
}

fn is_below(target: &[u8], prefix: &[u8]) -> bool {
    prefix == b"/" || target.strip_prefix(prefix).is_some_and(|rest| rest.is_empty() || rest[0] == b'/')
}

/// The path's bytes without slashes at the end, which the kernel never writes.
fn bytes(path: &Path) -> &[u8] {
    let mut bytes = path.as_os_str().as_bytes();
    while let [rest @ .., b'/'] = bytes
        && !rest.is_empty()
    {
        bytes = rest;
    }
    bytes
}
