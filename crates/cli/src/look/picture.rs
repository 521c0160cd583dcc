//! What was read of a cluster, as compact records. Lists fill it, and watches keep it true.

use std::collections::hash_map::DefaultHasher;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use volmedic_api::resource::{NodeReport, VolumeHealthStatus};
use volmedic_api::{Arrived, slim};

use volmedic_roles::controller::{LEASE as LONE_CONTROLLER_LEASE, TELLS};

use super::events::Note;
use super::list::Unread;
use super::shape::{self, StorageHealth, Told};
use super::shelf::Shelf;

/// How an agent's Lease is named: this and the name of its node.
pub(crate) const AGENT_LEASE: &str = volmedic_hub::AGENT_LEASE;
/// How the Lease of a driver's controller begins, external-health-monitor's and ours alike.
pub(crate) const CONTROLLER_LEASE: &str = "external-health-monitor-leader-";
pub(crate) const HUB_LEASE: &str = "volmedic-hub";

/// Holders may be late by this share of what they promised.
const PATIENCE: f64 = 1.5;
/// What our clock and a holder's may differ by.
const SKEW: SignedDuration = SignedDuration::from_secs(30);
const USUAL_LEASE: u32 = 40;
/// As long as the node controller itself waits before it gives a node up.
const NODE_GRACE: SignedDuration = volmedic_inventory::Judge::GRACE;
const UNREACHABLE: &str = "node.kubernetes.io/unreachable";
const OUT_OF_SERVICE: &str = "node.kubernetes.io/out-of-service";

#[derive(Debug, Default)]
pub(crate) struct Picture {
    pub(crate) claims: Shelf<Claim>,
    /// By the claim that each is bound to.
    pub(crate) volumes: Shelf<Volume>,
    pub(crate) pods: Shelf<Pod>,
    pub(crate) nodes: BTreeMap<Arc<str>, Node>,
    pub(crate) healths: Shelf<Stored>,
    pub(crate) reports: BTreeMap<Arc<str>, NodeReport>,
    pub(crate) leases: Shelf<Lease>,
    /// The drivers on each node.
    pub(crate) node_drivers: BTreeMap<Arc<str>, Vec<Arc<str>>>,
    pub(crate) backends: HashMap<Arc<str>, Vec<StorageHealth>>,
    /// Drivers that are registered.
    pub(crate) drivers: BTreeSet<Arc<str>>,
    /// What events say, by claim and by pod.
    pub(crate) told_on_claims: Shelf<Vec<Note>>,
    pub(crate) told_on_pods: Shelf<Vec<Note>>,
    /// What could not be read, by the plural name of the kind, and why.
    pub(crate) unread: BTreeMap<&'static str, Unread>,
    /// Objects that made no sense.
    pub(crate) malformed: usize,
    words: HashMap<Box<str>, Arc<str>>,
}

#[derive(Debug)]
pub(crate) struct Claim {
    /// Which of all claims that ever had this name.
    pub(crate) uid: u64,
    pub(crate) phase: Phase,
    /// The PersistentVolume; empty where it has none.
    pub(crate) volume: Box<str>,
    /// Who made the volume, as the claim says it.
    pub(crate) provisioner: Option<Arc<str>>,
    pub(crate) class: Option<Arc<str>>,
    pub(crate) told: Option<Box<Told>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Phase {
    Pending,
    Bound,
    Lost,
}

#[derive(Debug)]
pub(crate) struct Volume {
    pub(crate) claim: u64,
    pub(crate) name: Box<str>,
    /// Empty for volumes that no CSI driver serves.
    pub(crate) driver: Arc<str>,
    pub(crate) handle: Arc<str>,
}

/// A claim that a pod uses, and what the kubelet says of it.
type Use = (Box<str>, Option<Box<Told>>);

#[derive(Debug)]
pub(crate) struct Pod {
    pub(crate) node: Arc<str>,
    pub(crate) uses: Box<[Use]>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Node {
    /// Whether it is ready, and since when; absent where it never said.
    pub(crate) ready: Option<(bool, Option<Timestamp>)>,
    pub(crate) reason: Box<str>,
    pub(crate) given_up: Option<&'static str>,
}

#[derive(Debug)]
pub(crate) struct Stored {
    pub(crate) owner: u64,
    pub(crate) status: Box<VolumeHealthStatus>,
}

#[derive(Debug, Clone)]
pub(crate) struct Lease {
    pub(crate) holder: Box<str>,
    pub(crate) seconds: u32,
    pub(crate) renewed: Option<Timestamp>,
    pub(crate) tells: Option<Box<str>>,
}

/// Whether somebody who promised signs of life gives them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Life {
    Alive,
    Silent(Option<Timestamp>),
}

impl Lease {
    /// Judged by the time in it, since we look only once; clocks may differ a little.
    pub(crate) fn life(&self, now: Timestamp) -> Life {
        let Some(renewed) = self.renewed.filter(|_| !self.holder.is_empty()) else {
            return Life::Silent(self.renewed);
        };
        let limit = SignedDuration::from_secs(self.seconds.into()).mul_f64(PATIENCE) + SKEW;
        if now.duration_since(renewed) <= limit { Life::Alive } else { Life::Silent(Some(renewed)) }
    }
}

impl Node {
    /// Why the cluster takes it for down, and since when.
    pub(crate) fn down(&self, now: Timestamp) -> Option<(String, Option<Timestamp>)> {
        let Some((false, since)) = self.ready else { return None };
        if let Some(why) = self.given_up {
            return Some((why.to_owned(), since));
        }
        let lasts = since.is_none_or(|since| now.duration_since(since) > NODE_GRACE);
        let reason = if self.reason.is_empty() { String::new() } else { format!(" ({})", self.reason) };
        lasts.then(|| (format!("it is not ready{reason}"), since))
    }
}

/// Short, and the same for the same uid.
pub(crate) fn mark(uid: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    uid.hash(&mut hasher);
    hasher.finish()
}

impl Picture {
    /// Empty but for what is known not to be readable.
    pub(crate) fn without(unread: BTreeMap<&'static str, Unread>) -> Self {
        Self { unread, ..Self::default() }
    }

