//! Which pods use which volumes on which node.
//!
//! Only pods that matter are kept: scheduled, not finished, and with a claim or an inline volume of our driver. A claim
//! may turn out to be another driver's; that is decided when somebody asks, since its PersistentVolume may come later
//! than the pod.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::{RwLock, RwLockReadGuard, RwLockWriteGuard};
use tokio::sync::Notify;
use volmedic_api::{Arrived, Kind, ObjectRef, slim};

use crate::follow::{Sink, Spared};
use crate::intern::Interner;
use crate::uid::AnyUid;

/// The API server leaves out the pods that do not matter; when one of the others stops mattering, it is reported as deleted.
pub(crate) const SELECTOR: &str = "spec.nodeName!=,status.phase!=Succeeded,status.phase!=Failed";

/// Names of objects never contain it.
const PART: char = '/';

/// A pod on a node, with what it uses there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PodUse {
    pub pod: ObjectRef,
    /// It is being deleted. On a node that is down that may take for ever.
    pub terminating: bool,
    /// The names of its claims, in its own namespace, whichever driver serves them. A generic ephemeral volume's claim
    /// is among them by its name. It is the pod's own: the scheduler places no pod whose claim belongs to another.
    pub claims: Vec<Box<str>>,
    /// Whether it has inline volumes of our driver.
    pub inline: bool,
}

#[derive(Debug)]
pub struct Pods {
    driver: Box<str>,
    table: RwLock<Table>,
    woken: Arc<Notify>,
}

#[derive(Debug, Default)]
struct Table {
    /// By node, then by uid. Neither ever changes for a pod that is scheduled.
    nodes: HashMap<Box<str>, HashMap<AnyUid, Record>>,
    namespaces: Interner,
    epoch: u16,
}

#[derive(Debug, PartialEq, Eq)]
struct Record {
    /// `pod/claim/claim`.
    names: Box<str>,
    namespace: u32,
    inline: bool,
    terminating: bool,
    epoch: u16,
}

impl Pods {
    pub(crate) fn new(driver: &str, woken: Arc<Notify>) -> Self {
        Self { driver: driver.into(), table: RwLock::default(), woken }
    }

    /// Pods kept, on all nodes.
    pub fn len(&self) -> usize {
        self.read().nodes.values().map(HashMap::len).sum()
    }

    pub fn is_empty(&self) -> bool {
        self.read().nodes.is_empty()
    }

    /// The nodes that pods are on, whether or not they are still there.
    pub fn nodes(&self) -> Vec<Box<str>> {
        self.read().nodes.keys().cloned().collect()
    }

    /// The pods on a node, in the order of their names.
    pub fn on(&self, node: &str) -> Vec<PodUse> {
        let table = self.read();
        let pods = table.nodes.get(node).into_iter().flatten();
        let mut pods: Vec<_> = pods.map(|(uid, record)| record.to_use(uid, &table.namespaces)).collect();
        pods.sort_unstable_by(|a, b| a.pod.cmp(&b.pod));
        pods
    }

    fn read(&self) -> RwLockReadGuard<'_, Table> {
        self.table.read()
    }

    fn write(&self) -> RwLockWriteGuard<'_, Table> {
        self.table.write()
    }

    /// The node and what is used there, if the pod matters.
    fn judge<'a>(&self, name: &str, pod: &'a slim::Pod) -> Option<(&'a str, String, bool)> {
        let node = pod.spec.node_name.as_deref().filter(|node| !node.is_empty())?;
        if matches!(&*pod.status.phase, "Succeeded" | "Failed") {
            return None;
        }
        let mut names = name.to_owned();
        let mut inline = false;
        for volume in pod.spec.volumes.as_deref().unwrap_or_default() {
            let claim = match (&volume.persistent_volume_claim, &volume.ephemeral) {
                (Some(claim), _) => Some(claim.claim_name.clone()),
                (None, Some(_)) => Some(format!("{name}-{}", volume.name)),
                (None, None) => None,
            };
            // Nobody checks the name that a pod asks for, but no claim has one with a slash.
            if let Some(claim) = claim.filter(|claim| !claim.contains(PART)) {
                names.push(PART);
                names += &claim;
            }
            inline |= volume.csi.as_ref().is_some_and(|csi| *csi.driver == *self.driver);
        }
        (inline || names.len() > name.len()).then_some((node, names, inline))
    }
}

