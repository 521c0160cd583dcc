//! All watches of the controller role together.

use std::convert::Infallible;
use std::sync::Arc;

use kube::{Api, Client};
use tokio::sync::Notify;
use tokio::task::JoinSet;
use volmedic_api::{Arrived, Shape, slim};

use crate::affected::{Affected, affected};
use crate::follow::{Follower, Lists, Sink};
use crate::link::{Link, Staleness};
use crate::metrics::{Counted, Metrics};
use crate::nodes::Nodes;
use crate::pods::{self, Pods};
use crate::volumes::Volumes;

/// What to watch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Options {
    pub driver: Box<str>,
    /// Nodes and pods too.
    pub node_watcher: bool,
}

/// The inventory of one driver. It is kept up to date until dropped, and never gives up.
#[derive(Debug)]
pub struct Inventory {
    volumes: Arc<Volumes>,
    cluster: Option<Cluster>,
    links: Vec<Arc<Link>>,
    woken: Arc<Notify>,
    /// Dropping them ends the watches.
    tasks: JoinSet<Infallible>,
}

#[derive(Debug)]
struct Cluster {
    nodes: Arc<Nodes>,
    pods: Arc<Pods>,
}

impl Inventory {
    /// Begins to watch. Must be called inside a tokio runtime.
    pub fn start(client: &Client, options: &Options, metrics: &Metrics) -> Self {
        let woken = Arc::new(Notify::new());
        let volumes = Arc::new(Volumes::new(&options.driver, woken.clone()));
        let mut inventory =
            Self { volumes: volumes.clone(), cluster: None, links: Vec::new(), woken, tasks: JoinSet::new() };
        let link = inventory.link::<slim::PersistentVolume>();
        inventory.follow(client, None, volumes.clone(), link);
        if options.node_watcher {
            let link = inventory.link::<slim::Node>();
            let nodes = Arc::new(Nodes::new(link.clone(), inventory.woken.clone()));
            inventory.follow(client, None, nodes.clone(), link);
            let link = inventory.link::<slim::Pod>();
            let pods = Arc::new(Pods::new(&options.driver, inventory.woken.clone()));
            inventory.follow(client, Some(pods::SELECTOR), pods.clone(), link);
            inventory.cluster = Some(Cluster { nodes, pods });
        }
        metrics.attach(Counted::Driver(volumes), inventory.links.clone());
        inventory
    }

    pub fn volumes(&self) -> &Arc<Volumes> {
        &self.volumes
    }

    /// None without the node watcher.
    pub fn nodes(&self) -> Option<&Arc<Nodes>> {
        self.cluster.as_ref().map(|cluster| &cluster.nodes)
    }

    /// None without the node watcher.
    pub fn pods(&self) -> Option<&Arc<Pods>> {
        self.cluster.as_ref().map(|cluster| &cluster.pods)
    }

    /// What is used on these nodes, by node and claim. Empty without the node watcher. Ask for all nodes together.
    pub fn affected(&self, nodes: &[&str]) -> Vec<Affected> {
        self.cluster.as_ref().map_or_else(Vec::new, |cluster| affected(nodes, &cluster.pods, &self.volumes))
    }

    /// Waits until everything was read once. It waits for ever while the API server refuses; `staleness` says why.
    pub async fn ready(&self) {
        for link in &self.links {
            link.ready().await;
        }
    }

    pub fn is_ready(&self) -> bool {
        self.links.iter().all(|link| link.is_ready())
    }

    /// The watch that is out of touch for longest. None while all are up to date.
    pub fn staleness(&self) -> Option<Staleness> {
        self.links.iter().filter_map(|link| link.staleness()).max_by_key(|stale| stale.age)
    }

    /// Waits until something changed since the last time this was waited for, or a watch is in touch again. It says
    /// nothing about what: read the state. For one waiter.
    pub async fn changed(&self) {
        self.woken.notified().await;
    }

    fn link<T: Shape>(&mut self) -> Arc<Link> {
        let link = Arc::new(Link::new(T::PLURAL, self.woken.clone()));
        self.links.push(link.clone());
        link
    }

    fn follow<T: Shape>(
        &mut self,
        client: &Client,
        fields: Option<&'static str>,
        sink: Arc<impl Sink<T>>,
        link: Arc<Link>,
    ) {
        let api: Api<Arrived<T>> = Api::all(client.clone());
        let fields = fields.map(Into::into);
        self.tasks.spawn(Follower { api, fields, lists: Lists::Paged, sink, link }.run());
    }
}
