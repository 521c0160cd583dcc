//! What the PersistentVolumes of this node's pods say, read one by one by their names.
//!
//! A node must not load the cluster, so there is no list and no watch: each is read once when a pod begins to use it, a
//! few at a time, and forgotten when no pod uses it any more. While the API server refuses, one of them is asked for now
//! and then on behalf of all.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::{Component, Path};
use std::sync::Arc;
use std::time::Duration;

use kube::runtime::watcher::DefaultBackoff;
use tokio::time::Instant;
use volmedic_api::slim::NodePersistentVolume;
use volmedic_api::{Kind, ObjectRef};

use super::volume::Key;
use crate::trouble::Trouble;

/// Asked for at the same time.
const TOGETHER: usize = 8;
/// No node has more. What is beyond is not read.
const MOST: usize = 10_000;
/// A right that is missing will hardly be granted any moment.
const REFUSED: Duration = Duration::from_mins(5);
/// A PersistentVolume that is not there although a pod has it is asked for again, ever more rarely.
const ABSENT_FIRST: Duration = Duration::from_secs(30);
const ABSENT_LAST: Duration = Duration::from_mins(10);
/// The backoff's own limit, for the case that it had an end.
const LONGEST_WAIT: Duration = Duration::from_secs(30);

/// What matters of a PersistentVolume. Those that no directory of the kubelet names are found by their claims; then they
/// are kept under `namespace/claim`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Facts {
    /// Its name, where it was found by its claim.
    pub(super) name: Option<Arc<str>>,
    /// The directory of the node that it is, if it is one.
    pub(super) host_path: Option<Box<Path>>,
    /// None for a volume that is bound to no claim.
    pub(super) claim: Option<Arc<ObjectRef>>,
    /// What the kubelet's directories call its plugin, if the kubelet mounts it without a driver.
    pub(super) plugin: Option<&'static str>,
    /// Needed only where the kubelet's note does not say it.
    pub(super) csi: Option<Box<Key>>,
    pub(super) fs_type: Option<Box<str>>,
    /// Its own wish, whatever the pod asks for.
    pub(super) read_only: bool,
}

/// What came of asking.
#[derive(Debug)]
pub(super) enum Outcome {
    Read(Facts),
    /// There is no such PersistentVolume, or none that can be read.
    Absent,
    Failed(Trouble),
}

#[derive(Debug, Default)]
pub(super) struct Cache {
    entries: BTreeMap<Arc<str>, State>,
    /// When to ask for which. Those that nobody needs any more are skipped when their time comes.
    queue: BTreeSet<(Instant, Arc<str>)>,
    /// How many were asked for and did not answer yet.
    asking: usize,
    closed: Option<Closed>,
}

#[derive(Debug)]
enum State {
    Never,
    Read(Facts),
    Absent { again: Duration },
}

/// The API server does not answer such questions for now.
struct Closed {
    until: Instant,
    backoff: DefaultBackoff,
}

impl Cache {
    /// It will be asked for, unless it already was.
    pub(super) fn want(&mut self, name: &Arc<str>, now: Instant) {
        if is_name(name) {
            self.add(name, now);
        }
    }

    /// The same by `namespace/claim`.
    pub(super) fn want_claim(&mut self, key: &Arc<str>, now: Instant) {
        if key.split_once('/').is_some_and(|(namespace, claim)| is_name(namespace) && is_name(claim)) {
            self.add(key, now);
        }
    }

    fn add(&mut self, name: &Arc<str>, now: Instant) {
        if self.entries.len() < MOST && !self.entries.contains_key(name) {
            self.entries.insert(name.clone(), State::Never);
            self.queue.insert((now, name.clone()));
        }
    }

