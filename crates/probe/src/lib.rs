//! Checks volumes and says what was seen. What to believe of it is the ledger's business.

mod controller;
pub mod host;
pub mod node;
mod pulse;
mod sights;
mod usage;

pub use controller::{Controller, list_end};
pub use sights::{broken, why};
pub use usage::{Amount, Usage};
