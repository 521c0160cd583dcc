//! Keeps the volumes of this node up to date: the one task that knows pods, directories and PersistentVolumes.
//!
//! Nothing it waits for holds up anything else. What a pod's status says counts immediately; directories are read beside it,
//! one reading at a time, since they are on a disk; PersistentVolumes come when they come.

use std::collections::{BTreeMap, BTreeSet};
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use kube::{Api, Client};
use tokio::sync::{Notify, watch};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until, timeout};
use volmedic_api::slim::{NodeClaim, NodePersistentVolume};
use volmedic_api::{Arrived, Shape};

use super::known::{GRACE, Known};
use super::kubelet::{Found, Layout};
use super::place::place;
use super::pods::Pods;
use super::pv::{Cache, Facts, Outcome};
use super::record::Record;
use super::scan::{self, Scan};
use super::volume::Phase;
use super::volumes::Volumes;
use crate::follow::Goodbye;
use crate::link::Link;
use crate::trouble::{Trouble, Verb};

/// All directories are read this often, in case something changed that no pod shows.
const EVERY: Duration = Duration::from_mins(1);
/// Pods whose directories are not all there yet are read again after this long, and then ever more rarely.
const SOON: Duration = Duration::from_secs(1);
/// A reading that takes longer is reported. It goes on, and no other begins.
const SLOW: Duration = Duration::from_secs(10);
/// After a reading that failed.
const AGAIN: Duration = Duration::from_secs(5);
/// The kubelet makes the directories of a pod's volumes sooner than this.
const MOUNTS_WITHIN: Duration = Duration::from_secs(10);
/// For one PersistentVolume.
const ANSWER: Duration = Duration::from_secs(10);
/// Directories that make no sense are reported one by one up to this many.
const TROUBLES_REPORTED: usize = 100;

const LOSS: &str = "while PersistentVolumes cannot be read, a volume that is read-only by intent cannot be distinguished from one \
                    that is so by fault, so that is not checked; reports may lack the claim's name; and claims on volumes \
                    without a CSI driver are not watched";

/// What the keeper shares with its callers.
#[derive(Debug, Clone)]
pub(super) struct Shared {
    pub(super) pods: Arc<Pods>,
    pub(super) volumes: Arc<Volumes>,
    pub(super) refresh: Arc<Notify>,
    pub(super) ready: Arc<watch::Sender<bool>>,
    pub(super) pod_link: Arc<Link>,
    pub(super) kubelet_link: Arc<Link>,
    pub(super) pv_link: Arc<Link>,
}

pub(super) struct Keeper {
    shared: Shared,
    layout: Arc<Layout>,
    api: Api<Arrived<NodePersistentVolume>>,
    known: Known,
    /// When to look again at pods whose directories are gone.
    next_gone: Option<Instant>,
    pvs: Cache,
    /// By namespace and claim, of those that no directory names.
    claims: Cache,
    /// Pods that wait for a volume without a directory, and since when.
    waiting: BTreeMap<Box<str>, Instant>,
    fetches: JoinSet<(Arc<str>, Outcome)>,
    scans: JoinSet<Scan>,
    scan_began: Option<Instant>,
    /// After a reading that failed, no other begins before this.
    scan_from: Instant,
    /// Pods to read.
    stale: BTreeSet<Box<str>>,
    /// Pods with a volume that has no directory.
    incomplete: BTreeSet<Box<str>>,
    next_all: Instant,
    next_incomplete: Option<(Instant, Duration)>,
    reported: BTreeSet<String>,
    /// What it means that PersistentVolumes cannot be read was reported.
    reported_loss: bool,
}

impl Keeper {
    pub(super) fn new(client: &Client, layout: Layout, shared: Shared) -> Self {
        // Without PersistentVolumes much can be said, so not having asked is no lack.
        shared.pv_link.in_touch();
        Self {
            shared,
            layout: Arc::new(layout),
            api: Api::all(client.clone()),
            known: Known::default(),
            next_gone: None,
            pvs: Cache::default(),
            claims: Cache::default(),
            waiting: BTreeMap::new(),
            fetches: JoinSet::new(),
            scans: JoinSet::new(),
            scan_began: None,
            scan_from: Instant::now(),
            stale: BTreeSet::new(),
            incomplete: BTreeSet::new(),
            next_all: Instant::now() + EVERY,
            next_incomplete: None,
            reported: BTreeSet::new(),
            reported_loss: false,
        }
    }