impl Sink<slim::Pod> for Pods {
    fn begin(&self) {
        let mut table = self.write();
        table.epoch = table.epoch.wrapping_add(1);
    }

    fn put(&self, object: &Arrived<slim::Pod>, pod: &slim::Pod) -> Result<(), String> {
        let mut table = self.write();
        let changed = match self.judge(object.name(), pod) {
            Some((node, names, inline)) => {
                let (namespace, epoch) = (table.namespaces.acquire(object.namespace()), table.epoch);
                let terminating = object.is_going();
                let record = Record { names: names.into(), namespace, inline, terminating, epoch };
                table.put(node, AnyUid::from(object.uid()), record)
            }
            None => pod.spec.node_name.as_deref().is_some_and(|node| table.take(node, &object.uid().into())),
        };
        if changed {
            self.woken.notify_one();
        }
        Ok(())
    }

    fn take(&self, object: &Arrived<slim::Pod>) {
        let mut table = self.write();
        let gone = match &object.body {
            Ok(pod) => {
                pod.spec.node_name.as_deref().is_some_and(|node| table.take(node, &object.uid().into()))
            }
            Err(_) => table.take_anywhere(&object.uid().into()),
        };
        if gone {
            self.woken.notify_one();
        }
    }

    fn sweep(&self, spared: &Spared) {
        let mut table = self.write();
        let Table { nodes, namespaces, epoch } = &mut *table;
        let mut gone = false;
        nodes.retain(|_, pods| {
            pods.retain(|_, record| {
                let stays = record.epoch == *epoch
                    || spared.contains(
                        namespaces.text(record.namespace),
                        record.parts().next().unwrap_or_default(),
                    );
                if !stays {
                    gone = true;
                    namespaces.release(record.namespace);
                }
                stays
            });
            !pods.is_empty()
        });
        if gone {
            self.woken.notify_one();
        }
    }
}

impl Table {
    /// Whether anything changed.
    fn put(&mut self, node: &str, uid: AnyUid, record: Record) -> bool {
        if !self.nodes.contains_key(node) {
            self.nodes.insert(node.into(), HashMap::new());
        }
        let Some(pods) = self.nodes.get_mut(node) else { return false };
        let epoch = record.epoch;
        match pods.get_mut(&uid) {
            Some(known) => {
                known.epoch = epoch;
                let changed = *known != record;
                // Both counted as users of their namespace.
                self.namespaces.release(known.namespace);
                *known = record;
                changed
            }
            None => pods.insert(uid, record).is_none(),
        }
    }

    fn take(&mut self, node: &str, uid: &AnyUid) -> bool {
        let Some(pods) = self.nodes.get_mut(node) else { return false };
        let record = pods.remove(uid);
        if pods.is_empty() {
            self.nodes.remove(node);
        }
        if let Some(record) = &record {
            self.namespaces.release(record.namespace);
        }
        record.is_some()
    }

    /// The same where the node is not known. It visits every node.
    fn take_anywhere(&mut self, uid: &AnyUid) -> bool {
        let node = self.nodes.iter().find(|(_, pods)| pods.contains_key(uid)).map(|(node, _)| node.clone());
        node.is_some_and(|node| self.take(&node, uid))
    }
}

impl Record {
    fn parts(&self) -> impl Iterator<Item = &str> {
        self.names.split(PART)
    }

    fn to_use(&self, uid: &AnyUid, namespaces: &Interner) -> PodUse {
        let mut parts = self.parts();
        let name = parts.next().unwrap_or_default();
        PodUse {
            pod: ObjectRef::new(Kind::Pod, namespaces.text(self.namespace), name, &uid.to_string()),
            terminating: self.terminating,
            claims: parts.map(Into::into).collect(),
            inline: self.inline,
        }
    }
}

#[cfg(test)]
mod tests;
