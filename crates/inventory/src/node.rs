//! What should be mounted on this node: the volumes of its pods, by watch, and where the kubelet has them.
//!
//! Pods come from the API server, those of this node only. Which directory belongs to which of their volumes comes from
//! the kubelet's own directories and from the PersistentVolumes, which are read one by one by name. A
//! claim is read only where the kubelet has no directory for its volume, as for a directory of the node. A volume that a running pod has lost stays in here, so that somebody can miss it.

mod keeper;
mod known;
mod kubelet;
mod phase;
mod place;
mod pods;
mod pv;
mod record;
mod scan;
mod volume;
mod volumes;

use std::convert::Infallible;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use jiff::Timestamp;
use kube::{Api, Client};
use tokio::sync::{Notify, watch};
use tokio::task::JoinSet;
use volmedic_api::{Arrived, Shape, slim};

use crate::follow::{Follower, Lists};
use crate::link::{Link, Staleness};
use crate::metrics::{Counted, Metrics};
use keeper::{Keeper, Shared};
pub use kubelet::{DEFAULT_ROOT, Layout, NoComponent, find_root};
use pods::Pods;
pub use volume::{Access, Change, Key, KubeletCondition, KubeletSaid, Mode, NodeVolume, Phase, Use};
pub use volumes::Volumes;

/// The name under which the kubelet's directories are counted beside the kinds of objects.
const KUBELET: &str = "kubelet";

/// Which node, and where its kubelet is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Options {
    pub node: Box<str>,
    /// The kubelet's root directory as this process sees it.
    pub kubelet_root: PathBuf,
    /// When the machine started. None if nobody knows; then pods that still have to start again after the machine did
    /// cannot be distinguished from pods that run.
    pub boot: Option<Timestamp>,
}

impl Options {
    /// Those of the machine that this process runs on. Reads `/proc`.
    pub fn of_this_machine(node: &str, kubelet_root: Option<PathBuf>) -> Self {
        let boot = std::fs::read_to_string("/proc/stat").ok().and_then(|stat| phase::boot_time(&stat));
        let kubelet_root = kubelet_root.unwrap_or_else(|| find_root(Path::new("/proc")));
        Self { node: node.into(), kubelet_root, boot }
    }
}

/// The inventory of one node. It is kept up to date until dropped, and never gives up.
#[derive(Debug)]
pub struct Inventory {
    shared: Shared,
    layout: Layout,
    woken: Arc<Notify>,
    /// Dropping them ends the watch.
    _tasks: JoinSet<Infallible>,
}

impl Inventory {
    /// Begins to watch. Must be called inside a tokio runtime.
    pub fn start(client: &Client, options: &Options, metrics: &Metrics) -> Self {
        let woken = Arc::new(Notify::new());
        let link = |resource| Arc::new(Link::new(resource, woken.clone()));
        let shared = Shared {
            pods: Arc::new(Pods::new(options.boot)),
            volumes: Arc::new(Volumes::new(woken.clone())),
            refresh: Arc::default(),
            ready: Arc::new(watch::Sender::new(false)),
            pod_link: link(slim::NodePod::PLURAL),
            kubelet_link: link(KUBELET),
            pv_link: link(slim::NodePersistentVolume::PLURAL),
        };
        let api: Api<Arrived<slim::NodePod>> = Api::all(client.clone());
        let fields = Some(format!("spec.nodeName={}", escaped(&options.node)).into());
        // A node has some hundred pods at most.
        let lists = Lists::Cached;
        let follower =
            Follower { api, fields, lists, sink: shared.pods.clone(), link: shared.pod_link.clone() };
        let layout = Layout::new(&options.kubelet_root);
        let keeper = Keeper::new(client, layout.clone(), shared.clone());
        let mut tasks = JoinSet::new();
        tasks.spawn(follower.run());
        tasks.spawn(keeper.run());
        let links = [&shared.pod_link, &shared.kubelet_link, &shared.pv_link].map(Arc::clone);
        metrics.attach(Counted::Node(shared.volumes.clone()), links.to_vec());
        Self { shared, layout, woken, _tasks: tasks }
    }

    pub fn volumes(&self) -> &Arc<Volumes> {
        &self.shared.volumes
    }

    /// Where the kubelet keeps what.
    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    /// Reads all of the kubelet's directories again, soon.
    pub fn refresh(&self) {
        self.shared.refresh.notify_one();
    }

    /// Waits until everything was read once. It waits for ever while the API server refuses or the kubelet's directory
    /// cannot be read; `staleness` says why.
    pub async fn ready(&self) {
        // It fails only when the sender is gone, and that is a field of ours.
        let _ = self.shared.ready.subscribe().wait_for(|ready| *ready).await;
    }

    pub fn is_ready(&self) -> bool {
        *self.shared.ready.borrow()
    }

    /// What is out of touch for longest of what cannot be done without: pods and the kubelet's directories.
    pub fn staleness(&self) -> Option<Staleness> {
        let links = [&self.shared.pod_link, &self.shared.kubelet_link];
        links.into_iter().filter_map(|link| link.staleness()).max_by_key(|stale| stale.age)
    }

    /// Why PersistentVolumes cannot be read, while they cannot. Meanwhile, of volumes that are new, read-only by
    /// intent cannot be distinguished from read-only by fault, their claims may be unknown, and those that the kubelet mounts
    /// without a CSI driver are not seen.
    pub fn without_persistent_volumes(&self) -> Option<Staleness> {
        self.shared.pv_link.staleness()
    }

    /// Waits until something changed since the last time this was waited for, or is in touch again. It says nothing
    /// about what: read the state. For one waiter.
    pub async fn changed(&self) {
        self.woken.notified().await;
    }
}

/// A value in a field selector.
fn escaped(value: &str) -> String {
    let mut text = String::with_capacity(value.len());
    for letter in value.chars() {
        if matches!(letter, '\\' | ',' | '=') {
            text.push('\\');
        }
        text.push(letter);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_whose_name_means_something_in_a_selector_selects_nothing_else() {
        assert_eq!(escaped("node-1.example.net"), "node-1.example.net");
        assert_eq!(escaped("a,spec.nodeName!=b"), r"a\,spec.nodeName!\=b");
        assert_eq!(escaped(r"a\"), r"a\\");
    }

    #[test]
    fn this_machine_has_started_some_time() {
        let options = Options::of_this_machine("n", Some("/k".into()));
        assert_eq!((&*options.node, &*options.kubelet_root), ("n", Path::new("/k")));
        assert!(options.boot.is_some_and(|boot| boot < Timestamp::now()));
    }
}
