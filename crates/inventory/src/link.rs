//! How well one watch is doing: synced at all, in touch or not, and since when.

use std::mem::Discriminant;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use jiff::Timestamp;
use parking_lot::Mutex;
use tokio::sync::{Notify, watch};
use tokio::time::Instant;

use crate::trouble::Trouble;

/// Malformed objects beyond this many are only counted.
const MALFORMED_REPORTED: u64 = 10;

/// What is known is no longer kept up to date.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Staleness {
    /// The plural name of the kind of object, as in `persistentvolumes`.
    pub resource: &'static str,
    pub since: Timestamp,
    pub age: Duration,
    /// A sentence.
    pub why: String,
}

/// How one watch is doing.
#[derive(Debug)]
pub struct Link {
    resource: &'static str,
    stale: Mutex<Option<Lost>>,
    ready: watch::Sender<bool>,
    woken: Arc<Notify>,
    malformed: AtomicU64,
    lists: AtomicU64,
}

#[derive(Debug)]
struct Lost {
    since: Timestamp,
    at: Instant,
    why: String,
    /// The kind of trouble that the log has already.
    reported: Option<Discriminant<Trouble>>,
}

impl Link {
    /// Being in touch again wakes the tasks that wait, as any other change does.
    pub fn new(resource: &'static str, woken: Arc<Notify>) -> Self {
        let lost = Lost::now(format!("the first list of {resource} is not complete"));
        Self {
            resource,
            stale: Mutex::new(Some(lost)),
            ready: watch::Sender::new(false),
            woken,
            malformed: AtomicU64::default(),
            lists: AtomicU64::default(),
        }
    }

    pub fn resource(&self) -> &'static str {
        self.resource
    }

    /// Whether a whole list was ever read.
    pub fn is_ready(&self) -> bool {
        *self.ready.borrow()
    }

    pub(crate) async fn ready(&self) {
        // It fails only when the sender is gone, and that is a field of ours.
        let _ = self.ready.subscribe().wait_for(|ready| *ready).await;
    }

    pub fn staleness(&self) -> Option<Staleness> {
        let stale = self.stale.lock();
        let lost = stale.as_ref()?;
        Some(Staleness {
            resource: self.resource,
            since: lost.since,
            age: lost.at.elapsed(),
            why: lost.why.clone(),
        })
    }

    /// Whether what is known is kept up to date right now.
    pub fn is_in_touch(&self) -> bool {
        self.stale.lock().is_none()
    }

    pub(crate) fn malformed(&self) -> u64 {
        self.malformed.load(Ordering::Relaxed)
    }

    pub(crate) fn lists(&self) -> u64 {
        self.lists.load(Ordering::Relaxed)
    }

    pub(crate) fn listed(&self) {
        self.lists.fetch_add(1, Ordering::Relaxed);
        self.ready.send_replace(true);
        self.in_touch();
    }

    pub(crate) fn in_touch(&self) {
        let Some(lost) = self.stale.lock().take() else { return };
        self.woken.notify_one();
        if lost.reported.is_some() {
            let (resource, seconds) = (self.resource, lost.at.elapsed().as_secs());
            tracing::info!("watching {resource} again after {seconds} s");
        }
    }

    /// What is known stays as it is. Each kind of trouble is reported once until it is over.
    pub(crate) fn lost(&self, trouble: &Trouble) {
        let why = trouble.to_string();
        let mut stale = self.stale.lock();
        let lost = stale.get_or_insert_with(|| Lost::now(String::new()));
        let kind = std::mem::discriminant(trouble);
        if lost.reported.replace(kind) == Some(kind) {
            tracing::debug!("{why}");
        } else if trouble.heals_itself() {
            tracing::info!("{why}");
        } else {
            tracing::warn!("{why}; retrying, with what was known before");
        }
        lost.why = why;
    }

    /// Nothing was heard since then. That may mean nothing, so the log has no word of it until it turns out to be trouble.
    pub(crate) fn doubted(&self, heard: Instant) {
        let why = format!("no changes of {} came for longer than usual", self.resource);
        let since = Timestamp::now() - heard.elapsed();
        self.stale.lock().get_or_insert(Lost { since, at: heard, why, reported: None });
    }

    pub(crate) fn skipped(&self, namespace: &str, name: &str, why: &str) {
        let before = self.malformed.fetch_add(1, Ordering::Relaxed);
        let resource = self.resource;
        if before < MALFORMED_REPORTED {
            tracing::warn!(resource, namespace, name, "an object that cannot be read is skipped: {why}");
        } else {
            tracing::debug!(resource, namespace, name, "an object that cannot be read is skipped: {why}");
        }
    }

    /// The task that kept it up to date is gone.
    pub(crate) fn abandoned(&self) {
        let why = format!("nothing watches {} any more", self.resource);
        self.stale.lock().get_or_insert_with(|| Lost::now(String::new())).why = why;
    }
}

impl Lost {
    fn now(why: String) -> Self {
        Self { since: Timestamp::now(), at: Instant::now(), why, reported: None }
    }
}
