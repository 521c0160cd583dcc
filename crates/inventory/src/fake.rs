//! Objects and an API server for tests: one that answers by script, where the real one could not be made to.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::Channel;
use kube::Client;
use kube::client::Body;
use parking_lot::Mutex;
use serde_json::{Value, json};
use tower::service_fn;
use volmedic_api::{Arrived, Shape};

pub(crate) const DRIVER: &str = "disk.example.net";

/// An object as if it had come from the API server.
pub(crate) fn arrived<T: Shape>(object: &Value) -> Arrived<T> {
    serde_json::from_str(&object.to_string()).unwrap()
}

/// A PersistentVolume of our driver. `claim` is `namespace/name/uid`, or empty if it has none and is Released.
pub(crate) fn volume(name: &str, handle: &str, claim: &str) -> Value {
    let mut parts = claim.split('/');
    let [namespace, claim, uid] = [(); 3].map(|()| parts.next().unwrap_or_default());
    let claim_ref = json!({"namespace": namespace, "name": claim, "uid": uid});
    json!({
        "metadata": {"name": name, "resourceVersion": "1"},
        "spec": {"csi": {"driver": DRIVER, "volumeHandle": handle}, "claimRef": claim_ref},
        "status": {"phase": if claim.is_empty() { "Released" } else { "Bound" }},
    })
}

/// A page of a list.
pub(crate) fn page(items: &[Value], version: &str, next: &str) -> Reply {
    let metadata = json!({"resourceVersion": version, "continue": next});
    Reply::Body(
        200,
        json!({"kind": "List", "apiVersion": "v1", "metadata": metadata, "items": items}).to_string(),
    )
}

pub(crate) fn failure(code: u16, reason: &str, message: &str) -> Reply {
    Reply::Body(code, status(code, reason, message).to_string())
}

pub(crate) fn status(code: u16, reason: &str, message: &str) -> Value {
    json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code, "reason": reason, "message": message})
}

/// A watch that says these things and then stays open for this number of seconds.
pub(crate) fn watch(events: &[(&str, Value)], seconds: u64) -> Reply {
    let line = |(kind, object): &(&str, Value)| format!("{{\"type\":\"{kind}\",\"object\":{object}}}\n");
    Reply::Lines(events.iter().map(line).collect(), Duration::from_secs(seconds))
}

pub(crate) fn bookmark(version: &str) -> (&'static str, Value) {
    ("BOOKMARK", json!({"kind": "x", "apiVersion": "v1", "metadata": {"resourceVersion": version}}))
}

#[derive(Debug)]
pub(crate) enum Reply {
    Body(u16, String),
    Lines(Vec<String>, Duration),
    Never,
}

/// Answers each request with the next reply, and keeps silent after the last.
#[derive(Debug, Clone)]
pub(crate) struct Server {
    replies: Arc<Mutex<VecDeque<Reply>>>,
    asked: Arc<Mutex<Vec<String>>>,
}

impl Server {
    pub(crate) fn new(replies: impl IntoIterator<Item = Reply>) -> Self {
        Self { replies: Arc::new(Mutex::new(replies.into_iter().collect())), asked: Arc::default() }
    }

    pub(crate) fn client(&self) -> Client {
        let server = self.clone();
        Client::new(service_fn(move |request| server.clone().answer(request)), "default")
    }

    /// Paths and queries, in the order in which they came.
    pub(crate) fn asked(&self) -> Vec<String> {
        self.asked.lock().clone()
    }

    async fn answer(self, request: Request<Body>) -> Result<Response<Channel<Bytes>>, Infallible> {
        self.asked.lock().push(request.uri().to_string());
        let reply = self.replies.lock().pop_front().unwrap_or(Reply::Never);
        let (code, chunks, open) = match reply {
            Reply::Body(code, text) => (code, vec![text], Duration::ZERO),
            Reply::Lines(lines, open) => (200, lines, open),
            Reply::Never => std::future::pending().await,
        };
        let (mut sender, body) = Channel::new(1);
        tokio::spawn(async move {
            for chunk in chunks {
                if sender.send_data(chunk.into()).await.is_err() {
                    return;
                }
            }
            tokio::time::sleep(open).await;
        });
        Ok(Response::builder().status(code).body(body).unwrap())
    }
}
