//! What every role and command needs around its own work: values on the command line, the API server, signals, logging,
//! health and metrics over HTTP, the terminal, and the page.

pub mod build_info;
pub mod cluster;
pub mod election;
pub mod flags;
pub mod http;
pub mod logging;
pub mod page;
pub mod process;
pub mod proxy;
pub mod reviews;
pub mod signals;
pub mod size;
pub mod terminal;
