//! The pods of this node, as far as they use volumes that have storage behind them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::Timestamp;
use parking_lot::{Mutex, MutexGuard};
use tokio::sync::Notify;
use volmedic_api::{Arrived, slim};

use super::record::Record;
use crate::follow::{Sink, Spared};

#[derive(Debug)]
pub(super) struct Pods {
    table: Mutex<Table>,
    /// When this machine started.
    boot: Option<Timestamp>,
    pub(super) woken: Notify,
}

#[derive(Debug, Default)]
struct Table {
    /// By uid.
    pods: BTreeMap<Box<str>, (Arc<Record>, u16)>,
    /// Uids of pods that are new, changed or gone.
    changed: BTreeSet<Box<str>>,
    epoch: u16,
}

impl Pods {
    pub(super) fn new(boot: Option<Timestamp>) -> Self {
        Self { table: Mutex::default(), boot, woken: Notify::new() }
    }

    pub(super) fn get(&self, uid: &str) -> Option<Arc<Record>> {
        self.table.lock().pods.get(uid).map(|(record, _)| record.clone())
    }

    pub(super) fn len(&self) -> usize {
        self.table.lock().pods.len()
    }

    /// The uids of all pods.
    pub(super) fn uids(&self) -> BTreeSet<Box<str>> {
        self.table.lock().pods.keys().cloned().collect()
    }

    /// The uids of the pods that are new, changed or gone since the last call.
    pub(super) fn changed(&self) -> BTreeSet<Box<str>> {
        std::mem::take(&mut self.table.lock().changed)
    }

    fn remove(&self, mut table: MutexGuard<'_, Table>, uid: &str) {
        if table.pods.remove(uid).is_some() {
            table.changed.insert(uid.into());
            self.woken.notify_one();
        }
    }
}

impl Sink<slim::NodePod> for Pods {
    fn begin(&self) {
        let mut table = self.table.lock();
        table.epoch = table.epoch.wrapping_add(1);
    }

    fn put(&self, object: &Arrived<slim::NodePod>, pod: &slim::NodePod) -> Result<(), String> {
        if object.uid().is_empty() {
            return Err("it has no uid".to_owned());
        }
        let record = Record::new(object, pod, self.boot);
        let mut table = self.table.lock();
        if record.wanted.is_empty() {
            self.remove(table, object.uid());
            return Ok(());
        }
        let epoch = table.epoch;
        match table.pods.get_mut(object.uid()) {
            // Pods send their status often, and mostly nothing of it matters here.
            Some((known, seen)) if **known == record => *seen = epoch,
            _ => {
                table.pods.insert(object.uid().into(), (Arc::new(record), epoch));
                table.changed.insert(object.uid().into());
                self.woken.notify_one();
            }
        }
        Ok(())
    }

    fn take(&self, object: &Arrived<slim::NodePod>) {
        self.remove(self.table.lock(), object.uid());
    }

    fn sweep(&self, spared: &Spared) {
        let mut table = self.table.lock();
        let Table { pods, changed, epoch } = &mut *table;
        let before = pods.len();
        pods.retain(|uid, (record, seen)| {
            let stays = *seen == *epoch || spared.contains(&record.pod.namespace, &record.pod.name);
            if !stays {
                changed.insert(uid.clone());
            }
            stays
        });
        if pods.len() < before {
            self.woken.notify_one();
        }
    }
}
