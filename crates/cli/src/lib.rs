//! The commands that people type: they read a cluster or a driver, answer, and end.

pub mod conformance;
pub mod doctor;
pub mod explain;
pub mod fault;
pub mod heal;
mod look;
pub mod report;
mod output;
pub mod status;