    pub(super) async fn run(mut self) -> Infallible {
        let shared = self.shared.clone();
        let _goodbye = Goodbye(&shared.kubelet_link);
        let mut listed = false;
        loop {
            let next = self.next();
            tokio::select! {
                () = shared.pods.woken.notified() => {}
                // Where there is no pod at all, nothing else says so.
                () = shared.pod_link.ready(), if !listed => listed = true,
                () = shared.refresh.notified() => self.stale.extend(shared.pods.uids()),
                Some(scanned) = self.scans.join_next() => self.scanned(scanned),
                Some(fetched) = self.fetches.join_next() => match fetched {
                    Ok((name, outcome)) => self.fetched(&name, outcome),
                    Err(why) => tracing::error!("reading a PersistentVolume broke off: {why}"),
                },
                () = sleep_until(next) => {}
            }
            self.step(Instant::now());
        }
    }

    /// When there is something to do although nothing happens.
    fn next(&self) -> Instant {
        let reading = match self.scan_began {
            Some(began) => Some(began + SLOW),
            None if !self.stale.is_empty() || !self.shared.kubelet_link.is_ready() => Some(self.scan_from),
            None => self.next_incomplete.map(|(at, _)| at.max(self.scan_from)),
        };
        [reading, self.next_gone, self.pvs.next(), self.claims.next()]
            .into_iter()
            .flatten()
            .fold(self.next_all, Instant::min)
    }

    fn step(&mut self, now: Instant) {
        let changed = self.shared.pods.changed();
        for uid in &changed {
            if self.shared.pods.get(uid).is_some() {
                self.stale.insert(uid.clone());
                self.next_incomplete = None;
            } else {
                self.forget(uid);
            }
            self.place(uid, now);
        }
        if now >= self.next_all {
            self.next_all = now + EVERY;
            self.stale.extend(self.shared.pods.uids());
        }
        if self.next_gone.take_if(|at| *at <= now).is_some() {
            for uid in self.known.bereft() {
                self.place(&uid, now);
            }
        }
        match self.scan_began {
            None if now >= self.scan_from => self.scan(now),
            Some(began) if now >= began + SLOW => {
                let path = self.layout.root().display().to_string();
                self.shared.kubelet_link.lost(&Trouble::SlowDirectory { path, after: SLOW });
                // It is reported; what is left is to wait for it.
                self.scan_began = Some(now + EVERY);
            }
            _ => {}
        }
        for name in self.pvs.due(now) {
            self.fetches.spawn(fetch(self.api.clone(), name));
        }
        for name in self.claims.due(now) {
            self.fetches.spawn(fetch_claim(self.api.clone(), name));
        }
        if !*self.shared.ready.borrow() && self.is_settled() {
            self.shared.ready.send_replace(true);
        }
    }

    /// Whether everything was read once.
    fn is_settled(&self) -> bool {
        self.shared.pod_link.is_ready()
            && self.shared.kubelet_link.is_ready()
            && self.shared.pods.len() == self.known.len()
            && self.pvs.is_settled()
            && self.claims.is_settled()
    }

    /// Begins to read the directories of all pods that need it.
    fn scan(&mut self, now: Instant) {
        self.next_incomplete = match self.next_incomplete {
            _ if self.incomplete.is_empty() => None,
            Some((at, wait)) if at <= now => {
                self.stale.extend(self.incomplete.iter().cloned());
                let wait = (wait * 2).min(EVERY);
                Some((now + wait, wait))
            }
            Some(later) => Some(later),
            None => Some((now + SOON, SOON)),
        };
        // Whether there is such a directory at all has to be known even if nobody is in it.
        if self.stale.is_empty() && self.shared.kubelet_link.is_ready() {
            return;
        }
        let mut pods = Vec::new();
        for uid in std::mem::take(&mut self.stale) {
            let Some(record) = self.shared.pods.get(&uid) else { continue };
            let kubelet_uid: Box<str> = record.kubelet_uid().into();
            if record.mirror.is_some() && self.shared.pods.get(&kubelet_uid).is_some() {
                // Anybody can write into a pod that it is the image of another. The other one is the one.
                self.known.read(&uid, Vec::new(), Phase::Going, now);
            } else {
                pods.push((uid, kubelet_uid));
            }
        }
        let layout = self.layout.clone();
        self.scans.spawn_blocking(move || scan::scan(&layout, pods));
        self.scan_began = Some(now);
    }

