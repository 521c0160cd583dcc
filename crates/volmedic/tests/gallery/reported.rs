//! What the agent reports, as it arrives: a watch on the events of a namespace.

use std::collections::BTreeMap;
use std::pin::pin;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::Event;
use kube::runtime::watcher;
use kube::{Api, Client};
use serde_json::Value;
use tokio_stream::StreamExt;

/// Generous, because the machine may be busy; everything waited for comes much sooner.
pub(crate) const PATIENCE: Duration = Duration::from_mins(4);
const ANNOTATION: &str = "volmedic.dev/story";

/// One event as it was then.
#[derive(Debug, Clone)]
pub(crate) struct Tale {
    pub(crate) seen: Instant,
    /// The pod or node that it is on.
    pub(crate) on: String,
    pub(crate) reason: String,
    pub(crate) message: String,
    /// `host` or `node`.
    pub(crate) vantage: String,
    /// As `Degraded/OutOfCapacity`, or `blindness`.
    pub(crate) what: String,
    pub(crate) open: bool,
}

impl Tale {
    fn of(event: Event) -> Self {
        let annotations = event.metadata.annotations.unwrap_or_default();
        let story = annotations.get(ANNOTATION).and_then(|text| serde_json::from_str(text).ok());
        let story: Value = story.unwrap_or_default();
        let word = |name: &str| story[name].as_str().unwrap_or_default();
        let what = match (word("status"), word("reason")) {
            ("", _) => word("about").to_owned(),
            (status, reason) => format!("{status}/{reason}"),
        };
        Self {
            seen: Instant::now(),
            on: event.involved_object.name.unwrap_or_default(),
            reason: event.reason.unwrap_or_default(),
            message: event.message.unwrap_or_default(),
            vantage: word("vantage").split('/').next().unwrap_or_default().to_owned(),
            what,
            open: word("state") == "open",
        }
    }
}

/// Everything that was reported in a namespace since the watch began.
#[derive(Debug, Clone, Default)]
pub(crate) struct Reported(Arc<Mutex<Vec<Tale>>>);

impl Reported {
    pub(crate) async fn watch(client: &Client, namespace: &str) -> Self {
        let reported = Self::default();
        let kept = reported.clone();
        let api: Api<Event> = Api::namespaced(client.clone(), namespace);
        let (ready, is_ready) = tokio::sync::oneshot::channel();
        tokio::spawn(async move {
            let mut ready = Some(ready);
            let mut events = pin!(watcher(api, watcher::Config::default()));
            while let Some(event) = events.next().await {
                match event {
                    Ok(watcher::Event::Apply(event) | watcher::Event::InitApply(event)) => {
                        kept.0.lock().unwrap().push(Tale::of(event));
                    }
                    Ok(watcher::Event::InitDone) => drop(ready.take().map(|ready| ready.send(()))),
                    // The watch is taken up again by itself.
                    _ => {}
                }
            }
        });
        tokio::time::timeout(PATIENCE, is_ready).await.unwrap().unwrap();
        reported
    }

    pub(crate) fn all(&self) -> Vec<Tale> {
        self.0.lock().unwrap().clone()
    }

    /// What was reported on an object from a vantage.
    pub(crate) fn on(&self, object: &str, vantage: &str) -> Vec<Tale> {
        let all = self.0.lock().unwrap();
        all.iter().filter(|tale| tale.on == object && tale.vantage == vantage).cloned().collect()
    }

    /// Waits until something is reported; answers when that was, or all that was reported instead.
    pub(crate) async fn wait(
        &self,
        object: &str,
        vantage: &str,
        is_it: impl Fn(&[Tale]) -> Option<Instant>,
    ) -> Result<Instant, String> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let tales = self.on(object, vantage);
            if let Some(seen) = is_it(&tales) {
                return Ok(seen);
            }
            if Instant::now() > deadline {
                let reported: Vec<_> = self.all().into_iter().filter(|tale| tale.on == object).collect();
                return Err(format!("there is {reported:#?}"));
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// Waits for this to be reported.
    pub(crate) async fn reported(&self, object: &str, vantage: &str, what: &str) -> Result<Instant, String> {
        let is_it = |tales: &[Tale]| Some(tales.iter().find(|tale| tale.open && tale.what == what)?.seen);
        self.wait(object, vantage, is_it).await.map_err(|there| format!("{what} is not told; {there}"))
    }

    /// Waits until everything that was reported is said to be over.
    pub(crate) async fn over(&self, object: &str, vantage: &str) -> Result<Instant, String> {
        let over = self.wait(object, vantage, |tales| {
            let all_over = latest(tales).values().all(|tale| !tale.open);
            all_over.then(|| tales.iter().map(|tale| tale.seen).max()).flatten()
        });
        over.await.map_err(|there| format!("its end is not told; {there}"))
    }
}

/// The last word on everything that was reported.
fn latest(tales: &[Tale]) -> BTreeMap<&str, &Tale> {
    tales.iter().map(|tale| (tale.what.as_str(), tale)).collect()
}
