//! Waits for events on many claims.

use std::collections::HashSet;
use std::pin::pin;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use futures_util::StreamExt;
use k8s_openapi::api::core::v1::Event;
use kube::api::{ListParams, WatchEvent, WatchParams};
use kube::{Api, Client};

/// The server ends a watch after this many seconds; then it goes on from where it was.
const WATCH_SECONDS: u32 = 290;

/// What came of waiting for an event on each of many claims.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Came {
    /// When the last of them had one.
    All(Instant),
    /// No more than this number of claims had one when the time was over.
    Only(usize),
}

/// The news from now on.
#[derive(Debug)]
pub(crate) struct News {
    events: Api<Event>,
    version: String,
}

impl News {
    pub(crate) async fn from_now(client: &Client) -> Result<Self> {
        let events = Api::<Event>::all(client.clone());
        let list = events.list(&ListParams::default().limit(1)).await.context("cannot list events")?;
        let version = list.metadata.resource_version.context("a list of events without version")?;
        Ok(Self { events, version })
    }

    /// Waits until `count` claims have had an event with this reason. Each claim counts once.
    pub(crate) async fn reported(&mut self, reason: &str, count: usize, limit: Duration) -> Result<Came> {
        let mut claims = HashSet::new();
        match tokio::time::timeout(limit, self.collect(reason, count, &mut claims)).await {
            Ok(reported) => Ok(Came::All(reported?)),
            Err(_) => Ok(Came::Only(claims.len())),
        }
    }

    async fn collect(&mut self, reason: &str, count: usize, claims: &mut HashSet<String>) -> Result<Instant> {
        loop {
            let params = WatchParams::default().timeout(WATCH_SECONDS);
            let events = self.events.watch(&params, &self.version).await.context("cannot watch events")?;
            let mut events = pin!(events);
            while let Some(event) = events.next().await {
                match event.context("the watch of events broke")? {
                    WatchEvent::Added(event) | WatchEvent::Modified(event) => {
                        self.version = event.metadata.resource_version.unwrap_or_default();
                        if event.reason.as_deref() == Some(reason) {
                            claims.extend(event.involved_object.uid);
                        }
                    }
                    WatchEvent::Deleted(event) => {
                        self.version = event.metadata.resource_version.unwrap_or_default();
                    }
                    WatchEvent::Bookmark(mark) => self.version = mark.metadata.resource_version,
                    WatchEvent::Error(status) => bail!("the watch of events ended: {}", status.message),
                }
                if claims.len() >= count {
                    return Ok(Instant::now());
                }
            }
        }
    }
}
