//! The service that takes reports, and metrics that need a token: a real hub process on a real API server, with real tokens.

mod bad_input;
mod bench;
mod caller;
mod load;
mod metrics;
mod reports;
mod schema;
mod senders;
mod strangers;

#[allow(dead_code, reason = "the controller's tests use the rest")]
#[path = "../controller/process.rs"]
mod process;
#[allow(dead_code, reason = "the hub's tests use the rest")]
#[path = "../hub/stage.rs"]
mod stage;
