//! All volumes of this node, and what changed about them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use parking_lot::{Mutex, RwLock, RwLockReadGuard, RwLockWriteGuard};
use tokio::sync::Notify;
use volmedic_api::ObjectRef;

use super::kubelet::Found;
use super::place::Part;
use super::volume::{Change, Key, NodeVolume, Use};
use crate::changes::Changes;

/// Cheap to ask at any time. Nothing here waits for the network or a disk.
#[derive(Debug)]
pub struct Volumes {
    state: RwLock<State>,
    changes: Mutex<Changes<Change>>,
    woken: Arc<Notify>,
}

#[derive(Debug, Default)]
struct State {
    volumes: BTreeMap<Key, Arc<NodeVolume>>,
    /// What each pod uses, by its uid.
    pods: BTreeMap<Box<str>, Box<[Key]>>,
    /// How many volumes each driver has.
    drivers: BTreeMap<Arc<str>, usize>,
}

impl Volumes {
    pub(super) fn new(woken: Arc<Notify>) -> Self {
        Self { state: RwLock::default(), changes: Mutex::default(), woken }
    }

    pub fn len(&self) -> usize {
        self.read().volumes.len()
    }

    pub fn is_empty(&self) -> bool {
        self.read().volumes.is_empty()
    }

    /// The drivers and plugins whose volumes are here, in order, with how many they have.
    pub fn drivers(&self) -> Vec<(Arc<str>, usize)> {
        self.read().drivers.iter().map(|(driver, count)| (driver.clone(), *count)).collect()
    }

    pub fn get(&self, driver: &str, handle: &str) -> Option<Arc<NodeVolume>> {
        self.read().volumes.get(&Key { driver: driver.into(), handle: handle.into() }).cloned()
    }

    /// All volumes, by driver and handle.
    pub fn all(&self) -> Vec<Arc<NodeVolume>> {
        self.read().volumes.values().cloned().collect()
    }

    /// The volumes of one driver, by handle.
    pub fn of(&self, driver: &str) -> Vec<Arc<NodeVolume>> {
        let state = self.read();
        let first = Key { driver: driver.into(), handle: "".into() };
        let mine = state.volumes.range(first..).take_while(|(key, _)| *key.driver == *driver);
        mine.map(|(_, volume)| volume.clone()).collect()
    }

    /// The pods that use a volume, each once.
    pub fn pods(&self, driver: &str, handle: &str) -> Vec<ObjectRef> {
        self.get(driver, handle).map_or_else(Vec::new, |volume| volume.pods())
    }

    /// Whether the kubelet of this node writes what it finds out about volumes into the status of its pods. Nobody can
    /// tell before it has found something.
    pub fn kubelet_speaks(&self) -> bool {
        self.read().volumes.values().flat_map(|volume| &volume.uses).any(|used| used.kubelet.is_some())
    }

    /// What changed since the last call. The state may already be newer.
    pub fn changes(&self) -> Vec<Change> {
        let changes = self.changes.lock().drain();
        changes.unwrap_or_else(|| vec![Change::Resync])
    }

    /// Lets notes have their drivers' names in common with the volumes that are there already.
    pub(super) fn share_drivers(&self, found: &mut [Found]) {
        let state = self.read();
        for note in found.iter_mut().filter_map(|found| found.note.as_mut()?.as_mut().ok()) {
            if let Some((driver, _)) = state.drivers.get_key_value(&note.driver) {
                note.driver = driver.clone();
            }
        }
    }

    /// The pod with this uid now uses these and no others.
    pub(super) fn set(&self, uid: &str, parts: Vec<Part>) {
        let mut state = self.write();
        let mut fresh: BTreeMap<Key, Vec<Part>> = BTreeMap::new();
        for part in parts {
            fresh.entry(part.key.clone()).or_default().push(part);
        }
        let mut keys: BTreeSet<Key> = state.pods.remove(uid).into_iter().flatten().collect();
        if !fresh.is_empty() {
            let used = fresh.keys().map(|key| state.shared(key)).collect();
            state.pods.insert(uid.into(), used);
        }
        keys.extend(fresh.keys().cloned());
        for key in keys {
            let parts = fresh.remove(&key).unwrap_or_default();
            if let Some(change) = state.renew(&key, uid, parts) {
                self.changes.lock().push(change);
                self.woken.notify_one();
            }
        }
    }

    fn read(&self) -> RwLockReadGuard<'_, State> {
        self.state.read()
    }

    fn write(&self) -> RwLockWriteGuard<'_, State> {
        self.state.write()
    }
}

impl State {
    /// The key with the texts that are there already.
    fn shared(&self, key: &Key) -> Key {
        if let Some((known, _)) = self.volumes.get_key_value(key) {
            return known.clone();
        }
        let driver = self.drivers.get_key_value(&key.driver).map_or(&key.driver, |(driver, _)| driver);
        Key { driver: driver.clone(), handle: key.handle.clone() }
    }

    /// A volume with these uses of a pod instead of those that it had.
    fn renew(&mut self, key: &Key, uid: &str, parts: Vec<Part>) -> Option<Change> {
        let key = self.shared(key);
        let before = self.volumes.get(&key);
        let others = before.iter().flat_map(|volume| &volume.uses).filter(|used| *used.pod.uid != *uid);
        let mut uses: Vec<Arc<Use>> = others.cloned().collect();
        // What others said about the volume stays; what is missing, this pod may know.
        let mut header = before
            .filter(|_| !uses.is_empty())
            .map(|volume| NodeVolume { uses: Vec::new(), ..(**volume).clone() });
        for part in parts {
            let header = header.get_or_insert_with(|| NodeVolume {
                driver: key.driver.clone(),
                handle: key.handle.clone(),
                pv: None,
                mode: part.mode,
                staging: None,
                source: None,
                fs_type: None,
                uses: Vec::new(),
            });
            header.staging = header.staging.take().or(part.staging);
            header.source = header.source.take().or(part.source);
            header.fs_type = header.fs_type.take().or(part.fs_type);
            let known = before.iter().flat_map(|volume| &volume.uses).find(|used| ***used == part.used);
            uses.push(known.cloned().unwrap_or_else(|| Arc::new(part.used)));
        }
        let Some(mut volume) = header else {
            self.volumes.remove(&key)?;
            self.count(&key.driver, false);
            return Some(Change::Removed(key));
        };
        uses.sort_by(|a, b| (&a.pod, &a.target).cmp(&(&b.pod, &b.target)));
        uses.shrink_to_fit();
        volume.uses = uses;
        // Two PersistentVolumes may be one volume. Which of them is named must not depend on who came first.
        volume.pv = volume.persistent_volumes().first().map(|name| Arc::clone(name));
        match before {
            Some(before) if **before == volume => None,
            Some(_) => {
                self.volumes.insert(key.clone(), Arc::new(volume));
                Some(Change::Changed(key))
            }
            None => {
                self.volumes.insert(key.clone(), Arc::new(volume));
                self.count(&key.driver, true);
                Some(Change::Added(key))
            }
        }
    }

    fn count(&mut self, driver: &Arc<str>, more: bool) {
        let count = self.drivers.entry(driver.clone()).or_default();
        *count = if more { *count + 1 } else { count.saturating_sub(1) };
        if *count == 0 {
            self.drivers.remove(driver);
        }
    }
}

#[cfg(test)]
mod tests;
