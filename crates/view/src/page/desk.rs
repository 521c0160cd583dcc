//! What all requests share: the source, and a snapshot that a request makes again when the last one is old.

use std::sync::{Arc, Weak};
use std::time::Duration;

use jiff::Timestamp;
use tokio::sync::{Mutex, Semaphore};
use tokio::time::{Instant, sleep};
use volmedic_panics::{blocking, caught};

use crate::{Heal, Moment, Snapshot, Source};

/// A snapshot is shown for this long. One that took long to make is shown longer, so that making snapshots never takes
/// more than a fifth of the time.
const FRESH: Duration = Duration::from_secs(1);
const SHARE: u32 = 5;
/// A snapshot without a request in this time is dropped.
const FORGOTTEN: Duration = Duration::from_secs(30);
/// Maximum number of browsers that listen to changes.
const LISTENERS: usize = 64;

pub(super) struct Desk {
    source: Arc<dyn Source>,
    kept: Arc<Mutex<Option<Kept>>>,
    pub(super) listeners: Arc<Semaphore>,
}

impl std::fmt::Debug for Desk {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Desk").finish_non_exhaustive()
    }
}

struct Kept {
    snapshot: Arc<Snapshot>,
    good_until: Instant,
    asked: Instant,
}

impl Desk {
    pub(super) fn new(source: Arc<dyn Source>) -> Self {
        Self { source, kept: Arc::default(), listeners: Arc::new(Semaphore::new(LISTENERS)) }
    }

    pub(super) fn source(&self) -> &dyn Source {
        &*self.source
    }

    /// What changed about a volume, and what was done to heal it.
    pub(super) async fn past(&self, driver: &str, volume: &str) -> (Vec<Arc<Moment>>, Vec<Heal>) {
        let (source, driver, volume) = (self.source.clone(), driver.to_owned(), volume.to_owned());
        let look = move || (source.story(&driver, &volume), source.heals(&driver, &volume));
        match caught(blocking(look)).await {
            Ok(past) => past,
            Err(panic) => {
                tracing::error!(panic, "internal error (bug): the page's history of a volume panicked");
                (Vec::new(), Vec::new())
            }
        }
    }

    /// Concurrent requests share one snapshot.
    pub(super) async fn snapshot(&self) -> Arc<Snapshot> {
        let mut kept = self.kept.lock().await;
        if let Some(kept) = kept.as_mut().filter(|kept| Instant::now() < kept.good_until) {
            kept.asked = Instant::now();
            return kept.snapshot.clone();
        }
        let began = Instant::now();
        let source = self.source.clone();
        let made = caught(blocking(move || Snapshot::new(Timestamp::now(), source.rows()))).await;
        let snapshot = match made {
            Ok(snapshot) => Arc::new(snapshot),
            // The snapshot of a moment ago is better than none.
            Err(panic) => {
                tracing::error!(panic, "internal error (bug): the page's list of volumes panicked");
                let last = kept.as_ref().map(|kept| kept.snapshot.clone());
                return last.unwrap_or_else(|| Arc::new(Snapshot::new(Timestamp::now(), Vec::new())));
            }
        };
        let good_until = Instant::now() + FRESH.max(began.elapsed() * SHARE);
        let first =
            kept.replace(Kept { snapshot: snapshot.clone(), good_until, asked: Instant::now() }).is_none();
        if first {
            tokio::spawn(forget(Arc::downgrade(&self.kept)));
        }
        snapshot
    }
}

/// Drops the snapshot when there are no more requests: a hundred thousand rows are worth having back.
async fn forget(kept: Weak<Mutex<Option<Kept>>>) {
    loop {
        sleep(FORGOTTEN).await;
        let Some(kept) = kept.upgrade() else { return };
        let mut kept = kept.lock().await;
        if kept.as_ref().is_none_or(|kept| kept.asked.elapsed() >= FORGOTTEN) {
            *kept = None;
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;
    use crate::{About, History, Row};

    struct Counting(AtomicUsize, History);

    impl Source for Counting {
        fn rows(&self) -> Vec<Row> {
            self.0.fetch_add(1, Ordering::Relaxed);
            Vec::new()
        }

        fn about(&self) -> About {
            About::default()
        }

        fn history(&self) -> &History {
            &self.1
        }
    }

    #[tokio::test(start_paused = true)]
    async fn many_questions_make_one_snapshot_and_a_forgotten_one_is_let_go() {
        let source = Arc::new(Counting(AtomicUsize::new(0), History::new(1)));
        let desk = Desk::new(source.clone());
        for _ in 0..10 {
            desk.snapshot().await;
        }
        assert_eq!(source.0.load(Ordering::Relaxed), 1);
        sleep(Duration::from_secs(2)).await;
        let snapshot = Arc::downgrade(&desk.snapshot().await);
        assert_eq!(source.0.load(Ordering::Relaxed), 2);
        sleep(FORGOTTEN / 2).await;
        assert!(snapshot.upgrade().is_some());
        sleep(FORGOTTEN * 2).await;
        assert!(snapshot.upgrade().is_none() && desk.kept.lock().await.is_none());
        desk.snapshot().await;
        assert_eq!(source.0.load(Ordering::Relaxed), 3);
    }
}
