//! csi-sanity, the official conformance suite of CSI, built from its Go module.

use std::path::PathBuf;

use anyhow::Result;

use crate::go_module::{GoModule, Source};

const MODULE: GoModule = GoModule {
    folder: "csi-sanity",
    what: "csi-sanity",
    source: Source::Carried(&[
        ("go.mod", include_str!("../go-sanity/go.mod")),
        ("go.sum", include_str!("../go-sanity/go.sum")),
    ]),
    packages: &["github.com/kubernetes-csi/csi-test/v5/cmd/csi-sanity"],
    programs: &["csi-sanity"],
};

/// The path of `csi-sanity`. Built first if need be, which takes minutes.
pub fn program() -> Result<PathBuf> {
    Ok(MODULE.build()?.join("csi-sanity"))
}
