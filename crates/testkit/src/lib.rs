//! Real control plane, node and builders for tests.
//!
//! Nothing here imitates Kubernetes: the programs are built from its own Go modules, once, and run on loopback.

pub mod cache;
pub mod clone;
pub mod cluster;
pub mod control_plane;
pub mod feature;
pub mod foreign;
pub mod fuzz;
pub mod helm;
pub mod image;
pub mod kubernetes;
#[cfg(feature = "client")]
pub mod objects;
pub mod part;
pub mod python;
pub mod sanity;
pub mod seed;
pub mod sidecars;
#[cfg(feature = "sim")]
pub mod sim;

mod cgroups;
mod crew;
mod digest;
mod go_module;
mod home;
mod mounts;
mod network;
mod pki;
mod ports;
mod process;
mod remains;

pub use cluster::Cluster;
pub use control_plane::ControlPlane;
pub use feature::{Feature, server_has};
pub use fuzz::fuzz;
pub use part::Part;
pub use seed::seed;

pub use digest::hex_digest;
pub use volmedic_packages as packages;

pub(crate) use digest::short_id;

/// The image on every node that is made here: busybox, whose default command waits until it is ended.
pub const IMAGE: &str = "volmedic.test/busybox:1";
/// The name of a cluster's one node.
pub const NODE: &str = "volmedic-node";
