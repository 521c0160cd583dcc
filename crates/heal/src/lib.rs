//! The healer and the relay: what is broken and can be repaired safely is repaired, and everyone can see it.
//!
//! [`Triage`] decides; it is pure. [`Healer`] is the loop around it, one in a cluster. [`Relay`] stands beside a driver
//! on each node: it checks who asks, finds paths and secrets, and hands the question on.
//!
//! Nothing here repairs a file system or detaches by force. What is done is data ([`volmedic_health::Remedy`]): the driver's
//! own node plugin is asked to heal its own volume (`NodeHealer`), or, only where an operator switched that on, the pods
//! that use it are evicted so that it is mounted again (`RecreatePods`).

pub mod attempts;
pub mod healer;
pub mod memory;
mod mode;
mod place;
mod policy;
mod refusal;
pub mod relay;
mod table;
mod tokens;
mod triage;
pub mod wish;

pub use healer::Healer;
pub use mode::{Mode, NoMode, ReportTrust, Rules, Ruling, Source};
pub use place::Place;
pub use policy::{Policy, Recreate};
pub use refusal::{NodeState, Refusal};
pub use relay::Relay;
pub use table::{After, Outcome};
pub use triage::{
    Again, Approval, Brake, Exam, RefusalReport, Standing, Step, Ticket, Triage, Verdict, World,
};
