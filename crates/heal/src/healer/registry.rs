//! The relays that are trusted, kept by watch. One that is not believed is tried again only if it may be right in a while.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::pin::pin;
use std::time::Duration;

use futures_util::StreamExt;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::storage::v1::CSINode;
use kube::runtime::WatchStreamExt;
use kube::runtime::watcher::{self, Event, watcher};
use kube::{Api, Client};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until, timeout};
use volmedic_api::addons::{CREATED_BY, CsiAddonsNode};
use volmedic_api::{Arrived, Readable};
use volmedic_csi::Backoff;
use volmedic_panics::caught;

use super::Options;
use super::dial::Dialer;
use super::metrics::Metrics;
use super::trust::{self, Distrust, Relayed};

const API: Duration = Duration::from_secs(15);
/// Maximum number that are examined at the same time.
const TOGETHER: usize = 16;
/// No cluster has more nodes and drivers than this.
const MOST: usize = 50_000;
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_mins(2);

/// How the relays changed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RelayNews {
    /// New, or another process than before: its volumes are to be checked.
    Came(Relayed),
    /// Nobody there can be asked any more.
    Went(Relayed),
}

/// Namespace and name of a CSIAddonsNode.
type Key = (String, String);

/// Follows CSIAddonsNode objects.
pub struct Registry {
    client: Client,
    dialer: Dialer,
    trusted: BTreeSet<String>,
    allow_loopback: bool,
    metrics: Metrics,
}

impl std::fmt::Debug for Registry {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Registry").field("trusted", &self.trusted).finish_non_exhaustive()
    }
}

/// One object as it was seen last.
struct Seen {
    object: Box<CsiAddonsNode>,
    state: Standing,
    backoff: Backoff,
    /// What was said about it last, so that it is said once.
    reported: Option<Distrust>,
}

enum Standing {
    /// To be looked into from this time on.
    Due(Instant),
    LookedInto,
    Trusted,
    Distrusted,
}

impl Registry {
    pub fn new(client: Client, dialer: Dialer, options: &Options, metrics: Metrics) -> Self {
        let Options { trusted_namespaces, allow_loopback, .. } = options;
        let trusted = trusted_namespaces.clone();
        Self { client, dialer, trusted, allow_loopback: *allow_loopback, metrics }
    }

    /// For ever, or until nobody listens to the news.
    pub async fn run(self, news: mpsc::Sender<RelayNews>) {
        let objects = Api::<Arrived<CsiAddonsNode>>::all(self.client.clone());
        let mut events = pin!(watcher(objects, watcher::Config::default()).default_backoff());
        let mut book = Book { seen: BTreeMap::new(), served: HashMap::new(), news };
        let mut looks: JoinSet<(Key, CsiAddonsNode, Result<Relayed, Distrust>)> = JoinSet::new();
        let mut listed: BTreeSet<Key> = BTreeSet::new();
        let mut reported = false;
        loop {
            while looks.len() < TOGETHER
                && let Some((key, object)) = book.next_due()
            {
                let look = self.clone_for_look();
                looks.spawn(async move {
                    let found = caught(look.look_into(&object)).await;
                    let found = found.unwrap_or_else(|panic| {
                        Err(Distrust::Unknown(format!("internal error (bug): checking it panicked: {panic}")))
                    });
                    (key, object, found)
                });
            }
            let nap = book.next_time().filter(|_| looks.len() < TOGETHER);
            tokio::select! {
                event = events.next() => match event {
                    Some(Ok(Event::Init)) => listed.clear(),
                    Some(Ok(Event::InitApply(object))) => {
                        listed.insert(key(&object));
                        self.put(&mut book, object).await;
                    }
                    Some(Ok(Event::InitDone)) => {
                        reported = false;
                        let gone: Vec<_> = book.seen.keys().filter(|key| !listed.contains(*key)).cloned().collect();
                        for key in gone {
                            book.take(&key).await;
                        }
                    }
                    Some(Ok(Event::Apply(object))) => self.put(&mut book, object).await,
                    Some(Ok(Event::Delete(object))) => book.take(&key(&object)).await,
                    Some(Err(error)) => if !std::mem::replace(&mut reported, true) {
                        tracing::warn!(%error, "the healer cannot watch CSIAddonsNode objects; is their definition installed?");
                    },
                    None => return,
                },
                Some(Ok((key, object, found))) = looks.join_next() => {
                    self.looked(&mut book, &key, &object, found).await;
                }
                () = sleep_until(nap.unwrap_or_else(Instant::now)), if nap.is_some() => {}
                () = book.news.closed() => return,
            }
        }
    }

    /// One object that cannot be read is ignored, and hides no other.
    async fn put(&self, book: &mut Book, object: Arrived<CsiAddonsNode>) {
        let key = key(&object);
        match object.body {
            Ok(body) => book.put(key, body).await,
            Err(malformed) => {
                let ((namespace, name), why) = (&key, malformed.why);
                self.metrics.distrust("malformed");
                tracing::warn!(namespace, name, "a CSIAddonsNode cannot be read and is ignored: {why}");
                book.take(&key).await;
            }
        }
    }

    fn clone_for_look(&self) -> Look {
        Look {
            client: self.client.clone(),
            dialer: self.dialer.clone(),
            trusted: self.trusted.clone(),
            allow_loopback: self.allow_loopback,
        }
    }

