//! The controller as a process, against a real API server and a simulated driver on a real socket. It runs under a
//! service account that has what deploy/chart/files/rbac-controller.yaml grants and nothing else.

mod coverage;
mod forged;
mod gate;
mod health;
mod http;
mod input;
mod leaders;
mod migration;
mod nodes;
mod outage;
mod process;
mod quiet;
mod rbac;
mod restart;
mod rights;
mod server;
mod stage;
mod storm;
