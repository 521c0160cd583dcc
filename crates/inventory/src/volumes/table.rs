//! The volumes of one driver as compact records: about 150 bytes each, handle and names included.

use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;

use hashbrown::HashTable;
use slab::Slab;

use super::record::{Claim, Packed};
use crate::intern::Interner;

/// No further record with the same handle.
const END: u32 = u32::MAX;
/// Records are added a sixteenth at a time. Doubling would leave up to half of the memory unused.
const GROWTH: usize = 16;

/// What a change of one record did to its volume.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Effect {
    /// The volume is now to be checked.
    Added,
    /// The volume is no longer to be checked.
    Removed,
    /// It still is, but for other claims.
    ClaimsChanged,
}

/// PersistentVolumes by handle. There is no index by name: handle and driver of a PersistentVolume never change, and
/// every event carries them.
#[derive(Debug, Default)]
pub(crate) struct Table {
    records: Slab<Record>,
    /// The first record of each handle; the others follow by `next`.
    heads: HashTable<u32>,
    hasher: RandomState,
    namespaces: Interner,
    /// How many handles have a bound record.
    checked: usize,
    epoch: u16,
}

/// One PersistentVolume.
#[derive(Debug)]
struct Record {
    /// The same text for all records of a handle, and for others that remember the volume.
    handle: Arc<str>,
    packed: Packed,
    next: u32,
    /// The list or watch that showed it last.
    epoch: u16,
}

impl Table {
    /// Volumes to be checked.
    pub(crate) fn checked(&self) -> usize {
        self.checked
    }

    /// PersistentVolumes, bound or not.
    pub(crate) fn known(&self) -> usize {
        self.records.len()
    }

    pub(crate) fn is_checked(&self, handle: &str) -> bool {
        self.find(handle).is_some_and(|head| self.is_bound(head))
    }

    /// Each volume to be checked.
    pub(crate) fn for_each(&self, mut visit: impl FnMut(&Arc<str>)) {
        for &head in self.heads.iter().filter(|&&head| self.is_bound(head)) {
            visit(&self.record(head).handle);
        }
    }

