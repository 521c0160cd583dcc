//! The healer and the relay: what is broken and can be mended safely is mended, and everyone can see it.
//!
//! [`Triage`] decides; it is pure. [`Healer`] is the loop around it, one in a cluster. [`Relay`] stands beside a driver
//! on each node: it checks who asks, finds paths and secrets, and hands the question on.
//!
//! Nothing here repairs a file system, detaches by force or deletes a pod. All that is ever done is to ask the driver's
//! own node plugin (`NodeHealer`) to mend its own volume.

pub mod attempts;
pub mod healer;
pub mod memory;
mod mode;
mod place;
mod policy;
mod refusal;
pub mod relay;
mod table;
mod triage;
pub mod wish;

pub use healer::Healer;
pub use mode::{Mode, NoMode, Rules, Ruling, Source};
pub use place::Place;
pub use policy::Policy;
pub use refusal::{NodeState, Refusal};
pub use relay::Relay;
pub use table::{After, Outcome};
pub use triage::{Again, Approval, Brake, Exam, Step, Ticket, Told, Triage, Verdict, World};
