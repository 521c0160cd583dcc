//! What should be there: the volumes of a driver, and which pods use them on which nodes, by watch.
//!
//! [`Inventory`] keeps everything up to date in the background; a caller gets the newest that is known without waiting.
//! When the API server is away, what was known stays, and [`Inventory::staleness`] says since when it may be wrong.
//! [`Judge`] says which nodes are down. [`node`] is the inventory of one node, for who runs on it.

mod affected;
mod changes;
mod follow;
mod intern;
mod inventory;
mod judge;
mod link;
mod metrics;
pub mod node;
mod nodes;
mod pods;
mod trouble;
mod uid;
mod volumes;

#[cfg(test)]
mod fake;

pub use affected::Affected;
pub use changes::Change;
pub use follow::{Follower, KnownNames, Lists, Sink, Spared};
pub use inventory::{Inventory, Options};
pub use judge::{Down, DownWhy, Judge, Verdict};
pub use link::{Link, Staleness};
pub use metrics::{Described, METRICS, Metrics};
pub use nodes::{NodeSight, Nodes, Ready, ReadyStatus};
pub use pods::{PodUse, Pods};
pub use volumes::{BoundClaim, Volumes};

/// Log targets to be kept at errors only: on an answer that it cannot read, kube warns with the whole text of it, which
/// may be megabytes. We tell the same in a sentence.
pub const LOUD_TARGETS: &[&str] = &["kube_client::client"];