    pub(super) fn get(&self, name: &str) -> Option<&Facts> {
        match self.entries.get(name)? {
            State::Read(facts) => Some(facts),
            State::Never | State::Absent { .. } => None,
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Forgets those that nobody needs.
    pub(super) fn retain(&mut self, needed: impl Fn(&str) -> bool) {
        self.entries.retain(|name, _| needed(name));
    }

    /// Whether each has been asked for, or cannot be for now.
    pub(super) fn is_settled(&self) -> bool {
        self.closed.is_some() || self.entries.values().all(|state| !matches!(state, State::Never))
    }

    /// The ones to ask for now.
    pub(super) fn due(&mut self, now: Instant) -> Vec<Arc<str>> {
        let most = match &self.closed {
            Some(closed) if closed.until > now => 0,
            _ => self.immediately(),
        };
        let mut names = Vec::new();
        while self.asking < most && self.queue.first().is_some_and(|(due, _)| *due <= now) {
            let Some((_, name)) = self.queue.pop_first() else { break };
            if matches!(self.entries.get(&name), Some(State::Never | State::Absent { .. })) {
                self.asking += 1;
                names.push(name);
            }
        }
        names
    }

    fn immediately(&self) -> usize {
        if self.closed.is_some() { 1 } else { TOGETHER }
    }

    /// When `due` may have something to say that it has not now. None if that is not for time to decide, but for an
    /// answer that is on its way.
    pub(super) fn next(&self) -> Option<Instant> {
        let (due, _) = self.queue.first().filter(|_| self.asking < self.immediately())?;
        Some(self.closed.as_ref().map_or(*due, |closed| closed.until.max(*due)))
    }

    /// Whether anything is known now that was not before.
    pub(super) fn answered(&mut self, name: &str, outcome: Outcome, now: Instant) -> bool {
        self.asking = self.asking.saturating_sub(1);
        let failed = match &outcome {
            Outcome::Failed(trouble) => Some(trouble),
            Outcome::Read(_) | Outcome::Absent => None,
        };
        match failed {
            Some(trouble) => {
                let closed = self
                    .closed
                    .get_or_insert_with(|| Closed { until: now, backoff: DefaultBackoff::default() });
                // Of several that fail together, one counts.
                if closed.until <= now {
                    let wait = match trouble {
                        Trouble::Forbidden { .. } | Trouble::Unknown { .. } => REFUSED,
                        _ => closed.backoff.next().unwrap_or(LONGEST_WAIT).max(trouble.wait()),
                    };
                    closed.until = now + wait;
                }
            }
            None => self.closed = None,
        }
        // It may be that nobody needs it any more.
        let Some((name, state)) = self.entries.get_key_value(name) else { return false };
        let name = name.clone();
        let before = matches!(state, State::Read(_));
        let after = match outcome {
            Outcome::Read(facts) => State::Read(facts),
            Outcome::Absent => {
                let again = match state {
                    State::Absent { again } => (*again * 2).min(ABSENT_LAST),
                    State::Never | State::Read(_) => ABSENT_FIRST,
                };
                self.queue.insert((now + again, name.clone()));
                State::Absent { again }
            }
            Outcome::Failed(_) => {
                self.queue.insert((now, name));
                return false;
            }
        };
        let changed = matches!(after, State::Read(_)) != before;
        self.entries.insert(name, after);
        changed
    }
}

impl fmt::Debug for Closed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Closed until {:?}", self.until)
    }
}

impl Facts {
    pub(super) fn new(volume: &NodePersistentVolume) -> Self {
        let spec = &volume.spec;
        let others = [
            (&spec.nfs, "kubernetes.io~nfs"),
            (&spec.iscsi, "kubernetes.io~iscsi"),
            (&spec.fc, "kubernetes.io~fc"),
            (&spec.rbd, "kubernetes.io~rbd"),
            (&spec.cephfs, "kubernetes.io~cephfs"),
            (&spec.local, "kubernetes.io~local-volume"),
        ];
        let other = || others.iter().filter_map(|(source, _)| source.as_ref());
        let plugin = others.iter().find_map(|(source, plugin)| source.as_ref().map(|_| *plugin));
        let fs_type = spec.csi.as_ref().and_then(|csi| csi.fs_type.as_deref());
        let fs_type = fs_type.or_else(|| other().find_map(|source| source.fs_type.as_deref()));
        let modes = spec.access_modes.as_deref().unwrap_or_default();
        let mut options = spec.mount_options.iter().flatten().flat_map(|option| option.split(','));
        let claim = spec.claim_ref.as_ref().filter(|claim| !claim.name.is_empty());
        let host_path = spec.host_path.as_ref().map(|source| Path::new(&source.path));
        Self {
            name: None,
            // Nothing else is a path of the host, and nothing leads out of it.
            host_path: host_path
                .filter(|path| {
                    path.is_absolute() && !path.components().any(|part| part == Component::ParentDir)
                })
                .map(Into::into),
            claim: claim.map(|claim| {
                let kind = Kind::PersistentVolumeClaim;
                Arc::new(ObjectRef::new(kind, &claim.namespace, &claim.name, &claim.uid))
            }),
            plugin,
            csi: spec.csi.as_ref().filter(|csi| !csi.driver.is_empty() && !csi.volume_handle.is_empty()).map(
                |csi| {
                    let [driver, handle] = [&csi.driver, &csi.volume_handle].map(|text| text.as_str().into());
                    Box::new(Key { driver, handle })
                },
            ),
            fs_type: fs_type.filter(|kind| !kind.is_empty()).map(Into::into),
            read_only: spec.csi.as_ref().and_then(|csi| csi.read_only).unwrap_or_default()
                || other().any(|source| source.read_only.unwrap_or_default())
                || !modes.is_empty() && modes.iter().all(|mode| mode == "ReadOnlyMany")
                // As for mount, the last word counts.
                || options.rfind(|option| matches!(*option, "ro" | "rw")) == Some("ro"),
        }
    }
}

impl Facts {
    /// Whether it is bound to this very claim.
    pub(super) fn is_of(&self, namespace: &str, name: &str, uid: &str) -> bool {
        let claim = self.claim.as_ref();
        claim.is_some_and(|claim| {
            *claim.namespace == *namespace
                && *claim.name == *name
                && (claim.uid.is_empty() || *claim.uid == *uid)
        })
    }
}

/// Whether a PersistentVolume, a claim or a namespace can be called so. Nothing else is put into a request.
fn is_name(name: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || matches!(byte, b'-' | b'.');
    !name.is_empty() && name.len() <= 253 && name.bytes().all(plain) && !name.starts_with(['.', '-'])
}

#[cfg(test)]
mod tests;
