//! One in a cluster: learns who can ask which driver where, hears of trouble, and has repaired what the guards let through.
//!
//! `registry.rs` decides whom to trust, `dial.rs` talks to them, `survey.rs` finds the volumes of a node, `cluster.rs`
//! is what the API server knows, `run.rs` is the loop around [`Triage`](crate::Triage).

mod cluster;
mod dial;
mod evict;
mod metrics;
mod nodes;
mod pods;
mod ports;
mod record;
mod registry;
mod run;
mod shapes;
mod survey;
mod trust;

use std::collections::BTreeSet;
use std::time::Duration;

use jiff::SignedDuration;
use kube::Client;
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;

pub use cluster::{Details, KubeCluster};
pub use dial::{DialError, Dialer, Trust, Unverified};
pub use metrics::{METRICS, Metrics};
pub use nodes::NodeStates;
pub use pods::{Owner, UserPod};
pub use ports::{Cluster, Eviction, Eyes, Found, Nodes, Surgeon, Teller};
pub use record::{Attempt, News, Record};
pub use registry::{Registry, RelayNews};
pub use run::{Answer, run};
pub use trust::{Distrust, Relayed};

use crate::memory::{Deadlines, Memory, Recreated};
use crate::mode::Rules;
use crate::place::Place;
use crate::policy::Policy;
use volmedic_health::{Reason, Volume};

/// Complaints that may wait. More than that at the same time is an outage, and the brake is on anyway.
const MOST_WAITING: usize = 16 * 1024;

/// Which volumes are repaired at all. An empty set lets everything through.
#[derive(Debug, Clone, Default)]
pub struct Filters {
    pub drivers: BTreeSet<String>,
    pub classes: BTreeSet<String>,
    pub namespaces: BTreeSet<String>,
    /// Values of the volume attribute `mounter`.
    pub mounters: BTreeSet<String>,
}

/// How the healer behaves.
#[derive(Debug, Clone)]
pub struct Options {
    pub policy: Policy,
    pub rules: Rules,
    /// The same for recreating pods, which nobody has switched on unless they say so.
    pub recreate_rules: Rules,
    pub filters: Filters,
    /// How long one heal may take, from asking the relay to its answer.
    pub deadline: Duration,
    /// The namespaces in which registrations are believed; empty for all.
    pub trusted_namespaces: BTreeSet<String>,
    /// For trials on one machine: relays on loopback addresses are dialled, too.
    pub allow_loopback: bool,
    /// Volumes of a driver that has restarted are collected for so long before they are looked up together.
    pub gather: Duration,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            policy: Policy::default(),
            rules: Rules::default(),
            recreate_rules: Rules::off(),
            filters: Filters::default(),
            deadline: Duration::from_mins(3),
            trusted_namespaces: BTreeSet::new(),
            allow_loopback: false,
            gather: Duration::from_millis(500),
        }
    }
}

impl Options {
    /// How long an attempt may take, by its remedy.
    pub fn deadlines(&self) -> Deadlines {
        let node_healer = SignedDuration::try_from(self.deadline).unwrap_or(SignedDuration::MAX);
        let recreate_pods = self.policy.recreate.as_ref().map_or(node_healer, |recreate| recreate.deadline);
        Deadlines { node_healer, recreate_pods }
    }
}

/// What may happen to a healer from outside.
#[derive(Debug)]
pub enum Trigger {
    /// Somebody saw a volume unhealthy.
    Unhealthy { place: Place, pv: Box<str>, reason: Reason, since: jiff::Timestamp },
    /// What an earlier process knew, and whether the volume is unhealthy now. Only at the beginning.
    Remembered {
        place: Place,
        pv: Box<str>,
        memory: Box<Memory>,
        unhealthy: Option<(Reason, jiff::Timestamp)>,
    },
    /// How often an earlier process recreated the volume's pods. Only at the beginning, and before what it knew of places.
    Recreated { volume: Volume, memory: Box<Recreated> },
    /// Anyone who saw it unhealthy sees it recovered.
    Cleared { place: Place },
    /// The volume is not in use there any more.
    Gone { place: Place },
    /// A person asks for a claim.
    Person { namespace: String, claim: String, dry_run: bool, answer: oneshot::Sender<Vec<(Place, Answer)>> },
}

/// Sends requests to a running healer. Clones share it.
#[derive(Debug, Clone)]
pub struct Handle {
    triggers: mpsc::Sender<Trigger>,
}

impl Handle {
    /// A handle, and the other end for [`run()`].
    pub fn new() -> (Self, mpsc::Receiver<Trigger>) {
        let (triggers, receiver) = mpsc::channel(MOST_WAITING);
        (Self { triggers }, receiver)
    }

    /// Does not wait. Answers whether there was room; what is lost here comes again with the next report.
    pub fn tell(&self, trigger: Trigger) -> bool {
        self.triggers.try_send(trigger).is_ok()
    }

    /// What becomes of a person's wish, per place where the claim's volume is used. Ends with the healer's own deadline;
    /// `None` if there is no healer any more.
    pub async fn person(&self, namespace: &str, claim: &str, dry_run: bool) -> Option<Vec<(Place, Answer)>> {
        let (answer, answered) = oneshot::channel();
        let (namespace, claim) = (namespace.to_owned(), claim.to_owned());
        self.triggers.send(Trigger::Person { namespace, claim, dry_run, answer }).await.ok()?;
        answered.await.ok()
    }
}

/// A healer on a real cluster. Dropping it ends it; what is under way on a node goes on there.
#[derive(Debug)]
pub struct Healer {
    handle: Handle,
    task: JoinHandle<()>,
}

impl Healer {
    /// Starts to work immediately: start it only while leading, and drop it when that ends. Without a dialer no relay is used.
    pub fn start(
        client: &Client,
        options: Options,
        dialer: impl Into<Option<Dialer>>,
        eyes: impl Eyes,
        teller: impl Teller,
        metrics: Metrics,
    ) -> Self {
        let (handle, triggers) = Handle::new();
        let cluster = KubeCluster::new(client.clone(), options.filters.clone());
        let nodes = NodeStates::start(client.clone());
        let dialer: Option<Dialer> = dialer.into();
        let registry =
            dialer.clone().map(|dialer| Registry::new(client.clone(), dialer, &options, metrics.clone()));
        let (news, relays) = mpsc::channel(64);
        let task = tokio::spawn(async move {
            let follow = async {
                match registry {
                    Some(registry) => registry.run(news).await,
                    // The other end takes it for the end of all relays if this one is dropped.
                    None => {
                        let _news = news;
                        std::future::pending::<()>().await;
                    }
                }
            };
            tokio::select! {
                () = follow => {}
                () = run(options, cluster, dialer, eyes, nodes, teller, metrics, relays, triggers) => {}
            }
        });
        Self { handle, task }
    }

    pub fn handle(&self) -> Handle {
        self.handle.clone()
    }

    /// Whether it still runs. It only ends by an internal error.
    pub fn runs(&self) -> bool {
        !self.task.is_finished()
    }
}

impl Drop for Healer {
    fn drop(&mut self) {
        self.task.abort();
    }
}