    /// Each claim that is bound to a volume to be checked.
    pub(crate) fn for_each_claim(&self, mut visit: impl FnMut(&Arc<str>, Claim<'_>)) {
        for (_, record) in &self.records {
            if let Some(claim) = record.packed.claim(self.namespaces.text(record.packed.namespace)) {
                visit(&record.handle, claim);
            }
        }
    }

    pub(crate) fn for_each_claim_of(&self, handle: &str, mut visit: impl FnMut(Claim<'_>)) {
        for index in self.find(handle).into_iter().flat_map(|head| self.chain(head)) {
            let record = self.record(index);
            if let Some(claim) = record.packed.claim(self.namespaces.text(record.packed.namespace)) {
                visit(claim);
            }
        }
    }

    /// Everything seen from now on counts as seen by the list that begins.
    pub(crate) fn begin(&mut self) {
        self.epoch = self.epoch.wrapping_add(1);
    }

    pub(crate) fn put(
        &mut self,
        handle: &str,
        namespace: &str,
        mut packed: Packed,
    ) -> Option<(Arc<str>, Effect)> {
        packed.namespace = self.namespaces.acquire(namespace);
        let head = self.find(handle);
        let was = head.is_some_and(|head| self.is_bound(head));
        let same = head
            .and_then(|head| self.chain(head).find(|&index| self.record(index).packed.same_volume(&packed)));
        let (index, changed) = match same {
            Some(index) => (index, self.update(index, packed)),
            None => {
                let changed = packed.is_bound();
                (self.insert(head, handle, packed), changed)
            }
        };
        let handle = self.record(index).handle.clone();
        let is = self.is_checked(&handle);
        self.count(was, is);
        effect(was, is, changed).map(|effect| (handle, effect))
    }

    /// The PersistentVolume of that name is gone.
    pub(crate) fn take(&mut self, handle: &str, name: &str) -> Option<(Arc<str>, Effect)> {
        let head = self.find(handle)?;
        let index = self.chain(head).find(|&index| self.record(index).packed.volume_is(name))?;
        self.remove(index)
    }

    /// The same where the handle is not known. It visits every record.
    pub(crate) fn take_named(&mut self, name: &str) -> Option<(Arc<str>, Effect)> {
        let index = self.records.iter().find(|(_, record)| record.packed.volume_is(name))?.0;
        self.remove(narrow(index))
    }

    /// Removes what the list that began last did not show.
    pub(crate) fn sweep(&mut self, spare: impl Fn(&str) -> bool, mut tell: impl FnMut(Arc<str>, Effect)) {
        let unseen = self.records.iter().filter(|(_, record)| record.epoch != self.epoch);
        let gone: Vec<_> =
            unseen.filter(|(_, record)| !spare(&record.packed.volume())).map(|(index, _)| index).collect();
        for index in gone {
            if let Some((handle, effect)) = self.remove(narrow(index)) {
                tell(handle, effect);
            }
        }
    }

    /// Whether anything changed that somebody could notice.
    fn update(&mut self, index: u32, packed: Packed) -> bool {
        let record = &mut self.records[index as usize];
        record.epoch = self.epoch;
        let noticed = record.packed != packed && (record.packed.is_bound() || packed.is_bound());
        let before = std::mem::replace(&mut record.packed, packed);
        self.namespaces.release(before.namespace);
        noticed
    }

    fn insert(&mut self, head: Option<u32>, handle: &str, packed: Packed) -> u32 {
        let handle = head.map_or_else(|| handle.into(), |head| self.record(head).handle.clone());
        // Behind the head, so that the table of heads stays as it is.
        let next = head.map_or(END, |head| self.record(head).next);
        let record = Record { handle, packed, next, epoch: self.epoch };
        if self.records.len() == self.records.capacity() {
            self.records.reserve_exact((self.records.len() / GROWTH).max(GROWTH));
        }
        let index = narrow(self.records.insert(record));
        match head {
            Some(head) => self.records[head as usize].next = index,
            None => {
                let (records, hasher) = (&self.records, &self.hasher);
                let hash = |index: u32| hasher.hash_one(&*records[index as usize].handle);
                self.heads.insert_unique(hash(index), index, |&index| hash(index));
            }
        }
        index
    }

    fn remove(&mut self, index: u32) -> Option<(Arc<str>, Effect)> {
        let (handle, next, bound) = {
            let record = self.record(index);
            (record.handle.clone(), record.next, record.packed.is_bound())
        };
        let head = self.find(&handle)?;
        let was = self.is_bound(head);
        if head == index {
            let hash = self.hasher.hash_one(&*handle);
            let slot = self.heads.find_entry(hash, |&candidate| candidate == index).ok()?;
            if next == END {
                slot.remove();
            } else {
                *slot.into_mut() = next;
            }
        } else {
            let before = self.chain(head).find(|&before| self.record(before).next == index)?;
            self.records[before as usize].next = next;
        }
        let record = self.records.remove(index as usize);
        self.namespaces.release(record.packed.namespace);
        let is = self.is_checked(&handle);
        self.count(was, is);
        effect(was, is, bound).map(|effect| (handle, effect))
    }

    fn count(&mut self, was: bool, is: bool) {
        self.checked = self.checked + usize::from(is) - usize::from(was);
    }

    fn find(&self, handle: &str) -> Option<u32> {
        let hash = self.hasher.hash_one(handle);
        self.heads.find(hash, |&head| &*self.record(head).handle == handle).copied()
    }

    fn chain(&self, head: u32) -> impl Iterator<Item = u32> {
        std::iter::successors(Some(head), |&index| Some(self.record(index).next).filter(|&next| next != END))
    }

    fn is_bound(&self, head: u32) -> bool {
        self.chain(head).any(|index| self.record(index).packed.is_bound())
    }

    fn record(&self, index: u32) -> &Record {
        &self.records[index as usize]
    }
}

fn effect(was: bool, is: bool, changed: bool) -> Option<Effect> {
    match (was, is) {
        (false, true) => Some(Effect::Added),
        (true, false) => Some(Effect::Removed),
        (true, true) if changed => Some(Effect::ClaimsChanged),
        _ => None,
    }
}

fn narrow(index: usize) -> u32 {
    u32::try_from(index).expect("a cluster has fewer than four billion volumes")
}
