//! The pipe: which volume is probed when, and what happens with the sights. It knows its ports only.

mod board;
mod guard;
mod order;
mod pipe;
mod ports;
mod run;
mod schedule;

pub use board::Board;
pub use guard::{list, look};
pub use pipe::{Now, Pipe};
pub use ports::{Absent, Arrival, Inventory, ListEnd, Listed, Outlet, Pages, Probe, Seen, Way};
pub use run::{Observation, Settings, run};
pub use schedule::{Check, Outcome, Pace, Schedule};
