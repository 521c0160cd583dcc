//! Writing the metrics, off the thread that does the role's work, once for all scrapers that wait at the same time.

use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use axum::body::{Body, Bytes};
use axum::extract::{Extension, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use parking_lot::Mutex as Lock;
use prometheus_client::encoding::text::encode;
use prometheus_client::registry::Registry;
use tokio::sync::Mutex;
use tokio::time::timeout;
use volmedic_listen::Peer;
use volmedic_panics::{blocking, caught};

/// Time for which a scraper waits for its turn and its text.
const LIMIT: Duration = Duration::from_secs(10);
/// Maximum number of texts in memory beside the one that is being written. Scrapers that still read an older one are
/// dropped.
const MOST_TEXTS: usize = 2;

pub(super) struct Scrapes {
    registry: Arc<Registry>,
    turn: Arc<Mutex<Vec<Sent>>>,
}

/// A text that is being sent.
struct Sent {
    began: Instant,
    text: Weak<Text>,
}

struct Text {
    bytes: Vec<u8>,
    /// Ends the connections on which it is sent.
    closers: Lock<Vec<Box<dyn Fn() + Send + Sync>>>,
}

/// One use of a text.
struct Shared(Arc<Text>);

impl AsRef<[u8]> for Shared {
    fn as_ref(&self) -> &[u8] {
        &self.0.bytes
    }
}

impl Scrapes {
    pub(super) fn new(registry: Arc<Registry>) -> Self {
        Self { registry, turn: Arc::default() }
    }

    /// A text that was begun after this call: one's own, or that of another scraper.
    async fn text(&self) -> Result<Arc<Text>, String> {
        let asked = Instant::now();
        // The turn is kept by the thread that writes, so that a scraper that went away does not let a second one begin.
        let mut sent = self.turn.clone().lock_owned().await;
        if let Some(last) = sent.last().filter(|last| last.began >= asked)
            && let Some(text) = last.text.upgrade()
        {
            return Ok(text);
        }
        let registry = self.registry.clone();
        let written = blocking(move || {
            sent.retain(|sent| sent.text.strong_count() > 0);
            while sent.len() >= MOST_TEXTS {
                if let Some(text) = sent.remove(0).text.upgrade() {
                    text.closers.lock().iter().for_each(|close| close());
                }
            }
            let (began, mut written) = (Instant::now(), String::new());
            encode(&mut written, &registry).map_err(|error| format!("cannot write the metrics: {error}"))?;
            let text = Arc::new(Text { bytes: written.into_bytes(), closers: Lock::default() });
            sent.push(Sent { began, text: Arc::downgrade(&text) });
            Ok(text)
        });
        caught(written)
            .await
            .unwrap_or_else(|panic| Err(format!("cannot write the metrics: internal error (bug): {panic}")))
    }
}

pub(super) async fn scrape(State(scrapes): State<Arc<Scrapes>>, peer: Option<Extension<Peer>>) -> Response {
    match timeout(LIMIT, scrapes.text()).await {
        Ok(Ok(text)) => {
            if let Some(Extension(peer)) = peer {
                text.closers.lock().push(Box::new(peer.closer()));
            }
            let kind = "application/openmetrics-text; version=1.0.0; charset=utf-8";
            ([(header::CONTENT_TYPE, kind)], Body::from(Bytes::from_owner(Shared(text)))).into_response()
        }
        Ok(Err(why)) => (StatusCode::INTERNAL_SERVER_ERROR, why).into_response(),
        Err(_) => {
            let why = "the metrics are still being written for other scrapers; try again later";
            (StatusCode::SERVICE_UNAVAILABLE, why).into_response()
        }
    }
}
