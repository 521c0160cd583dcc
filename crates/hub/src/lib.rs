//! The hub: what all vantages know of a claim's volume, merged into one durable resource.
//!
//! [`World`] is what the watches brought in, as data. For one claim it gives [`Facts`], and [`merge`] makes of them,
//! and of what is stored already, what should be stored. Both are pure. [`Keeper`] carries it out: one write for one
//! change, none while nothing changes, and never from a view older than what is stored.
//!
//! Whom to believe is decided in [`World::facts`]: a node is heard about a volume only if a pod on that node uses it.
//! So what a node says about any other volume is not refused somewhere, it is never checked.

mod agents;
mod claim;
mod controllers;
mod facts;
mod keeper;
mod merge;
mod metrics;
pub mod push;
mod queue;
mod shape;
mod unknown;
mod world;

pub use agents::{Now, is_renewed};
pub use claim::ClaimKey;
pub use controllers::{FoundController, find_controllers};
pub use facts::{Facts, LOCAL_VOLUME, NO_DRIVER, Pushed, Seen, Since, Unprobed, View, VolumeId, What};
pub use keeper::{HealsError, Keeper, PushError, Settings};
pub use merge::{Action, Decision, Keep, decide, merge};
pub use metrics::{Described, METRICS, Metrics};
pub use queue::{Pace, Turns};
pub use shape::{
    Attachment, Claim, ControllerLease, CsiNode, Lease, LeaseSpec, Pod, StoredHealth, StoredReport, Volume,
};
pub use unknown::{Unknown, advice};
pub use world::{
    Announcement, Bed, Class, Controller, DownNode, Line, Patient, Phase, ShownAgent, ShownClaim, ShownNode,
    Source, UnhealthyClaim, World,
};

/// Who owns what the hub applies.
pub const FIELD_MANAGER: &str = "volmedic-hub";
/// How an agent's Lease is named: this and the name of its node.
pub const AGENT_LEASE: &str = "volmedic-agent-";
