//! The reference CSI driver: real volumes on loop devices and in userspace mounters, health in both dialects.
//!
//! - [`Config`] says what to serve, [`serve`] serves it over a unix socket;
//! - [`StateDir`] and [`record`] are the whole of what is on disk, for tools that check or damage a volume;
//! - [`mounter`] is the userspace file system, one process per volume.
//!
//! What must hold:
//! - no call touches a path outside of the state directory and the allowed roots, and none follows a symbolic link
//!   on its way to a target;
//! - whatever a call is about to make is written down before it is made, so that a killed driver finds it again;
//! - system work runs on blocking threads under a per-volume lock that outlives the caller's patience.

mod assess;
mod command;
mod config;
mod controller;
mod copy;
mod error;
pub mod fault;
mod filesystem;
pub mod health;
mod loops;
mod mount;
pub mod mounter;
mod node;
mod paths;
pub mod record;
mod recover;
mod register;
mod request;
mod serve;
mod service;
mod state_dir;
mod store;
mod sys;
mod work;

pub use config::{Addons, Config, Dialect, Services};
pub use error::{Error, Result};
pub use loops::{LoopDevice, attached_below};
pub use register::Registrar;
pub use serve::{serve, serve_registered};
pub use state_dir::{StateDir, VolumeDir};

/// How many blocking threads the driver can use; one more than the operations it takes on, for everything else.
pub const THREADS: usize = work::CONCURRENT + 1;
