//! Where the driver itself checks whether it is to misbehave.

use std::future::Future;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use tonic::Status;
use tower::{Layer, Service};

use super::{Fault, notes};

const SLOW: Duration = Duration::from_secs(5);

/// Checks before every call. Costs one failed read of a folder while nothing is injected.
#[derive(Clone, Debug)]
pub(crate) struct Misbehave {
    folder: Arc<Path>,
}

impl Misbehave {
    pub(crate) fn new(state_root: &Path) -> Self {
        Self { folder: state_root.join(notes::FOLDER).into() }
    }
}

impl<S> Layer<S> for Misbehave {
    type Service = Misbehaving<S>;

    fn layer(&self, inner: S) -> Misbehaving<S> {
        Misbehaving { inner, folder: Arc::clone(&self.folder) }
    }
}

#[derive(Clone, Debug)]
pub(crate) struct Misbehaving<S> {
    inner: S,
    folder: Arc<Path>,
}

impl<S, Q> Service<tonic::codegen::http::Request<Q>> for Misbehaving<S>
where
    S: Service<
            tonic::codegen::http::Request<Q>,
            Response = tonic::codegen::http::Response<tonic::body::Body>,
        > + Clone
        + Send
        + 'static,
    S::Future: Send,
    Q: Send + 'static,
{
    type Response = S::Response;
    type Error = S::Error;
    type Future = Pin<Box<dyn Future<Output = Result<S::Response, S::Error>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: tonic::codegen::http::Request<Q>) -> Self::Future {
        let has = |fault: Fault| self.folder.join(fault.name()).is_dir();
        let (slow, fails) = if self.folder.is_dir() {
            (has(Fault::DriverSlow), has(Fault::DriverErrors))
        } else {
            (false, false)
        };
        // The one that was asked whether it is ready is the one to call.
        let fresh = self.inner.clone();
        let mut ready = std::mem::replace(&mut self.inner, fresh);
        Box::pin(async move {
            if slow {
                tokio::time::sleep(SLOW).await;
            }
            if fails {
                return Ok(Status::unavailable("the fault driver-errors is injected; clear it to be served")
                    .into_http());
            }
            ready.call(request).await
        })
    }
}

/// Whether pages are to be inconsistent, and which way this time.
#[derive(Debug)]
pub(crate) struct Pages {
    note: PathBuf,
    turn: AtomicU64,
}

impl Pages {
    pub(crate) fn new(state_root: &Path) -> Self {
        let note = state_root.join(notes::FOLDER).join(Fault::InconsistentPages.name());
        Self { note, turn: AtomicU64::new(0) }
    }

    /// Leaves the first entry out, or lists it twice, by turns.
    pub(crate) fn spoil<T: Clone>(&self, entries: &mut Vec<T>) {
        if entries.is_empty() || !self.note.is_dir() {
            return;
        }
        if self.turn.fetch_add(1, Ordering::Relaxed).is_multiple_of(2) {
            entries.remove(0);
        } else {
            entries.push(entries[0].clone());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_are_whole_without_a_fault() {
        let state = tempfile::tempdir().unwrap();
        let pages = Pages::new(state.path());
        let page = || {
            let mut entries = vec![1, 2];
            pages.spoil(&mut entries);
            entries
        };
        assert_eq!(page(), [1, 2]);
        std::fs::create_dir_all(state.path().join("faults/inconsistent-pages")).unwrap();
        assert_eq!([page(), page(), page()], [vec![2], vec![1, 2, 1], vec![2]]);
    }
}
