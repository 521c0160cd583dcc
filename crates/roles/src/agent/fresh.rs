//! New probes on request of the hub, right before it heals something: the volume is probed by the pipes as ever, but now, and
//! only a probe that began after the request is an answer.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::JoinSet;
use tokio::time::timeout_at;
use volmedic_api::resource::NodeVantage;
use volmedic_api::{Found, ProbeAnswer, ProbeRequest};
use volmedic_health::Sight;
use volmedic_inventory::node::Key;
use volmedic_monitor::{Probe, Seen, Way};
use volmedic_report::ProbeAnswers;

/// Maximum number of probes that are waited for at the same time.
const MOST: usize = 64;
/// The hub waits a little longer than this for an answer, of which some seconds pass until the Lease is read.
const LONGEST: Duration = Duration::from_secs(12);

/// A probe of this volume that began at this time or later is waited for.
#[derive(Debug)]
struct Waiting {
    key: Key,
    vantage: NodeVantage,
    since: Instant,
    seen: oneshot::Sender<Seen>,
}

/// Who waits for probes.
#[derive(Debug, Clone, Default)]
pub(super) struct Looks(Arc<Mutex<Vec<Waiting>>>);

impl Looks {
    /// What the next probe from this vantage sees. `None` if too many wait already.
    fn next(&self, key: &Key, vantage: NodeVantage) -> Option<oneshot::Receiver<Seen>> {
        let mut waiting = self.0.lock();
        waiting.retain(|one| !one.seen.is_closed());
        if waiting.len() >= MOST {
            return None;
        }
        let (seen, receive) = oneshot::channel();
        waiting.push(Waiting { key: key.clone(), vantage, since: Instant::now(), seen });
        Some(receive)
    }

    fn saw(&self, key: &Key, vantage: NodeVantage, began: Instant, seen: &Seen) {
        let mut waiting = self.0.lock();
        let answered = |one: &mut Waiting| one.key == *key && one.vantage == vantage && one.since <= began;
        for one in waiting.extract_if(.., answered) {
            // Who asked may have given up.
            let _ = one.seen.send(seen.clone());
        }
    }
}

/// A probe whose results can be waited for.
#[derive(Debug)]
pub(super) struct Awaited<P> {
    pub(super) probe: Arc<P>,
    pub(super) driver: Arc<str>,
    pub(super) vantage: NodeVantage,
    pub(super) looks: Looks,
}

impl<P: Probe> Probe for Awaited<P> {
    fn way(&self) -> Way {
        self.probe.way()
    }

    async fn changed(&self) {
        self.probe.changed().await;
    }

    async fn look(&self, handle: &str) -> Seen {
        let began = Instant::now();
        let seen = self.probe.look(handle).await;
        let key = Key { driver: self.driver.clone(), handle: handle.into() };
        self.looks.saw(&key, self.vantage, began, &seen);
        seen
    }

    async fn storage(&self) -> Option<Sight> {
        self.probe.storage().await
    }
}

/// A volume that is to be probed now.
pub(super) struct Ask {
    pub(super) key: Key,
    answer: oneshot::Sender<Vec<oneshot::Receiver<Seen>>>,
}

impl Ask {
    /// The pipes probe it now, from these vantages. None means that no pod uses it here.
    pub(super) fn probed_from(self, looks: &Looks, vantages: &[NodeVantage]) {
        let waits = vantages.iter().filter_map(|vantage| looks.next(&self.key, *vantage)).collect();
        let _ = self.answer.send(waits);
    }
}

/// Answers each request once. Runs until dropped.
pub(super) async fn answer(
    mut requests: watch::Receiver<Vec<ProbeRequest>>,
    answers: ProbeAnswers,
    pipes: mpsc::Sender<Ask>,
) {
    let mut known: BTreeMap<String, Option<ProbeAnswer>> = BTreeMap::new();
    let mut probes: JoinSet<ProbeAnswer> = JoinSet::new();
    loop {
        tokio::select! {
            changed = requests.changed() => {
                if changed.is_err() {
                    // The reporter was dropped, and so is this.
                    return std::future::pending().await;
                }
                let wanted = requests.borrow_and_update().clone();
                // An answer is of use only while its request is there.
                known.retain(|id, _| wanted.iter().any(|request| request.id == *id));
                for request in wanted {
                    if !known.contains_key(&request.id) {
                        known.insert(request.id.clone(), None);
                        probes.spawn(probe(request, pipes.clone()));
                    }
                }
            }
            Some(Ok(answer)) = probes.join_next() => {
                tracing::info!(id = answer.id, found = ?answer.found, "a volume was probed on request of the hub");
                if let Some(known) = known.get_mut(&answer.id) {
                    *known = Some(answer);
                }
                answers.set(known.values().flatten().cloned().collect());
            }
        }
    }
}

async fn probe(request: ProbeRequest, pipes: mpsc::Sender<Ask>) -> ProbeAnswer {
    let ProbeRequest { id, driver, volume_handle, time: _ } = request;
    let until = tokio::time::Instant::now() + LONGEST;
    let (answer, waits) = oneshot::channel();
    let key = Key { driver: driver.into(), handle: volume_handle.into() };
    let asked = async {
        pipes.send(Ask { key, answer }).await.ok()?;
        waits.await.ok()
    };
    let waits = timeout_at(until, asked).await.ok().flatten().unwrap_or_default();
    let mut seen = Vec::new();
    for wait in waits {
        seen.push(timeout_at(until, wait).await.ok().and_then(Result::ok));
    }
    found(&id, &seen)
}

/// What follows from the probes from all vantages. `None` is a probe that did not end in time.
fn found(id: &str, seen: &[Option<Seen>]) -> ProbeAnswer {
    let conditions = || {
        let adverse = seen.iter().flatten().filter_map(|seen| match seen {
            Seen::Volume(Sight::Adverse(conditions)) => Some(conditions),
            _ => None,
        });
        adverse.flat_map(|conditions| conditions.iter())
    };
    let reasons: Vec<String> = conditions().map(|condition| condition.reason.to_string()).collect();
    if let Some(first) = conditions().next() {
        return ProbeAnswer::new(id, Found::Unhealthy, reasons, &first.message);
    }
    if seen.contains(&None) {
        return ProbeAnswer::new(id, Found::NotEnded, reasons, "the probe did not end in time");
    }
    let not_seen = seen.iter().flatten().find_map(|seen| match seen {
        Seen::Volume(Sight::NotSeen(why)) | Seen::Overloaded(why) | Seen::DriverGone(why) => {
            Some(why.to_string())
        }
        Seen::Volume(Sight::Missing(message)) => Some(format!("the driver does not know it: {message}")),
        _ => None,
    });
    if let Some(why) = not_seen {
        return ProbeAnswer::new(id, Found::NotProbed, reasons, &why);
    }
    let healthy = |seen: &Seen| matches!(seen, Seen::Volume(Sight::Healthy | Sight::Unlisted));
    if seen.iter().flatten().any(healthy) {
        return ProbeAnswer::new(id, Found::Healthy, reasons, "");
    }
    ProbeAnswer::new(
        id,
        Found::NotProbed,
        reasons,
        "no pod on this node uses it, or nothing here can probe it",
    )
}
