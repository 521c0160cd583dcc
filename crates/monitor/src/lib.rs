//! The pipe itself: which volume is looked at when, and what becomes of what was seen. It sees ports only.

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
pub use schedule::{Look, Outcome, Pace, Schedule};
