//! Volumes of kind fuse: a userspace file system with one process per volume, as network block and cluster file
//! system clients have.
//!
//! The process is started by the driver and outlives it. It takes a lock and writes its own record before it mounts,
//! so there are never two for one volume, and a driver that was killed at any moment finds it again.
//!
//! A driver that serves the healer holds a copy of each session. The death of a mounter is then not the end of its
//! mounts: their users wait, and the next mounter goes on with the same session. `sessions.rs` holds the copies,
//! `takeover.rs` goes on with one.

mod accounts;
mod deleted;
mod inodes;
mod passthrough;
mod process;
mod run;
mod search;
mod sessions;
mod takeover;
mod times;

pub(crate) use process::{Mounters, Revived, stop};
pub use process::{find, is_alive};
pub use run::{Mounter, run};
pub(crate) use sessions::Sessions;
