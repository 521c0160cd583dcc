//! The programs that stand between a CSI driver and Kubernetes, and a way to run them beside a cluster.
//!
//! Provisioning is done by csi-provisioner itself, built from its Go module. csi-attacher and node-driver-registrar are
//! not used: drivers here ask for no attaching (`attachRequired: false`), and a small registrar of ours speaks the
//! kubelet's registration protocol.

use std::path::PathBuf;

use anyhow::Result;

use crate::go_module::{GoModule, Source};

mod companion;

pub use companion::Companion;

const MODULE: GoModule = GoModule {
    folder: "sidecars",
    what: "the CSI sidecars",
    source: Source::Carried(&[
        ("go.mod", include_str!("../go-sidecars/go.mod")),
        ("go.sum", include_str!("../go-sidecars/go.sum")),
        ("registrar/main.go", include_str!("../go-sidecars/registrar/main.go")),
    ]),
    packages: &["github.com/kubernetes-csi/external-provisioner/v5/cmd/csi-provisioner", "./registrar"],
    programs: &["csi-provisioner", "registrar"],
};

/// Where the built programs are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sidecars {
    /// csi-provisioner: makes and deletes volumes as claims come and go.
    pub provisioner: PathBuf,
    /// Registers a driver with the kubelet: `registrar DRIVER-NAME DRIVER-SOCKET REGISTRATION-SOCKET`.
    pub registrar: PathBuf,
}

/// The programs of the committed module. Built first if need be, which takes minutes.
pub fn build() -> Result<Sidecars> {
    let folder = MODULE.build()?;
    Ok(Sidecars { provisioner: folder.join("csi-provisioner"), registrar: folder.join("registrar") })
}
