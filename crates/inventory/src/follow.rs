//! Reads all objects of a kind and then follows their changes, for ever.
//!
//! kube's own watcher does the same but keeps to itself when it is in touch again: after an outage it says nothing
//! until an object changes, which may take days. We have to know, so we list and watch ourselves.
//!
//! Long lists are read in pages of the newest state. A list of "any" state could come from the API server's cache, but
//! older servers then ignore the page size and send everything in one answer. For a list that a selector keeps short that is no
//! matter, and it spares etcd: there, the list of one node's pods is a reading of all pods of the cluster.

mod names;

use std::collections::HashSet;
use std::convert::Infallible;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use kube::Api;
use kube::api::{ListParams, VersionMatch, WatchEvent, WatchParams};
use kube::runtime::watcher::DefaultBackoff;
use tokio::time::{Instant, sleep, timeout};
use volmedic_api::{Arrived, Shape};

use crate::link::Link;
use crate::trouble::{Trouble, Verb};
pub use names::KnownNames;

const PAGE: u32 = 500;
/// Ten million objects. No list is that long, so one that is does not end.
const MAX_PAGES: usize = 20_000;
/// For one page, or for the beginning of a watch.
const ANSWER: Duration = Duration::from_secs(30);
/// After this many seconds the server ends the watch, and a new one goes on from there.
const WATCH_SECONDS: u32 = 290;
/// Bookmarks come about once a minute. A watch without a message for longer than this is dead, or the server sends none; in
/// both cases beginning a new one costs next to nothing.
const QUIET: Duration = Duration::from_secs(150);
/// A watch that ends sooner than this did not work.
const TOO_SOON: Duration = Duration::from_secs(5);
/// Longest wait between two attempts; the backoff's own limit, for the case that it had an end.
const LONGEST_WAIT: Duration = Duration::from_secs(30);

/// Where objects go. Everything in here is quick and does not fail for good.
pub trait Sink<T>: Send + Sync + 'static {
    /// A list begins. It may break off and begin again.
    fn begin(&self);
    /// The object is there, in this state. An error says why it makes no sense; what was known of it stays.
    fn put(&self, object: &Arrived<T>, body: &T) -> Result<(), String>;
    /// The object is gone.
    fn take(&self, object: &Arrived<T>);
    /// The list is complete. What was not put since it began is gone, except for what is spared.
    fn sweep(&self, spared: &Spared);
}

/// Objects that are there but could not be read.
#[derive(Debug, Default)]
pub struct Spared {
    names: HashSet<(Box<str>, Box<str>)>,
    /// There were too many to remember.
    all: bool,
}

impl Spared {
    const LIMIT: usize = 1000;

    pub fn contains(&self, namespace: &str, name: &str) -> bool {
        self.all || !self.names.is_empty() && self.names.contains(&(namespace.into(), name.into()))
    }

    #[cfg(test)]
    pub(crate) fn of(names: &[(&str, &str)]) -> Self {
        let names = names.iter().map(|(namespace, name)| ((*namespace).into(), (*name).into())).collect();
        Self { names, all: false }
    }

    fn note<T>(&mut self, object: &Arrived<T>) {
        if self.names.len() < Self::LIMIT {
            self.names.insert((object.namespace().into(), object.name().into()));
        } else {
            self.all = true;
        }
    }
}

/// Where the API server takes lists from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Lists {
    /// Pages of the newest state, each of them read from etcd. For lists of any length.
    #[default]
    Paged,
    /// One answer from the API server's cache, which may be a moment old, but never older than what was seen before. Only
    /// for lists that a selector keeps short.
    Cached,
}

/// What a list has to show at least.
#[derive(Debug, Clone, PartialEq, Eq)]
enum State {
    Newest,
    /// Whatever the API server has at hand.
    Any,
    NotOlderThan(String),
}

/// One kind of object, and where it goes.
#[derive(Debug)]
pub struct Follower<T: Shape, S> {
    pub api: Api<Arrived<T>>,
    /// A field selector.
    pub fields: Option<Box<str>>,
    pub lists: Lists,
    pub sink: Arc<S>,
    pub link: Arc<Link>,
}

impl<T: Shape, S: Sink<T>> Follower<T, S> {
    /// Never ends.
    pub async fn run(self) -> Infallible {
        let _goodbye = Goodbye(&self.link);
        let mut backoff = DefaultBackoff::default();
        let mut version = None;
        let mut state = match self.lists {
            Lists::Paged => State::Newest,
            Lists::Cached => State::Any,
        };
        loop {
            let outcome = match &mut version {
                None => self.list(&state).await.map(|listed| version = Some(listed)),
                Some(version) => self.watch(version).await,
            };
            let Err(trouble) = outcome else { continue };
            if trouble.is_ahead_of_server() {
                // Its cache is far behind, or the cluster was restored from a backup and counts from further back.
                state = State::Newest;
            } else if trouble.needs_list()
                && let Some(seen) = version.take()
                && self.lists == Lists::Cached
            {
                state = State::NotOlderThan(seen);
            }
            self.link.lost(&trouble);
            sleep(backoff.next().unwrap_or(LONGEST_WAIT).max(trouble.wait())).await;
        }
    }

