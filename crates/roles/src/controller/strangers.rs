//! Whether this is the driver whose volumes are used here. A sidecar beside the wrong one would be silent for ever.

use std::collections::BTreeSet;
use std::time::Duration;

use anyhow::bail;
use k8s_openapi::api::storage::v1::CSIDriver;
use kube::api::ListParams;
use kube::{Api, Client};
use volmedic_api::{Arrived, slim::PersistentVolume};

/// Maximum number of objects that are searched for volumes of others. That is enough to name whose they are.
const SAMPLE: u32 = 500;
/// Drivers that are named in a sentence.
const NAMED: usize = 3;
/// To know it is worth so much of a start, and no more.
const DEADLINE: Duration = Duration::from_secs(10);

/// To be asked where no PersistentVolume is the driver's. A driver that was only just installed looks the same, but for
/// its CSIDriver; so it is refused only where it has none, while others do have volumes, and nobody named it.
pub(super) async fn check(client: &Client, driver: &str, named: bool) -> anyhow::Result<()> {
    let others = if named { None } else { others(client, driver).await };
    if let Some(others) = others {
        bail!(
            "the driver behind --csi-address is {driver}, but no PersistentVolume is of {driver} and the cluster has no \
             CSIDriver {driver}, while there are volumes of {others}; give the socket of the driver whose volumes are \
             used here, or, if {driver} is right and only new, say so with --driver-name={driver}"
        );
    }
    tracing::warn!(
        driver,
        "there is no PersistentVolume of this driver; if there should be, check that --csi-address is the \
         socket of the driver whose volumes are used here"
    );
    Ok(())
}

/// Whose volumes there are, if the driver is certainly not registered. What cannot be found out refuses nobody.
async fn others(client: &Client, driver: &str) -> Option<String> {
    let drivers: Api<CSIDriver> = Api::all(client.clone());
    match tokio::time::timeout(DEADLINE, drivers.get_metadata_opt(driver)).await {
        Ok(Ok(None)) => {}
        Ok(Ok(Some(_))) => return None,
        Ok(Err(error)) => {
            tracing::warn!("cannot see whether there is a CSIDriver {driver}: {error}");
            return None;
        }
        Err(_) => {
            tracing::warn!("cannot see whether there is a CSIDriver {driver}: no answer within 10 s");
            return None;
        }
    }
    let volumes: Api<Arrived<PersistentVolume>> = Api::all(client.clone());
    let page = tokio::time::timeout(DEADLINE, volumes.list(&ListParams::default().limit(SAMPLE))).await;
    let of = |volume: Arrived<PersistentVolume>| Some(volume.body.ok()?.spec.csi?.driver);
    let others: BTreeSet<String> = page.ok()?.ok()?.items.into_iter().filter_map(of).collect();
    name(&others)
}

/// `None` if there are none.
fn name(drivers: &BTreeSet<String>) -> Option<String> {
    let named: Vec<&str> = drivers.iter().take(NAMED).map(String::as_str).collect();
    let more = drivers.len().saturating_sub(NAMED);
    match (named.is_empty(), more) {
        (true, _) => None,
        (false, 0) => Some(named.join(", ")),
        (false, more) => Some(format!("{} and {more} more", named.join(", "))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_few_are_named() {
        let all = |names: &[&str]| name(&names.iter().map(ToString::to_string).collect());
        assert_eq!(all(&[]), None);
        assert_eq!(all(&["b", "a"]).as_deref(), Some("a, b"));
        assert_eq!(all(&["a", "b", "c", "d", "e"]).as_deref(), Some("a, b, c and 2 more"));
    }
}
