//! Eyes on this host, with no Kubernetes and no CSI in sight.
//!
//! - [`mounts`]: the mount table, parsed and indexed;
//! - [`block`] and [`fs_state`]: what sysfs says about block devices and the file systems on them;
//! - [`usage`]: how full something is;
//! - [`process`]: whether a process has stopped;
//! - [`helper`]: disposable processes for every question that a broken volume could leave without an answer.
//!
//! Nothing here opens a path inside of a volume in the calling process. Reading `/proc` and `/sys` is done in
//! place, because neither waits for a disk or a server.

pub mod block;
mod device;
pub mod fs_state;
pub mod helper;
pub mod mounts;
pub mod process;
mod sys;
pub mod usage;

pub use device::DeviceNumber;