    /// The version that the list shows.
    async fn list(&self, state: &State) -> Result<String, Trouble> {
        let resource = T::PLURAL;
        let mut params = self.list_params(state);
        let mut spared = Spared::default();
        self.sink.begin();
        let mut pages = 0;
        while pages < MAX_PAGES {
            pages += 1;
            let silent = |_| Trouble::Silent { verb: Verb::List, resource, after: ANSWER };
            let page = timeout(ANSWER, self.api.list(&params)).await.map_err(silent)?;
            let page = page.map_err(|error| trouble::<T>(Verb::List, error))?;
            for object in &page.items {
                if !self.put(object) {
                    spared.note(object);
                }
            }
            match page.metadata.continue_.filter(|token| !token.is_empty()) {
                Some(token) if params.continue_token.as_ref() == Some(&token) => break,
                Some(token) => params.continue_token = Some(token),
                None => {
                    let version = page.metadata.resource_version.filter(|version| !version.is_empty());
                    let Some(version) = version else {
                        let why = "it has no resourceVersion".to_owned();
                        return Err(Trouble::Nonsense { verb: Verb::List, resource, why });
                    };
                    self.sink.sweep(&spared);
                    self.link.listed();
                    return Ok(version);
                }
            }
        }
        Err(Trouble::Endless { resource, pages })
    }

    fn list_params(&self, state: &State) -> ListParams {
        let all =
            ListParams { field_selector: self.fields.as_deref().map(str::to_owned), ..ListParams::default() };
        match state {
            State::Newest => all.limit(PAGE),
            // With a limit, some servers read etcd after all.
            State::Any => all.at("0").matching(VersionMatch::NotOlderThan),
            State::NotOlderThan(version) => all.at(version).matching(VersionMatch::NotOlderThan),
        }
    }

    /// Returns when the watch ended as watches do. `version` moves on with every event.
    async fn watch(&self, version: &mut String) -> Result<(), Trouble> {
        let (verb, resource) = (Verb::Watch, T::PLURAL);
        let params = WatchParams {
            field_selector: self.fields.as_deref().map(str::to_owned),
            timeout: Some(WATCH_SECONDS),
            ..WatchParams::default()
        };
        let silent = |_| Trouble::Silent { verb, resource, after: ANSWER };
        let events = timeout(ANSWER, self.api.watch(&params, version)).await.map_err(silent)?;
        let mut events = pin!(events.map_err(|error| trouble::<T>(verb, error))?);
        let began = Instant::now();
        self.link.in_touch();
        loop {
            let heard = Instant::now();
            let Ok(event) = timeout(QUIET, events.next()).await else {
                self.link.doubted(heard);
                return Ok(());
            };
            let event = match event {
                Some(event) => event.map_err(|error| trouble::<T>(verb, error))?,
                None if began.elapsed() < TOO_SOON => return Err(Trouble::Cut { resource }),
                None => return Ok(()),
            };
            match event {
                WatchEvent::Added(object) | WatchEvent::Modified(object) => {
                    self.put(&object);
                    advance(version, object.resource_version());
                }
                WatchEvent::Deleted(object) => {
                    self.sink.take(&object);
                    advance(version, object.resource_version());
                }
                WatchEvent::Bookmark(mark) => advance(version, &mark.metadata.resource_version),
                WatchEvent::Error(status) => {
                    return Err(Trouble::from_status(verb, resource, T::GROUP, &status));
                }
            }
        }
    }

    /// Whether the object could be read.
    fn put(&self, object: &Arrived<T>) -> bool {
        let put = match &object.body {
            Ok(body) => self.sink.put(object, body),
            Err(malformed) => Err(malformed.why.clone()),
        };
        if let Err(why) = &put {
            self.link.skipped(object.namespace(), object.name(), why);
        }
        put.is_ok()
    }
}

fn trouble<T: Shape>(verb: Verb, error: kube::Error) -> Trouble {
    Trouble::new(verb, T::PLURAL, T::GROUP, error)
}

fn advance(version: &mut String, to: &str) {
    if !to.is_empty() {
        version.clear();
        version.push_str(to);
    }
}

/// Nobody may believe that an inventory is up to date when its task is gone, be it by a bug of ours.
pub(crate) struct Goodbye<'a>(pub(crate) &'a Link);

impl Drop for Goodbye<'_> {
    fn drop(&mut self) {
        self.0.abandoned();
    }
}

#[cfg(test)]
mod tests;