    async fn looked(
        &self,
        book: &mut Book,
        key: &Key,
        object: &CsiAddonsNode,
        found: Result<Relayed, Distrust>,
    ) {
        let Some(seen) = book.seen.get_mut(key) else { return };
        if *seen.object != *object {
            // It changed meanwhile and is due again.
            return;
        }
        match found {
            Ok(relay) => {
                seen.backoff.succeeded();
                seen.reported = None;
                seen.state = Standing::Trusted;
                book.serve(key, relay).await;
            }
            Err(why) => {
                self.metrics.distrust(why.label());
                if seen.reported.as_ref() != Some(&why) {
                    let (namespace, name) = key;
                    if why == Distrust::NotOurs {
                        tracing::debug!(namespace, name, "a CSIAddonsNode is left alone: {why}");
                    } else {
                        tracing::warn!(
                            namespace,
                            name,
                            why = why.label(),
                            "a CSIAddonsNode is not believed: {why}"
                        );
                    }
                }
                seen.state = if why.may_pass() {
                    Standing::Due(Instant::now() + seen.backoff.failed())
                } else {
                    Standing::Distrusted
                };
                seen.reported = Some(why);
                book.withdraw(key).await;
            }
        }
    }
}

/// What an examination needs.
struct Look {
    client: Client,
    dialer: Dialer,
    trusted: BTreeSet<String>,
    allow_loopback: bool,
}

impl Look {
    async fn look_into(&self, object: &CsiAddonsNode) -> Result<Relayed, Distrust> {
        let claimed = trust::read(object, &self.trusted)?;
        let pods = Api::<Readable<Pod>>::namespaced(self.client.clone(), &claimed.namespace);
        let pod = ask("the pod of its endpoint", pods.get_opt(&claimed.pod)).await?.map(|pod| pod.0);
        let (node, address) = trust::against_pod(object, &claimed, pod.as_ref(), self.allow_loopback)?;
        let nodes = Api::<Readable<CSINode>>::all(self.client.clone());
        let csi_node = ask("the CSINode of its pod", nodes.get_opt(&node)).await?.map(|node| node.0);
        trust::against_node(object, &node, csi_node.as_ref())?;
        let relay = Relayed {
            driver: object.spec.driver.name.as_str().into(),
            node,
            namespace: claimed.namespace.into(),
            pod: claimed.pod.into(),
            pod_uid: object.annotation(CREATED_BY).into(),
            address,
            generation: trust::generation(object),
            certificates: trust::certificates(object),
        };
        self.dialer.introduce(&relay).await?;
        Ok(relay)
    }
}

async fn ask<T>(what: &str, request: impl Future<Output = Result<T, kube::Error>>) -> Result<T, Distrust> {
    match timeout(API, request).await {
        Ok(Ok(answer)) => Ok(answer),
        Ok(Err(error)) => Err(Distrust::Unknown(format!("{what} could not be read: {error}"))),
        Err(_) => Err(Distrust::Unknown(format!("{what} could not be read in time"))),
    }
}

/// All objects, and who serves which driver on which node.
struct Book {
    seen: BTreeMap<Key, Seen>,
    served: HashMap<Key, Relayed>,
    news: mpsc::Sender<RelayNews>,
}

impl Book {
    async fn put(&mut self, key: Key, object: CsiAddonsNode) {
        let object = Box::new(slim(object));
        let full = self.seen.len() >= MOST;
        match self.seen.get_mut(&key) {
            // Others write its status; only another generation or another address is news to us.
            Some(seen) if *seen.object == *object => {}
            Some(seen) => {
                seen.object = object;
                seen.state = Standing::Due(Instant::now());
                seen.backoff.succeeded();
                seen.reported = None;
                if seen.object.is_going() {
                    self.withdraw(&key).await;
                }
            }
            None if full => {}
            None => {
                let backoff = Backoff::new(FIRST_PAUSE, LONGEST_PAUSE);
                let state = Standing::Due(Instant::now());
                self.seen.insert(key, Seen { object, state, backoff, reported: None });
            }
        }
    }

    async fn take(&mut self, key: &Key) {
        self.seen.remove(key);
        self.withdraw(key).await;
    }

    async fn serve(&mut self, key: &Key, relay: Relayed) {
        let before = self.served.insert(key.clone(), relay.clone());
        if before.as_ref() != Some(&relay) {
            let Relayed { driver, node, address, .. } = &relay;
            if before.is_some_and(|before| before.generation == relay.generation) {
                tracing::debug!(driver = &**driver, node = &**node, %address, "a relay renews its certificate");
            } else {
                tracing::info!(driver = &**driver, node = &**node, %address, "a relay is trusted");
            }
            // Without anybody who listens there is nothing to keep.
            let _ = self.news.send(RelayNews::Came(relay)).await;
        }
    }

    async fn withdraw(&mut self, key: &Key) {
        if let Some(relay) = self.served.remove(key) {
            let _ = self.news.send(RelayNews::Went(relay)).await;
        }
    }

    fn next_due(&mut self) -> Option<(Key, CsiAddonsNode)> {
        let now = Instant::now();
        let due = self.seen.iter_mut().find(|(_, seen)| matches!(seen.state, Standing::Due(at) if at <= now));
        let (key, seen) = due?;
        seen.state = Standing::LookedInto;
        Some((key.clone(), (*seen.object).clone()))
    }

    fn next_time(&self) -> Option<Instant> {
        let times = self.seen.values().filter_map(|seen| match seen.state {
            Standing::Due(at) => Some(at),
            Standing::LookedInto | Standing::Trusted | Standing::Distrusted => None,
        });
        times.min()
    }
}

fn key(object: &Arrived<CsiAddonsNode>) -> Key {
    (object.namespace().to_owned(), object.name().to_owned())
}

/// Without what changes although nothing has happened.
fn slim(mut object: CsiAddonsNode) -> CsiAddonsNode {
    object.metadata.resource_version = None;
    object.metadata.generation = None;
    object.metadata.labels = None;
    object.metadata.finalizers = None;
    object
}
