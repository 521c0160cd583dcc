//! Volumes of kind fuse: a userspace file system with one process per volume, as network block and cluster file
//! system clients have.
//!
//! The process is started by the driver and outlives it. It takes a lock and writes its own record before it mounts,
//! so there are never two for one volume, and a driver that was killed at any moment finds it again.

mod accounts;
mod inodes;
mod passthrough;
mod process;
mod run;
mod times;

pub(crate) use process::{Mounters, stop};
pub use process::{find, is_alive};
pub use run::{Mounter, run};
