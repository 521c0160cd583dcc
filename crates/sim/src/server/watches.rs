//! Watches: changes as they come, bookmarks, silence, and their end.

use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::{Instant, sleep_until};

use super::request::{Request, Verb};
use super::store::Refusal;
use super::{Response, Server, respond, stream};

const BOOKMARK_EVERY: Duration = Duration::from_mins(1);

impl Server {
    /// `None` if the request is no watch.
    pub(super) fn watch(&self, request: &Request) -> Option<Response> {
        let Verb::Watch { from, seconds } = request.verb else { return None };
        let resource = request.resource.clone();
        if self.0.store.lock().since(from, &resource).is_none() {
            let refusal = Refusal::expired();
            if self.0.dice.lock().percent(50) {
                return Some(respond(&Err(refusal)));
            }
            let (mut sender, response) = stream();
            tokio::spawn(async move {
                let _ = sender.send_data(line("ERROR", &refusal.body())).await;
            });
            return Some(response);
        }
        let (mut sender, response) = stream();
        let server = self.clone();
        tokio::spawn(async move {
            let mut newest = server.0.newest.subscribe();
            let mut cuts = server.0.cuts.subscribe();
            cuts.mark_unchanged();
            let end = Instant::now() + Duration::from_secs(seconds);
            let mut bookmark = Instant::now() + BOOKMARK_EVERY;
            let mut sent = from;
            loop {
                newest.mark_unchanged();
                let silent = server.0.trouble.lock().watches_silent;
                let changes =
                    if silent { Some(Vec::new()) } else { server.0.store.lock().since(sent, &resource) };
                let Some(changes) = changes else {
                    let _ = sender.send_data(line("ERROR", &Refusal::expired().body())).await;
                    return;
                };
                for change in changes {
                    sent = change.version;
                    if sender.send_data(line(change.kind, &change.object)).await.is_err() {
                        return;
                    }
                }
                if !silent && Instant::now() >= bookmark {
                    bookmark = Instant::now() + BOOKMARK_EVERY;
                    sent = server.0.store.lock().version();
                    let mark = json!({"kind": "x", "apiVersion": "v1", "metadata": {"resourceVersion": sent.to_string()}});
                    if sender.send_data(line("BOOKMARK", &mark)).await.is_err() {
                        return;
                    }
                }
                let wake = if silent { Instant::now() + BOOKMARK_EVERY } else { bookmark };
                tokio::select! {
                    biased;
                    // Cut in the middle, without a word.
                    _ = cuts.changed() => return,
                    () = sleep_until(end) => return,
                    _ = newest.changed(), if !silent => {}
                    () = sleep_until(wake) => {}
                }
            }
        });
        Some(response)
    }
}

/// With the type first, as the API server writes it.
fn line(kind: &str, object: &Value) -> bytes::Bytes {
    format!("{{\"type\":\"{kind}\",\"object\":{object}}}\n").into()
}