    fn scanned(&mut self, scanned: Result<Scan, tokio::task::JoinError>) {
        self.scan_began = None;
        let now = Instant::now();
        let pods = match scanned {
            Ok(Ok(pods)) => pods,
            failed => {
                match failed {
                    Ok(Err(trouble)) => self.shared.kubelet_link.lost(&trouble),
                    Err(why) => tracing::error!("reading the kubelet's directories broke off: {why}"),
                    Ok(Ok(_)) => {}
                }
                self.stale.extend(self.shared.pods.uids());
                self.scan_from = now + AGAIN;
                return;
            }
        };
        if self.shared.kubelet_link.is_ready() {
            self.shared.kubelet_link.in_touch();
        } else {
            self.shared.kubelet_link.listed();
        }
        for (uid, read) in pods {
            let Some(record) = self.shared.pods.get(&uid) else { continue };
            let read_now = read.is_ok();
            match read {
                Ok(mut found) => {
                    self.shared.volumes.share_drivers(&mut found);
                    for found in found.iter().filter(|found| needs_pv(found)) {
                        self.pvs.want(&found.dir.name, now);
                    }
                    self.known.read(&uid, found, record.phase, now);
                }
                Err(why) => {
                    self.tell(&format!("the kubelet's directory of {} cannot be read: {why}", record.pod));
                    self.known.not_read(&uid);
                }
            }
            let claims = self.place(&uid, now);
            // Only what was read just now says that there is no directory.
            if read_now {
                self.find_claims(&uid, &record, &claims, now);
            }
        }
    }

    fn fetched(&mut self, name: &str, mut outcome: Outcome) {
        if let Some((namespace, claim)) = name.split_once('/') {
            if let Outcome::Failed(trouble) = &outcome {
                self.tell(&format!(
                    "the claim's volume cannot be found: {trouble}; claims on directories of this node are not checked \
                     meanwhile"
                ));
            }
            if self.claims.answered(name, outcome, Instant::now()) {
                let uids = self.shared.pods.uids();
                let uses = |uid: &str| {
                    let record = self.shared.pods.get(uid);
                    record
                        .is_some_and(|record| *record.pod.namespace == *namespace && record.has_claim(claim))
                };
                let uids: Vec<_> = uids.into_iter().filter(|uid| uses(uid)).collect();
                for uid in uids {
                    self.place(&uid, Instant::now());
                }
            }
            return;
        }
        match &outcome {
            Outcome::Failed(trouble) => {
                self.shared.pv_link.lost(trouble);
                if matches!(trouble, Trouble::Forbidden { .. })
                    && !std::mem::replace(&mut self.reported_loss, true)
                {
                    tracing::warn!("{LOSS}");
                }
            }
            Outcome::Read(_) | Outcome::Absent => self.shared.pv_link.in_touch(),
        }
        let now = Instant::now();
        if let Outcome::Read(facts) = &mut outcome {
            // Where every note says which volume it is, nobody will ask the PersistentVolume.
            let torn = self.known.named(name).any(|(_, found)| matches!(found.note, Some(Err(_))));
            facts.csi.take_if(|_| !torn);
        }
        if !self.pvs.answered(name, outcome, now) {
            return;
        }
        let uids: BTreeSet<Box<str>> = self.known.named(name).map(|(uid, _)| uid.into()).collect();
        for uid in uids {
            self.place(&uid, now);
        }
    }

    /// Works out what a pod uses. Answers which of its claims have no directory, by what is known.
    fn place(&mut self, uid: &str, now: Instant) -> Vec<Box<str>> {
        self.incomplete.remove(uid);
        let Some(record) = self.shared.pods.get(uid) else {
            self.shared.volumes.set(uid, Vec::new());
            return Vec::new();
        };
        let in_touch = self.shared.pod_link.is_in_touch();
        let phase = |found: &Found| self.known.phase(uid, &found.dir, record.phase, in_touch, now);
        let found = self.known.of(uid).iter().map(|found| (found, phase(found)));
        let of_claim = |claim: &str| self.claims.get(&claim_key(&record, claim));
        let placed = place(&record, found, |name| self.pvs.get(name), of_claim, &self.layout);
        if placed.parts.iter().any(|part| part.used.phase != record.phase) {
            self.next_gone.get_or_insert(now + GRACE);
        }
        if placed.incomplete && record.phase != Phase::Going {
            self.incomplete.insert(uid.into());
            self.next_incomplete.get_or_insert((now + SOON, SOON));
        }
        for why in &placed.troubles {
            self.tell(why);
        }
        self.shared.volumes.set(uid, placed.parts);
        placed.without_directory
    }

