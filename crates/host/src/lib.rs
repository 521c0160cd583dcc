//! Reads the state of this host. It knows neither Kubernetes nor CSI.
//!
//! - [`mounts`]: the mount table, parsed and indexed, and its changes;
//! - [`block`] and [`fs_state`]: what sysfs says about block devices and the file systems on them;
//! - [`fuse`]: requests that FUSE servers have not answered;
//! - [`fs_errors`]: errors that the kernel reports when a file system finds them in itself;
//! - [`kernel_log`]: what the kernel said, as evidence;
//! - [`usage`]: how full something is;
//! - [`process`]: whether a process has stopped;
//! - [`helper`]: disposable processes for every question that a broken volume could leave without an answer.
//!
//! Nothing here opens a path inside of a volume in the calling process. Reading `/proc` and `/sys` is done in
//! place, because neither waits for a disk or a server.
//!
//! # What each needs
//!
//! A fact that cannot be had is missing by name ([`Off`]) and the others go on.
//!
//! | fact | needs | without it |
//! |---|---|---|
//! | [`mounts::Table::read`], [`mounts::Watch::new`] | the host's mounts in our own namespace (`HostToContainer` propagation of the folder that volumes are mounted under) | mounts made after our start are not seen |
//! | [`mounts::Table::read_of`]`(1)`, [`mounts::Watch::at`] | the host's PID namespace; no capability | only our own mounts are seen |
//! | [`block`], [`fs_state`] | `/sys` readable; no capability | devices are not judged |
//! | [`fuse`] | fusectl mounted on the host, the host's `/sys` in sight, `CAP_DAC_OVERRIDE` or to be the mounter | unanswered requests are seen only by a helper that hangs |
//! | [`fs_errors`] | `CAP_SYS_ADMIN` in the first user namespace, Linux 5.16 | errors are seen at the next check instead of immediately |
//! | [`kernel_log`] | the host's `/dev/kmsg` (a device the container may read) and `CAP_SYSLOG` | findings come without the kernel's messages |
//! | [`helper`], directories | that folder in sight, `CAP_DAC_READ_SEARCH` for volumes that belong to others | usage and readability are not known |
//! | [`helper`], block devices | the right to open the device (a privileged container, or its device cgroup) | raw block volumes are judged by sysfs alone |
//! | killing a helper | nothing: they are our own children | |

pub mod block;
mod device;
pub mod fs_errors;
pub mod fs_state;
pub mod fuse;
pub mod helper;
pub mod kernel_log;
pub mod mounts;
mod off;
pub mod process;
mod sys;
pub mod usage;

pub use device::DeviceNumber;
pub use off::Off;
