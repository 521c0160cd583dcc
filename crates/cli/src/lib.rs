//! The commands that people type: they read a cluster or a driver, answer, and end.

pub mod complete;
pub mod conformance;
pub mod doctor;
pub mod explain;
pub mod fault;
pub mod heal;
mod look;
mod output;
pub mod report;
pub mod status;
