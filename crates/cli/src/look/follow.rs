//! Keeps a picture true by watches, for as long as it is shown.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use kube::{Api, Client};
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::task::JoinSet;
use volmedic_api::{Arrived, Shape};
use volmedic_inventory::{Follower, Link, Lists, Sink, Spared};

use super::list::Unread;
use super::picture::Picture;
use super::{LEASES, PODS, Scope};

/// Watches end when this is dropped.
pub(crate) struct Following {
    pub(crate) picture: Arc<Mutex<Picture>>,
    pub(crate) woken: Arc<Notify>,
    links: Vec<Arc<Link>>,
    tasks: JoinSet<std::convert::Infallible>,
}

impl Following {
    /// Follows all kinds but those that cannot be read.
    pub(crate) fn start(client: &Client, scope: &Scope, unread: BTreeMap<&'static str, Unread>) -> Self {
        let mut this = Self {
            picture: Arc::new(Mutex::new(Picture::without(unread))),
            woken: Arc::default(),
            links: Vec::new(),
            tasks: JoinSet::new(),
        };
        let all = || client.clone();
        let mut follow = Follow { this: &mut this };
        follow.kind(scope.api(client), None, Picture::put_claim, |p, namespace, name| {
            p.world.remove_claim(namespace, name);
        });
        follow.kind(Api::all(all()), None, Picture::put_volume, |p, _, name| p.world.remove_volume(name));
        follow.kind(scope.api(client), Some(PODS), Picture::put_pod, |p, namespace, name| {
            p.world.remove_pod(namespace, name);
        });
        follow.kind(scope.api(client), None, Picture::put_health, |p, namespace, name| {
            p.world.remove_stored(namespace, name);
        });
        follow.kind(Api::all(all()), None, Picture::put_node, |p, _, name| drop(p.nodes.remove(name)));
        follow.kind(Api::all(all()), None, Picture::put_report, |p, _, name| p.world.remove_report(name));
        follow.kind(Api::all(all()), Some(LEASES), Picture::put_lease, Picture::take_lease);
        follow.kind(Api::all(all()), None, Picture::put_csi_node, |p, _, name| p.take_csi_node(name));
        follow.kind(Api::all(all()), None, Picture::put_attachment, |p, _, name| {
            p.world.remove_attachment(name);
        });
        this
    }

    /// Whether everything was read once.
    pub(crate) fn is_ready(&self) -> bool {
        self.links.iter().all(|link| link.is_ready())
    }

    /// Why what is shown may be old, where it may.
    pub(crate) fn stale(&self) -> Option<String> {
        let stale = self.links.iter().filter_map(|link| link.staleness());
        let worst = stale.max_by_key(|stale| stale.age)?;
        Some(format!("{} are not up to date since {:.0}: {}", worst.resource, worst.since, worst.why))
    }

    pub(crate) fn end(&mut self) {
        self.tasks.abort_all();
    }
}

struct Follow<'a> {
    this: &'a mut Following,
}

impl Follow<'_> {
    fn kind<T: Shape>(
        &mut self,
        api: Api<Arrived<T>>,
        fields: Option<&str>,
        put: fn(&mut Picture, &Arrived<T>, &T),
        take: fn(&mut Picture, &str, &str),
    ) {
        if !self.this.picture.lock().has(T::PLURAL) {
            return;
        }
        let (picture, woken) = (self.this.picture.clone(), self.this.woken.clone());
        let link = Arc::new(Link::new(T::PLURAL, woken.clone()));
        self.this.links.push(link.clone());
        let sink =
            Arc::new(Feed { picture, woken, put, take, seen: Mutex::default(), before: Mutex::default() });
        let fields = fields.map(Into::into);
        self.this.tasks.spawn(Follower { api, fields, lists: Lists::Paged, sink, link }.run());
    }
}

type Names = HashSet<(Box<str>, Box<str>)>;

/// Brings objects of one kind into the picture.
struct Feed<T> {
    picture: Arc<Mutex<Picture>>,
    woken: Arc<Notify>,
    put: fn(&mut Picture, &Arrived<T>, &T),
    take: fn(&mut Picture, &str, &str),
    /// Since the list began, and before it did.
    seen: Mutex<Names>,
    before: Mutex<Names>,
}

impl<T: Shape> Sink<T> for Feed<T> {
    fn begin(&self) {
        let seen = std::mem::take(&mut *self.seen.lock());
        self.before.lock().extend(seen);
    }

    fn put(&self, object: &Arrived<T>, body: &T) -> Result<(), String> {
        self.seen.lock().insert((object.namespace().into(), object.name().into()));
        (self.put)(&mut self.picture.lock(), object, body);
        self.woken.notify_one();
        Ok(())
    }

    fn take(&self, object: &Arrived<T>) {
        self.seen.lock().remove(&(object.namespace().into(), object.name().into()));
        (self.take)(&mut self.picture.lock(), object.namespace(), object.name());
        self.woken.notify_one();
    }

    fn sweep(&self, spared: &Spared) {
        let before = std::mem::take(&mut *self.before.lock());
        let mut seen = self.seen.lock();
        for (namespace, name) in before {
            if seen.contains(&(namespace.clone(), name.clone())) {
                continue;
            }
            if spared.contains(&namespace, &name) {
                seen.insert((namespace, name));
            } else {
                (self.take)(&mut self.picture.lock(), &namespace, &name);
            }
        }
        self.woken.notify_one();
    }
}
