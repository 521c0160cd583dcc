//! Definitions of our resources, as the API server takes them.

use anyhow::{Context, Result};
use volmedic_api::resource;

use crate::sources::Source;

const MARK: &str = "# Made by `cargo xtask codegen` from crates/api/src/resource. Do not edit.\n";

pub(super) fn volume_health(_: &[Source]) -> Result<String> {
    definition("volumehealths.yaml")
}

pub(super) fn node_volume_health(_: &[Source]) -> Result<String> {
    definition("nodevolumehealths.yaml")
}

fn definition(file: &str) -> Result<String> {
    let all = resource::definitions();
    let (_, definition) = all.iter().find(|(name, _)| *name == file).context("there is no such resource")?;
    let text = serde_saphyr::to_string(definition).context("it cannot be written as YAML")?;
    Ok(format!("{MARK}{text}"))
}
