//! Where inventory and hub meet: every watch, and how what it brings goes into the world.

mod controllers;

use std::collections::HashMap;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use kube::{Api, Client};
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::task::JoinSet;
use volmedic_api::{Arrived, Shape, slim};
use volmedic_hub::{
    AGENT_LEASE, Attachment, Claim, CsiNode, Lease, Now, Pod, Source, StoredHealth, StoredReport, Volume,
    World,
};
use volmedic_inventory::{Follower, Link, Nodes, Sink, Spared};

use volmedic_runtime::http::Check;

/// Pods that use something somewhere.
const PODS: &str = "spec.nodeName!=,status.phase!=Succeeded,status.phase!=Failed";

/// Watches end when this is dropped.
pub(super) struct Watches {
    pub(super) nodes: Arc<Nodes>,
    pub(super) nodes_woken: Arc<Notify>,
    pub(super) leases: Arc<Link>,
    links: Vec<Arc<Link>>,
    pub(super) tasks: JoinSet<Infallible>,
}

impl Watches {
    pub(super) fn start(
        client: &Client,
        agent_namespace: &str,
        world: &Arc<Mutex<World>>,
        woken: &Arc<Notify>,
    ) -> Self {
        let nodes_woken = Arc::new(Notify::new());
        let link = Arc::new(Link::new(slim::Node::PLURAL, nodes_woken.clone()));
        let nodes = Arc::new(Nodes::new(link.clone(), nodes_woken.clone()));
        let mut tasks = JoinSet::new();
        let api = Api::all(client.clone());
        tasks.spawn(Follower { api, fields: None, sink: nodes.clone(), link: link.clone() }.run());
        let leases = Arc::new(Link::new(Lease::PLURAL, woken.clone()));
        let mut watches = Self { nodes, nodes_woken, leases: leases.clone(), links: vec![link], tasks };

        let to = |source| (world.clone(), woken.clone(), source);
        let all = client.clone();
        let put = |world: &mut World, o: &Arrived<Claim>, body: &Claim| {
            world.put_claim(o.namespace(), o.name(), o.uid(), body);
        };
        watches.follow(Api::all(all.clone()), None, to(Source::Claims), put, World::remove_claim);
        let put = |world: &mut World, o: &Arrived<Volume>, body: &Volume| world.put_volume(o.name(), body);
        watches.follow(Api::all(all.clone()), None, to(Source::Volumes), put, |world, _, name| {
            world.remove_volume(name);
        });
        let put =
            |world: &mut World, o: &Arrived<Pod>, body: &Pod| world.put_pod(o.namespace(), o.name(), body);
        watches.follow(Api::all(all.clone()), Some(PODS), to(Source::Pods), put, World::remove_pod);
        let put = |world: &mut World, o: &Arrived<StoredHealth>, body: &StoredHealth| {
            world.put_stored(o.namespace(), o.name(), body);
        };
        watches.follow(Api::all(all.clone()), None, to(Source::Stored), put, World::remove_stored);
        let put = |world: &mut World, o: &Arrived<StoredReport>, body: &StoredReport| {
            world.put_report(o.name(), &body.spec.report);
            world.saw_report(o.resource_version());
        };
        watches.follow(Api::all(all.clone()), None, to(Source::Reports), put, |world, _, node| {
            world.remove_report(node);
        });
        let put =
            |world: &mut World, o: &Arrived<CsiNode>, body: &CsiNode| world.put_backends(o.name(), body);
        watches.follow(Api::all(all.clone()), None, to(Source::Backends), put, |world, _, node| {
            world.remove_csi_node(node);
        });
        let put = |world: &mut World, o: &Arrived<Attachment>, body: &Attachment| {
            world.put_attachment(o.name(), body);
        };
        watches.follow(Api::all(all.clone()), None, to(Source::Attachments), put, |world, _, name| {
            world.remove_attachment(name);
        });
        let put = |world: &mut World, o: &Arrived<Lease>, body: &Lease| {
            if let Some(node) = o.name().strip_prefix(AGENT_LEASE) {
                world.put_lease(now(), node, body);
            }
        };
        let take = |world: &mut World, _: &str, name: &str| {
            if let Some(node) = name.strip_prefix(AGENT_LEASE) {
                world.remove_lease(node);
            }
        };
        let feed = Feed::new(to(Source::Leases), put, take);
        watches.links.push(leases.clone());
        watches.tasks.spawn(controllers::look(all.clone(), world.clone(), woken.clone()));
        let api = Api::namespaced(all, agent_namespace);
        watches.tasks.spawn(Follower { api, fields: None, sink: Arc::new(feed), link: leases }.run());
        watches
    }