    /// The kubelet makes the directories of a pod's volumes within seconds. What has none after that, or in a pod that
    /// runs, is found by its claim.
    fn find_claims(&mut self, uid: &str, record: &Record, claims: &[Box<str>], now: Instant) {
        if claims.is_empty() || record.phase == Phase::Going {
            self.waiting.remove(uid);
            return;
        }
        let since = *self.waiting.entry(uid.into()).or_insert(now);
        if record.phase == Phase::InUse || now >= since + MOUNTS_WITHIN {
            for claim in claims {
                self.claims.want_claim(&claim_key(record, claim).into(), now);
            }
        }
    }

    fn forget(&mut self, uid: &str) {
        self.stale.remove(uid);
        self.waiting.remove(uid);
        // A claim that is made again under the same name has another volume.
        if !self.claims.is_empty() {
            let pods = &self.shared.pods;
            let records: Vec<_> = pods.uids().iter().filter_map(|uid| pods.get(uid)).collect();
            let needed: BTreeSet<String> = records
                .iter()
                .flat_map(|record| record.claims().map(|claim| claim_key(record, claim)))
                .collect();
            self.claims.retain(|key| needed.contains(key));
        }
        if self.known.forget(uid) {
            let needed = self.known.names();
            self.pvs.retain(|name| needed.contains(name));
        }
    }

    /// Each sentence once.
    fn tell(&mut self, why: &str) {
        if self.reported.len() < TROUBLES_REPORTED && self.reported.insert(why.to_owned()) {
            self.shared.kubelet_link.skipped("", "", why);
        }
    }
}

/// Under which name a claim's volume is kept.
fn claim_key(record: &Record, claim: &str) -> String {
    format!("{}/{claim}", record.pod.namespace)
}

/// The PersistentVolume of a claim, if both say that they belong to each other.
async fn fetch_claim(api: Api<Arrived<NodePersistentVolume>>, key: Arc<str>) -> (Arc<str>, Outcome) {
    let Some((namespace, name)) = key.split_once('/') else { return (key, Outcome::Absent) };
    let (verb, resource) = (Verb::Get, NodeClaim::PLURAL);
    let claims: Api<Arrived<NodeClaim>> = Api::namespaced(api.into_client(), namespace);
    let outcome = match timeout(ANSWER, claims.get(name)).await {
        Err(_) => Outcome::Failed(Trouble::Silent { verb, resource, after: ANSWER }),
        Ok(Err(kube::Error::Api(status))) if status.code == 404 => Outcome::Absent,
        Ok(Err(error)) => Outcome::Failed(Trouble::new(verb, resource, NodeClaim::GROUP, error)),
        Ok(Ok(claim)) => {
            let volume = claim.body.as_ref().ok().and_then(|body| body.spec.volume_name.clone());
            match volume.filter(|volume| !volume.is_empty()) {
                None => Outcome::Absent,
                Some(volume) => {
                    let (volume, outcome) = fetch(Api::all(claims.into_client()), volume.into()).await;
                    match outcome {
                        Outcome::Read(facts) if facts.is_of(namespace, name, claim.uid()) => {
                            Outcome::Read(Facts { name: Some(volume), ..facts })
                        }
                        Outcome::Read(_) => Outcome::Absent,
                        other => other,
                    }
                }
            }
        }
    };
    (key, outcome)
}

/// Whether a PersistentVolume is behind it.
fn needs_pv(found: &Found) -> bool {
    !matches!(&found.note, Some(Ok(note)) if note.is_inline())
}

async fn fetch(api: Api<Arrived<NodePersistentVolume>>, name: Arc<str>) -> (Arc<str>, Outcome) {
    let (verb, resource) = (Verb::Get, NodePersistentVolume::PLURAL);
    let outcome = match timeout(ANSWER, api.get(&name)).await {
        Err(_) => Outcome::Failed(Trouble::Silent { verb, resource, after: ANSWER }),
        Ok(Ok(object)) => match &object.body {
            Ok(volume) => Outcome::Read(Facts::new(volume)),
            Err(why) => {
                tracing::warn!("the PersistentVolume {name} cannot be read: {}", why.why);
                Outcome::Absent
            }
        },
        Ok(Err(kube::Error::Api(status))) if status.code == 404 => Outcome::Absent,
        Ok(Err(error)) => Outcome::Failed(Trouble::new(verb, resource, NodePersistentVolume::GROUP, error)),
    };
    (name, outcome)
}
