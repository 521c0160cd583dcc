//! The hub as a process on a real API server, under the rights that deploy/ ships, and agents with real tokens.

mod agents;
mod bench;
mod claims;
mod crash;
mod leaders;
mod missing;
mod nodes;
mod outage;
mod push;
mod races;
mod stage;
mod tokens;

#[allow(dead_code, reason = "the controller's tests use the rest")]
#[path = "../controller/process.rs"]
mod process;