    /// The same text once, however often it occurs.
    fn word(&mut self, text: &str) -> Arc<str> {
        if let Some(word) = self.words.get(text) {
            return word.clone();
        }
        let word: Arc<str> = text.into();
        self.words.insert(text.into(), word.clone());
        word
    }

    pub(crate) fn put_claim(&mut self, object: &Arrived<shape::Claim>, body: &shape::Claim) {
        let provisioner = body.metadata.annotations.as_ref().and_then(|all| all.provisioner.as_deref());
        let claim = Claim {
            uid: mark(object.uid()),
            phase: match body.status.phase.as_str() {
                "Bound" => Phase::Bound,
                "Lost" => Phase::Lost,
                _ => Phase::Pending,
            },
            volume: body.spec.volume_name.as_deref().unwrap_or_default().into(),
            provisioner: provisioner.map(|name| self.word(name)),
            class: body.spec.storage_class_name.as_deref().map(|name| self.word(name)),
            told: body.status.health_status.clone().map(Box::new),
        };
        self.claims.put(object.namespace(), object.name(), claim);
    }

    pub(crate) fn put_volume(
        &mut self,
        object: &Arrived<slim::PersistentVolume>,
        body: &slim::PersistentVolume,
    ) {
        let Some(claim) = body.spec.claim_ref.as_ref().filter(|claim| !claim.uid.is_empty()) else { return };
        let csi = body.spec.csi.as_ref();
        let volume = Volume {
            claim: mark(&claim.uid),
            name: object.name().into(),
            driver: self.word(csi.map_or("", |csi| &csi.driver)),
            handle: csi.map_or(object.name(), |csi| &csi.volume_handle).into(),
        };
        self.volumes.put(&claim.namespace, &claim.name, volume);
    }

    pub(crate) fn take_volume(&mut self, name: &str) {
        self.volumes.retain(|_, _, volume| *volume.name != *name);
    }

    pub(crate) fn put_pod(&mut self, object: &Arrived<shape::Pod>, body: &shape::Pod) {
        let (namespace, name) = (object.namespace(), object.name());
        let node = body.spec.node_name.as_deref().filter(|node| !node.is_empty());
        let over = matches!(body.status.phase.as_str(), "Succeeded" | "Failed");
        let told = |volume: &str| {
            let all = body.status.volume_health.iter().flatten();
            all.filter(|entry| entry.name == volume).map(|entry| Box::new(entry.told.clone())).next()
        };
        let uses = body.spec.volumes.iter().flatten().filter_map(|volume| {
            let claim = match (&volume.persistent_volume_claim, &volume.ephemeral) {
                (Some(claim), _) => claim.claim_name.as_str().into(),
                (None, Some(_)) => format!("{name}-{}", volume.name).into(),
                (None, None) => return None,
            };
            Some((claim, told(&volume.name)))
        });
        let uses: Box<[_]> = uses.collect();
        match node {
            Some(node) if !over && !uses.is_empty() => {
                let node = self.word(node);
                self.pods.put(namespace, name, Pod { node, uses });
            }
            _ => self.pods.take(namespace, name),
        }
    }

