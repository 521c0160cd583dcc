//! The three places that the volumes are looked at from: the driver's controller, the driver on this node, and the
//! host's own eyes. Each is what the controller and the agent use in a cluster.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::sync::mpsc;
use volmedic_api::ObjectRef;
use volmedic_driver::fault::Kind;
use volmedic_health::{Sight, Why, WhyKind};
use volmedic_monitor::{Arrival, Inventory, ListEnd, Listed, Probe, Seen, Way};
use volmedic_probe::host::{Expected, Host, Mode, Target};
use volmedic_probe::node::{Node, Published};
use volmedic_probe::{Answer, Passed};

use super::driver::NAME;
use super::volumes::{Volume, Volumes};
use volmedic_roles::ways;

/// How often one look of the host may want to see something again before it is told.
const AGAIN: usize = 20;
const STEP: Duration = Duration::from_millis(250);

/// The volumes there are, from the first to the last moment.
#[derive(Debug)]
pub(super) struct All {
    names: Vec<Arc<str>>,
    told: AtomicBool,
}

impl All {
    pub(super) fn new(volumes: &Volumes) -> Self {
        Self {
            names: volumes.iter().map(|volume| volume.name.clone()).collect(),
            told: AtomicBool::new(false),
        }
    }
}

impl Inventory for All {
    fn drain(&self) -> Vec<Arrival> {
        let first = !self.told.swap(true, Ordering::Relaxed);
        first.then(|| Arrival::All(self.names.clone())).into_iter().collect()
    }

    async fn changed(&self) {
        std::future::pending::<()>().await;
    }

    /// Nobody but the terminal and the page is told.
    fn about(&self, _: &volmedic_health::Volume) -> Vec<ObjectRef> {
        Vec::new()
    }
}

fn seen(answer: Answer) -> Seen {
    match answer {
        Answer::Volume(sight) => Seen::Volume(sight),
        Answer::Overloaded(why) => Seen::Overloaded(why),
        Answer::Late(why) | Answer::DriverGone(why) => Seen::DriverGone(why),
    }
}

/// By the driver's controller, with its list of what is not well.
#[derive(Debug)]
pub(super) struct ControllerEyes {
    pub(super) probe: volmedic_probe::Controller,
    pub(super) volumes: Arc<Volumes>,
}

impl Probe for ControllerEyes {
    fn way(&self) -> Way {
        match self.probe.way() {
            volmedic_probe::Way::Asked(choice) => ways::of_controller(&choice),
            volmedic_probe::Way::Gone(why) => Way::Blind(why),
        }
    }

    async fn changed(&self) {
        self.probe.changed().await;
    }

    async fn list(&self, pages: mpsc::Sender<Vec<Listed>>) -> ListEnd {
        let forward = Forward { pages, batch: Vec::new(), volumes: self.volumes.clone() };
        match self.probe.list(forward).await {
            Passed::Gone(why) => ListEnd::Broken(why),
            Passed::Walked(end) => match &end.broken {
                None => ListEnd::Complete,
                Some(broken) => ListEnd::Broken(volmedic_probe::broken(broken)),
            },
        }
    }

    async fn look(&self, name: &str) -> Seen {
        let Some(volume) = self.volumes.get(name) else { return Seen::Nothing };
        seen(self.probe.look(&volume.id).await)
    }
}

/// Hands a list on under the names that people know.
struct Forward {
    pages: mpsc::Sender<Vec<Listed>>,
    batch: Vec<Listed>,
    volumes: Arc<Volumes>,
}

impl volmedic_probe::Visit for Forward {
    fn entry(&mut self, volmedic_probe::Listed { handle, sight, again }: volmedic_probe::Listed) {
        if let Some(volume) = self.volumes.by_id(&handle) {
            self.batch.push(Listed { handle: volume.name.to_string(), sight, again });
        }
    }

    async fn breathe(&mut self) {
        if !self.batch.is_empty() {
            // Nobody reads on only when the list is given up; then so is this.
            let _ = self.pages.send(std::mem::take(&mut self.batch)).await;
        }
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
        match self.node.way() {
            volmedic_probe::node::Way::Gone(why) => Way::Blind(why),
            way if way.tells_health() => Way::Look,
            volmedic_probe::node::Way::Asked(_) => Way::Nothing,
        }
    }

    async fn changed(&self) {
        self.node.changed().await;
    }

    async fn list(&self, _: mpsc::Sender<Vec<Listed>>) -> ListEnd {
        ListEnd::Broken(Why::new(WhyKind::NoAnswer, "a node plugin lists no volumes"))
    }

    async fn look(&self, name: &str) -> Seen {
        let volume = self.volumes.get(name).and_then(|volume| Some((volume, volume.paths.as_ref()?)));
        let Some((volume, paths)) = volume else { return Seen::Nothing };
        let published = Published {
            handle: volume.id.clone(),
            staging: Some(paths.staging.clone()),
            targets: vec![paths.target.clone()],
        };
        seen(self.node.look(&published).await.answer)
    }

    async fn storage(&self) -> Option<Sight> {
        match self.node.storage().await? {
            Answer::Volume(sight) => Some(sight),
            Answer::Overloaded(why) | Answer::Late(why) | Answer::DriverGone(why) => {
                Some(Sight::NotSeen(why))
            }
        }
    }
}

/// By the host's own eyes, with no word of the driver.
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

    async fn list(&self, _: mpsc::Sender<Vec<Listed>>) -> ListEnd {
        ListEnd::Broken(Why::new(WhyKind::NoAnswer, "the host lists no volumes"))
    }

    async fn look(&self, name: &str) -> Seen {
        let Some(expected) = self.volumes.get(name).and_then(expected).map(Arc::new) else {
            return Seen::Nothing;
        };
        for round in 0..=AGAIN {
            let (host, wanted) = (self.host.clone(), expected.clone());
            let looked = match tokio::task::spawn_blocking(move || host.look(&wanted)).await {
                Ok(looked) => looked,
                Err(error) => {
                    tracing::error!(%error, "a check ended in a panic");
                    return Seen::Nothing;
                }
            };
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
