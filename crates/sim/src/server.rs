//! A model of the API server, as unpleasant as the real one, and the network between it and each process.

mod connection;
mod fields;
mod model;
mod request;
mod store;
mod watches;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::StatusCode;
use http_body::Frame;
use http_body_util::Channel;
use http_body_util::channel::Sender;
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::sync::watch;

use crate::dice::Dice;
use crate::log::Log;
pub(crate) use connection::{Connection, Death};
pub use model::Model;
use request::{Request, Verb};
pub(crate) use store::Unkept;
use store::{Key, Refusal, Store};

/// What the identities of replicas begin with.
const REPLICA: &str = "replica-";

type Response = http::Response<Channel<Bytes>>;

/// What is wrong with the server and its network right now.
#[derive(Debug, Clone, Default)]
pub(crate) struct Trouble {
    pub(crate) refuses: bool,
    pub(crate) hangs: bool,
    /// Code, Retry-After, and to which share of requests.
    pub(crate) busy: Option<(u16, Option<u32>, u32)>,
    /// The share of answers, and whether they never come instead of being cut off.
    pub(crate) lost: Option<(u32, bool)>,
    pub(crate) slow: Option<Duration>,
    pub(crate) forbids: bool,
    pub(crate) watches_silent: bool,
}

/// A write that the server carried out.
#[derive(Debug, Clone)]
pub(crate) struct Written {
    pub(crate) at: Duration,
    pub(crate) process: String,
    pub(crate) resource: String,
    pub(crate) name: String,
    /// `null` where it was created.
    pub(crate) before: Value,
    pub(crate) after: Value,
}

/// How the server is set up.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Setup {
    /// Nothing: it keeps the health of claims.
    pub(crate) health_of_claims: Option<Unkept>,
    pub(crate) has_volume_healths: bool,
    pub(crate) event_ttl: Duration,
}

#[derive(Debug, Clone)]
pub(crate) struct Server(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    log: Log,
    setup: Setup,
    store: Mutex<Store>,
    trouble: Mutex<Trouble>,
    dice: Mutex<Dice>,
    audit: Mutex<Vec<Written>>,
    /// The newest version, for watches; and how often they were cut.
    newest: watch::Sender<u64>,
    cuts: watch::Sender<u64>,
    requests: Mutex<u64>,
}

impl Server {
    pub(crate) fn new(log: Log, setup: Setup, dice: Dice) -> Self {
        let mut store = Store::new(setup.event_ttl);
        if let Some(unkept) = setup.health_of_claims {
            store.forget_status("persistentvolumeclaims", "healthStatus", unkept);
        }
        Self(Arc::new(Inner {
            log,
            setup,
            store: Mutex::new(store),
            trouble: Mutex::default(),
            dice: Mutex::new(dice),
            audit: Mutex::default(),
            newest: watch::Sender::new(0),
            cuts: watch::Sender::new(0),
            requests: Mutex::default(),
        }))
    }

    /// Changes what is wrong with it.
    pub(crate) fn trouble(&self, change: impl FnOnce(&mut Trouble)) {
        change(&mut self.0.trouble.lock());
    }

    pub(crate) fn compact(&self) {
        self.0.store.lock().compact();
        self.cut_watches();
    }

    pub(crate) fn cut_watches(&self) {
        self.0.cuts.send_modify(|cuts| *cuts += 1);
    }

    /// An object that an administrator or a provisioner made.
    pub(crate) fn install(&self, resource: &str, namespace: &str, name: &str, body: Value) {
        let key = (resource.to_owned(), namespace.to_owned(), name.to_owned());
        let _ = self.0.store.lock().create(self.0.log.now(), &wall(), key, body, "admin");
    }

    fn rewrite(&self, key: Key) -> Option<String> {
        let mut store = self.0.store.lock();
        let object = store.find(&key)?.clone();
        let written = store.put(self.0.log.now(), key, object, "MODIFIED");
        self.0.newest.send_replace(store.version());
        written["metadata"]["resourceVersion"].as_str().map(str::to_owned)
    }

    pub(crate) fn audit(&self) -> Vec<Written> {
        self.0.audit.lock().clone()
    }

    pub(crate) fn requests(&self) -> u64 {
        *self.0.requests.lock()
    }