    pub(crate) fn put_node(&mut self, name: &str, body: &slim::Node) {
        let name = self.word(name);
        let ready = body.status.conditions.iter().flatten().find(|condition| condition.kind == "Ready");
        let taint = |key: &str| body.spec.taints.iter().flatten().any(|taint| taint.key == key);
        let given_up = if taint(OUT_OF_SERVICE) {
            Some("it was declared out of service")
        } else {
            taint(UNREACHABLE).then_some("the node controller declared it unreachable")
        };
        let node = Node {
            ready: ready.map(|ready| {
                (ready.status == "True", ready.last_transition_time.as_ref().map(|time| time.0))
            }),
            reason: ready.map_or("", |ready| &ready.reason).into(),
            given_up,
        };
        self.nodes.insert(name, node);
    }

    pub(crate) fn put_health(&mut self, object: &Arrived<shape::Stored>, body: &shape::Stored) {
        let Some(status) = &body.status else { return };
        let owner = mark(body.metadata.owner().unwrap_or_default());
        let stored = Stored { owner, status: Box::new(status.clone()) };
        self.healths.put(object.namespace(), object.name(), stored);
    }

    pub(crate) fn put_report(&mut self, node: &str, body: &shape::Report) {
        let node = self.word(node);
        self.reports.insert(node, body.spec.report.clone());
    }

    /// Leases of others are passed over.
    pub(crate) fn put_lease(&mut self, object: &Arrived<shape::Lease>, body: &shape::Lease) {
        let name = object.name();
        let ours = [AGENT_LEASE, CONTROLLER_LEASE, LONE_CONTROLLER_LEASE]
            .iter()
            .any(|start| name.starts_with(start));
        if !ours && name != HUB_LEASE {
            return;
        }
        let tells = body.metadata.labels.as_ref().and_then(|all| all.get(TELLS));
        let lease = Lease {
            holder: body.spec.holder_identity.as_deref().unwrap_or_default().into(),
            seconds: body.spec.lease_duration_seconds.unwrap_or(USUAL_LEASE),
            renewed: body.spec.renew_time.as_ref().map(|time| time.0),
            tells: tells.map(|text| text.as_str().into()),
        };
        self.leases.put(object.namespace(), name, lease);
    }

    pub(crate) fn put_csi_node(&mut self, node: &str, body: &shape::CsiNode) {
        let node = self.word(node);
        let drivers = body.spec.drivers.iter().flatten().map(|driver| driver.name.clone());
        let drivers = drivers.collect::<Vec<_>>().iter().map(|name| self.word(name)).collect();
        self.node_drivers.insert(node.clone(), drivers);
        match body.status.storage_health.clone().filter(|told| !told.is_empty()) {
            Some(told) => drop(self.backends.insert(node, told)),
            None => drop(self.backends.remove(&node)),
        }
    }

    pub(crate) fn put_driver(&mut self, name: &str) {
        let name = self.word(name);
        self.drivers.insert(name);
    }

    /// The volume of a claim, if both say so.
    pub(crate) fn volume_of(&self, namespace: &str, name: &str, claim: &Claim) -> Option<&Volume> {
        self.volumes.get(namespace, name).filter(|volume| volume.claim == claim.uid)
    }

    /// What is stored for a claim, and not for one of the same name before it.
    pub(crate) fn health_of(
        &self,
        namespace: &str,
        name: &str,
        claim: &Claim,
    ) -> Option<&VolumeHealthStatus> {
        let stored = self.healths.get(namespace, name)?;
        (stored.owner == claim.uid).then_some(&stored.status)
    }

    /// The hub's Lease and its namespace.
    pub(crate) fn hub(&self) -> Option<(&str, &Lease)> {
        self.leases
            .iter()
            .find(|(_, name, _)| *name == HUB_LEASE)
            .map(|(namespace, _, lease)| (&**namespace, lease))
    }

    /// The Lease of a driver's controller: the one it leads by, or the one that says only that it lives.
    pub(crate) fn controller(&self, driver: &str) -> Option<(&str, &Lease)> {
        let leads = volmedic_lease::lock_name(driver);
        let lives = volmedic_lease::sanitize(&format!("{LONE_CONTROLLER_LEASE}{driver}")).to_lowercase();
        let named = |wanted: &str| self.leases.iter().find(|(_, name, _)| *name == wanted);
        let found = named(&leads).or_else(|| named(&lives));
        found.map(|(namespace, _, lease)| (&**namespace, lease))
    }

    /// Whether a kind of object was read.
    pub(crate) fn has(&self, plural: &str) -> bool {
        !self.unread.contains_key(plural)
    }
}
