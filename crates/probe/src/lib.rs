//! Looks at volumes and says what was seen. What to believe of it is the ledger's business.

mod controller;
mod sights;

pub use controller::{Controller, Listed, Passed, Visit, Way};
pub use sights::{Answer, answer, broken, why};
