//! Whole histories of faults, each from one seed: the real code of the controller runs against a modelled API server and a
//! scripted driver, on a paused clock, and an oracle that knows only the driver's truth says what must have been reported.
//!
//! A history runs in a process of its own (`volmedic-sim one SEED`), because some numbers that tokio uses count up through the
//! whole life of a process; [`Runner`] starts those processes, several at a time.

mod clock;
mod dice;
mod driver;
mod history;
mod log;
mod oracle;
mod runner;
mod server;
mod world;

pub use dice::Dice;
pub use runner::{Report, Runner, Tally, fresh_seed};
pub use server::Model;
pub use world::{Counts, Outcome};

/// One history, in this process, which must not have run another one.
pub fn run(seed: u64, without: &[usize], verbose: bool) -> anyhow::Result<Outcome> {
    world::run(&history::History::of(seed).without(without), verbose)
}

/// How many steps a history has.
pub fn steps(seed: u64) -> usize {
    history::History::of(seed).steps.len()
}
