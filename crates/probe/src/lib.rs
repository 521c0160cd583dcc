//! Looks at volumes and says what was seen. What to believe of it is the ledger's business.

mod controller;
pub mod host;
pub mod node;
mod pulse;
mod sights;
mod usage;

pub use controller::{Controller, Listed, Passed, Visit, Way};
pub use sights::{Answer, answer, broken, why};
pub use usage::{Amount, Usage};
