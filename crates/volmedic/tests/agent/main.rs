//! The agent as a process, against a real API server, with real volumes of the reference driver in the directory of a
//! kubelet that is not there. It runs under a service account that has what deploy/chart/files/rbac-agent.yaml grants and
//! nothing else.

#![allow(clippy::unwrap_used, reason = "helpers of tests may fail with the test")]

#[allow(dead_code, reason = "shared with the tests of the driver, which use all of it")]
#[path = "../driver/calls.rs"]
mod calls;
mod coverage;
mod detect;
mod drivers;
mod fresh;
#[allow(dead_code, reason = "shared with the tests of the driver, which use all of it")]
#[path = "../driver/ground.rs"]
mod ground;
mod host_path;
mod hostile;
mod http;
#[path = "../../../heal/tests/api/kind.rs"]
mod kind;
mod log_pipe;
mod node_report;
mod outage;
#[allow(dead_code, reason = "shared with the tests of the controller, which use all of it")]
#[path = "../controller/process.rs"]
mod process;
mod quiet;
mod rbac;
mod relay;
mod restart;
#[allow(dead_code, reason = "shared with the tests of the controller, which use all of it")]
#[path = "../controller/rights.rs"]
mod rights;
#[allow(dead_code, reason = "shared with the tests of the controller, which use all of it")]
#[path = "../controller/server.rs"]
mod server;
mod stage;
