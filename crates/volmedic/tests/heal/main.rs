//! The healer in the hub, as a process on a real API server, under the rights that deploy/ ships. Agents' reports are
//! written with their own tokens; relays are real, in front of drivers that do as they are set.
#![allow(clippy::unwrap_used, reason = "helpers of tests fail like tests")]

mod asked;
mod bench;
mod brake;
mod crash;
mod guards;
mod leaders;
mod lies;
mod modes;
mod stage;

#[allow(dead_code, reason = "the program that measures other roles uses the rest")]
#[path = "../../../../bench/src/audit.rs"]
mod audit;
#[allow(dead_code, reason = "the library's tests use the rest")]
#[path = "../../../heal/tests/api/driver.rs"]
mod driver;
#[allow(dead_code, reason = "the hub's tests use the rest")]
#[path = "../hub/stage.rs"]
mod ground;
#[allow(dead_code, reason = "the library's tests use the rest")]
#[path = "../../../heal/tests/api/kind.rs"]
mod kind;
#[path = "../../../heal/tests/api/poison.rs"]
mod poison;
#[allow(dead_code, reason = "the controller's tests use the rest")]
#[path = "../controller/process.rs"]
mod process;
