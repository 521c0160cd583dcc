//! What the healer needs from the rest of the world.

use std::future::Future;
use std::sync::Arc;

use volmedic_api::ObjectRef;
use volmedic_health::{Reason, Remedy};

use super::cluster::Details;
use super::pods::UserPod;
use super::record::Record;
use super::trust::Relayed;
use crate::place::Place;
use crate::refusal::{NodeState, Refusal};
use crate::table::Outcome;
use crate::triage::{Again, Ticket};

/// A volume that is in use on a node.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Found {
    pub place: Place,
    /// Of its PersistentVolume.
    pub pv: Box<str>,
}

/// What the API server knows. An error is a sentence, and means that nothing was learnt.
pub trait Cluster: Send + Sync + 'static {
    /// A volume right before it is acted on.
    fn details(&self, place: &Place, pv: &str) -> impl Future<Output = Result<Details, String>> + Send;
    /// The volumes in use of these drivers on these nodes, each pair a driver and a node.
    fn in_use_on(
        &self,
        wanted: &[(Arc<str>, Arc<str>)],
    ) -> impl Future<Output = Result<Vec<Found>, String>> + Send;
    /// Where a claim's volume is in use.
    fn places_of(
        &self,
        namespace: &str,
        claim: &str,
    ) -> impl Future<Output = Result<Vec<Found>, String>> + Send;
    /// The pods on a node that use a claim.
    fn users(&self, node: &str, claim: &ObjectRef) -> impl Future<Output = Vec<ObjectRef>> + Send;
    /// All pods that use a claim, also those that have no node yet.
    fn pods_of(&self, claim: &ObjectRef) -> impl Future<Output = Result<Vec<UserPod>, String>> + Send;
    /// Whether the kubelet on the node has the driver.
    fn has_driver(&self, place: &Place) -> impl Future<Output = Result<bool, String>> + Send;
    /// Asks for the eviction of this one pod.
    fn evict(&self, pod: &UserPod) -> impl Future<Output = Eviction> + Send;
}

/// Who asks the driver, through its relay.
pub trait Surgeon: Send + Sync + 'static {
    fn heal(
        &self,
        relay: &Relayed,
        pv: &str,
        ticket: &Ticket,
        deadline: std::time::Duration,
    ) -> impl Future<Output = Outcome> + Send;
}

/// What the API server answered to an eviction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Eviction {
    /// The pod ends.
    Accepted,
    /// This pod is not there any more.
    Gone,
    /// Not now, as a PodDisruptionBudget demands.
    Later(String),
    /// It will never be accepted like this.
    Denied(String),
    /// It is not known whether it was accepted.
    Unknown(String),
}

/// Who can look again.
pub trait Eyes: Send + Sync + 'static {
    /// Whether the volume is still unhealthy, by what is known without asking.
    fn again(&self, place: &Place) -> impl Future<Output = Again> + Send;
    /// Has the volume probed again, right before a remedy is used against this reason. It is used only if the new probe confirms
    /// that it would help. Must answer within half a minute.
    fn confirm(
        &self,
        place: &Place,
        reason: &Reason,
        remedy: Remedy,
    ) -> impl Future<Output = Result<(), Refusal>> + Send;
    /// Why a new mount of the volume would not help now, seen from here; nothing if it would.
    fn prevents_new_mount(&self, claim: &ObjectRef, place: &Place) -> Option<String> {
        let _ = (claim, place);
        Some("nothing is known of the volume".to_owned())
    }
    /// What below the mount prevents a new mount; nothing if it would help, whether or not a broken mount is reported. For the
    /// pods of an attempt after the first one, which may have healed the volume already.
    fn cause_below_mount(&self, claim: &ObjectRef, place: &Place) -> Option<String> {
        let _ = (claim, place);
        Some("nothing is known of the volume".to_owned())
    }
    /// How the volume is at a place where a new pod uses it. `settled` says that it runs there for long enough to count
    /// without a word of its agent.
    fn at_new_pod(&self, claim: &ObjectRef, place: &Place, settled: bool) -> Again {
        let _ = (claim, place, settled);
        Again::NotSeen("nothing is known of the volume".into())
    }
    /// How many volumes are in use, of one driver or of all, each counted once per node; `None` if nobody knows.
    fn in_use(&self, driver: Option<&str>) -> Option<usize>;
    /// Whether this process still leads, asked right before acting.
    fn may_act(&self) -> bool {
        true
    }
}

/// Who knows how nodes are.
pub trait Nodes: Send + Sync + 'static {
    fn state(&self, node: &str) -> NodeState;
}

/// Where news go.
pub trait Teller: Send + Sync + 'static {
    /// Must not wait.
    fn tell(&self, record: &Record);
    /// Writes down that a try begins. The driver is asked only after that, so that a healer which is killed meanwhile
    /// is not followed by one that knows of nothing. An error is a sentence, and then nobody is asked.
    fn begin(&self, record: &Record) -> impl Future<Output = Result<(), String>> + Send {
        let _ = record;
        async { Ok(()) }
    }
}