    fn follow<T: Shape>(
        &mut self,
        api: Api<Arrived<T>>,
        fields: Option<&str>,
        to: (Arc<Mutex<World>>, Arc<Notify>, Source),
        put: fn(&mut World, &Arrived<T>, &T),
        take: fn(&mut World, &str, &str),
    ) {
        let link = Arc::new(Link::new(T::PLURAL, to.1.clone()));
        self.links.push(link.clone());
        let sink = Arc::new(Feed::new(to, put, take));
        self.tasks.spawn(Follower { api, fields: fields.map(Into::into), sink, link }.run());
    }

    /// Not ready before enough was read, nor when out of touch for long.
    pub(super) fn ready_check(&self, world: &Arc<Mutex<World>>, limit: Duration) -> Check {
        let (links, world) = (self.links.clone(), world.clone());
        Box::new(move || {
            let stale = links.iter().filter_map(|link| Some((!link.is_ready(), link.staleness()?)));
            let ready = world.lock().is_ready();
            // What was never read at all is the more serious.
            let worst = stale.max_by_key(|(unread, stale)| (*unread, stale.age));
            match worst.map(|(_, stale)| stale) {
                Some(stale) if !ready || stale.age > limit => {
                    Err(format!("out of touch with the API server: {}", stale.why))
                }
                _ => Ok(()),
            }
        })
    }
}

/// Brings objects of one kind into the world.
struct Feed<T> {
    world: Arc<Mutex<World>>,
    woken: Arc<Notify>,
    source: Source,
    put: fn(&mut World, &Arrived<T>, &T),
    take: fn(&mut World, &str, &str),
    seen: Mutex<Seen>,
}

/// Which objects there are, and in which list each was last seen.
#[derive(Default)]
struct Seen {
    list: u32,
    names: HashMap<(Box<str>, Box<str>), u32>,
}

impl<T> Feed<T> {
    fn new(
        (world, woken, source): (Arc<Mutex<World>>, Arc<Notify>, Source),
        put: fn(&mut World, &Arrived<T>, &T),
        take: fn(&mut World, &str, &str),
    ) -> Self {
        Self { world, woken, source, put, take, seen: Mutex::default() }
    }
}

impl<T: Shape> Sink<T> for Feed<T> {
    fn begin(&self) {
        let mut seen = self.seen.lock();
        seen.list = seen.list.wrapping_add(1);
    }

    fn put(&self, object: &Arrived<T>, body: &T) -> Result<(), String> {
        {
            let mut seen = self.seen.lock();
            let list = seen.list;
            seen.names.insert((object.namespace().into(), object.name().into()), list);
        }
        (self.put)(&mut self.world.lock(), object, body);
        self.woken.notify_one();
        Ok(())
    }

    fn take(&self, object: &Arrived<T>) {
        self.seen.lock().names.remove(&(object.namespace().into(), object.name().into()));
        (self.take)(&mut self.world.lock(), object.namespace(), object.name());
        self.woken.notify_one();
    }

    fn sweep(&self, spared: &Spared) {
        let mut seen = self.seen.lock();
        let mut world = self.world.lock();
        let list = seen.list;
        seen.names.retain(|(namespace, name), last| {
            let stays = *last == list || spared.contains(namespace, name);
            if !stays {
                (self.take)(&mut world, namespace, name);
            }
            stays
        });
        world.heard(self.source);
        self.woken.notify_one();
    }
}

fn now() -> Now {
    Now { day: Timestamp::now(), clock: tokio::time::Instant::now().into_std() }
}
