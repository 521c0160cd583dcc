//! The page in a real browser: Chromium, headless, on the pages of `volmedic watch` beside a simulated driver, and of hub,
//! controller and agent as processes on a real API server.

#![allow(clippy::unwrap_used, reason = "helpers of tests may fail with the test")]

mod agent;
#[allow(dead_code, reason = "the agent's tests use the rest")]
#[path = "../agent/stage.rs"]
mod agent_stage;
mod browse;
#[allow(dead_code, reason = "the driver's tests use the rest")]
#[path = "../driver/calls.rs"]
mod calls;
mod chrome;
mod controller;
#[allow(dead_code, reason = "the controller's tests use the rest")]
#[path = "../controller/stage.rs"]
mod controller_stage;
#[allow(dead_code, reason = "the driver's tests use the rest")]
#[path = "../driver/ground.rs"]
mod ground;
mod hostile;
mod hub;
#[allow(dead_code, reason = "the hub's tests use the rest")]
#[path = "../hub/stage.rs"]
mod hub_stage;
mod inspect;
mod keyboard;
mod live;
mod portraits;
#[allow(dead_code, reason = "the controller's tests use the rest")]
#[path = "../controller/process.rs"]
mod process;
mod replicas;
#[allow(dead_code, reason = "the controller's tests use the rest")]
#[path = "../controller/rights.rs"]
mod rights;
mod secure;
#[allow(dead_code, reason = "the controller's tests use the rest")]
#[path = "../controller/server.rs"]
mod server;
mod stage;

use crate::process::Controller as Process;

/// Where a role serves its page, if it was asked to serve on any free port.
pub(crate) async fn page_of(role: &Process) -> String {
    role.wait_log("serving the page on http://").await;
    let log = role.log();
    let (_, rest) = log.split_once("serving the page on ").expect("an address");
    rest.split_whitespace().next().expect("an address").to_owned()
}
