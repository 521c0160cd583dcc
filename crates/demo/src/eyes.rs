//! The three vantages that the volumes are checked from: the driver's controller, the driver on this node, and the
//! host checks. Each is what the controller and the agent use in a cluster.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use volmedic_api::ObjectRef;
use volmedic_driver::fault::Kind;
use volmedic_health::Sight;
use volmedic_monitor::{Arrival, Inventory, ListEnd, Listed, Pages, Probe, Seen, Way};
use volmedic_panics::blocking;
use volmedic_probe::host::{Expected, Host, Mode, Target};
use volmedic_probe::node::{Node, Published};

use super::driver::NAME;
use super::volumes::{Volume, Volumes};

/// How often one host check may want to confirm a finding before it is reported.
const AGAIN: usize = 20;
const STEP: Duration = Duration::from_millis(250);

/// The volumes there are, from the first to the last moment.
#[derive(Debug)]
pub(super) struct All {
    names: Vec<Arc<str>>,
    listed: AtomicBool,
}

impl All {
    pub(super) fn new(volumes: &Volumes) -> Self {
        Self {
            names: volumes.iter().map(|volume| volume.name.clone()).collect(),
            listed: AtomicBool::new(false),
        }
    }
}

impl Inventory for All {
    fn drain(&self) -> Vec<Arrival> {
        let first = !self.listed.swap(true, Ordering::Relaxed);
        first.then(|| Arrival::All(self.names.clone())).into_iter().collect()
    }

    async fn changed(&self) {
        std::future::pending::<()>().await;
    }

    /// Reports go only to the terminal and the page.
    fn about(&self, _: &volmedic_health::Volume) -> Vec<ObjectRef> {
        Vec::new()
    }
}

/// By the driver's controller, with its list of unhealthy volumes.
#[derive(Debug)]
pub(super) struct ControllerEyes {
    pub(super) probe: volmedic_probe::Controller,
    pub(super) volumes: Arc<Volumes>,
}

impl Probe for ControllerEyes {
    fn way(&self) -> Way {
        self.probe.way()
    }

    async fn changed(&self) {
        self.probe.changed().await;
    }

    async fn list(&self, pages: impl Pages) -> ListEnd {
        self.probe.list(Named { pages, volumes: self.volumes.clone() }).await
    }

    async fn look(&self, name: &str) -> Seen {
        let Some(volume) = self.volumes.get(name) else { return Seen::Nothing };
        self.probe.look(&volume.id).await
    }
}

/// Hands a list on under the names that people know.
struct Named<P> {
    pages: P,
    volumes: Arc<Volumes>,
}

impl<P: Pages> Pages for Named<P> {
    async fn page(&mut self, page: Vec<Listed>) {
        let named = page.into_iter().filter_map(|listed| {
            let name = self.volumes.by_id(&listed.handle)?.name.to_string();
            Some(Listed { handle: name, ..listed })
        });
        self.pages.page(named.collect()).await;
    }
}

/// By the driver's node plugin.
#[derive(Debug)]
pub(super) struct NodeEyes {
    pub(super) node: Node,
    pub(super) volumes: Arc<Volumes>,
}

impl Probe for NodeEyes {
    fn way(&self) -> Way {
        self.node.way()
    }

    async fn changed(&self) {
        self.node.changed().await;
    }

    async fn look(&self, name: &str) -> Seen {
        let volume = self.volumes.get(name).and_then(|volume| Some((volume, volume.paths.as_ref()?)));
        let Some((volume, paths)) = volume else { return Seen::Nothing };
        let published = Published {
            handle: volume.id.clone(),
            staging: Some(paths.staging.clone()),
            targets: vec![paths.target.clone()],
        };
        self.node.look(&published).await.seen
    }

    async fn storage(&self) -> Option<Sight> {
        self.node.storage().await
    }
}

/// By host checks, without the driver.
#[derive(Debug)]
pub(super) struct HostEyes {
    pub(super) host: Arc<Host>,
    pub(super) volumes: Arc<Volumes>,
}

fn expected(volume: &Volume) -> Option<Expected> {
    let paths = volume.paths.as_ref()?;
    let target = Target {
        path: paths.target.clone(),
        read_only: false,
        pod: volume.name.as_ref().into(),
        parts: Vec::new(),
    };
    Some(Expected {
        driver: NAME.into(),
        handle: volume.name.clone(),
        mode: if volume.kind == Kind::Block { Mode::Block } else { Mode::Filesystem },
        staging: Some(paths.staging.clone()),
        targets: vec![target],
    })
}

impl Probe for HostEyes {
    fn way(&self) -> Way {
        Way::Look
    }

    async fn changed(&self) {
        std::future::pending::<()>().await;
    }

    async fn look(&self, name: &str) -> Seen {
        let Some(expected) = self.volumes.get(name).and_then(expected).map(Arc::new) else {
            return Seen::Nothing;
        };
        for round in 0..=AGAIN {
            let (host, wanted) = (self.host.clone(), expected.clone());
            let looked = blocking(move || host.look(&wanted)).await;
            let (Some(again), true) = (looked.again, round < AGAIN) else {
                return Seen::Volume(looked.sight);
            };
            // The first time it may be nothing but an old mount table.
            if round > 0 {
                tokio::time::sleep(again.min(STEP)).await;
            }
            self.host.mounts_changed();
        }
        Seen::Nothing
    }
}
