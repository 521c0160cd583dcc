//! Relay and healer on a real API server, with a driver that does what a test sets.
#![allow(clippy::unwrap_used, reason = "helpers of tests fail like tests")]

mod access;
mod driver;
mod healing;
mod kind;
mod lies;
mod needed;
mod poison;
mod poisoned;
mod registration;
mod relaying;
mod renewal;
mod stage;

#[allow(dead_code, reason = "the controller's tests use the rest")]
#[path = "../../../volmedic/tests/controller/rights.rs"]
mod rights;
#[allow(dead_code, reason = "the controller's tests use the rest")]
#[path = "../../../volmedic/tests/controller/server.rs"]
mod server;
