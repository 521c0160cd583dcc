//! The hub as a process on a real API server, under the rights that deploy/ ships, and agents with real tokens.

mod accounts;
mod agents;
mod bench;
mod claims;
mod crash;
mod docs;
mod drivers;
mod events;
mod leaders;
mod missing;
mod nodes;
mod outage;
mod races;
mod rbac;
mod stage;
mod tokens;

#[path = "../../../heal/tests/api/kind.rs"]
mod kind;
#[allow(dead_code, reason = "the controller's tests use the rest")]
#[path = "../controller/process.rs"]
mod process;
#[allow(dead_code, reason = "the controller's tests use the rest")]
#[path = "../controller/rights.rs"]
mod rights;
