//! Which connections have a place, and which one is dropped for another. Pure: time is an argument.

use std::collections::HashMap;
use std::future::poll_fn;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Poll;
use std::time::{Duration, Instant};

use futures_util::task::AtomicWaker;
use parking_lot::Mutex;

use crate::metrics::{self, Why};

/// What the connections of one listener may take.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// Name of the listener in logs and metrics.
    pub name: &'static str,
    /// Maximum number of connections.
    pub connections: usize,
    /// Maximum number of connections of one peer address; an IPv6 peer counts by its /64.
    pub per_peer: usize,
    /// Time for the TLS handshake and the head of a request, and between two requests.
    pub waiting: Duration,
    /// Time from the head of a request to the end of its answer. None where answers may be endless.
    pub serving: Option<Duration>,
    /// Time for which a peer may accept nothing of what is sent to it.
    pub blocked: Duration,
    /// Maximum size of the head of a request.
    pub head: usize,
}

impl Limits {
    pub const fn new(name: &'static str, connections: usize, per_peer: usize) -> Self {
        Self {
            name,
            connections,
            per_peer,
            waiting: Duration::from_secs(10),
            serving: Some(Duration::from_secs(30)),
            blocked: Duration::from_secs(10),
            head: 32 * 1024,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum State {
    /// No request is being handled, and no token was verified. Dropped first.
    Waiting,
    /// A request is being handled. Dropped if no connection waits.
    Serving,
    /// A token was verified. Never dropped for another connection.
    Trusted,
}

#[derive(Debug)]
struct Held {
    peer: IpAddr,
    state: State,
    since: Instant,
    /// Since when the peer accepts nothing of what is sent to it.
    blocked: Option<Instant>,
    ended: Arc<Ended>,
}

/// Whether a place was taken away, and the task to wake when it is.
#[derive(Debug, Default)]
pub(crate) struct Ended {
    over: AtomicBool,
    pub(crate) io: AtomicWaker,
    pub(crate) task: AtomicWaker,
}

impl Ended {
    pub(crate) fn is_over(&self) -> bool {
        self.over.load(Ordering::Acquire)
    }

    fn end(&self) {
        self.over.store(true, Ordering::Release);
        self.io.wake();
        self.task.wake();
    }
}

/// The places of one listener. Cloning shares them.
#[derive(Debug, Clone)]
pub struct Places {
    limits: Limits,
    held: Arc<Mutex<Table>>,
}

#[derive(Debug, Default)]
struct Table {
    next: u64,
    /// By number; a smaller number is an older connection.
    held: HashMap<u64, Held>,
    peers: HashMap<IpAddr, usize>,
}

impl Places {
    pub fn new(limits: Limits) -> Self {
        Self { limits, held: Arc::default() }
    }

    pub fn limits(&self) -> &Limits {
        &self.limits
    }

    pub fn is_empty(&self) -> bool {
        self.held.lock().held.is_empty()
    }

    /// A place for a new connection, if need be that of another one. None if all are held by peers with a token.
    pub fn take(&self, peer: IpAddr, now: Instant) -> Option<Place> {
        let peer = network(peer);
        let mut table = self.held.lock();
        let of_peer = table.peers.get(&peer).copied().unwrap_or_default();
        if of_peer >= self.limits.per_peer {
            let victim = table.oldest(Some(peer));
            self.drop_for(&mut table, victim, Why::PeerFull)?;
        } else if table.held.len() >= self.limits.connections {
            let victim = table.oldest(None);
            self.drop_for(&mut table, victim, Why::Full)?;
        }
        let ended = Arc::<Ended>::default();
        let number = table.next;
        table.next += 1;
        *table.peers.entry(peer).or_default() += 1;
        let held = Held { peer, state: State::Waiting, since: now, blocked: None, ended: ended.clone() };
        table.held.insert(number, held);
        metrics::opened(self.limits.name);
        Some(Place(Arc::new(Inner { number, places: self.clone(), ended })))
    }

    fn drop_for(&self, table: &mut Table, victim: Option<u64>, why: Why) -> Option<()> {
        let Some(victim) = victim else {
            metrics::count(self.limits.name, Why::Refused);
            return None;
        };
        self.end(table, victim, why);
        Some(())
    }

    fn end(&self, table: &mut Table, number: u64, why: Why) {
        if let Some(held) = table.remove(number) {
            held.ended.end();
            metrics::closed(self.limits.name);
            metrics::count(self.limits.name, why);
        }
    }

    /// Drops every connection that is past one of its deadlines.
    pub fn sweep(&self, now: Instant) {
        let mut table = self.held.lock();
        let overdue = |held: &Held| {
            let age = now.saturating_duration_since(held.since);
            let blocked = held.blocked.map(|since| now.saturating_duration_since(since));
            if blocked.is_some_and(|blocked| blocked >= self.limits.blocked) {
                return Some(Why::NotReading);
            }
            match held.state {
                State::Waiting if age >= self.limits.waiting => Some(Why::NoRequest),
                State::Serving if self.limits.serving.is_some_and(|limit| age >= limit) => Some(Why::TooSlow),
                _ => None,
            }
        };
        let due: Vec<_> =
            table.held.iter().filter_map(|(number, held)| Some((*number, overdue(held)?))).collect();
        for (number, why) in due {
            self.end(&mut table, number, why);
        }
    }
}

impl Table {
    /// The connection to drop first, among all or those of one peer: the oldest one of the peer that has the most, of
    /// those that wait, else of those that are being served.
    fn oldest(&self, peer: Option<IpAddr>) -> Option<u64> {
        let droppable =
            |held: &Held| held.state < State::Trusted && peer.is_none_or(|peer| peer == held.peer);
        let state = self.held.values().filter(|held| droppable(held)).map(|held| held.state).min()?;
        let candidates = self.held.iter().filter(|(_, held)| droppable(held) && held.state == state);
        let count = |held: &Held| self.peers.get(&held.peer).copied().unwrap_or_default();
        candidates
            .max_by_key(|(number, held)| (count(held), std::cmp::Reverse(**number)))
            .map(|(number, _)| *number)
    }

    fn remove(&mut self, number: u64) -> Option<Held> {
        let held = self.held.remove(&number)?;
        if let Some(count) = self.peers.get_mut(&held.peer) {
            *count -= 1;
            if *count == 0 {
                self.peers.remove(&held.peer);
            }
        }
        Some(held)
    }
}

/// A customer of IPv6 has at least a /64, so its addresses count as one.
pub(crate) fn network(peer: IpAddr) -> IpAddr {
    match peer.to_canonical() {
        IpAddr::V6(address) => IpAddr::V6(Ipv6Addr::from_bits(address.to_bits() & (u128::MAX << 64))),
        v4 @ IpAddr::V4(_) => v4,
    }
}

/// The place of one connection, free again when the last clone is dropped.
#[derive(Debug, Clone)]
pub struct Place(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    number: u64,
    places: Places,
    ended: Arc<Ended>,
}

impl Drop for Inner {
    fn drop(&mut self) {
        if self.places.held.lock().remove(self.number).is_some() {
            metrics::closed(self.places.limits.name);
        }
    }
}

impl Place {
    pub(crate) fn trust(&self) {
        self.change(|held| held.state = State::Trusted);
    }

    /// A request is being handled, until the answer is dropped.
    pub(crate) fn serve(&self, now: Instant) -> Serving {
        self.change(|held| (held.state, held.since) = (held.state.max(State::Serving), now));
        Serving(self.clone())
    }

    pub(crate) fn blocked(&self, since: Option<Instant>) {
        self.change(|held| held.blocked = since);
    }

    pub(crate) fn closer(&self) -> impl Fn() + Send + Sync + use<> {
        let (number, places) = (self.0.number, self.0.places.clone());
        move || places.end(&mut places.held.lock(), number, Why::NotReading)
    }

    /// Waits until the place is taken away. For one task.
    pub(crate) async fn over(&self) {
        poll_fn(|cx| {
            self.0.ended.task.register(cx.waker());
            if self.is_over() { Poll::Ready(()) } else { Poll::Pending }
        })
        .await;
    }

    pub(crate) fn ended(&self) -> &Ended {
        &self.0.ended
    }

    pub fn is_over(&self) -> bool {
        self.0.ended.is_over()
    }

    fn change(&self, change: impl FnOnce(&mut Held)) {
        if let Some(held) = self.0.places.held.lock().held.get_mut(&self.0.number) {
            change(held);
        }
    }
}

/// A request that is being handled.
#[derive(Debug)]
pub(crate) struct Serving(Place);

impl Drop for Serving {
    fn drop(&mut self) {
        self.0.change(|held| {
            // A trusted connection waits for its next request like any other: only its place is safe from others.
            if held.state == State::Serving {
                held.state = State::Waiting;
            }
            held.since = Instant::now();
        });
    }
}

#[cfg(test)]
mod tests;
