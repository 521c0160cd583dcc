//! Where inventory and hub meet: every watch, and how what it brings goes into the world.

mod controllers;

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
use volmedic_inventory::{Follower, KnownNames, Link, Lists, Nodes, Sink, Spared};

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
        let lists = Lists::Paged;
        tasks.spawn(Follower { api, fields: None, lists, sink: nodes.clone(), link: link.clone() }.run());
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
        let feed = lease_feed(agent_namespace, to(Source::Leases));
        watches.links.push(leases.clone());
        watches.tasks.spawn(controllers::look(all.clone(), world.clone(), woken.clone()));
        let api = Api::namespaced(all, agent_namespace);
        let sink = Arc::new(feed);
        watches.tasks.spawn(Follower { api, fields: None, lists, sink, link: leases }.run());
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
        let fields = fields.map(Into::into);
        self.tasks.spawn(Follower { api, fields, lists: Lists::Paged, sink, link }.run());
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

/// The world knows an agent's Lease by the name of the node.
fn lease_feed(namespace: &str, to: (Arc<Mutex<World>>, Arc<Notify>, Source)) -> Feed<Lease> {
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
    let mut feed = Feed::new(to, put, take);
    let namespace = namespace.to_owned();
    feed.names = Box::new(move |world, each| {
        world.each_name(Source::Leases, &mut |_, node| each(&namespace, &format!("{AGENT_LEASE}{node}")));
    });
    feed
}

/// Brings objects of one kind into the world.
struct Feed<T> {
    world: Arc<Mutex<World>>,
    woken: Arc<Notify>,
    source: Source,
    put: fn(&mut World, &Arrived<T>, &T),
    take: fn(&mut World, &str, &str),
    /// The namespaces and names of the objects that the world knows.
    names: Names,
    /// Which of them came from here.
    known: Mutex<KnownNames>,
}

type Names = Box<dyn Fn(&World, &mut dyn FnMut(&str, &str)) + Send + Sync>;

impl<T> Feed<T> {
    fn new(
        (world, woken, source): (Arc<Mutex<World>>, Arc<Notify>, Source),
        put: fn(&mut World, &Arrived<T>, &T),
        take: fn(&mut World, &str, &str),
    ) -> Self {
        let names = Box::new(move |world: &World, each: &mut dyn FnMut(&str, &str)| {
            world.each_name(source, each);
        });
        Self { world, woken, source, put, take, names, known: Mutex::default() }
    }
}

impl<T: Shape> Sink<T> for Feed<T> {
    fn begin(&self) {
        self.known.lock().begin();
    }

    fn put(&self, object: &Arrived<T>, body: &T) -> Result<(), String> {
        self.known.lock().put(object.namespace(), object.name());
        (self.put)(&mut self.world.lock(), object, body);
        self.woken.notify_one();
        Ok(())
    }

    fn take(&self, object: &Arrived<T>) {
        self.known.lock().take(object.namespace(), object.name());
        (self.take)(&mut self.world.lock(), object.namespace(), object.name());
        self.woken.notify_one();
    }

    /// Goes through what the world knows, because only hashes are kept of what came. What the hub itself has put there,
    /// such as an object that it has just written, did not come and stays.
    fn sweep(&self, spared: &Spared) {
        let mut world = self.world.lock();
        let gone = self.known.lock().sweep(spared, |each| (self.names)(&world, each));
        for (namespace, name) in &gone {
            (self.take)(&mut world, namespace, name);
        }
        world.heard(self.source);
        self.woken.notify_one();
    }
}

fn now() -> Now {
    Now { day: Timestamp::now(), clock: tokio::time::Instant::now().into_std() }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn arrived<T: Shape>(namespace: &str, name: &str) -> Arrived<T> {
        let object = json!({"metadata": {"namespace": namespace, "name": name, "uid": "u"}});
        serde_json::from_str(&object.to_string()).expect("an object as the API server gives it")
    }

    /// A list that shows these objects.
    fn list<T: Shape>(feed: &Feed<T>, names: &[&str]) {
        feed.begin();
        for name in names {
            let object = arrived::<T>("shop", name);
            let body = object.body.as_ref().expect("it can be read");
            feed.put(&object, body).expect("it makes sense");
        }
        feed.sweep(&Spared::default());
    }

    fn names(world: &Mutex<World>, source: Source) -> Vec<String> {
        let mut names = Vec::new();
        world.lock().each_name(source, &mut |_, name| names.push(name.to_owned()));
        names.sort();
        names
    }

    /// The hub writes an object after the API server has made the list, and before it has read the list to its end.
    #[test]
    fn a_list_takes_away_what_it_lacks_and_never_what_the_hub_has_written_itself() {
        let world = Arc::new(Mutex::new(World::default()));
        let put = |world: &mut World, o: &Arrived<StoredHealth>, body: &StoredHealth| {
            world.put_stored(o.namespace(), o.name(), body);
        };
        let to = (world.clone(), Arc::default(), Source::Stored);
        let feed = Feed::new(to, put, World::remove_stored);
        list(&feed, &["a", "b"]);
        let written = arrived::<StoredHealth>("shop", "ours");
        world.lock().put_stored("shop", "ours", written.body.as_ref().expect("it can be read"));
        list(&feed, &["b"]);
        assert_eq!(names(&world, Source::Stored), ["b", "ours"]);
        feed.take(&arrived("shop", "b"));
        assert_eq!(names(&world, Source::Stored), ["ours"]);
        list(&feed, &["ours"]);
        list(&feed, &[]);
        assert_eq!(names(&world, Source::Stored), [""; 0]);
    }

    #[tokio::test]
    async fn agents_leases_are_known_by_their_nodes() {
        let (world, woken) = (Arc::new(Mutex::new(World::default())), Arc::default());
        let feed = lease_feed("shop", (world.clone(), woken, Source::Leases));
        list(&feed, &["volmedic-agent-n1", "volmedic-agent-n2", "something-else"]);
        assert_eq!(names(&world, Source::Leases), ["n1", "n2"]);
        list(&feed, &["volmedic-agent-n2"]);
        assert_eq!(names(&world, Source::Leases), ["n2"]);
    }
}