    pub(crate) fn object(&self, resource: &str, namespace: &str, name: &str) -> Option<Value> {
        self.0.store.lock().find(&(resource.to_owned(), namespace.to_owned(), name.to_owned())).cloned()
    }

    /// Which replica holds a Lease.
    fn leader(&self) -> Option<String> {
        let store = self.0.store.lock();
        let holder = |lease: &Value| lease["spec"]["holderIdentity"].as_str().map(str::to_owned);
        // There is another one, which says that the controller lives.
        store.all("leases").filter_map(holder).find(|holder| holder.starts_with(REPLICA))
    }

    /// Carries a request out, unless the server has no time for it.
    fn answer(&self, process: &str, request: &Request) -> Response {
        let trouble = self.0.trouble.lock().clone();
        if let Some((code, after, share)) = trouble.busy
            && self.0.dice.lock().percent(share)
        {
            let mut refusal = Refusal::new(code, "ServerBusy", "the server is busy".to_owned());
            refusal.details = json!({"retryAfterSeconds": after.unwrap_or(0)});
            return respond(&Err(refusal));
        }
        if trouble.forbids {
            let message = format!("{} is forbidden: not yet synced", request.resource);
            return respond(&Err(Refusal::new(403, "Forbidden", message)));
        }
        match self.watch(request) {
            Some(watch) => watch,
            None => respond(&self.carry_out(process, request)),
        }
    }

    fn carry_out(&self, process: &str, request: &Request) -> Result<Value, Refusal> {
        let Inner { log, setup, store, .. } = &*self.0;
        let now = log.now();
        let Request { verb, resource, namespace, name, status, manager, force, .. } = request;
        let is_known = ["events", "persistentvolumeclaims", "persistentvolumes", "leases", "csidrivers"]
            .contains(&&**resource)
            || resource == "volumehealths" && setup.has_volume_healths;
        if !is_known {
            return Err(Refusal::new(
                404,
                "NotFound",
                "the server could not find the requested resource".to_owned(),
            ));
        }
        let mut store = store.lock();
        store.expire(now);
        let key: Key = (resource.clone(), namespace.clone(), name.clone());
        let before = store.find(&key).cloned().unwrap_or_default();
        let version = store.version();
        let answer = match verb {
            Verb::Get => store.get(&key),
            Verb::List { source, token, limit } => {
                store.list(resource, source.as_deref(), token.as_deref(), *limit)
            }
            Verb::Create(body) => store.create(now, &wall(), key, body.clone(), manager),
            Verb::Replace(body) => store.replace(now, &wall(), key, body.clone()),
            Verb::Merge(body) => store.merge(now, key, body, *status),
            Verb::Apply(body) if *status => store.apply_status(now, key, body, manager, *force),
            Verb::Delete => store.delete(&key),
            Verb::Apply(_) | Verb::Watch { .. } | Verb::Other(_) => {
                // A test that needs it has to model it first.
                log.add(format!("MODEL: no answer for {request}"));
                Err(Refusal::new(405, "MethodNotAllowed", "the model does not know this request".to_owned()))
            }
        };
        if let Ok(after) = &answer
            && store.version() != version
        {
            self.0.newest.send_replace(store.version());
            if resource != "leases" {
                let (process, resource, name) = (process.to_owned(), resource.clone(), name.clone());
                self.0.audit.lock().push(Written {
                    at: now,
                    process,
                    resource,
                    name,
                    before,
                    after: after.clone(),
                });
            }
        }
        answer
    }
}

/// The server's clock is right.
fn wall() -> String {
    jiff::Timestamp::from_second(crate::clock::BEGINNING).map(|time| time.to_string()).unwrap_or_default()
}

fn respond(answer: &Result<Value, Refusal>) -> Response {
    let (code, body) = match answer {
        Ok(body) => (200, body.clone()),
        Err(refusal) => (refusal.code, refusal.body()),
    };
    let (mut sender, mut response) = stream();
    // There is room for it.
    let _ = sender.try_send(Frame::data(body.to_string().into()));
    *response.status_mut() = StatusCode::from_u16(code).unwrap_or_default();
    response
}

/// A body that is written as it goes on.
fn stream() -> (Sender<Bytes>, Response) {
    let (sender, body) = Channel::new(16);
    (sender, Response::new(body))
}
