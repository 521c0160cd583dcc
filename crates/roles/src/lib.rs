//! The roles: what runs for as long as the cluster does. Each is one file with its own folder, from its arguments to its
//! end; what they have in common is in `volmedic-runtime`.

pub mod agent;
pub mod controller;
pub mod driver;
pub mod hub;
pub mod mounter;
pub mod watch;
